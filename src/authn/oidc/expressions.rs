//! CEL expressions of an `AuthenticationConfiguration` (upstream: `apiserver/pkg/authentication/cel`):
//! [`Expression::claims`] and [`Expression::user`] compile them, and [`Expression::evaluate`] evaluates them.
//! `claims` interprets the results.

use crate::apimachinery::value::{Map, Value};
use crate::request::UserInfo;
use std::sync::{Arc, LazyLock};
use torana_cel::{Budget, Environment, Exceeded, Fail, Program, Schema, Type, Unusable, Val, Variable, selects};

/// The variable of expressions on claims.
const CLAIMS: &str = "claims";
/// The variable of expressions on the user.
const USER: &str = "user";

/// A compiled expression. Copies share the program.
#[derive(Clone, Debug)]
pub struct Expression {
    text: Arc<str>,
    program: Arc<Program>,
}

/// Compares the source only: expressions are compared between two versions of one field, which compile in the
/// same environment.
impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Expression {}

/// Why an expression cannot be used. Messages as upstream words them.
#[derive(Debug, thiserror::Error)]
pub(super) enum CompileError {
    #[error(transparent)]
    Unusable(Unusable),
    /// The result type is not a boolean, or not known to be one.
    #[error("must evaluate to bool")]
    NotBool,
}

/// The types that an expression may result in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Returns {
    /// Any type: that of a claim is known at run time only, and checked then.
    Anything,
    Bool,
}

/// The expressions on claims: a map of anything.
static ON_CLAIMS: LazyLock<(Environment, Schema)> =
    LazyLock::new(|| environment(CLAIMS, Schema::map(Schema::json(), u64::MAX)));

/// The expressions on the user: `kubernetes.UserInfo`.
static ON_USER: LazyLock<(Environment, Schema)> = LazyLock::new(|| {
    let text = || Schema::scalar(Type::String, u64::MAX);
    // Without bounds: what an evaluation costs is counted while it runs.
    let texts = || Schema::list(text(), u64::MAX);
    let values = Schema {
        escaped_key: true,
        ..texts()
    };
    let fields = vec![
        ("username", text()),
        ("uid", text()),
        ("groups", texts()),
        ("extra", Schema::map(values, u64::MAX)),
    ];
    environment(USER, Schema::record("kubernetes.UserInfo", fields))
});

fn environment(variable: &str, schema: Schema) -> (Environment, Schema) {
    let mut environment = Environment::default();
    environment.declare(variable, schema.clone());
    (environment, schema)
}

impl Expression {
    /// Compiles an expression on claims.
    pub(super) fn claims(text: &str, returns: Returns) -> Result<Self, CompileError> {
        Self::compile(&ON_CLAIMS.0, text, returns)
    }

    /// Compiles a condition on the user.
    pub(super) fn user(text: &str) -> Result<Self, CompileError> {
        Self::compile(&ON_USER.0, text, Returns::Bool)
    }

    fn compile(environment: &Environment, text: &str, returns: Returns) -> Result<Self, CompileError> {
        let accepts = |of: &Type| matches!(returns, Returns::Anything) || *of == Type::Bool;
        let program = environment.compile_typed(text, accepts).map_err(|why| match why {
            // Also for a plain claim, whose type is not declared to be a boolean.
            Unusable::Type(_) => CompileError::NotBool,
            other => CompileError::Unusable(other),
        })?;
        Ok(Self {
            text: text.into(),
            program: Arc::new(program),
        })
    }

    /// The text of the expression.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Evaluates the expression within the rest of a budget.
    pub(super) fn evaluate<'a>(&'a self, budget: &mut Budget, of: &Subject<'a>) -> Result<Val<'a>, Failure> {
        // Cheap: the value borrows from the claims.
        let value = of.value.clone().map_err(Exceeded::Failed).and_then(|value| {
            let variables = [Variable { name: of.name, value }];
            budget.evaluate(&self.program, &variables)
        });
        value.map_err(|why| match why {
            Exceeded::Costly => Failure::Costly,
            Exceeded::Failed(why) => Failure::Refused(format!("expression '{}' resulted in error: {why}", self.text)),
        })
    }

    /// True if the expression selects the claim by name: `claims.email`, but not `claims['email']`, as in
    /// upstream.
    pub(super) fn selects_claim(&self, claim: &str) -> bool {
        selects(&self.text, CLAIMS, claim)
    }
}

/// A variable with its value.
#[derive(Clone)]
pub(super) struct Subject<'a> {
    name: &'static str,
    value: Result<Val<'a>, Fail>,
}

impl<'a> Subject<'a> {
    /// The variable `claims`.
    pub(super) fn claims(claims: &'a Value) -> Self {
        Self {
            name: CLAIMS,
            value: Val::of(claims, &ON_CLAIMS.1),
        }
    }

    /// The variable `user`, from [`user_value`].
    pub(super) fn user(user: &'a Value) -> Self {
        Self {
            name: USER,
            value: Val::of(user, &ON_USER.1),
        }
    }
}

/// The user as expressions see it: with all fields, also those that are empty.
pub(super) fn user_value(user: &UserInfo) -> Value {
    let extra: Map = user.extra.iter().map(|(k, v)| (k.as_str(), v.clone())).collect();
    crate::json!({
        "username": (user.name.as_str()),
        "uid": (user.uid.as_str()),
        "groups": (Value::from(user.groups.clone())),
        "extra": (Value::from(extra)),
    })
}

/// Why an expression did not evaluate to a result.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The budget of an I/O thread is exhausted. The caller evaluates again on the compute pool.
    Costly,
    /// The token is refused, for this reason.
    Refused(String),
}

impl Failure {
    /// Puts the reason into its context.
    pub(super) fn within(self, context: &str) -> Self {
        match self {
            Self::Refused(why) => Self::Refused(format!("{context}: {why}")),
            Self::Costly => Self::Costly,
        }
    }
}
