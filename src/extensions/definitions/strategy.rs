//! Strategy of CustomResourceDefinitions, following upstream's
//! `apiextensions-apiserver/pkg/registry/customresourcedefinition/strategy.go`.

use super::validation;
use crate::apimachinery::conditions;
use crate::apimachinery::field::ErrorList;
use crate::apimachinery::object::{ObjectView, restore};
use crate::apimachinery::status::Result;
use crate::apimachinery::time;
use crate::apimachinery::value::Value;
use crate::extensions::custom_resources::FINALIZER;
use crate::registry::strategy::{DeleteStrategy, Rules, Strategy, reset_spec_or_status};

pub(crate) struct CustomResourceDefinition;

/// Name of the first version with `storage: true`.
fn storage_version(v: &Value) -> Option<&str> {
    let versions = v.at(&["spec", "versions"]).items();
    let found = versions.iter().find(|x| x.get("storage").as_bool() == Some(true));
    found.map(|x| x.str_at(&["name"]))
}

fn set_if_empty(v: &mut Value, path: &[&str], value: impl Into<Value>) {
    if v.at(path).is_empty_value() {
        v.set(path, value);
    }
}

/// Adds the storage version to `status.storedVersions`.
fn note_storage_version(v: &mut Value) {
    // Even an empty name, as upstream: validation refuses it.
    let Some(stored) = storage_version(v).map(str::to_owned) else {
        return;
    };
    let mut all = v.at(&["status", "storedVersions"]).items().to_vec();
    // Order matters: the last one added is the newest, and existing ones keep their place.
    if !all.iter().any(|x| x.as_str() == Some(&stored)) {
        all.push(stored.into());
        v.set(&["status", "storedVersions"], all);
    }
}

impl Strategy for CustomResourceDefinition {
    /// Schemas are compiled, and their defaults validated.
    fn rules(&self) -> Rules {
        Rules {
            costly_validation: true,
            names_by_content: Some(validation::name),
            ..Rules::DEFAULT
        }
    }

    fn default(&self, v: &mut Value) {
        let kind = v.str_at(&["spec", "names", "kind"]).to_owned();
        // Upstream defaults from the kind, and only if there is one.
        if !kind.is_empty() {
            set_if_empty(v, &["spec", "names", "singular"], kind.to_lowercase());
            set_if_empty(v, &["spec", "names", "listKind"], format!("{kind}List"));
        }
        if v.at(&["spec", "conversion"]).is_null() {
            // Upstream's default of the whole struct.
            v.set(&["spec", "conversion", "strategy"], "None");
        }
        const SERVICE: [&str; 5] = ["spec", "conversion", "webhook", "clientConfig", "service"];
        if let Some(service) = v.at_mut(&SERVICE).filter(|s| !s.is_null())
            && service.get("port").is_null()
        {
            // A service without a port means HTTPS.
            service.set(&["port"], 443i64);
        }
        // Only fills an empty list: later additions are made on update.
        if v.at(&["status", "storedVersions"]).items().is_empty() {
            note_storage_version(v);
        }
    }

    fn prepare_create(&self, v: &mut Value) {
        let status =
            // Upstream serialises the status of a new definition with these empty members.
            crate::json!({"acceptedNames": {"kind": "", "plural": ""}, "conditions": null, "storedVersions": null});
        v.set(&["status"], status);
        note_storage_version(v);
        v.set_meta("generation", 1i64);
    }

    fn validate_create(&self, v: &Value) -> ErrorList {
        validation::create(v)
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        // The status cannot be written through the main resource.
        restore(new, old, &["status"]);
        if new.get("spec") != old.get("spec") {
            let was = old.at(&["metadata", "generation"]).as_i64().unwrap_or(0);
            // Only changes of the spec count, as for all kinds with a status.
            new.set_meta("generation", was + 1);
        }
        // Versions are only ever added here, since objects may still be stored in an older one. An
        // administrator removes them through the status after migrating.
        note_storage_version(new);
    }

    fn validate_update(&self, new: &Value, old: &Value) -> ErrorList {
        validation::update(new, old)
    }

    /// As upstream, only the spec is restored: the controllers change finalizers through the status
    /// subresource.
    fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        restore(new, old, &["spec"]);
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> ErrorList {
        validation::status(new)
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        validation::format_warnings(new, old)
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        reset_spec_or_status(subresource)
    }

    fn deletion(&self) -> Option<&dyn DeleteStrategy> {
        Some(self)
    }
}

/// The first delete only marks the definition. The finalizing controller deletes the custom resources and
/// then removes the finalizer.
impl DeleteStrategy for CustomResourceDefinition {
    fn check(&self, _v: &Value) -> Result<()> {
        Ok(())
    }

    fn holds(&self, v: &Value) -> bool {
        !v.is_being_deleted()
    }

    fn grace(&self, _v: &Value, _requested: Option<i64>) -> Option<i64> {
        None
    }

    fn mark(&self, v: &mut Value, old: &Value) {
        // A second delete must not restart the termination or move its transition time.
        if old.is_being_deleted() {
            return;
        }
        // Unlike for other kinds, the propagation policy does not matter.
        let mut finalizers = old.finalizers();
        if !finalizers.contains(&FINALIZER) {
            finalizers.push(FINALIZER);
        }
        let finalizers: Vec<Value> = finalizers.into_iter().map(Value::from).collect();
        v.set_meta("finalizers", finalizers);
        // Definitions have no grace period; the generic store has set one.
        v.unset_meta("deletionGracePeriodSeconds");
        // Marking is not a change of the spec, so the generation that the store has incremented is put back.
        v.set_meta("generation", old.at(&["metadata", "generation"]).clone());
        conditions::set(
            v,
            "Terminating",
            "True",
            "InstanceDeletionPending",
            "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
            &time::now(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn names_and_stored_versions_are_defaulted() {
        let mut v = json!({"spec": {"names": {"kind": "Widget", "plural": "widgets"}, "versions": [{"name": "v1", "storage": true}]}});
        CustomResourceDefinition.default(&mut v);
        CustomResourceDefinition.prepare_create(&mut v);
        assert_eq!(v.str_at(&["spec", "names", "listKind"]), "WidgetList");
        assert_eq!(v.str_at(&["spec", "names", "singular"]), "widget");
        assert_eq!(v.str_at(&["spec", "conversion", "strategy"]), "None");
        assert_eq!(v.at(&["status", "storedVersions"]), &json!(["v1"]));
        let mut new = v.clone();
        new.set(
            &["spec", "versions"],
            json!([{"name": "v1", "storage": false}, {"name": "v2", "storage": true}]),
        );
        CustomResourceDefinition.prepare_update(&mut new, &v);
        assert_eq!(new.at(&["status", "storedVersions"]), &json!(["v1", "v2"]));
        assert_eq!(new.at(&["metadata", "generation"]), &2i64.into());
    }

    #[test]
    fn a_storage_version_without_a_name_is_stored_too() {
        let mut v = json!({"spec": {"versions": [{"storage": true}, {"name": "v1", "storage": true}]}});
        CustomResourceDefinition.prepare_create(&mut v);
        assert_eq!(v.at(&["status", "storedVersions"]), &json!([""]));
    }

    #[test]
    fn a_status_update_may_change_metadata_but_not_the_spec() {
        let old = json!({"metadata": {"finalizers": ["a"]}, "spec": {"group": "g"}, "status": {}});
        let mut new = json!({"metadata": {"finalizers": []}, "spec": {"group": "h"}, "status": {"storedVersions": []}});
        CustomResourceDefinition.prepare_status_update(&mut new, &old);
        assert_eq!(
            new,
            json!({"metadata": {"finalizers": []}, "spec": {"group": "g"}, "status": {"storedVersions": []}})
        );
        assert_eq!(CustomResourceDefinition.reset_fields("status"), ["spec"]);
    }

    #[test]
    fn writes_of_definitions_run_on_the_compute_pool() {
        assert!(CustomResourceDefinition.rules().costly_validation);
    }

    #[test]
    fn the_first_delete_marks_the_definition() {
        let old = json!({"metadata": {"generation": 3, "finalizers": ["x.io/own"]}, "status": {"conditions": [
            {"type": "Established", "status": "True"}]}});
        assert!(CustomResourceDefinition.holds(&old));
        let mut new = old.clone();
        new.set_meta("generation", 4i64);
        new.set_meta("deletionTimestamp", "now");
        new.set_meta("deletionGracePeriodSeconds", 0i64);
        CustomResourceDefinition.mark(&mut new, &old);
        assert_eq!(new.finalizers(), ["x.io/own", FINALIZER]);
        assert_eq!(new.at(&["metadata", "generation"]), &3i64.into());
        assert_eq!(new.at(&["metadata", "deletionGracePeriodSeconds"]), &Value::Null);
        let condition = conditions::find(&new, "Terminating").unwrap();
        assert_eq!(condition.str_at(&["reason"]), "InstanceDeletionPending");
        assert!(
            !CustomResourceDefinition.holds(&new),
            "the finalizer holds it from now on"
        );
        let mut again = new.clone();
        CustomResourceDefinition.mark(&mut again, &new);
        assert_eq!(again, new);
    }
}
