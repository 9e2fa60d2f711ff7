//! Cell formatting shared by the printers of several kinds: ages, label maps, shortened lists.

use crate::apimachinery::object::ObjectView;
use crate::apimachinery::table::human_duration;
use crate::apimachinery::time;
use crate::apimachinery::value::Value;

/// The time elapsed since `timestamp` in kubectl's format: `<unknown>` if absent, `<invalid>` if in the
/// future.
pub(crate) fn since(timestamp: &Value) -> String {
    // An unreadable timestamp spoils one cell, not the whole list.
    match timestamp.as_str().and_then(|s| time::parse(s).ok()) {
        None => "<unknown>".to_owned(),
        Some(t) => human_duration((::time::OffsetDateTime::now_utc() - t).whole_seconds()),
    }
}

/// The `Age` cell: the time elapsed since `metadata.creationTimestamp`.
pub(crate) fn age(object: &Value) -> Value {
    since(object.at(&["metadata", "creationTimestamp"])).into()
}

/// The `Name` cell.
pub(crate) fn name(object: &Value) -> Value {
    object.name().into()
}

/// A string map as `a=b,c=d`, or `<none>` if empty.
pub(crate) fn labels(map: &Value) -> String {
    let pairs: Vec<String> = map
        .as_object()
        .into_iter()
        .flat_map(|m| m.iter())
        .map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or("")))
        .collect();
    none_if_empty(pairs.join(","))
}

/// `s`, or `<none>` if it is empty.
pub(crate) fn none_if_empty(s: String) -> String {
    if s.is_empty() { "<none>".to_owned() } else { s }
}

/// Joins at most three entries and counts the others (`a,b,c + 2 more...`); `none` if there are no entries.
pub(crate) fn first_three(all: &[String], none: &str) -> String {
    if all.is_empty() {
        return none.to_owned();
    }
    let shown = all.iter().take(3).cloned().collect::<Vec<_>>().join(",");
    match all.len().saturating_sub(3) {
        0 => shown,
        more => format!("{shown} + {more} more..."),
    }
}

/// The first status condition of type `kind`. Conditions are keyed by type, so there is at most one in a valid
/// object.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object
        .at(&["status", "conditions"])
        .items()
        .iter()
        .find(|c| c.str_at(&["type"]) == kind)
}
