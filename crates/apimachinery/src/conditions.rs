//! The conditions in the status of an object (`status.conditions`), a list with one element per `type`.

use crate::json;
use crate::value::Value;

const CONDITIONS: [&str; 2] = ["status", "conditions"];

/// A condition by type.
pub fn find<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let all = object.at(&CONDITIONS).items();
    all.iter().find(|c| c.str_at(&["type"]) == kind)
}

/// Whether a condition is `True`.
pub fn holds(object: &Value, kind: &str) -> bool {
    find(object, kind).is_some_and(|c| c.str_at(&["status"]) == "True")
}

/// Removes a condition.
pub fn remove(object: &mut Value, kind: &str) {
    let mut all = object.at(&CONDITIONS).items().to_vec();
    let before = all.len();
    all.retain(|c| c.str_at(&["type"]) != kind);
    if all.len() != before {
        object.set(&CONDITIONS, all);
    }
}

/// Sets a condition. The transition time is kept if the status does not change.
pub fn set(object: &mut Value, kind: &str, status: &str, reason: &str, message: &str, now: &str) {
    let mut all = object.at(&CONDITIONS).items().to_vec();
    let since = match find(object, kind) {
        Some(old) if old.str_at(&["status"]) == status => old.get("lastTransitionTime").clone(),
        _ => now.into(),
    };
    let mut new = json!({"type": kind, "status": status, "reason": reason, "message": message});
    new.set(&["lastTransitionTime"], since);
    match all.iter_mut().find(|c| c.str_at(&["type"]) == kind) {
        Some(old) => *old = new,
        None => all.push(new),
    }
    object.set(&CONDITIONS, all);
}
