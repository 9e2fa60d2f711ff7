//! Field handling of pod subresources: restores from the stored pod what a subresource must not change.

use crate::apimachinery::object::restore;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::elements_mut;
use crate::controlplane::strategies::common::reset_meta;
use std::collections::{HashMap, VecDeque};

/// For `pods/ephemeralcontainers`: restores everything except the ephemeral containers and the metadata that a status
/// update may change too.
pub(super) fn keep_all_but_ephemeral_containers(new: &mut Value, old: &Value) {
    let mut pod = old.clone();
    restore(&mut pod, new, &["spec", "ephemeralContainers"]);
    restore(&mut pod, new, &["metadata"]);
    reset_meta(&mut pod, old);
    *new = pod;
}

/// For `pods/resize`: restores everything except resources and resize policies. If containers were added,
/// removed or renamed, they are passed on unchanged, so that validation rejects them.
pub(super) fn keep_all_but_resources(new: &mut Value, old: &Value) {
    const LISTS: [&str; 2] = ["containers", "initContainers"];
    let list = |v: &Value, key: &str| v.at(&["spec", key]).items().to_vec();
    if LISTS.iter().any(|k| list(new, k).len() != list(old, k).len()) {
        return;
    }
    // From the stored pod up, so that whatever a resize does not name stays.
    let mut spec = old.get("spec").clone();
    restore(&mut spec, new.get("spec"), &["resources"]);
    for key in LISTS {
        let (sent, was) = (list(new, key), list(old, key));
        if sent.is_empty() {
            continue;
        }
        let renamed = sent.iter().zip(&was).any(|(a, b)| a.get("name") != b.get("name"));
        let taken: Vec<Value> = if renamed {
            sent
        } else {
            let resized = was.into_iter().zip(&sent).map(|(mut c, sent)| {
                restore(&mut c, sent, &["resources"]);
                restore(&mut c, sent, &["resizePolicy"]);
                c
            });
            resized.collect()
        };
        spec.set(&[key], taken);
    }
    new.set(&["spec"], spec);
    restore(new, old, &["status"]);
    reset_meta(new, old);
}

/// Keeps stored observed generations where the update has none, so that an older kubelet does not clear them.
pub(super) fn keep_observed_generations(new: &mut Value, old: &Value) {
    const KEY: &str = "observedGeneration";
    if new.at(&["status", KEY]).as_i64().unwrap_or(0) == 0 {
        restore(new, old, &["status", KEY]);
    }
    // A list per type: conditions may share one, and are then paired in their order.
    let mut was: HashMap<&str, VecDeque<&Value>> = HashMap::new();
    for condition in old.at(&["status", "conditions"]).items() {
        was.entry(condition.str_at(&["type"])).or_default().push_back(condition);
    }
    for condition in elements_mut(new, &["status", "conditions"]) {
        let before = was.get_mut(condition.str_at(&["type"])).and_then(VecDeque::pop_front);
        if condition.get(KEY).as_i64().unwrap_or(0) == 0
            && let Some(before) = before
        {
            restore(condition, before, &[KEY]);
        }
    }
}

/// Drops fields of the status whose feature gates are off in v1.36 (`dropDisabledPodStatusFields` upstream).
pub(super) fn drop_disabled_status(pod: &mut Value) {
    // `DRANodeAllocatableResources`
    pod.unset(&["status", "nodeAllocatableResourceClaimStatuses"]);
    // `ImageVolumeWithDigest`
    for list in [
        "containerStatuses",
        "initContainerStatuses",
        "ephemeralContainerStatuses",
    ] {
        for status in elements_mut(pod, &["status", list]) {
            for mount in elements_mut(status, &["volumeMounts"]) {
                mount.unset(&["volumeStatus"]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn resize_changes_only_resources() {
        let old =
            json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [{"name": "a", "image": "i"}]}});
        let mut new = json!({"metadata": {"name": "p", "labels": {"x": "y"}}, "spec": {"nodeName": "m", "containers": [
            {"name": "a", "image": "j", "resources": {"limits": {"cpu": "1"}}}]}});
        keep_all_but_resources(&mut new, &old);
        assert_eq!(
            new,
            json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [
                {"name": "a", "image": "i", "resources": {"limits": {"cpu": "1"}}}]}})
        );
        let mut more = json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}});
        let sent = more.clone();
        keep_all_but_resources(&mut more, &old);
        assert_eq!(more, sent);
    }

    #[test]
    fn subresources_reset_the_metadata_that_a_status_update_resets() {
        let spec = json!({"containers": [{"name": "a"}]});
        let old = json!({"metadata": {"name": "p", "labels": {"x": "y"}}, "spec": (spec.clone())});
        for keep in [keep_all_but_ephemeral_containers, keep_all_but_resources] {
            let mut new = json!({"metadata": {"name": "p", "deletionTimestamp": "2030-01-01T00:00:00Z",
                "deletionGracePeriodSeconds": 1, "generateName": "g", "labels": {"x": "z"}}, "spec": (spec.clone())});
            keep(&mut new, &old);
            // The rest is for validation to judge.
            let want = json!({"name": "p", "deletionGracePeriodSeconds": 1, "generateName": "g", "labels": {"x": "y"}});
            assert_eq!(new.get("metadata"), &want);
        }
    }

    #[test]
    fn conditions_of_one_type_keep_their_own_generations() {
        let with = |generations: [i64; 3]| {
            let conditions: Vec<Value> = generations
                .iter()
                .map(|n| json!({"type": "a", "observedGeneration": (*n)}))
                .collect();
            let mut v = json!({});
            v.set(&["status", "conditions"], conditions);
            v
        };
        let mut new = with([0, 5, 0]);
        keep_observed_generations(&mut new, &with([1, 2, 3]));
        assert_eq!(new, with([1, 5, 3]));
    }

    #[test]
    fn only_ephemeral_containers_change() {
        let old = json!({"metadata": {"name": "p", "resourceVersion": "1"}, "spec": {"nodeName": "n"}});
        let mut new = json!({"metadata": {"name": "p", "resourceVersion": "1", "labels": {"x": "y"}},
            "spec": {"nodeName": "m", "ephemeralContainers": [{"name": "d"}]}});
        keep_all_but_ephemeral_containers(&mut new, &old);
        assert_eq!(
            new,
            json!({"metadata": {"name": "p", "resourceVersion": "1"}, "spec": {"nodeName": "n", "ephemeralContainers": [{"name": "d"}]}})
        );
    }
}
