//! What expressions of policies may name, and their compilation. Equal expressions in equal environments share a program.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use torana_cel::{Environment, Field, ObjectType, Program, Schema, Type};

/// A compiled expression, or why there is none, in upstream's words.
pub(super) type Compiled = Result<Program, String>;

/// An expression with its program.
#[derive(Clone)]
pub(super) struct Expression {
    pub text: String,
    pub program: Arc<Compiled>,
}

/// The type that an expression must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Returns {
    Anything,
    Bool,
    String,
    StringOrNull,
}

/// Compiles the expressions of one policy.
#[derive(Clone)]
pub(super) struct Compiler {
    environment: Environment,
    /// Identifies the environment: programs of different environments are not shared.
    key: String,
    /// The types of the variables so far.
    variables: Vec<(String, Schema)>,
}

/// Programs in use, by environment and text.
static PROGRAMS: LazyLock<Mutex<Programs>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Programs {
    all: HashMap<String, Weak<Compiled>>,
    /// At this size, programs that are no longer in use are removed.
    sweep_at: usize,
}

const FIRST_SWEEP: usize = 256;

pub(super) static ANY: LazyLock<Schema> = LazyLock::new(Schema::any);

fn text() -> Schema {
    Schema::scalar(Type::String, u64::MAX)
}

fn object(name: &str, fields: Vec<(&str, Schema)>) -> Schema {
    let field = |(name, schema): (&str, Schema)| Field {
        name: name.into(),
        key: name.into(),
        schema,
    };
    Schema::object(Arc::new(ObjectType::new(name, fields.into_iter().map(field).collect())))
}

pub(super) static REQUEST: LazyLock<Schema> = LazyLock::new(|| {
    let texts = |names: [&'static str; 3]| names.map(|n| (n, text())).to_vec();
    let kind = object("kubernetes.GroupVersionKind", texts(["group", "version", "kind"]));
    let resource = object(
        "kubernetes.GroupVersionResource",
        texts(["group", "version", "resource"]),
    );
    let strings = || Schema::list(text(), u64::MAX);
    let user = object(
        "kubernetes.UserInfo",
        vec![
            ("username", text()),
            ("uid", text()),
            ("groups", strings()),
            ("extra", Schema::map(strings(), u64::MAX)),
        ],
    );
    object(
        "kubernetes.AdmissionRequest",
        vec![
            ("kind", kind.clone()),
            ("resource", resource.clone()),
            ("subResource", text()),
            ("requestKind", kind),
            ("requestResource", resource),
            ("requestSubResource", text()),
            ("name", text()),
            ("namespace", text()),
            ("operation", text()),
            ("userInfo", user),
            ("dryRun", Schema::scalar(Type::Bool, 0)),
            ("options", Schema::any()),
        ],
    )
});

pub(super) static NAMESPACE: LazyLock<Schema> = LazyLock::new(|| {
    let time = || Schema::scalar(Type::Timestamp, u64::MAX);
    let integer = || Schema::scalar(Type::Int, 0);
    let strings = || Schema::list(text(), u64::MAX);
    let labels = || Schema::map(text(), u64::MAX);
    let metadata = object(
        "kubernetes.NamespaceMetadata",
        vec![
            ("name", text()),
            ("generateName", text()),
            ("namespace", text()),
            ("labels", labels()),
            ("annotations", labels()),
            // Upstream declares it under this name, which no namespace has.
            ("UID", text()),
            ("creationTimestamp", time()),
            ("deletionTimestamp", time()),
            ("deletionGracePeriodSeconds", integer()),
            ("generation", integer()),
            ("resourceVersion", text()),
            ("finalizers", strings()),
        ],
    );
    let condition = object(
        "kubernetes.NamespaceCondition",
        vec![
            ("status", text()),
            ("type", text()),
            ("lastTransitionTime", time()),
            ("message", text()),
            ("reason", text()),
        ],
    );
    let status = object(
        "kubernetes.NamespaceStatus",
        vec![("conditions", Schema::list(condition, u64::MAX)), ("phase", text())],
    );
    let spec = object("kubernetes.NamespaceSpec", vec![("finalizers", strings())]);
    let namespace = object(
        "kubernetes.Namespace",
        vec![("metadata", metadata), ("spec", spec), ("status", status)],
    );
    // There is none for cluster-scoped objects.
    Schema {
        nullable: true,
        ..namespace
    }
});

impl Compiler {
    /// The environment of a policy without variables. Expressions of messages cannot name the authorizer.
    pub fn new(has_params: bool, has_authorizer: bool) -> Self {
        let mut environment = Environment::default();
        for name in ["object", "oldObject"] {
            environment.declare(name, Schema::any());
        }
        environment.declare("request", REQUEST.clone());
        environment.declare("namespaceObject", NAMESPACE.clone());
        if has_params {
            environment.declare("params", Schema::any());
        }
        if has_authorizer {
            environment.declare("authorizer", Schema::scalar(Type::AUTHORIZER, 0));
            environment.declare("authorizer.requestResource", Schema::scalar(Type::RESOURCE_CHECK, 0));
        }
        Self {
            environment,
            key: format!("{has_params} {has_authorizer}\n"),
            variables: Vec::new(),
        }
    }

    /// The same without the authorizer.
    pub fn without_authorizer(&self, has_params: bool) -> Self {
        let mut other = Self::new(has_params, false);
        other.key.push_str(&self.key);
        other.variables = self.variables.clone();
        other.declare_variables();
        other
    }

    /// Compiles a variable, which later expressions can name.
    pub fn variable(&mut self, name: &str, text: &str) -> Expression {
        let compiled = self.compile(text, Returns::Anything);
        let ty = compiled
            .program
            .as_ref()
            .as_ref()
            .map_or(Type::Dyn, |p| p.result_type().clone());
        // Two lengths make the key unambiguous, whatever the texts contain.
        self.key
            .push_str(&format!("{} {name} {} {text}\n", name.len(), text.len()));
        let schema = match ty {
            Type::Dyn => Schema::any(),
            ty => Schema::scalar(ty, u64::MAX),
        };
        self.variables.push((name.to_owned(), schema));
        compiled
    }

    /// Declares the variables so far, once they are all known.
    pub fn declare_variables(&mut self) {
        if self.variables.is_empty() {
            return;
        }
        let fields: Vec<_> = self.variables.iter().map(|(n, s)| (n.as_str(), s.clone())).collect();
        // Its errors are those of a field that is not declared; the values are found under the dotted names.
        self.environment
            .declare("variables", object("kubernetes.variables", fields));
        for (name, schema) in &self.variables {
            self.environment.declare(&format!("variables.{name}"), schema.clone());
        }
    }

    /// Compiles an expression.
    pub fn compile(&self, text: &str, returns: Returns) -> Expression {
        let key = format!("{returns:?} {}{text}", self.key);
        let program = Programs::get(key, || self.program(text, returns));
        Expression {
            text: text.to_owned(),
            program,
        }
    }

    fn program(&self, text: &str, returns: Returns) -> Compiled {
        let compiled = self.environment.compile(text);
        let program = compiled.map_err(|issues| match issues.is_of_constants() {
            true => format!("program instantiation failed: {issues}"),
            false => format!("compilation failed: {issues}"),
        })?;
        let expected = match (returns, program.result_type()) {
            (Returns::Anything, _)
            | (Returns::Bool, Type::Bool)
            | (Returns::String, Type::String)
            | (Returns::StringOrNull, Type::String | Type::Null) => return Ok(program),
            (Returns::Bool, _) => "must evaluate to bool",
            (Returns::String, _) => "must evaluate to string",
            (Returns::StringOrNull, _) => "must evaluate to one of [string null_type]",
        };
        Err(expected.to_owned())
    }
}

impl Programs {
    fn get(key: String, make: impl FnOnce() -> Compiled) -> Arc<Compiled> {
        let lock = || PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().all.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        let made = Arc::new(make());
        let mut programs = lock();
        if programs.all.len() >= programs.sweep_at.max(FIRST_SWEEP) {
            programs.all.retain(|_, program| program.strong_count() > 0);
            programs.sweep_at = programs.all.len() * 2;
        }
        programs.all.insert(key, Arc::downgrade(&made));
        made
    }
}
