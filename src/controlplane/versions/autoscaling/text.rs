//! Writes JSON like Go's encoder for structs: members in declaration order, not sorted like those of a
//! `Value`.

use crate::apimachinery::codec::json;
use crate::apimachinery::value::Value;

/// An object; members that are `None` are omitted.
pub(super) fn object<const N: usize>(members: [(&str, Option<String>); N]) -> String {
    // Names are plain ASCII, so Rust's quotes are those of JSON.
    let members = members.into_iter().filter_map(|(k, v)| Some(format!("{k:?}:{}", v?)));
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

pub(super) fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

/// A scalar without `omitempty`: written as `zero` if absent.
pub(super) fn always(v: &Value, zero: &str) -> Option<String> {
    Some(if v.is_null() {
        zero.to_owned()
    } else {
        json::to_string(v)
    })
}

/// A member with `omitempty`: `None` if absent or empty.
pub(super) fn given(v: &Value) -> Option<String> {
    // Zero is kept: numbers with `omitempty` are pointers here.
    (!v.is_null() && v.as_str() != Some("")).then(|| json::to_string(v))
}

/// Encodes a `metav1.LabelSelector`.
pub(super) fn selector(v: &Value) -> Option<String> {
    let labels = v.get("matchLabels");
    let expressions = v.get("matchExpressions").items();
    let expression = |e: &Value| {
        object([
            ("key", always(e.get("key"), "\"\"")),
            ("operator", always(e.get("operator"), "\"\"")),
            (
                "values",
                Some(e.get("values")).filter(|v| !v.items().is_empty()).and_then(given),
            ),
        ])
    };
    (!v.is_null()).then(|| {
        object([
            (
                "matchLabels",
                Some(labels).filter(|l| !l.is_empty_value()).and_then(given),
            ),
            (
                "matchExpressions",
                (!expressions.is_empty()).then(|| list(expressions.iter().map(expression))),
            ),
        ])
    })
}
