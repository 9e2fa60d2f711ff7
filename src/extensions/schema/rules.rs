//! `x-kubernetes-validations`: the CEL rules of a schema.
//!
//! The rules are read, and their form is checked with the definition; evaluating them is not implemented. `each` is
//! where an evaluator meets the engine: it visits every value that has rules, in upstream's order, with the value's
//! path and the old value that corresponds to it.

use super::path::{At, Step};
use super::ratchet::OldItems;
use super::{Additional, ListKind, Node};
use crate::apimachinery::field::FieldPath;
use crate::apimachinery::value::{Str, Value};
use crate::interrupt::checkpoint;
use std::ops::ControlFlow;

/// A rule as the definition has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// The expression, which is true for valid values.
    pub rule: Str,
    /// The message of a failure.
    pub message: Str,
    /// An expression for the message.
    pub message_expression: Str,
    /// The reason of a failure; `FieldValueInvalid` if empty.
    pub reason: Str,
    /// The field that a failure is reported at, relative to the value.
    pub field_path: Str,
    /// True if a rule on `oldSelf` also runs without an old value.
    pub optional_old_self: bool,
}

impl Rule {
    pub(super) fn list(rules: &Value) -> Box<[Self]> {
        let text = |v: &Value, key: &str| Str::new(v.str_at(&[key]));
        let rules = rules.items().iter().map(|v| Self {
            rule: text(v, "rule"),
            message: text(v, "message"),
            message_expression: text(v, "messageExpression"),
            reason: text(v, "reason"),
            field_path: text(v, "fieldPath"),
            optional_old_self: v.get("optionalOldSelf").as_bool() == Some(true),
        });
        rules.collect()
    }
}

/// A value that has rules.
pub struct Site<'a> {
    /// The rules of the value's schema.
    pub rules: &'a [Rule],
    /// `self`
    pub value: &'a Value,
    /// `oldSelf`: the old value, if there is one that corresponds.
    pub old: Option<&'a Value>,
    /// Where the value is.
    pub path: FieldPath,
}

/// Calls `f` for the values at and below `v` that have rules, until it breaks: a value before its parts, map entries in
/// the order of their keys. Nulls have no rules.
pub(super) fn each(
    node: &Node,
    v: &Value,
    old: Option<&Value>,
    f: &mut dyn FnMut(Site<'_>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    visit(node, v, old, &At::ROOT, f)
}

fn visit(
    node: &Node,
    v: &Value,
    old: Option<&Value>,
    at: &At<'_>,
    f: &mut dyn FnMut(Site<'_>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    checkpoint();
    if v.is_null() {
        return ControlFlow::Continue(());
    }
    let old = old.filter(|o| !o.is_null());
    if !node.rules.is_empty() {
        f(Site {
            rules: &node.rules,
            value: v,
            old,
            path: at.below(&FieldPath::default()),
        })?;
    }
    match v {
        Value::Object(m) => {
            for (key, child) in m.iter() {
                let old = old.and_then(Value::as_object).and_then(|o| o.get(key));
                match (node.property(key), &node.additional) {
                    (Some(property), _) => visit(property, child, old, &at.name(key), f)?,
                    (None, Additional::Schema(of)) => visit(of, child, old, &at.then(Step::Key(key)), f)?,
                    _ => {}
                }
            }
        }
        Value::Array(items) => {
            let Some(of) = &node.items else {
                return ControlFlow::Continue(());
            };
            let before = match (&node.list, old) {
                (ListKind::Map(keys), Some(old)) => OldItems::new(keys, old.items()),
                _ => OldItems::default(),
            };
            for (i, item) in items.iter().enumerate() {
                visit(of, item, before.find(item), &at.index(i), f)?;
            }
        }
        _ => {}
    }
    ControlFlow::Continue(())
}
