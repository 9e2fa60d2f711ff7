//! `x-kubernetes-validations`: the CEL rules of a schema (upstream's
//! `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel`).
//!
//! A rule is read with its schema ([`Ruleset`]), and compiled at the first write, or when its definition is
//! written ([`programs::prepare`]); the programs are shared like the schema they belong to. [`evaluate`] runs
//! the rules of an object, [`budget`] reports the errors of those of a definition. The form of rules
//! (messages, reasons, paths) is checked by `keywords`, and the language is `torana_cel`'s.

pub(super) mod budget;
mod correlation;
mod declare;
pub(super) mod evaluate;
pub(super) mod programs;
#[cfg(test)]
mod tests;

use super::field_path::{ArrayNotation, resolve};
use crate::apimachinery::codec::json;
use crate::apimachinery::field::FieldPath;
use crate::apimachinery::value::{Str, Value};
use programs::Programs;
use std::sync::OnceLock;

/// A rule as the definition has it.
#[derive(Debug)]
struct Rule {
    /// The expression, which is true for valid values.
    rule: Str,
    /// The message of a failure.
    message: Str,
    /// An expression for the message.
    message_expression: Str,
    /// The reason of a failure; `FieldValueInvalid` without one.
    reason: Option<Str>,
    /// The field that a failure is reported at, relative to the value, as the definition has it.
    field_path: Str,
    /// `field_path` in the spelling of errors; `None` if it does not resolve.
    field: Option<Str>,
    /// True if a rule on `oldSelf` also runs without an old value.
    optional_old_self: Option<bool>,
}

/// The rules of a schema.
#[derive(Debug)]
pub(super) struct Ruleset {
    list: Box<[Rule]>,
    /// `None` inside if expressions cannot represent the schema.
    programs: OnceLock<Option<Programs>>,
}

impl Ruleset {
    /// The rules of a schema, if it has any.
    pub(super) fn of(schema: &Value) -> Option<Box<Self>> {
        let rules = schema.get("x-kubernetes-validations").items();
        (!rules.is_empty()).then(|| {
            Box::new(Self {
                list: rules.iter().map(|r| Rule::of(r, schema)).collect(),
                programs: OnceLock::new(),
            })
        })
    }
}

impl Rule {
    fn of(v: &Value, schema: &Value) -> Self {
        let text = |key: &str| Str::new(v.str_at(&[key]));
        Self {
            rule: text("rule"),
            message: text("message"),
            message_expression: text("messageExpression"),
            reason: v.get("reason").as_str().map(Str::new),
            // Resolved once, when the schema is compiled: failures then only copy it.
            field: field(v.str_at(&["fieldPath"]), schema),
            field_path: text("fieldPath"),
            optional_old_self: v.get("optionalOldSelf").as_bool(),
        }
    }

    /// The name of the rule in errors.
    fn name(&self) -> &str {
        match self.message.as_str() {
            // Upstream names a rule by its message if it has one.
            "" => self.rule.trim(),
            message => message.trim(),
        }
    }

    /// The rule as upstream prints a Go struct in error messages.
    fn print(&self) -> String {
        let text = |s: &str| json::to_string(&s.into());
        let or_null = |v: Option<Value>| v.map_or_else(|| "null".to_owned(), |v| json::to_string(&v));
        format!(
            "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
            text(&self.rule),
            text(&self.message),
            text(&self.message_expression),
            or_null(self.reason.as_deref().map(Value::from)),
            text(&self.field_path),
            or_null(self.optional_old_self.map(Value::Bool)),
        )
    }
}

/// A `fieldPath` in the spelling of errors; `None` if it is empty or does not resolve.
fn field(path: &str, schema: &Value) -> Option<Str> {
    if path.is_empty() {
        return None;
    }
    let (names, _) = resolve(path, schema, ArrayNotation::Allowed).ok()?;
    let (mut at, mut schema) = (FieldPath::default(), schema);
    for name in &names {
        // Like `resolve`: additional properties only count without declared ones.
        (at, schema) = match schema.get("properties").as_object().filter(|p| !p.is_empty()) {
            Some(properties) => (at.child(name), properties.get(name)?),
            None => (at.key(name), schema.get("additionalProperties")),
        };
    }
    Some(Str::new(at.as_str()))
}
