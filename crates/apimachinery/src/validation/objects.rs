//! Validation of types embedded in many kinds (label selectors, conditions, domain-prefixed paths), and
//! warnings about finalizers.

use super::{dns1123_subdomain, label_value, pattern_error, qualified_name};
use crate::field::{ErrorList, FieldError, FieldPath};
use crate::value::Value;
use std::collections::HashSet;

const REASON_MAX: usize = 1024;
const MESSAGE_MAX: usize = 32 * 1024;

/// Validates a `metav1.LabelSelectorRequirement` of an authorization review, whose operator may be unknown to
/// this version.
pub fn validate_label_requirement(e: &Value, path: &FieldPath, out: &mut ErrorList) {
    // Values before the key: upstream's order.
    check_values(e, path, out);
    check_label(e, path, out);
}

/// Validates a `metav1.FieldSelectorRequirement` of an authorization review, whose operator may be unknown to
/// this version.
pub fn validate_field_requirement(e: &Value, path: &FieldPath, out: &mut ErrorList) {
    if e.str_at(&["key"]).is_empty() {
        out.push(FieldError::required(&path.child("key"), "must be specified"));
    }
    check_values(e, path, out);
}

/// Checks that values are present exactly if the operator takes some.
fn check_values(e: &Value, path: &FieldPath, out: &mut ErrorList) {
    let values = e.get("values").items();
    match e.str_at(&["operator"]) {
        "In" | "NotIn" if values.is_empty() => {
            let why = "must be specified when `operator` is 'In' or 'NotIn'";
            out.push(FieldError::required(&path.child("values"), why));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            out.push(FieldError::forbidden(&path.child("values"), why));
        }
        // Unknown operators pass: a newer client may use one, and the authorizer decides.
        _ => {}
    }
}

/// Checks key and values of a label requirement.
fn check_label(e: &Value, path: &FieldPath, out: &mut ErrorList) {
    let (key, at_key) = (e.str_at(&["key"]), path.child("key"));
    out.extend(
        qualified_name(key)
            .into_iter()
            .map(|m| FieldError::invalid(&at_key, key, m)),
    );
    // Non-strings were rejected by decoding, so indexes match the client's.
    for (j, v) in e.get("values").items().iter().filter_map(Value::as_str).enumerate() {
        let at = path.child("values").index(j);
        out.extend(label_value(v).into_iter().map(|m| FieldError::invalid(&at, v, m)));
    }
}

/// Validates a list of `metav1.Condition`.
pub fn validate_conditions(conditions: &Value, path: &FieldPath, out: &mut ErrorList) {
    let mut seen = HashSet::new();
    for (i, c) in conditions.items().iter().enumerate() {
        let at = path.index(i);
        let ty = c.str_at(&["type"]);
        // The duplicate is reported at the later condition, which is then validated as well.
        if !seen.insert(ty) {
            out.push(FieldError::duplicate(&at.child("type"), ty));
        }
        validate_condition(c, &at, out);
    }
}

/// Validates a `metav1.Condition`.
pub(crate) fn validate_condition(c: &Value, path: &FieldPath, out: &mut ErrorList) {
    let ty = c.str_at(&["type"]);
    out.extend(
        qualified_name(ty)
            .into_iter()
            .map(|m| FieldError::invalid(&path.child("type"), ty, m)),
    );
    let status = c.str_at(&["status"]);
    if !matches!(status, "True" | "False" | "Unknown") {
        out.push(FieldError::not_supported(
            &path.child("status"),
            status,
            &["False", "True", "Unknown"],
        ));
    }
    if let Some(n @ ..0) = c.get("observedGeneration").as_i64() {
        let why = "must be greater than or equal to zero";
        out.push(FieldError::invalid(&path.child("observedGeneration"), n, why));
    }
    if c.str_at(&["lastTransitionTime"]).is_empty() {
        out.push(FieldError::required(&path.child("lastTransitionTime"), ""));
    }
    let (reason, at) = (c.str_at(&["reason"]), path.child("reason"));
    if reason.is_empty() {
        out.push(FieldError::required(&at, ""));
    } else {
        out.extend(
            condition_reason(reason)
                .into_iter()
                .map(|m| FieldError::invalid(&at, reason, m)),
        );
        if reason.len() > REASON_MAX {
            out.push(FieldError::too_long(&at, REASON_MAX as i64));
        }
    }
    if c.str_at(&["message"]).len() > MESSAGE_MAX {
        out.push(FieldError::too_long(&path.child("message"), MESSAGE_MAX as i64));
    }
}

fn condition_reason(s: &str) -> Vec<String> {
    let b = s.as_bytes();
    let word = |c: &u8| c.is_ascii_alphanumeric() || *c == b'_';
    let fine = b.first().is_some_and(u8::is_ascii_alphabetic)
        && b.last().is_some_and(word)
        && b.iter().all(|c| word(c) || matches!(c, b',' | b':'));
    if fine {
        return Vec::new();
    }
    vec![pattern_error(
        "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'",
        "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?",
        &["my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB"],
    )]
}

/// Warnings about unqualified finalizers of a custom resource in `metadata` that `old` (null on create) does
/// not have.
pub fn finalizer_warnings(metadata: &Value, old: &Value) -> Vec<String> {
    /// More warnings than response headers have room for.
    const MAX: usize = 100;
    // Only finalizers added by this request are worth a warning; existing ones would repeat it on every update.
    let had: HashSet<&Value> = old.get("finalizers").items().iter().collect();
    let new = metadata.get("finalizers").items().iter().filter(|f| !had.contains(f));
    new.filter_map(Value::as_str)
        .filter(|f| !f.contains('/') && !matches!(*f, "kubernetes" | "orphan" | "foregroundDeletion"))
        .take(MAX)
        .map(|f| {
            let path = if f.contains('.') { " including a path (/)" } else { "" };
            format!("metadata.finalizers: {f:?}: prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other finalizer writers")
        })
        .collect()
}

/// Checks that `text` is a domain-prefixed path such as `acme.io/foo`.
pub fn domain_prefixed_path(text: &str, path: &FieldPath, out: &mut ErrorList) {
    if text.is_empty() {
        out.push(FieldError::required(path, ""));
        return;
    }
    // Both parts are required, which `splitn` in upstream checks together.
    let Some((domain, rest)) = text.split_once('/').filter(|(d, r)| !d.is_empty() && !r.is_empty()) else {
        let why = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        out.push(FieldError::invalid(path, text, why));
        return;
    };
    let wrong = dns1123_subdomain(domain).into_iter();
    out.extend(wrong.map(|why| FieldError::invalid(path, domain, why)));
    // The characters of the path segment in RFC 3986, without encoding.
    let fine = |c: u8| c.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&c);
    if !rest.bytes().all(fine) {
        let why = r"Invalid path (regex used for validation is '[A-Za-z0-9/\-._~%!$&'()*+,;=:]+')";
        out.push(FieldError::invalid(path, rest, why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn texts(f: impl FnOnce(&mut ErrorList)) -> Vec<String> {
        let mut out = ErrorList::new();
        f(&mut out);
        out.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn conditions_require_status_reason_and_time() {
        let c = json!([
            {"type": "A", "status": "True", "reason": "Fine", "lastTransitionTime": "2001-01-01T00:00:00Z"},
            {"type": "A", "status": "true", "reason": "no-dash", "observedGeneration": -1},
        ]);
        let got = texts(|o| validate_conditions(&c, &FieldPath::new("c"), o));
        assert_eq!(
            got[..4],
            [
                "c[1].type: Duplicate value: \"A\"",
                "c[1].status: Unsupported value: \"true\": supported values: \"False\", \"True\", \"Unknown\"",
                "c[1].observedGeneration: Invalid value: -1: must be greater than or equal to zero",
                "c[1].lastTransitionTime: Required value",
            ]
        );
        assert!(
            got[4].starts_with("c[1].reason: Invalid value: \"no-dash\": a condition reason must start with")
                && got.len() == 5
        );
    }

    #[test]
    fn only_new_unqualified_finalizers_yield_warnings() {
        let new = json!({"finalizers": ["old", "plain", "with.dots", "a.b/c", "orphan"]});
        assert_eq!(
            finalizer_warnings(&new, &json!({"finalizers": ["old"]})),
            [
                "metadata.finalizers: \"plain\": prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers",
                "metadata.finalizers: \"with.dots\": prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers",
            ]
        );
    }

    #[test]
    fn review_requirements_accept_unknown_operators() {
        let path = FieldPath::new("r");
        let fields = |e: Value| {
            let mut out = ErrorList::new();
            validate_field_requirement(&e, &path, &mut out);
            out.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            fields(json!({"key": "", "operator": "New"})),
            ["r.key: Required value: must be specified"]
        );
        assert_eq!(
            fields(json!({"key": "a b", "operator": "In", "values": ["b c"]})),
            [""; 0]
        );
        assert_eq!(fields(json!({"key": "a", "operator": "In"})).len(), 1);
        let key_first = fields(json!({"operator": "Exists", "values": ["b"]}));
        assert!(
            key_first[0].starts_with("r.key: ") && key_first[1].starts_with("r.values: "),
            "{key_first:?}"
        );
        let labels = |e: Value| {
            let mut out = ErrorList::new();
            validate_label_requirement(&e, &path, &mut out);
            out.len()
        };
        assert_eq!(labels(json!({"key": "a", "operator": "New", "values": ["b"]})), 0);
        assert_eq!(labels(json!({"key": "a b", "operator": "In", "values": ["b c"]})), 2);
        assert_eq!(labels(json!({"key": "a", "operator": "Exists", "values": ["b"]})), 1);
    }
}
