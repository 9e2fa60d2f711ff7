//! Stored policies and bindings, compiled.

use crate::admission::expressions::{Compiler, Conditions, Expression, Returns, Variables};
use crate::admission::matching::Criteria;
use crate::apimachinery::gvk::GroupVersion;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::selector::LabelSelector;
use crate::apimachinery::value::{Str, Value};
use crate::storage::Entry;

/// A ValidatingAdmissionPolicy.
pub(super) struct Policy {
    pub name: Str,
    pub criteria: Criteria,
    /// Whether an error counts as if the expression did not exist.
    pub ignores_errors: bool,
    pub param_kind: Option<ParamKind>,
    pub conditions: Conditions,
    pub variables: Variables,
    pub validations: Vec<Validation>,
    /// By the key in audit events.
    pub annotations: Vec<(String, Expression)>,
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
pub(super) struct Binding {
    pub name: Str,
    pub policy: Str,
    pub criteria: Option<Criteria>,
    pub params: Option<ParamRef>,
    pub actions: Actions,
}

/// The `paramRef` of a binding.
pub(super) struct ParamRef {
    /// The error is that of a selector that cannot be evaluated.
    pub choice: Result<Choice, String>,
    pub namespace: Str,
    pub deny_if_missing: bool,
}

/// Which parameters a binding names.
pub(super) enum Choice {
    Name(Str),
    Selector(LabelSelector),
}

/// What happens when a validation fails.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Actions {
    pub deny: bool,
    pub warn: bool,
    pub audit: bool,
}

impl Policy {
    pub fn from_entry(entry: &Entry) -> Self {
        Self::parse(&entry.decode())
    }

    pub fn parse(object: &Value) -> Self {
        let spec = object.get("spec");
        let param_kind = ParamKind::parse(spec.get("paramKind"));
        let has_params = param_kind.is_some();
        let mut compiler = Compiler::new(has_params, true);
        // Expressions of messages cannot name the authorizer, except through variables.
        let mut messages = Compiler::new(has_params, false);
        let mut variables = Variables::default();
        for v in spec.get("variables").items() {
            let name = v.str_at(&["name"]);
            // Each variable may name those before it.
            let expression = compiler.compile(v.str_at(&["expression"]), Returns::Anything);
            compiler.declare(name, &expression);
            messages.declare(name, &expression);
            variables.push(name, expression);
        }
        let validation = |v: &Value| Validation {
            expression: compiler.compile(v.str_at(&["expression"]), Returns::Bool),
            message: v.str_at(&["message"]).trim().to_owned(),
            message_expression: match v.str_at(&["messageExpression"]) {
                "" => None,
                text => Some(messages.compile(text, Returns::String)),
            },
            reason: match v.str_at(&["reason"]) {
                "Forbidden" => "Forbidden",
                "Unauthorized" => "Unauthorized",
                "RequestEntityTooLarge" => "RequestEntityTooLarge",
                _ => "Invalid",
            },
        };
        let annotation = |v: &Value| {
            let key = format!("{}/{}", object.name(), v.str_at(&["key"]));
            let expression = compiler.compile(v.str_at(&["valueExpression"]), Returns::StringOrNull);
            (key, expression)
        };
        Self {
            name: object.name().into(),
            criteria: Criteria::of_policy(spec.get("matchConstraints")),
            ignores_errors: spec.str_at(&["failurePolicy"]) == "Ignore",
            conditions: Conditions::parse(spec.get("matchConditions"), has_params),
            validations: spec.get("validations").items().iter().map(validation).collect(),
            annotations: spec.get("auditAnnotations").items().iter().map(annotation).collect(),
            variables,
            param_kind,
        }
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
    pub fn from_entry(entry: &Entry) -> Self {
        Self::parse(&entry.decode())
    }

    pub fn parse(object: &Value) -> Self {
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
            deny_if_missing: v.str_at(&["parameterNotFoundAction"]) != "Allow",
        })
    }
}
