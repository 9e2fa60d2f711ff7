//! Field handling of pod subresources: restores from the stored pod what a subresource must not change.

use crate::apimachinery::value::Value;
use crate::controlplane::fields::restore;
use crate::controlplane::strategies::common::keep_meta;
use std::collections::HashMap;

/// For `pods/ephemeralcontainers`: restores everything except the ephemeral containers, the managed fields
/// and the resource version.
pub(super) fn keep_all_but_ephemeral_containers(new: &mut Value, old: &Value) {
    let mut pod = old.clone();
    for path in [
        // Metadata of the write itself: its precondition and the ownership computed for it.
        &["metadata", "managedFields"][..],
        &["metadata", "resourceVersion"],
        &["spec", "ephemeralContainers"],
    ] {
        restore(&mut pod, new, path);
    }
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
    keep_meta(new, old);
}

/// Keeps stored observed generations where the update has none, so that an older kubelet does not clear them.
pub(super) fn keep_observed_generations(new: &mut Value, old: &Value) {
    const KEY: &str = "observedGeneration";
    if new.at(&["status", KEY]).as_i64().unwrap_or(0) == 0 {
        restore(new, old, &["status", KEY]);
    }
    // Reversed, so that the first of several conditions with one type wins.
    let was = old.at(&["status", "conditions"]).items().iter().rev();
    let was: HashMap<&str, &Value> = was.map(|c| (c.str_at(&["type"]), c)).collect();
    for condition in crate::controlplane::fields::elements_mut(new, &["status", "conditions"]) {
        if condition.get(KEY).as_i64().unwrap_or(0) == 0
            && let Some(before) = was.get(condition.str_at(&["type"]))
        {
            restore(condition, before, &[KEY]);
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
