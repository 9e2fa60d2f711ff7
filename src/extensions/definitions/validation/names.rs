//! `spec.names` and `status.acceptedNames`.

use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::validation::dns1035_label;
use crate::apimachinery::value::Value;
use crate::interrupt::checkpoint;

/// The names that a spec must have.
pub(super) fn required(out: &mut ErrorList, names: &Value, at: &FieldPath) {
    for key in ["plural", "singular", "kind", "listKind"] {
        if names.str_at(&[key]).is_empty() {
            out.push(FieldError::required(&at.child(key), ""));
        }
    }
}

/// Names that are set must be DNS labels; kinds may have upper-case letters.
pub(super) fn valid(out: &mut ErrorList, names: &Value, at: &FieldPath) {
    for key in ["plural", "singular"] {
        label(out, names.str_at(&[key]), &at.child(key));
    }
    for key in ["kind", "listKind"] {
        let kind = names.str_at(&[key]);
        // Lower-cased for the check only: kinds are CamelCase labels.
        let messages = dns1035_label(&kind.to_lowercase());
        if !kind.is_empty() && !messages.is_empty() {
            let why = format!(
                "may have mixed case, but should otherwise match: {}",
                messages.join(",")
            );
            out.push(FieldError::invalid(&at.child(key), kind, why));
        }
    }
    labels(out, names.get("shortNames"), &at.child("shortNames"));
    let kind = names.str_at(&["kind"]);
    if !kind.is_empty() && kind == names.str_at(&["listKind"]) {
        let why = "kind and listKind may not be the same";
        out.push(FieldError::invalid(&at.child("listKind"), kind, why));
    }
    labels(out, names.get("categories"), &at.child("categories"));
}

fn labels(out: &mut ErrorList, list: &Value, at: &FieldPath) {
    for (i, name) in list.items().iter().enumerate() {
        checkpoint();
        match name.as_str() {
            // Elements of lists must not be empty, unlike the single names, whose absence `required` reports.
            Some("") | None => invalid(out, "", &at.index(i)),
            Some(name) => label(out, name, &at.index(i)),
        }
    }
}

fn label(out: &mut ErrorList, name: &str, at: &FieldPath) {
    if !name.is_empty() {
        invalid(out, name, at);
    }
}

/// Adds one error for all that is wrong with a label.
pub(super) fn invalid(out: &mut ErrorList, name: &str, at: &FieldPath) {
    let messages = dns1035_label(name);
    if !messages.is_empty() {
        out.push_with(|| FieldError::invalid(at, name, messages.join(",")));
    }
}
