//! Validates values, with the messages of upstream's validator
//! (`k8s.io/kube-openapi/pkg/validation/validate`).

mod branches;
mod numbers;
mod types;

use super::limits::MAX_STEPS;
use super::path::{At, Step};
use super::ratchet::{OldItems, unchanged};
use super::{Additional, Checks, ListKind, Node};
use crate::apimachinery::codec::json;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath, quote};
use crate::apimachinery::value::{Map, Value};
use crate::interrupt::checkpoint;
use std::cell::Cell;

/// The errors in `v`, whose path is `base`; paths in messages start at `v`. Errors of values that are the
/// same as in `old` are dropped (ratcheting).
pub(super) fn values(node: &Node, v: &Value, old: Option<&Value>, base: &FieldPath) -> ErrorList {
    run(node, v, old, base, false)
}

/// As [`values`] for a default. There upstream does not apply the types of int-or-string.
pub(super) fn default_value(node: &Node, v: &Value, base: &FieldPath) -> ErrorList {
    run(node, v, None, base, true)
}

fn run(node: &Node, v: &Value, old: Option<&Value>, base: &FieldPath, is_default: bool) -> ErrorList {
    let mut validator = Validator {
        base,
        is_default,
        left: Cell::new(MAX_STEPS),
    };
    let mut out = Outcome::default();
    validator.check(node, v, old, &At::ROOT, &mut out);
    if validator.left.get() == 0 {
        let why = "takes too many steps to validate; shorten its lists and strings, or simplify the schema";
        out.errors.push(FieldError::forbidden(base, why));
    }
    out.errors
}

struct Validator<'a> {
    base: &'a FieldPath,
    is_default: bool,
    /// Steps until validation is given up.
    left: Cell<u64>,
}

#[derive(Default)]
struct Outcome {
    errors: ErrorList,
    /// Upstream's count of successful checks. If no branch is valid, the errors of the one with the highest
    /// count are reported, so the count has to be exact.
    matches: usize,
}

impl Outcome {
    /// Adds an error, unless it is known already: branches often repeat a check of the node that has them.
    fn push(&mut self, error: FieldError) {
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    fn merge(&mut self, other: Self) {
        self.matches += other.matches;
        other.errors.into_iter().for_each(|e| self.push(e));
    }

    fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }
}

/// A location as error messages name it.
struct Named {
    /// In the text of messages.
    text: FieldPath,
    /// As the field of an error.
    field: FieldPath,
}

impl Named {
    fn invalid(&self, v: &Value, detail: String) -> FieldError {
        FieldError::invalid(&self.field, v.clone(), detail)
    }
}

/// The steps that one error takes: several texts are made for it.
const STEPS_PER_ERROR: u64 = 8;

impl Validator<'_> {
    fn name(&self, at: &At<'_>) -> Named {
        self.spend(STEPS_PER_ERROR);
        let text = at.below(&FieldPath::default());
        let below = text.as_str();
        let field = match below.strip_prefix('.').unwrap_or(below) {
            "" => self.base.clone(),
            below => self.base.child(below),
        };
        Named { text, field }
    }

    /// An error that upstream reports without a field.
    fn without_field(&self, detail: String) -> FieldError {
        FieldError::invalid(self.base, "", detail)
    }

    /// Counts steps; false once there are none left.
    fn spend(&self, steps: u64) -> bool {
        checkpoint();
        self.left.set(self.left.get().saturating_sub(steps));
        self.left.get() > 0
    }

    fn check(&mut self, node: &Node, v: &Value, old: Option<&Value>, at: &At<'_>, out: &mut Outcome) {
        if !self.spend(1) {
            return;
        }
        let mut own = Outcome::default();
        if v.is_null() {
            self.types(node, v, at, &mut own);
            self.enumeration(node, v, at, &mut own);
        } else {
            self.present(node, v, old, at, &mut own);
        }
        if !own.is_valid() && old.is_some_and(|old| unchanged(node, v, old)) {
            return;
        }
        out.merge(own);
    }

    fn present(&mut self, node: &Node, v: &Value, old: Option<&Value>, at: &At<'_>, out: &mut Outcome) {
        self.types(node, v, at, out);
        self.branches(node, v, at, out);
        let checks = node.checks.as_deref();
        match (v, checks) {
            (Value::String(s), Some(c)) => self.string(c, s, at, out),
            (Value::Int(_) | Value::Float(_), c) => self.numbers(node, c, v, at, out),
            _ => {}
        }
        // Every validator that applies to a type counts, whatever it has to check.
        out.matches += match v {
            Value::String(_) => 1 + usize::from(checks.is_some_and(|c| c.format.as_ref().is_some_and(|f| f.is_text()))),
            Value::Int(_) | Value::Float(_) => 2,
            _ => 0,
        };
        if let Value::Array(items) = v {
            self.items(node, items, old, at, out);
            out.matches += 2;
        }
        self.enumeration(node, v, at, out);
        out.matches += 1;
        if let Value::Object(m) = v {
            self.members(node, m, old, at, out);
            out.matches += 1;
        }
        out.matches += 1;
    }

    fn string(&mut self, c: &Checks, s: &str, at: &At<'_>, out: &mut Outcome) {
        let length = if c.max_length.is_some() || c.min_length.is_some() {
            s.chars().count()
        } else {
            0
        };
        if let Some(max) = c.max_length.filter(|m| length > *m) {
            let bytes = if max == 1 { "byte" } else { "bytes" };
            let mut error = FieldError::too_long(&self.name(at).field, -1);
            error.detail = format!("may not be more than {max} {bytes}");
            out.push(error);
        } else if let Some(min) = c.min_length.filter(|m| length < *m) {
            let named = self.name(at);
            let detail = format!("{} in body should be at least {min} chars long", named.text.as_str());
            out.push(named.invalid(&s.into(), detail));
        } else if let Some(p) = &c.pattern {
            // A step of matching is far cheaper than one of validation.
            const STEPS_AT_ONCE: u64 = 16;
            if self.spend(p.steps(s) / STEPS_AT_ONCE) && !p.is_match(s) {
                let named = self.name(at);
                let detail = format!("{} in body should match '{}'", named.text.as_str(), p.source());
                out.push(named.invalid(&s.into(), detail));
            }
        }
        if let Some(f) = c.format.as_ref().filter(|f| !f.matches(s)) {
            let named = self.name(at);
            let (n, quoted) = (named.text.as_str(), quote(s));
            let detail = format!("{n} in body must be of type {}: {quoted}", f.spelling());
            out.push(FieldError::type_invalid(&named.field, s, detail));
        }
    }

    fn enumeration(&mut self, node: &Node, v: &Value, at: &At<'_>, out: &mut Outcome) {
        let Some(c) = node.checks.as_deref().filter(|c| !c.enumeration.is_empty()) else {
            return;
        };
        if !self.spend(c.enumeration.len() as u64 / 4) || c.enumeration.iter().any(|e| allowed(v, e)) {
            return;
        }
        let texts = c.enumeration.iter().map(|e| match e.as_str() {
            Some(text) => text.to_owned(),
            None => json::to_string(e),
        });
        let texts: Vec<String> = texts.collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        out.push(FieldError::not_supported(&self.name(at).field, v.clone(), &texts));
    }

    fn counts(&self, min: Option<usize>, max: Option<usize>, n: usize, what: &str, at: &At<'_>, out: &mut Outcome) {
        if let Some(min) = min.filter(|m| n < *m) {
            let named = self.name(at);
            let detail = format!("{} in body should have at least {min} {what}", named.text.as_str());
            out.push(named.invalid(&(n as i64).into(), detail));
        }
        if let Some(max) = max.filter(|m| n > *m) {
            out.push(FieldError::too_many(&self.name(at).field, n, max));
        }
    }

    fn items(&mut self, node: &Node, items: &[Value], old: Option<&Value>, at: &At<'_>, out: &mut Outcome) {
        if let Some(of) = &node.items {
            // Only the items of lists of type map correspond to old ones.
            let before = match (&node.list, old) {
                (ListKind::Map(keys), Some(old)) => OldItems::new(keys, old.items()),
                _ => OldItems::default(),
            };
            for (i, item) in items.iter().enumerate() {
                self.check(of, item, before.find(item), &at.index(i), out);
            }
        }
        if let Some(c) = node.checks.as_deref() {
            self.counts(c.min_items, c.max_items, items.len(), "items", at, out);
        }
    }

    fn members(&mut self, node: &Node, m: &Map, old: Option<&Value>, at: &At<'_>, out: &mut Outcome) {
        if let Some(c) = node.checks.as_deref() {
            self.counts(c.min_properties, c.max_properties, m.len(), "properties", at, out);
        }
        let old = old.and_then(Value::as_object);
        for (key, v) in m.iter() {
            let undeclared = || node.property(key).is_none();
            match &node.additional {
                Additional::Any(false) if undeclared() => {
                    let named = self.name(at);
                    let detail = format!("{}.{key} in body is a forbidden property", named.text.as_str());
                    out.push(named.invalid(&key.into(), detail));
                }
                Additional::Schema(of) if undeclared() => {
                    let old = old.and_then(|o| o.get(key));
                    self.check(of, v, old, &at.then(Step::Entry(key)), out);
                }
                _ => {}
            }
        }
        for (key, v) in m.iter() {
            let Some(property) = node.property(key) else { continue };
            // Old and new objects were converted to the same type, so a change of it cannot be seen.
            let is_type = at.is_root() && matches!(key, "apiVersion" | "kind");
            let old = old.filter(|_| !is_type).and_then(|o| o.get(key));
            self.check(property, v, old, &at.name(key), out);
        }
        if !self.spend(node.required.len() as u64 / 16) {
            return;
        }
        for name in node.required.iter().filter(|n| !m.contains_key(n)) {
            if self.left.get() == 0 {
                return;
            }
            let field = self.name(&at.name(name)).field;
            out.push(FieldError::required(&field, ""));
        }
    }
}

/// True if `v` is the allowed value `e`, or becomes it by a conversion between Go's types: of numbers, and of
/// an integer to the character with that number.
fn allowed(v: &Value, e: &Value) -> bool {
    match (v, e) {
        (Value::Null, _) => false,
        (Value::Int(i), Value::Float(f)) => *i as f64 == *f,
        (Value::Float(f), Value::Int(i)) => *f as i64 == *i,
        (Value::Int(i), Value::String(s)) => {
            let c = u32::try_from(*i).ok().and_then(char::from_u32);
            s.chars().eq([c.unwrap_or(char::REPLACEMENT_CHARACTER)])
        }
        _ => v == e,
    }
}
