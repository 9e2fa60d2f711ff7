//! Validates values, with the messages of upstream's validator
//! (`k8s.io/kube-openapi/pkg/validation/validate`).

mod branches;
mod numbers;
mod types;

use super::limits::MAX_STEPS;
use super::path::{At, Step};
use super::pattern::Pattern;
use super::ratchet::{OldItems, unchanged};
use super::{Additional, Checks, ListKind, Node};
use crate::apimachinery::field::{ErrorList, FieldError, FieldErrorKind, FieldPath, quote, show};
use crate::apimachinery::value::{Map, Value};
use crate::interrupt::checkpoint;
use std::cell::Cell;

/// The errors in `v`, whose path is `base`; paths in messages start at `v`. Errors of values that are the
/// same as in `old` are dropped (ratcheting).
pub(super) fn values(node: &Node, v: &Value, old: Option<&Value>, base: &FieldPath) -> ErrorList {
    run(node, v, old, base, false, &Steps::new())
}

/// As [`values`] for a default. There upstream does not apply the types of int-or-string.
pub(super) fn default_value(node: &Node, v: &Value, base: &FieldPath, steps: &Steps) -> ErrorList {
    run(node, v, None, base, true, steps)
}

fn run(node: &Node, v: &Value, old: Option<&Value>, base: &FieldPath, is_default: bool, steps: &Steps) -> ErrorList {
    let mut validator = Validator {
        base,
        is_default,
        steps,
    };
    let mut out = Outcome::default();
    validator.check(node, v, old, &At::ROOT, &mut out);
    // The budget is only ever reduced, so zero means that some check was skipped.
    let mut errors = out.into_errors(base);
    // An error, not silence: an object that was not validated fully must not be accepted.
    if steps.0.get() == 0 {
        let why = "takes too many steps to validate; shorten its lists and strings, or simplify the schema";
        errors.push(FieldError::forbidden(base, why));
    }
    errors
}

/// The remaining steps of a validation. At zero, validation is given up.
pub(super) struct Steps(Cell<u64>);

impl Steps {
    /// Those of an object, or of all defaults of a schema.
    pub(super) fn new() -> Self {
        Self(Cell::new(MAX_STEPS))
    }

    #[cfg(test)]
    pub(super) fn left(&self) -> u64 {
        self.0.get()
    }

    /// Counts steps; false once there are none left.
    fn spend(&self, steps: u64) -> bool {
        checkpoint();
        // Saturating, so the last step may cost more than is left.
        self.0.set(self.0.get().saturating_sub(steps));
        self.0.get() > 0
    }
}

struct Validator<'a> {
    base: &'a FieldPath,
    is_default: bool,
    steps: &'a Steps,
}

#[derive(Default)]
struct Outcome {
    errors: ErrorList,
    /// Number of errors that were only counted, because the list that they are for is full.
    omitted: usize,
    /// True if all errors are omitted.
    is_full: bool,
    /// Upstream's count of successful checks. If no branch is valid, the errors of the one with the highest
    /// count are reported, so the count has to be exact.
    matches: usize,
}

/// Comparisons of errors per step.
const COMPARISONS_PER_STEP: usize = 32;

impl Outcome {
    /// The outcome of a part, whose errors become those of `self`.
    fn part(&self) -> Self {
        Self {
            // A part of a full list only has to be counted.
            is_full: self.is_full(),
            ..Self::default()
        }
    }

    fn is_full(&self) -> bool {
        self.is_full || self.errors.is_full()
    }

    /// Adds an error, unless it is known already: branches often repeat a check of the node that has them. Of
    /// errors that are only counted, the text is not made.
    fn push_with(&mut self, error: impl FnOnce() -> FieldError) {
        // Errors beyond the limit are counted without building their texts.
        if self.is_full() {
            self.omitted += 1;
            return;
        }
        let error = error();
        // Linear, but the list has at most a hundred errors; the time is charged by `merge`.
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    /// Adds the outcome of a part. Returns how many errors were compared.
    fn merge(&mut self, part: Self) -> usize {
        self.matches += part.matches;
        self.omitted += part.omitted;
        // The usual case: the first part that has errors hands over its list.
        if self.errors.is_empty() && !self.is_full {
            self.errors = part.errors;
            return 0;
        }
        let mut compared = 0;
        for error in part.errors {
            compared += self.errors.len();
            self.push_with(|| error);
        }
        compared
    }

    fn is_valid(&self) -> bool {
        self.errors.is_empty() && self.omitted == 0
    }

    fn into_errors(mut self, base: &FieldPath) -> ErrorList {
        // Errors are only omitted once the list is full, so none of these is made.
        self.errors.push_times(self.omitted, || FieldError::forbidden(base, ""));
        self.errors
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
        FieldError::invalid_raw(&self.field, show(v), detail)
    }
}

/// Steps charged for one error: several strings are built for it.
const STEPS_PER_ERROR: u64 = 8;
/// Bytes copied or quoted per step.
const BYTES_PER_STEP: usize = 32;

impl Validator<'_> {
    fn name(&self, at: &At<'_>) -> Named {
        self.spend(STEPS_PER_ERROR);
        let text = at.below(&FieldPath::default());
        let below = text.as_str();
        // The root has an empty name; below it a leading dot is dropped.
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

    fn spend(&self, steps: u64) -> bool {
        self.steps.spend(steps)
    }

    fn spend_bytes(&self, bytes: usize) -> bool {
        self.spend((bytes / BYTES_PER_STEP) as u64)
    }

    fn merge(&self, out: &mut Outcome, part: Outcome) {
        let compared = out.merge(part);
        self.spend((compared / COMPARISONS_PER_STEP) as u64);
    }

    fn check(&mut self, node: &Node, v: &Value, old: Option<&Value>, at: &At<'_>, out: &mut Outcome) {
        // Without steps nothing is checked any more; `run` reports that.
        if !self.spend(1) {
            return;
        }
        let mut own = out.part();
        // Nulls are only checked for type and enumeration, as upstream.
        if v.is_null() {
            self.types(node, v, at, &mut own);
            self.enumeration(node, v, at, &mut own);
        } else {
            self.present(node, v, old, at, &mut own);
        }
        // Decided by the whole value: an unchanged value keeps its errors, a change anywhere in it enforces all.
        if !own.is_valid() && old.is_some_and(|old| unchanged(node, v, old)) {
            return;
        }
        self.merge(out, own);
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
        // Counting code points is linear, so only if a limit needs it.
        let length = if c.max_length.is_some() || c.min_length.is_some() {
            s.chars().count()
        } else {
            0
        };
        // At most one of these three errors, in upstream's order.
        if let Some(max) = c.max_length.filter(|m| length > *m) {
            out.push_with(|| {
                let bytes = if max == 1 { "byte" } else { "bytes" };
                let mut error = FieldError::too_long(&self.name(at).field, -1);
                error.detail = format!("may not be more than {max} {bytes}");
                error
            });
        } else if let Some(min) = c.min_length.filter(|m| length < *m) {
            out.push_with(|| {
                let named = self.name(at);
                let detail = format!("{} in body should be at least {min} chars long", named.text.as_str());
                named.invalid(&s.into(), detail)
            });
        } else if let Some(p) = &c.pattern
            && !self.matches(p, s)
        {
            out.push_with(|| {
                self.spend_bytes(s.len() + p.source().len());
                let named = self.name(at);
                let detail = format!("{} in body should match '{}'", named.text.as_str(), p.source());
                named.invalid(&s.into(), detail)
            });
        }
        // Formats are checked independently of the limits.
        if let Some(f) = c.format.as_ref().filter(|f| self.spend_bytes(s.len()) && !f.matches(s)) {
            out.push_with(|| {
                self.spend_bytes(2 * s.len());
                let named = self.name(at);
                let (n, quoted) = (named.text.as_str(), quote(s));
                let detail = format!("{n} in body must be of type {}: {quoted}", f.spelling());
                FieldError::type_invalid(&named.field, s, detail)
            });
        }
    }

    /// True also if there are no steps left to decide it.
    fn matches(&self, pattern: &Pattern, s: &str) -> bool {
        // A step of matching is far cheaper than one of validation, while compiling a state takes longer.
        const STEPS_AT_ONCE: u64 = 16;
        const STEPS_PER_STATE: u64 = 4;
        let mut steps = pattern.steps(s) / STEPS_AT_ONCE;
        if pattern.must_compile() {
            steps = steps.saturating_add(u64::from(pattern.states()) * STEPS_PER_STATE);
        }
        // Counts as a match without steps: the missing budget is reported once, in `run`.
        !self.spend(steps) || pattern.is_match(s)
    }

    fn enumeration(&mut self, node: &Node, v: &Value, at: &At<'_>, out: &mut Outcome) {
        let checks = node.checks.as_deref();
        let Some(allowed) = checks.and_then(|c| c.enumeration.as_deref()) else {
            return;
        };
        if !self.spend(allowed.steps(v)) || allowed.allows(v) {
            return;
        }
        out.push_with(|| {
            let text = allowed.text();
            self.spend_bytes(text.len());
            let mut error = FieldError::invalid_raw(&self.name(at).field, show(v), "");
            error.kind = FieldErrorKind::NotSupported;
            // Upstream's detail is not prefixed, unlike that of `not_supported`.
            text.clone_into(&mut error.detail);
            error
        });
    }

    fn counts(&self, min: Option<usize>, max: Option<usize>, n: usize, what: &str, at: &At<'_>, out: &mut Outcome) {
        if let Some(min) = min.filter(|m| n < *m) {
            out.push_with(|| {
                let named = self.name(at);
                let detail = format!("{} in body should have at least {min} {what}", named.text.as_str());
                named.invalid(&(n as i64).into(), detail)
            });
        }
        if let Some(max) = max.filter(|m| n > *m) {
            out.push_with(|| FieldError::too_many(&self.name(at).field, n, max));
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
            // Undeclared members first, then declared ones, as upstream does.
            match &node.additional {
                Additional::Any(false) if undeclared() => {
                    out.push_with(|| {
                        let named = self.name(at);
                        let detail = format!("{}.{key} in body is a forbidden property", named.text.as_str());
                        named.invalid(&key.into(), detail)
                    });
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
        // Charged in advance: a schema may require thousands of members.
        if !self.spend(node.required.len() as u64 / 16) {
            return;
        }
        for name in node.required.iter().filter(|n| !m.contains_key(n)) {
            // No cost, but stops once naming the errors has used up the budget.
            if !self.spend(0) {
                return;
            }
            out.push_with(|| FieldError::required(&self.name(&at.name(name)).field, ""));
        }
    }
}
