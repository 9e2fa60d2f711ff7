//! Stored policies and bindings, parsed and compiled once per change. Stored objects have passed validation, so
//! parsing does not fail; expressions that do not compile report their error when they are evaluated.

use crate::admission::expressions::{Compiler, Conditions, Expression, Returns, Variables};
use crate::admission::matching::Criteria;
use crate::apimachinery::gvk::GroupVersion;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::selector::{LabelSelector, labels};
use crate::apimachinery::value::{Str, Value};
use crate::storage::Entry;
use std::sync::Arc;

/// The fields that policies of both kinds have.
pub(crate) struct Common {
    pub(super) name: Str,
    pub(super) criteria: Criteria,
    /// `failurePolicy: Ignore`: errors of expressions and of the configuration are ignored.
    pub(super) ignores_errors: bool,
    pub(super) param_kind: Option<ParamKind>,
    pub(super) conditions: Arc<Conditions>,
    pub(super) variables: Variables,
}

/// A policy of one of the two kinds.
pub(crate) trait StoredPolicy: Send + Sync + Sized + 'static {
    /// Reads a stored object.
    fn parse(object: &Value) -> Self;

    /// The fields that both kinds have.
    fn common(&self) -> &Common;
}

/// A ValidatingAdmissionPolicy.
pub(crate) struct ValidatingPolicy {
    pub(super) common: Common,
    pub(super) validations: Vec<Validation>,
    /// By the key in audit events.
    pub(super) annotations: Vec<(String, Expression)>,
}

/// A MutatingAdmissionPolicy.
pub(crate) struct MutatingPolicy {
    pub(super) common: Common,
    pub(super) mutations: Vec<Mutation>,
    /// True if the policy is to be evaluated again when others change the object.
    pub(super) reinvoke: bool,
}

pub(super) struct Mutation {
    pub expression: Expression,
    pub kind: MutationKind,
}

/// The form of a mutation's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MutationKind {
    ApplyConfiguration,
    JsonPatch,
}

/// The compilers of a policy's expressions; its variables are declared in them.
struct Compilers {
    expressions: Compiler,
    /// Expressions of messages cannot name the authorizer, except through variables.
    messages: Compiler,
}

/// The kind of a policy's parameters.
pub(super) struct ParamKind {
    pub version: GroupVersion,
    pub kind: String,
}

/// One validation of a policy.
pub(super) struct Validation {
    pub expression: Expression,
    pub message: String,
    pub message_expression: Option<Expression>,
    /// Empty for the default.
    pub reason: &'static str,
}

/// A ValidatingAdmissionPolicyBinding.
pub(crate) struct Binding {
    pub(super) name: Str,
    pub(super) policy: Str,
    pub(super) criteria: Option<Criteria>,
    pub(super) params: Option<ParamRef>,
    pub(super) actions: Actions,
}

/// The `paramRef` of a binding.
pub(super) struct ParamRef {
    /// The error is that of a selector that cannot be evaluated.
    pub choice: Result<Choice, labels::Error>,
    pub namespace: Str,
    pub deny_if_missing: bool,
}

/// The parameters that a binding refers to.
pub(super) enum Choice {
    Name(Str),
    Selector(LabelSelector),
}

/// The action when a validation fails.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Actions {
    pub deny: bool,
    pub warn: bool,
    pub audit: bool,
}

impl Common {
    fn parse(object: &Value) -> (Self, Compilers) {
        let spec = object.get("spec");
        // Also if it is incomplete, which validation reports at its own field.
        let has_params = !spec.get("paramKind").is_null();
        let mut compilers = Compilers {
            expressions: Compiler::new(has_params, true).allow_variables(),
            messages: Compiler::new(has_params, false).allow_variables(),
        };
        let mut variables = Variables::default();
        for v in spec.get("variables").items() {
            let name = v.str_at(&["name"]);
            // Each variable may name those before it.
            let expression = compilers
                .expressions
                .compile(v.str_at(&["expression"]), Returns::Anything);
            compilers.expressions.declare(name, &expression);
            // The variable was compiled with the authorizer and keeps it.
            compilers.messages.declare(name, &expression);
            variables.push(name, expression);
        }
        let common = Self {
            name: object.name().into(),
            criteria: Criteria::of_policy(spec.get("matchConstraints")),
            ignores_errors: spec.str_at(&["failurePolicy"]) == "Ignore",
            conditions: Arc::new(Conditions::parse(spec.get("matchConditions"), has_params)),
            variables,
            param_kind: ParamKind::parse(spec.get("paramKind")),
        };
        (common, compilers)
    }
}

impl StoredPolicy for ValidatingPolicy {
    fn parse(object: &Value) -> Self {
        let spec = object.get("spec");
        let (common, Compilers { expressions, messages }) = Common::parse(object);
        let validation = |v: &Value| Validation {
            expression: expressions.compile(v.str_at(&["expression"]), Returns::Bool),
            message: v.str_at(&["message"]).trim().to_owned(),
            message_expression: match v.str_at(&["messageExpression"]) {
                "" => None,
                text => Some(messages.compile(text, Returns::String)),
            },
            reason: match v.str_at(&["reason"]) {
                "Forbidden" => "Forbidden",
                "Unauthorized" => "Unauthorized",
                "RequestEntityTooLarge" => "RequestEntityTooLarge",
                // The default, also for an absent reason.
                _ => "Invalid",
            },
        };
        let annotation = |v: &Value| {
            // The policy's name makes the key unique among policies.
            let key = format!("{}/{}", object.name(), v.str_at(&["key"]));
            let expression = expressions.compile_trimmed(v.str_at(&["valueExpression"]), Returns::StringOrNull);
            (key, expression)
        };
        Self {
            validations: spec.get("validations").items().iter().map(validation).collect(),
            annotations: spec.get("auditAnnotations").items().iter().map(annotation).collect(),
            common,
        }
    }

    fn common(&self) -> &Common {
        &self.common
    }
}

impl StoredPolicy for MutatingPolicy {
    fn parse(object: &Value) -> Self {
        let spec = object.get("spec");
        let (common, Compilers { expressions, .. }) = Common::parse(object);
        // Only for mutations: their variables, compiled above, cannot construct objects.
        let compiler = expressions.allow_construction();
        let mutations = spec.get("mutations").items().iter();
        Self {
            common,
            mutations: mutations.map(|m| Mutation::parse(m, &compiler)).collect(),
            reinvoke: spec.str_at(&["reinvocationPolicy"]) == "IfNeeded",
        }
    }

    fn common(&self) -> &Common {
        &self.common
    }
}

impl ParamKind {
    fn parse(v: &Value) -> Option<Self> {
        Some(Self {
            version: GroupVersion::parse(v.get("apiVersion").as_str()?)?,
            kind: v.str_at(&["kind"]).to_owned(),
        })
    }
}

impl Binding {
    pub(crate) fn from_entry(entry: &Entry) -> Self {
        Self::parse(&entry.decode())
    }

    pub(crate) fn parse(object: &Value) -> Self {
        let spec = object.get("spec");
        let resources = spec.get("matchResources");
        let mut actions = Actions::default();
        for action in spec.get("validationActions").items() {
            match action.as_str() {
                Some("Deny") => actions.deny = true,
                Some("Warn") => actions.warn = true,
                Some("Audit") => actions.audit = true,
                _ => {}
            }
        }
        Self {
            name: object.name().into(),
            policy: spec.str_at(&["policyName"]).into(),
            // Without `matchResources` the binding adds no restriction, and costs no evaluation.
            criteria: (!resources.is_null()).then(|| Criteria::of_policy(resources)),
            params: ParamRef::parse(spec.get("paramRef")),
            actions,
        }
    }
}

impl ParamRef {
    fn parse(v: &Value) -> Option<Self> {
        if v.is_null() {
            return None;
        }
        let choice = match v.str_at(&["name"]) {
            "" => LabelSelector::from_object(v.get("selector")).map(Choice::Selector),
            name => Ok(Choice::Name(name.into())),
        };
        Some(Self {
            choice,
            namespace: v.str_at(&["namespace"]).into(),
            // Fails closed for unknown values.
            deny_if_missing: v.str_at(&["parameterNotFoundAction"]) != "Allow",
        })
    }
}

impl MutationKind {
    /// The member that holds the expression.
    pub(crate) const fn member(self) -> &'static str {
        match self {
            Self::ApplyConfiguration => "applyConfiguration",
            Self::JsonPatch => "jsonPatch",
        }
    }
}

impl Mutation {
    /// Reads a mutation. The compiler allows the construction of objects.
    pub(crate) fn parse(v: &Value, compiler: &Compiler) -> Self {
        let (kind, returns) = match v.str_at(&["patchType"]) {
            "JSONPatch" => (MutationKind::JsonPatch, Returns::Patch),
            _ => (MutationKind::ApplyConfiguration, Returns::Configuration),
        };
        let text = v.str_at(&[kind.member(), "expression"]);
        Self {
            expression: compiler.compile_trimmed(text, returns),
            kind,
        }
    }
}
