//! The conditions in the status of an object (`status.conditions`), a list with one element per `type`: [`find`],
//! [`holds`], [`set`] and [`remove`]. The callers interpret the conditions.

use crate::json;
use crate::value::Value;

const CONDITIONS: [&str; 2] = ["status", "conditions"];

/// The condition of type `kind`, if the object has one.
pub fn find<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let all = object.at(&CONDITIONS).items();
    all.iter().find(|c| c.str_at(&["type"]) == kind)
}

/// True if the condition of type `kind` has status `True`. An absent condition does not hold.
pub fn holds(object: &Value, kind: &str) -> bool {
    find(object, kind).is_some_and(|c| c.str_at(&["status"]) == "True")
}

/// Removes the condition of type `kind`; leaves the object alone if it has none.
pub fn remove(object: &mut Value, kind: &str) {
    let mut all = object.at(&CONDITIONS).items().to_vec();
    let before = all.len();
    // Conditions are few, so copying the list is cheaper to read than editing it in place, and no change leaves the
    // object alone.
    all.retain(|c| c.str_at(&["type"]) != kind);
    if all.len() != before {
        object.set(&CONDITIONS, all);
    }
}

/// Sets the condition of type `kind`, replacing an earlier one. `now` becomes its transition time unless the status
/// stays the same.
pub fn set(object: &mut Value, kind: &str, status: &str, reason: &str, message: &str, now: &str) {
    let mut all = object.at(&CONDITIONS).items().to_vec();
    let since = match find(object, kind) {
        Some(old) if old.str_at(&["status"]) == status => old.get("lastTransitionTime").clone(),
        // Comparing the status only is upstream's `SetStatusCondition`: a new reason or message is not a transition.
        _ => now.into(),
    };
    let mut new = json!({"type": kind, "status": status, "reason": reason, "message": message});
    new.set(&["lastTransitionTime"], since);
    // Replaced in place, so the order of the list stays stable for clients that diff it.
    match all.iter_mut().find(|c| c.str_at(&["type"]) == kind) {
        Some(old) => *old = new,
        None => all.push(new),
    }
    object.set(&CONDITIONS, all);
}
