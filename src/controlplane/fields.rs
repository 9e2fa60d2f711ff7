//! Helpers shared by defaults, strategies and validation: field access, defaulting, common field errors, and
//! duplicate detection ([`Seen`]).

mod equality;

pub(super) use equality::same;

use crate::apimachinery::field::{ErrorList, FieldError, FieldPath, show_json};
use crate::apimachinery::validation;
use crate::apimachinery::value::{Str, Value};
use crate::interrupt::{checkpoint, pause};
use std::collections::HashSet;
use std::hash::Hash;

/// Adds one `Invalid` per message.
pub(super) fn invalid_each(out: &mut ErrorList, path: &FieldPath, value: impl Into<Value>, messages: Vec<String>) {
    // Called once per element of lists whose length clients choose.
    pause();
    if messages.is_empty() {
        return;
    }
    let value = value.into();
    out.extend(
        messages
            .into_iter()
            .map(|m| FieldError::invalid(path, value.clone(), m)),
    );
}

/// As [`invalid_each`], for a value whose type in Go is not `string` itself.
pub(super) fn invalid_each_enum(out: &mut ErrorList, path: &FieldPath, value: &str, messages: Vec<String>) {
    pause();
    out.extend(messages.into_iter().map(|m| FieldError::invalid_enum(path, value, m)));
}

/// As [`FieldError::duplicate`], for a value whose type in Go is not `string` itself.
pub(super) fn duplicate_enum(path: &FieldPath, value: &str) -> FieldError {
    let mut e = FieldError::duplicate(path, "");
    e.bad_value = Some(show_json(&value.into()));
    e
}

/// Reports `Required` if `text` is empty, else the messages of `check`.
pub(super) fn required_valid(
    out: &mut ErrorList,
    path: &FieldPath,
    text: &str,
    check: impl FnOnce(&str) -> Vec<String>,
) {
    match text {
        "" => out.push(FieldError::required(path, "")),
        text => invalid_each(out, path, text, check(text)),
    }
}

/// The containers, then the init containers, of a pod spec; not ephemeral ones, which are added to running
/// pods.
pub(super) fn regular_containers(spec: &Value) -> impl Iterator<Item = &Value> {
    ["containers", "initContainers"]
        .into_iter()
        .flat_map(|list| spec.get(list).items())
}

/// The string elements of an array; other elements are skipped.
pub(super) fn strings(v: &Value) -> Vec<&str> {
    v.items().iter().filter_map(Value::as_str).collect()
}

/// The string at `path`, for a selectable field or a table cell.
pub(super) fn text(v: &Value, path: &[&str]) -> Str {
    Str::new(v.str_at(path))
}

/// The integer at `path` as text, 0 if absent, for a selectable field.
pub(super) fn count(v: &Value, path: &[&str]) -> Str {
    Str::from(v.at(path).as_i64().unwrap_or(0).to_string())
}

/// Sets the value at `path` if it is absent or null.
pub(super) fn set_default(object: &mut Value, path: &[&str], value: impl Into<Value>) {
    if object.at(path).is_null() {
        object.set(path, value);
    }
}

/// As [`set_default`] for several members of the object at `path`, which must be sorted by key. Merges them
/// in one pass: separate insertions would each shift the members behind them.
pub(super) fn set_defaults<'a>(object: &mut Value, path: &[&str], members: impl Iterator<Item = (&'a str, Value)>) {
    let there = object.at(path);
    let missing = members.filter(|(key, _)| there.get(key).is_null());
    let missing: Vec<(Str, Option<Value>)> = missing.map(|(key, value)| (key.into(), Some(value))).collect();
    // An absent object stays absent if there is nothing to put into it.
    if missing.is_empty() {
        return;
    }
    if there.as_object().is_none() {
        object.set(path, Value::object());
    }
    if let Some(map) = object.at_mut(path).and_then(Value::as_object_mut) {
        map.change(missing);
    }
}

/// As [`set_default`], but `""` counts as unset too, as for Go strings that are not pointers.
pub(super) fn set_default_str(object: &mut Value, path: &[&str], value: &str) {
    // A value of a wrong type is left for validation to report.
    if object.str_at(path).is_empty() && !matches!(object.at(path), Value::Int(_) | Value::Object(_)) {
        object.set(path, value);
    }
}

/// Mutable elements of the array at `path`; empty if there is no array.
pub(super) fn elements_mut<'a>(object: &'a mut Value, path: &[&str]) -> impl Iterator<Item = &'a mut Value> {
    object
        .at_mut(path)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flat_map(|a| a.iter_mut())
        // Clients choose the length of these lists.
        .inspect(|_| pause())
}

/// Requires the string at `key` to be one of `supported`: reports `Required` if empty, else `NotSupported`.
pub(super) fn required_choice(out: &mut ErrorList, object: &Value, key: &str, path: &FieldPath, supported: &[&str]) {
    match object.str_at(&[key]) {
        "" => out.push(FieldError::required(&path.child(key), "")),
        other if !supported.contains(&other) => {
            out.push(FieldError::not_supported(&path.child(key), other, supported));
        }
        _ => {}
    }
}

/// As [`required_choice`], for a pointer field upstream: `""` is an unsupported value rather than a missing
/// one.
pub(super) fn required_pointer(out: &mut ErrorList, object: &Value, key: &str, path: &FieldPath, supported: &[&str]) {
    match object.get(key) {
        Value::Null => out.push(FieldError::required(&path.child(key), "")),
        _ => optional_choice(out, object, key, path, supported),
    }
}

/// As [`required_choice`], for an optional field.
pub(super) fn optional_choice(out: &mut ErrorList, object: &Value, key: &str, path: &FieldPath, supported: &[&str]) {
    if let Some(other) = object.get(key).as_str()
        && !supported.contains(&other)
    {
        out.push(FieldError::not_supported(&path.child(key), other, supported));
    }
}

/// Validates a `metav1.LabelSelector` as upstream's `ValidateLabelSelector` does
/// (`k8s.io/apimachinery/pkg/apis/meta/v1/validation`).
pub(super) fn label_selector(out: &mut ErrorList, selector: &Value, path: &FieldPath) {
    checked_selector(out, selector, path, true);
}

/// [`label_selector`] without checks of the values in expressions, for updates of objects that have invalid ones
/// (`AllowInvalidLabelValueInSelector` upstream).
pub(super) fn label_selector_with_any_values(out: &mut ErrorList, selector: &Value, path: &FieldPath) {
    checked_selector(out, selector, path, false);
}

/// A check of a label selector at a path.
pub(super) type SelectorCheck = fn(&mut ErrorList, &Value, &FieldPath);

/// The check of selectors for an update of an object with these `stored` ones: what a later rule refuses must not
/// prevent other changes.
pub(super) fn selector_check<'a>(stored: impl IntoIterator<Item = &'a Value>) -> SelectorCheck {
    let mut errors = ErrorList::new();
    for selector in stored {
        label_selector(&mut errors, selector, &FieldPath::default());
    }
    match errors.is_empty() {
        true => label_selector,
        false => label_selector_with_any_values,
    }
}

fn checked_selector(out: &mut ErrorList, selector: &Value, path: &FieldPath, checks_values: bool) {
    if selector.is_null() {
        return;
    }
    validation::meta::validate_labels(selector.get("matchLabels"), &path.child("matchLabels"), out);
    for (i, e) in selector.get("matchExpressions").items().iter().enumerate() {
        // Selectors have no length limit: ends here if the request was abandoned.
        checkpoint();
        let at = path.child("matchExpressions").index(i);
        let values = e.get("values").items();
        match e.str_at(&["operator"]) {
            "In" | "NotIn" if values.is_empty() => out.push(FieldError::required(
                &at.child("values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            "In" | "NotIn" => {}
            "Exists" | "DoesNotExist" => {
                if !values.is_empty() {
                    out.push(FieldError::forbidden(
                        &at.child("values"),
                        "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                    ));
                }
            }
            other => out.push(FieldError::invalid_enum(
                &at.child("operator"),
                other,
                "not a valid selector operator",
            )),
        }
        let key = e.str_at(&["key"]);
        invalid_each(out, &at.child("key"), key, validation::qualified_name(key));
        for (k, v) in values.iter().enumerate().filter(|_| checks_values) {
            let v = v.as_str().unwrap_or("");
            invalid_each(out, &at.child("values").index(k), v, validation::label_value(v));
        }
    }
}

/// Detects duplicates in a list. The first few elements are compared linearly, which is fastest for typical
/// lists; further ones are hashed, so that a long list sent by a client does not take quadratic time.
pub(super) struct Seen<T> {
    few: Vec<T>,
    many: HashSet<T>,
}

impl<T: Eq + Hash> Seen<T> {
    // Typical lists (containers, ports, volumes) are no longer than this.
    const FEW: usize = 8;

    pub(crate) fn new() -> Self {
        Self {
            few: Vec::new(),
            many: HashSet::new(),
        }
    }

    /// Whether `value` was inserted.
    pub(crate) fn contains(&self, value: &T) -> bool {
        // Nothing is hashed until the short list has overflowed.
        self.few.contains(value) || (!self.many.is_empty() && self.many.contains(value))
    }

    /// Inserts `value`; false if it was present.
    pub(crate) fn insert(&mut self, value: T) -> bool {
        pause();
        if self.few.contains(&value) {
            false
        } else if self.few.len() < Self::FEW {
            self.few.push(value);
            true
        } else {
            self.many.insert(value)
        }
    }
}

impl<T: Eq + Hash> FromIterator<T> for Seen<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut out = Self::new();
        for value in values {
            out.insert(value);
        }
        out
    }
}

/// Rejects unspecified, loopback and link-local addresses; upstream's `ValidateNonSpecialIP`.
pub(super) fn non_special_ip(out: &mut ErrorList, path: &FieldPath, text: &str) {
    let Some(ip) = validation::parse_ip(text) else {
        out.push(FieldError::invalid(path, text, "must be a valid IP address"));
        return;
    };
    let (link_local, link_local_multicast) = match ip {
        // 224.0.0.0/24, the local network control block: Go's `IsLinkLocalMulticast`.
        std::net::IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        std::net::IpAddr::V6(v6) => {
            let s = v6.segments();
            // Multicast with any flags and link-local scope.
            (s[0] & 0xffc0 == 0xfe80, s[0] & 0xff0f == 0xff02)
        }
    };
    let why = if ip.is_unspecified() {
        format!("may not be unspecified ({text})")
    } else if ip.is_loopback() {
        "may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned()
    } else if link_local {
        "may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned()
    } else if link_local_multicast {
        "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned()
    } else {
        return;
    };
    out.push(FieldError::invalid(path, text, why));
}

/// Protocols in the order of upstream's error messages.
pub(super) const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
/// Upstream's message for a change of an immutable field.
pub(super) const IMMUTABLE: &str = "field is immutable";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seen_finds_linear_and_hashed_elements() {
        let mut seen = Seen::new();
        for i in 0..100 {
            assert!(!seen.contains(&i) && seen.insert(i) && seen.contains(&i) && !seen.insert(i));
        }
        assert!((0..100).all(|i| seen.contains(&i)) && !seen.contains(&100));
    }

    #[test]
    fn set_defaults_fills_absent_and_null_members() {
        let mut v = crate::json!({"a": {"b": 1, "d": null}});
        set_defaults(
            &mut v,
            &["a"],
            ["a", "b", "c", "d"].into_iter().map(|k| (k, Value::from(2i64))),
        );
        assert_eq!(v, crate::json!({"a": {"a": 2, "b": 1, "c": 2, "d": 2}}));
        set_defaults(&mut v, &["x", "y"], std::iter::once(("z", Value::from("1"))));
        assert_eq!(v.at(&["x", "y", "z"]).as_str(), Some("1"));
        set_defaults(&mut v, &["none"], std::iter::empty());
        assert!(v.get("none").is_null());
    }

    #[test]
    fn special_addresses_have_specific_messages() {
        let p = FieldPath::new("ip");
        let why = |s: &str| {
            let mut out = ErrorList::new();
            non_special_ip(&mut out, &p, s);
            out.first().map(|e: &FieldError| e.detail.clone()).unwrap_or_default()
        };
        assert_eq!(why("10.0.0.1"), "");
        assert_eq!(why("2001:db8::1"), "");
        assert_eq!(why("0.0.0.0"), "may not be unspecified (0.0.0.0)");
        assert!(why("::1").contains("loopback") && why("fe80::1").contains("link-local range"));
        assert!(why("224.0.0.9").contains("multicast") && why("ff02::1").contains("multicast"));
        assert_eq!(why("x"), "must be a valid IP address");
    }

    #[test]
    fn a_nil_pointer_is_required_and_an_empty_string_unsupported() {
        let errors = |v: Value| {
            let mut out = ErrorList::new();
            required_pointer(&mut out, &v, "a", &FieldPath::default(), &["x"]);
            out.first().map(ToString::to_string).unwrap_or_default()
        };
        assert_eq!(errors(crate::json!({})), "a: Required value");
        assert_eq!(
            errors(crate::json!({"a": ""})),
            "a: Unsupported value: \"\": supported values: \"x\""
        );
        assert_eq!(errors(crate::json!({"a": "x"})), "");
    }
}
