//! Default requests and limits for containers.

use crate::apimachinery::value::{Str, Value};
use std::collections::BTreeMap;

const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// Adds the defaults missing from a container's requests or limits. Returns the names of the added resources,
/// sorted.
fn fill(container: &mut Value, side: &str, defaults: &BTreeMap<&str, &Value>) -> Vec<String> {
    let there = container.at(&["resources", side]);
    let missing = defaults.iter().filter(|(name, _)| there.get(name).is_null());
    let missing: Vec<(Str, Option<Value>)> = missing
        .map(|(name, value)| (Str::from(*name), Some((*value).clone())))
        .collect();
    let set: Vec<String> = missing.iter().map(|(name, _)| name.to_string()).collect();
    if set.is_empty() {
        return set;
    }
    if there.as_object().is_none() {
        container.set(&["resources", side], Value::object());
    }
    if let Some(map) = container.at_mut(&["resources", side]).and_then(Value::as_object_mut) {
        // All at once: inserting them one by one into the sorted map would be quadratic.
        map.change(missing);
    }
    set
}

/// The container defaults of one LimitRange. If several items name a resource, the last one wins.
fn merged<'a>(range: &'a Value, part: &str) -> BTreeMap<&'a str, &'a Value> {
    let mut all = BTreeMap::new();
    let items = range.at(&["spec", "limits"]).items().iter();
    // Defaults exist for containers only; upstream ignores those of other types.
    for item in items.filter(|item| item.str_at(&["type"]) == "Container") {
        for (name, value) in item.get(part).as_object().into_iter().flat_map(|m| m.iter()) {
            all.insert(name, value);
        }
    }
    all
}

/// Maximum number of values that one LimitRange may add to a pod. Without it, many containers times many
/// defaults would turn a small pod into a very large one.
const MAX: usize = 10_000;

/// The defaults of a LimitRange cannot be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DefaultsError {
    #[error("the defaults of the namespace's LimitRanges would make the pod too large")]
    TooMany,
}

/// Applies the defaults of a LimitRange to the pod's containers, and records them in an annotation as
/// upstream does.
///
/// # Errors
/// If the pod would become too large.
pub(super) fn apply(pod: &mut Value, range: &Value) -> Result<(), DefaultsError> {
    let (limits, requests) = (merged(range, "default"), merged(range, "defaultRequest"));
    if limits.is_empty() && requests.is_empty() {
        return Ok(());
    }
    let mut notes = Vec::new();
    let mut given = 0;
    for (list, what) in [("containers", "container"), ("initContainers", "init container")] {
        let containers = pod.at_mut(&["spec", list]).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            // Before each container, so that the excess is at most the defaults of one.
            if given > MAX {
                return Err(DefaultsError::TooMany);
            }
            let set_limits = fill(container, "limits", &limits);
            let set_requests = fill(container, "requests", &requests);
            // Upstream's annotation lists requests first.
            for (set, side) in [(set_requests, "request"), (set_limits, "limit")] {
                given += set.len();
                if !set.is_empty() {
                    let name = container.str_at(&["name"]);
                    notes.push(format!("{} {side} for {what} {name}", set.join(", ")));
                }
            }
        }
    }
    if !notes.is_empty() {
        let text = format!("LimitRanger plugin set: {}", notes.join("; "));
        pod.set(&["metadata", "annotations", ANNOTATION], text);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::object::ObjectView;
    use crate::json;

    #[test]
    fn the_number_of_applied_defaults_is_bounded() {
        let mut given = Value::object();
        (0..200).for_each(|i| given.set(&[&format!("x/r{i}")], "1"));
        let mut range = json!({"spec": {"limits": [{"type": "Container"}]}});
        let mut item = range.at(&["spec", "limits"]).items()[0].clone();
        item.set(&["default"], given);
        range.set(&["spec", "limits"], vec![item]);
        let pod = |n: usize| {
            let mut pod = json!({});
            pod.set(&["spec", "containers"], vec![json!({"name": "a"}); n]);
            pod
        };
        apply(&mut pod(20), &range).unwrap();
        assert_eq!(apply(&mut pod(10_000), &range), Err(DefaultsError::TooMany));
    }

    #[test]
    fn missing_values_are_defaulted_and_annotated() {
        let range = json!({"spec": {"limits": [
            {"type": "Container", "default": {"cpu": "1", "memory": "1Gi"}, "defaultRequest": {"cpu": "100m"}},
            {"type": "Pod", "default": {"x": "1"}}]}});
        let mut pod = json!({"spec": {
            "containers": [{"name": "a", "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "2"}}}, {"name": "b"}],
            "initContainers": [{"name": "i", "resources": {"limits": {"memory": "1"}}}]}});
        apply(&mut pod, &range).unwrap();
        assert_eq!(
            pod.annotation(ANNOTATION),
            Some(
                "LimitRanger plugin set: memory limit for container a; cpu request for container b; cpu, memory limit for \
                 container b; cpu request for init container i; cpu limit for init container i"
            )
        );
        let containers = pod.at(&["spec", "containers"]).items();
        assert_eq!(
            containers[1].get("resources"),
            &json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m"}})
        );
        assert_eq!(containers[0].str_at(&["resources", "limits", "cpu"]), "2");
    }

    #[test]
    fn a_range_without_defaults_changes_nothing() {
        let range = json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}});
        let before = json!({"spec": {"containers": [{"name": "a"}]}});
        let mut pod = before.clone();
        apply(&mut pod, &range).unwrap();
        assert_eq!(pod, before);
    }
}
