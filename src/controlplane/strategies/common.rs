//! Helpers shared by several strategies: generations and the fields a status update preserves.

use crate::apimachinery::object::{ObjectView, restore};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::same;

/// Sets the generation of a new object to 1.
pub(crate) fn first_generation(object: &mut Value) {
    object.set_meta("generation", 1i64);
}

/// Increments the generation if any of these top-level members changed. If none did, the old generation
/// stays: the registry has already copied it to `new`.
pub(crate) fn bump_generation(new: &mut Value, old: &Value, members: &[&str]) {
    if members.iter().any(|m| !same(new.get(m), old.get(m))) {
        let was = old.at(&["metadata", "generation"]).as_i64().unwrap_or(0);
        new.set_meta("generation", was + 1);
    }
}

/// Restores everything but `status` and `metadata` from the stored object, for a status update.
pub(crate) fn keep_all_but_status(new: &mut Value, old: &Value) {
    // Members of both objects, so that those which only the update has are removed. Collected, because `restore`
    // changes one of them.
    let members: Vec<String> = [&*new, old]
        .into_iter()
        .filter_map(Value::as_object)
        .flat_map(|m| m.keys().map(str::to_owned))
        .filter(|k| k != "status" && k != "metadata")
        .collect();
    for key in members {
        restore(new, old, &[&key]);
    }
}

/// Restores labels, annotations, finalizers and owner references, for kinds whose status update may not
/// change them.
pub(crate) fn keep_meta(new: &mut Value, old: &Value) {
    for key in ["labels", "annotations", "finalizers", "ownerReferences"] {
        restore(new, old, &["metadata", key]);
    }
}

/// As [`keep_meta`], and the time of the deletion: upstream's `ResetObjectMetaForStatus`.
pub(crate) fn reset_meta(new: &mut Value, old: &Value) {
    keep_meta(new, old);
    restore(new, old, &["metadata", "deletionTimestamp"]);
}

/// Restores all metadata but the managed fields, which the update itself has changed.
pub(crate) fn keep_all_meta(new: &mut Value, old: &Value) {
    const MANAGED: [&str; 2] = ["metadata", "managedFields"];
    let mut kept = old.clone();
    restore(&mut kept, new, &MANAGED);
    restore(new, &kept, &["metadata"]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn kinds_differ_in_the_metadata_that_a_status_update_may_change() {
        let old = json!({"metadata": {"name": "n", "labels": {"a": "1"}, "managedFields": [1]}});
        let sent = json!({"metadata": {"name": "n", "labels": {"a": "2"}, "managedFields": [2],
            "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 1}});
        let mut new = sent.clone();
        keep_meta(&mut new, &old);
        assert!(new.is_being_deleted());
        reset_meta(&mut new, &old);
        assert!(!new.is_being_deleted());
        assert_eq!(new.at(&["metadata", "deletionGracePeriodSeconds"]), &1i64.into());
        let mut new = sent;
        keep_all_meta(&mut new, &old);
        assert_eq!(
            new,
            json!({"metadata": {"name": "n", "labels": {"a": "1"}, "managedFields": [2]}})
        );
    }

    #[test]
    fn status_update_keeps_the_spec_and_may_change_labels() {
        let old = json!({"kind": "X", "metadata": {"labels": {"a": "1"}}, "spec": {"x": 1}, "status": {}});
        let mut new = json!({"kind": "X", "metadata": {"labels": {"a": "2"}}, "extra": 1, "status": {"y": 1}});
        keep_all_but_status(&mut new, &old);
        assert_eq!(
            new,
            json!({"kind": "X", "metadata": {"labels": {"a": "2"}}, "spec": {"x": 1}, "status": {"y": 1}})
        );
        keep_meta(&mut new, &old);
        assert_eq!(new.label("a"), Some("1"));
    }

    #[test]
    fn generation_increments_only_when_the_spec_changes() {
        let old = json!({"metadata": {"generation": 3}, "spec": {"a": 1}});
        let mut new = json!({"metadata": {"generation": 3, "labels": {"x": "y"}}, "spec": {"a": 1}});
        bump_generation(&mut new, &old, &["spec"]);
        assert_eq!(new.at(&["metadata", "generation"]), &3i64.into());
        new.set(&["spec", "a"], 2i64);
        bump_generation(&mut new, &old, &["spec"]);
        assert_eq!(new.at(&["metadata", "generation"]), &4i64.into());
    }
}
