//! The conditions in the status of a CustomResourceDefinition.

use crate::apimachinery::value::Value;
use crate::json;

const CONDITIONS: [&str; 2] = ["status", "conditions"];

/// A condition by type.
pub fn find<'a>(definition: &'a Value, kind: &str) -> Option<&'a Value> {
    let all = definition.at(&CONDITIONS).items();
    all.iter().find(|c| c.str_at(&["type"]) == kind)
}

/// Whether a condition is `True`.
pub fn holds(definition: &Value, kind: &str) -> bool {
    find(definition, kind).is_some_and(|c| c.str_at(&["status"]) == "True")
}

/// Removes a condition.
pub fn remove(definition: &mut Value, kind: &str) {
    let mut all = definition.at(&CONDITIONS).items().to_vec();
    let before = all.len();
    all.retain(|c| c.str_at(&["type"]) != kind);
    if all.len() != before {
        definition.set(&CONDITIONS, all);
    }
}

/// Sets a condition. The transition time is kept if the status does not change.
pub fn set(definition: &mut Value, kind: &str, status: &str, reason: &str, message: &str, now: &str) {
    let mut all = definition.at(&CONDITIONS).items().to_vec();
    let since = match find(definition, kind) {
        Some(old) if old.str_at(&["status"]) == status => old.get("lastTransitionTime").clone(),
        _ => now.into(),
    };
    let mut new = json!({"type": kind, "status": status, "reason": reason, "message": message});
    new.set(&["lastTransitionTime"], since);
    match all.iter_mut().find(|c| c.str_at(&["type"]) == kind) {
        Some(old) => *old = new,
        None => all.push(new),
    }
    definition.set(&CONDITIONS, all);
}
