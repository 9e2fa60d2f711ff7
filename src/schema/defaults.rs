//! Validation of the defaults in a schema (upstream's
//! `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting/validation.go`).

use super::path::At;
use super::{Node, embedded, prune, rules, validate};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath, aggregate};
use crate::apimachinery::value::{Str, Value};
use crate::interrupt::checkpoint;
use crate::json;

/// The errors of the defaults in a schema at `path`. Defaults in `additionalProperties` are not validated.
pub(super) fn check(root: &Node, path: &FieldPath, pruned: bool) -> ErrorList {
    let mut checker = Checker {
        base: path,
        pruned,
        steps: validate::Steps::new(),
        budget: rules::evaluate::Budget::new(),
        errors: ErrorList::new(),
    };
    checker.node(root, &At::ROOT, &Meta::Outside, root, true);
    checker.errors
}

/// Where a schema is in relation to an object with metadata.
#[derive(Clone, Copy)]
enum Meta<'a> {
    Outside,
    /// Below `apiVersion`, `kind` or `metadata` of an object: the last step from it, and where that begins, which
    /// is `Outside` at the object.
    Inside(MetaStep<'a>, &'a Meta<'a>),
}

#[derive(Clone, Copy)]
enum MetaStep<'a> {
    Member(&'a Str),
    Item,
}

struct Checker<'p> {
    base: &'p FieldPath,
    pruned: bool,
    /// Shared by all defaults, as what rules may cost: a schema may have a hundred thousand of them.
    steps: validate::Steps,
    budget: rules::evaluate::Budget,
    errors: ErrorList,
}

impl Checker<'_> {
    /// `object` is the schema of the object with metadata that `node` is in; `is_object` is true if it is
    /// `node` itself.
    fn node(&mut self, node: &Node, at: &At<'_>, meta: &Meta<'_>, object: &Node, is_object: bool) {
        checkpoint();
        let is_object = is_object || node.embedded;
        // An embedded object starts over: its metadata is its own.
        let (object, meta) = if is_object {
            (node, &Meta::Outside)
        } else {
            (object, meta)
        };
        if let Some(default) = node.default.as_deref() {
            let path = at.below(self.base).child("default");
            match meta {
                Meta::Outside => self.outside(node, &default.value, &path, is_object),
                Meta::Inside(..) => self.inside(node, &default.value, &path, meta, object),
            }
        }
        if let Some(items) = &node.items {
            let below = match meta {
                Meta::Outside => Meta::Outside,
                Meta::Inside(..) => Meta::Inside(MetaStep::Item, meta),
            };
            self.node(items, &at.name("items"), &below, object, false);
        }
        // Defaults in `additionalProperties` are not visited, as upstream does not validate them.
        let properties_at = at.name("properties");
        for (name, property) in &node.properties {
            let begins = is_object && prune::is_object_key(name);
            let below = match meta {
                Meta::Outside if !begins => Meta::Outside,
                _ => Meta::Inside(MetaStep::Member(name), meta),
            };
            self.node(property, &properties_at.key(name), &below, object, false);
        }
    }

    fn outside(&mut self, node: &Node, default: &Value, path: &FieldPath, is_object: bool) {
        if self.pruned && !is_pruned(node, default, is_object) {
            self.errors.push(FieldError::invalid(
                path,
                default.clone(),
                "must not have unknown fields",
            ));
        }
        // Metadata is coerced first, as upstream's decoder would do it in an object.
        let mut coerced = default.clone();
        match embedded::coerce(node, &mut coerced, path, is_object) {
            Err(e) => self.errors.push(e),
            Ok(_) => {
                let mut errors = embedded::validate(node, &coerced, path, is_object);
                // Each stage only runs if the one before found nothing, as in upstream.
                if errors.is_empty() {
                    errors = validate::default_value(node, &coerced, path, &self.steps);
                }
                if errors.is_empty() {
                    errors = self.by_rules(node, &coerced, path);
                }
                self.errors.extend(errors);
            }
        }
    }

    /// A default within metadata has to be valid in an object that has nothing else.
    fn inside(&mut self, node: &Node, default: &Value, path: &FieldPath, meta: &Meta<'_>, object: &Node) {
        let mut whole = default.clone();
        let mut at = meta;
        // Wrapped from the inside out, up to the object that the metadata belongs to.
        while let Meta::Inside(step, before) = at {
            at = before;
            whole = match step {
                MetaStep::Item => Value::Array(vec![whole]),
                MetaStep::Member(name) => {
                    let mut parent = Value::object();
                    parent.set(&[name], whole);
                    parent
                }
            };
        }
        // The smallest object that validation accepts, with upstream's stand-ins.
        for (key, value) in [("apiVersion", "validation/v1"), ("kind", "Validation")] {
            if whole.get(key).is_null() {
                whole.set(&[key], json!(value));
            }
        }
        let nowhere = FieldPath::default();
        let problem = match embedded::coerce(object, &mut whole, &nowhere, true) {
            Err(e) => Some(e.to_string()),
            Ok(_) => {
                let errors = embedded::validate(object, &whole, &nowhere, true);
                (!errors.is_empty()).then(|| aggregate(&errors))
            }
        };
        match problem {
            Some(why) => {
                let why = format!("must result in valid metadata: {why}");
                self.errors.push(FieldError::invalid(path, default.clone(), why));
            }
            // The default on its own, too: values within metadata may have a schema of their own.
            None => {
                let mut errors = validate::default_value(node, default, path, &self.steps);
                if errors.is_empty() {
                    errors = self.by_rules(node, default, path);
                }
                self.errors.extend(errors);
            }
        }
    }

    /// A default has to be valid when it is kept, and when it is new.
    fn by_rules(&mut self, node: &Node, default: &Value, path: &FieldPath) -> ErrorList {
        if !node.has_rules {
            return ErrorList::new();
        }
        let budget = &mut self.budget;
        let kept = rules::evaluate::run(node, default, Some(default), path, false, budget).errors;
        // Unchanged first: transition rules then see the value as its own predecessor.
        match kept.is_empty() {
            true => rules::evaluate::run(node, default, None, path, false, budget).errors,
            false => kept,
        }
    }
}

/// True if pruning would not change a default. Compared, because members like `kind` at its top are pruned but not
/// reported.
fn is_pruned(node: &Node, default: &Value, is_object: bool) -> bool {
    let mut pruned = default.clone();
    prune::unknown(node, &mut pruned, is_object);
    pruned == *default
}

/// True if no default has fields that its schema lacks.
pub(super) fn are_pruned(node: &Node) -> bool {
    checkpoint();
    let own = node
        .default
        .as_deref()
        .is_none_or(|d| is_pruned(node, &d.value, node.embedded));
    let items = node.items.as_deref().is_none_or(are_pruned);
    own && items && node.properties.iter().all(|(_, p)| are_pruned(p))
}
