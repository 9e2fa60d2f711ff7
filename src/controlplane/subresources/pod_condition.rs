//! Conditions of pods that the server sets when it binds or evicts them.

use crate::apimachinery::time;
use crate::apimachinery::value::Value;

/// Adds a condition (`type`, `status`, and reason and message if any) to the pod's status, or replaces the one
/// of its type in place (upstream's `UpdatePodCondition` in `pkg/api/pod/util.go`). The transition time belongs
/// to the status: it is kept while that is the same.
pub(super) fn update_pod_condition(pod: &mut Value, mut condition: Value) {
    let mut all = pod.at(&["status", "conditions"]).items().to_vec();
    let was = all
        .iter()
        .position(|c| c.str_at(&["type"]) == condition.str_at(&["type"]));
    let since = was
        .map(|i| &all[i])
        .filter(|old| old.str_at(&["status"]) == condition.str_at(&["status"]))
        .map_or_else(|| time::now().into(), |old| old.get("lastTransitionTime").clone());
    // Go writes this time even if it is unset.
    condition.set(&["lastProbeTime"], Value::Null);
    condition.set(&["lastTransitionTime"], since);
    match was {
        Some(i) => all[i] = condition,
        None => all.push(condition),
    }
    pod.set(&["status", "conditions"], all);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn conditions_are_replaced_in_place_and_keep_their_transition_time() {
        let then = "2020-01-01T00:00:00Z";
        let mut pod = json!({"status": {"conditions": [
            {"type": "PodScheduled", "status": "True", "reason": "old", "lastTransitionTime": (then)},
            {"type": "Ready", "status": "False", "lastTransitionTime": (then)}]}});
        for kind in ["PodScheduled", "Ready", "New"] {
            update_pod_condition(&mut pod, json!({"type": (kind), "status": "True"}));
        }
        let all = pod.at(&["status", "conditions"]).items();
        let kinds: Vec<&str> = all.iter().map(|c| c.str_at(&["type"])).collect();
        assert_eq!(kinds, ["PodScheduled", "Ready", "New"]);
        assert!(all[0].get("reason").is_null());
        assert_eq!(all[0].str_at(&["lastTransitionTime"]), then);
        assert_ne!(all[1].str_at(&["lastTransitionTime"]), then);
    }
}
