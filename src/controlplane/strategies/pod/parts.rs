//! What the subresources of a pod take from a request, and what they keep.

use crate::apimachinery::value::Value;
use crate::controlplane::fields::restore;
use crate::controlplane::strategies::common::keep_meta;
use std::collections::HashMap;

/// `pods/ephemeralcontainers`: everything is as it was but these, and who owns what.
pub(super) fn keep_all_but_ephemeral_containers(new: &mut Value, old: &Value) {
    let mut pod = old.clone();
    for path in [
        &["metadata", "managedFields"][..],
        &["metadata", "resourceVersion"],
        &["spec", "ephemeralContainers"],
    ] {
        restore(&mut pod, new, path);
    }
    *new = pod;
}

/// `pods/resize`: everything is as it was but resources and resize policies. Where containers came, went or were
/// renamed, the request goes on as it is, for validation to refuse.
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

/// A kubelet that knows nothing of observed generations does not undo what one that does has said.
pub(super) fn keep_observed_generations(new: &mut Value, old: &Value) {
    const KEY: &str = "observedGeneration";
    if new.at(&["status", KEY]).as_i64().unwrap_or(0) == 0 {
        restore(new, old, &["status", KEY]);
    }
    // Of several of one type the first counts.
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
    fn a_resize_takes_resources_and_nothing_else() {
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
    fn ephemeral_containers_alone_are_taken() {
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
