//! The variables and functions that expressions may use, and their compilation (upstream's
//! `admission/plugin/cel/compile.go`). Start at [`Compiler`]. Equal expressions in equal environments share a
//! program; evaluation is left to [`evaluation`](super::evaluation).

use aws_lc_rs::digest::{Context, SHA256};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Weak};
use torana_cel::{Environment, Program, Schema, Type, Unusable};

use crate::sync::Mutex;

/// A compiled expression, or its error. Errors are cached, too: the same text fails each time.
pub(super) type Compiled = Result<Program, CompileError>;

/// Why an expression does not compile, worded as upstream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CompileError {
    #[error(transparent)]
    Unusable(Unusable),
    /// The type of the expression is not the one that its field requires.
    #[error("must evaluate to {expected} but got {got}")]
    Type { expected: &'static str, got: String },
}

/// An expression with its program.
#[derive(Clone)]
pub(crate) struct Expression {
    /// The source text, as in the object.
    pub text: String,
    pub(super) program: Arc<Compiled>,
}

/// The result type that a field requires of its expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Returns {
    /// Any type.
    Anything,
    /// Conditions and validations.
    Bool,
    /// Message expressions.
    String,
    /// Audit annotations; null means no annotation.
    StringOrNull,
    /// Apply configurations (`Object`).
    Configuration,
    /// JSON patches (`list(JSONPatch)`).
    Patch,
}

/// Compiles the expressions of one policy or webhook.
#[derive(Clone)]
pub(crate) struct Compiler {
    environment: Environment,
    key: Key,
}

/// Identifies an environment, or an expression in it: a hash of the declarations in their order. Programs of
/// different environments are not shared. A hash, so that the size of a key does not grow with the declarations.
type Key = [u8; 32];

/// The cache key of an extension of `parent`. Lengths are included, so that different texts cannot have the
/// same key.
fn extend(parent: &Key, texts: [&str; 2]) -> Key {
    let mut sum = Context::new(&SHA256);
    sum.update(parent);
    for text in texts {
        sum.update(&(text.len() as u64).to_le_bytes());
        sum.update(text.as_bytes());
    }
    *sum.finish().as_ref().first_chunk().expect("SHA-256 has 32 bytes")
}

/// Programs in use, by environment and text.
// Process-wide: webhooks and policies of all stores often have the same conditions. Weak references, so a
// program lives only as long as a configuration that uses it.
static PROGRAMS: LazyLock<Mutex<Programs>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Programs {
    all: HashMap<Key, Weak<Compiled>>,
    /// At this size, programs that are no longer in use are removed.
    sweep_at: usize,
}

const FIRST_SWEEP: usize = 256;

pub(super) static ANY: LazyLock<Schema> = LazyLock::new(Schema::any);

fn text() -> Schema {
    Schema::scalar(Type::String, u64::MAX)
}

pub(super) static REQUEST: LazyLock<Schema> = LazyLock::new(|| {
    let texts = |names: [&'static str; 3]| names.map(|n| (n, text())).to_vec();
    let kind = Schema::record("kubernetes.GroupVersionKind", texts(["group", "version", "kind"]));
    let resource = Schema::record(
        "kubernetes.GroupVersionResource",
        texts(["group", "version", "resource"]),
    );
    let strings = || Schema::list(text(), u64::MAX);
    let user = Schema::record(
        "kubernetes.UserInfo",
        vec![
            ("username", text()),
            ("uid", text()),
            ("groups", strings()),
            ("extra", Schema::map(strings(), u64::MAX)),
        ],
    );
    Schema::record(
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
    let metadata = Schema::record(
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
    let condition = Schema::record(
        "kubernetes.NamespaceCondition",
        vec![
            ("status", text()),
            ("type", text()),
            ("lastTransitionTime", time()),
            ("message", text()),
            ("reason", text()),
        ],
    );
    let status = Schema::record(
        "kubernetes.NamespaceStatus",
        vec![("conditions", Schema::list(condition, u64::MAX)), ("phase", text())],
    );
    let spec = Schema::record("kubernetes.NamespaceSpec", vec![("finalizers", strings())]);
    let namespace = Schema::record(
        "kubernetes.Namespace",
        vec![("metadata", metadata), ("spec", spec), ("status", status)],
    );
    // There is none for cluster-scoped objects.
    Schema {
        nullable: true,
        ..namespace
    }
});

impl Returns {
    fn accepts(self, of: &Type) -> bool {
        match self {
            Self::Anything => true,
            Self::Bool => *of == Type::Bool,
            Self::String => *of == Type::String,
            Self::StringOrNull => matches!(of, Type::String | Type::Null),
            Self::Configuration | Self::Patch => of.full_name() == self.text(),
        }
    }

    /// The name of the type in error messages.
    const fn text(self) -> &'static str {
        match self {
            Self::Anything => "any",
            Self::Bool => "bool",
            Self::String => "string",
            Self::StringOrNull => "one of [string null_type]",
            Self::Configuration => "Object",
            Self::Patch => "list(JSONPatch)",
        }
    }
}

impl Expression {
    #[cfg(test)]
    pub(in crate::admission) fn shares_program(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.program, &other.program)
    }

    /// The error, if the expression does not compile.
    pub(crate) fn error(&self) -> Option<&CompileError> {
        self.program.as_ref().as_ref().err()
    }
}

impl Compiler {
    /// The environment of a policy without variables. Expressions of messages cannot name the authorizer.
    pub(crate) fn new(has_params: bool, has_authorizer: bool) -> Self {
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
            key: extend(&Key::default(), [&has_params.to_string(), &has_authorizer.to_string()]),
        }
    }

    /// A compiler with the same variables, whose expressions can name those that [`declare`](Self::declare) adds.
    pub(crate) fn allow_variables(mut self) -> Self {
        // For the errors of fields that are not declared; those that are have their dotted names.
        self.environment
            .declare("variables", Schema::record("kubernetes.variables", Vec::new()));
        self.key = extend(&self.key, ["variables", ""]);
        self
    }

    /// Declares a variable, which later expressions can name. Its type is that of its expression.
    pub(crate) fn declare(&mut self, name: &str, variable: &Expression) {
        let schema = match variable.program.as_ref().as_ref().map(|p| p.result_type().clone()) {
            // A variable that does not compile is reported by itself; expressions that use it must not fail, too.
            Ok(Type::Dyn) | Err(_) => Schema::any(),
            Ok(ty) => Schema::scalar(ty, u64::MAX),
        };
        self.environment.declare(&format!("variables.{name}"), schema);
        // The text stands for the type, which it determines in this environment.
        self.key = extend(&self.key, [name, &variable.text]);
    }

    /// A compiler with the same variables, whose expressions can construct objects.
    pub(crate) fn allow_construction(mut self) -> Self {
        self.environment.allow_construction();
        self.key = extend(&self.key, ["", "construction"]);
        self
    }

    /// Compiles an expression, unless an equal one has been; a mistake is part of the result.
    pub(crate) fn compile(&self, text: &str, returns: Returns) -> Expression {
        // With the required type, because errors about it are cached as well.
        let key = extend(&self.key, [&format!("{returns:?}"), text]);
        let program = Programs::get(key, || self.program(text, returns));
        Expression {
            text: text.to_owned(),
            program,
        }
    }

    /// Compiles an expression without the white space around it, which is where upstream counts the positions in the
    /// errors of some fields from. Its text is kept as it is.
    pub(crate) fn compile_trimmed(&self, text: &str, returns: Returns) -> Expression {
        Expression {
            text: text.to_owned(),
            ..self.compile(text.trim(), returns)
        }
    }

    fn program(&self, text: &str, returns: Returns) -> Compiled {
        let compiled = self.environment.compile_typed(text, |of| returns.accepts(of));
        compiled.map_err(|why| match why {
            Unusable::Type(of) => CompileError::Type {
                expected: returns.text(),
                got: of.full_name().to_string(),
            },
            other => CompileError::Unusable(other),
        })
    }
}

impl Programs {
    fn get(key: Key, make: impl FnOnce() -> Compiled) -> Arc<Compiled> {
        if let Some(known) = PROGRAMS.lock().all.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        // Compiled without the lock: it may take milliseconds. Two threads may then compile the same text, of which
        // the later one stays in the map.
        let made = Arc::new(make());
        let mut programs = PROGRAMS.lock();
        if programs.all.len() >= programs.sweep_at.max(FIRST_SWEEP) {
            programs.all.retain(|_, program| program.strong_count() > 0);
            // Doubling makes the sweeps amortized constant per insertion.
            programs.sweep_at = programs.all.len() * 2;
        }
        programs.all.insert(key, Arc::downgrade(&made));
        made
    }
}
