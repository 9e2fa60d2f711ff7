//! Moves that many strategies make.

use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{restore, same};

/// A new object's generation.
pub(crate) fn first_generation(object: &mut Value) {
    object.set_meta("generation", 1i64);
}

/// One more than before, where any of these members changed. The registry has copied the old generation already.
pub(crate) fn bump_generation(new: &mut Value, old: &Value, members: &[&str]) {
    if members.iter().any(|m| !same(new.get(m), old.get(m))) {
        let was = old.at(&["metadata", "generation"]).as_i64().unwrap_or(0);
        new.set_meta("generation", was + 1);
    }
}

/// A status write keeps what the main resource says, metadata aside.
pub(crate) fn keep_all_but_status(new: &mut Value, old: &Value) {
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

/// A status write that may not touch labels, annotations, finalizers and owners either (`ResetObjectMetaForStatus`).
pub(crate) fn keep_meta(new: &mut Value, old: &Value) {
    for key in ["labels", "annotations", "finalizers", "ownerReferences"] {
        restore(new, old, &["metadata", key]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn a_status_write_keeps_the_rest_and_may_label() {
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
    fn the_generation_grows_with_the_spec_alone() {
        let old = json!({"metadata": {"generation": 3}, "spec": {"a": 1}});
        let mut new = json!({"metadata": {"generation": 3, "labels": {"x": "y"}}, "spec": {"a": 1}});
        bump_generation(&mut new, &old, &["spec"]);
        assert_eq!(new.at(&["metadata", "generation"]), &3i64.into());
        new.set(&["spec", "a"], 2i64);
        bump_generation(&mut new, &old, &["spec"]);
        assert_eq!(new.at(&["metadata", "generation"]), &4i64.into());
    }
}
