//! Strategy of namespaces, following upstream's `pkg/registry/core/namespace/strategy.go`.
//!
//! Every namespace has its name as a label. Deletion takes two steps: the namespace is marked `Terminating`,
//! and is removed once the namespace controller has emptied it and cleared `spec.finalizers`.

use super::common::keep_all_but_status;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::gvk::GroupResource;
use crate::apimachinery::object::{ObjectView, restore};
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::validation::qualified_name;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{invalid_each, set_default_str, strings};
use crate::registry::strategy::{DeleteStrategy, NameRule, Rules, Strategy, reset_spec_or_status};

/// Label that holds the namespace's name, so that selectors can match on it.
pub(crate) const NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// Entry of `spec.finalizers` that the namespace controller removes once the namespace is empty.
pub(crate) const FINALIZER: &str = "kubernetes";
/// Namespaces that cannot be deleted; upstream's `NamespaceLifecycle` admission protects the same ones.
pub(crate) const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

pub(crate) struct Namespace;

fn label(object: &mut Value) {
    let name = object.name().to_owned();
    if !name.is_empty() {
        object.set(&["metadata", "labels", NAME_LABEL], name);
    }
}

/// Validates `spec.finalizers`. Upstream's error paths have an index on `finalize`, but none on create.
pub(crate) fn finalizers(object: &Value, indexed: bool) -> ErrorList {
    let mut out = ErrorList::new();
    let path = FieldPath::new("spec").child("finalizers");
    for (i, name) in strings(object.at(&["spec", "finalizers"])).into_iter().enumerate() {
        let at = if indexed { path.index(i) } else { path.clone() };
        let messages = qualified_name(name);
        invalid_each(&mut out, &at, name, messages);
        // As upstream, in addition to the errors above: a malformed name without a slash has two.
        if !name.contains('/') && !matches!(name, "kubernetes" | "orphan" | "foregroundDeletion") {
            out.push(FieldError::invalid(
                &at,
                name,
                "name is neither a standard finalizer name nor is it fully qualified",
            ));
        }
    }
    out
}

impl Strategy for Namespace {
    fn rules(&self) -> Rules {
        Rules::named(NameRule::Label)
    }

    fn default(&self, object: &mut Value) {
        // Also when an object is read: namespaces stored before the label existed get it.
        label(object);
        set_default_str(object, &["status", "phase"], "Active");
    }

    fn prepare_create(&self, object: &mut Value) {
        label(object);
        object.set(&["status"], crate::json!({"phase": "Active"}));
        if !strings(object.at(&["spec", "finalizers"])).contains(&FINALIZER) {
            let mut all = object.at(&["spec", "finalizers"]).items().to_vec();
            all.push(FINALIZER.into());
            object.set(&["spec", "finalizers"], all);
        }
    }

    fn validate_create(&self, object: &Value) -> ErrorList {
        finalizers(object, false)
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        // `spec.finalizers` changes only through the `finalize` subresource.
        label(new);
        restore(new, old, &["spec"]);
        restore(new, old, &["status"]);
    }

    fn validate_update(&self, _new: &Value, _old: &Value) -> ErrorList {
        ErrorList::new()
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        label(new);
        keep_all_but_status(new, old);
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> ErrorList {
        // Upstream's path has a capital `P`.
        let path = FieldPath::new("status").child("Phase");
        let phase = new.str_at(&["status", "phase"]);
        let (want, when) = if new.is_being_deleted() {
            ("Terminating", "not empty")
        } else {
            ("Active", "empty")
        };
        if phase == want {
            return ErrorList::new();
        }
        ErrorList::from(vec![FieldError::invalid_enum(
            &path,
            phase,
            format!("may only be '{want}' if `deletionTimestamp` is {when}"),
        )])
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        reset_spec_or_status(subresource)
    }

    fn deletion(&self) -> Option<&dyn DeleteStrategy> {
        Some(self)
    }
}

impl DeleteStrategy for Namespace {
    fn check(&self, object: &Value) -> Result<()> {
        if IMMORTAL.contains(&object.name()) {
            return Err(Status::forbidden(
                &GroupResource::new("", "namespaces"),
                object.name(),
                "this namespace may not be deleted",
            ));
        }
        Ok(())
    }

    fn holds(&self, object: &Value) -> bool {
        // The first delete only marks a namespace, even one without finalizers.
        !object.is_being_deleted() || !object.at(&["spec", "finalizers"]).items().is_empty()
    }

    fn grace(&self, _object: &Value, _requested: Option<i64>) -> Option<i64> {
        None
    }

    fn mark(&self, object: &mut Value, _old: &Value) {
        object.set(&["status", "phase"], "Terminating");
        // Upstream deletes namespaces by a path of their own, which sets only the timestamp.
        object.unset_meta("deletionGracePeriodSeconds");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::json;

    #[test]
    fn new_namespace_is_active_with_label_and_finalizer() {
        let mut v = json!({"metadata": {"name": "a", "labels": {NAME_LABEL: "b"}}, "status": {"phase": "Gone"}});
        Namespace.prepare_create(&mut v);
        assert_eq!(
            v,
            json!({"metadata": {"name": "a", "labels": {NAME_LABEL: "a"}}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}})
        );
        v.set(&["spec", "finalizers"], json!(["nodomain"]));
        assert_eq!(
            aggregate(&Namespace.validate_create(&v)),
            "spec.finalizers: Invalid value: \"nodomain\": name is neither a standard finalizer name nor is it fully qualified"
        );
        assert_eq!(finalizers(&v, true)[0].field, "spec.finalizers[0]");
    }

    #[test]
    fn update_keeps_finalizers_and_status() {
        let old =
            json!({"metadata": {"name": "a"}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}});
        let mut new = json!({"metadata": {"name": "a"}, "spec": {}});
        Namespace.prepare_update(&mut new, &old);
        assert_eq!(new.get("spec"), old.get("spec"));
        assert_eq!(new.label(NAME_LABEL), Some("a"));
        assert!(Namespace.holds(&new));
        let mut empty = json!({"metadata": {"name": "a"}, "spec": {}});
        assert!(Namespace.holds(&empty), "the first delete marks");
        empty.set_meta("deletionTimestamp", "2026-01-01T00:00:00Z");
        assert!(!Namespace.holds(&empty));
    }

    #[test]
    fn phase_must_match_the_deletion_timestamp() {
        let v = json!({"metadata": {"name": "a"}, "status": {"phase": "Terminating"}});
        assert_eq!(
            aggregate(&Namespace.validate_status_update(&v, &v)),
            "status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty"
        );
        let odd = json!({"status": {"phase": "<"}});
        assert!(
            aggregate(&Namespace.validate_status_update(&odd, &odd))
                .starts_with("status.Phase: Invalid value: \"\\u003c\": may")
        );
        assert!(Namespace.check(&json!({"metadata": {"name": "kube-public"}})).is_err());
        assert!(
            Namespace
                .check(&json!({"metadata": {"name": "kube-node-lease"}}))
                .is_ok()
        );
    }

    #[test]
    fn malformed_finalizer_yields_two_errors() {
        let found = finalizers(&json!({"spec": {"finalizers": ["-"]}}), false);
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn phase_defaults_to_active() {
        let mut v = json!({"metadata": {"name": "a"}});
        Namespace.default(&mut v);
        assert_eq!(v.str_at(&["status", "phase"]), "Active");
    }
}
