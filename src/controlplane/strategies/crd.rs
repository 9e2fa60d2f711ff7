//! Strategy of CustomResourceDefinitions, following upstream's
//! `apiextensions-apiserver/pkg/registry/customresourcedefinition/strategy.go`.
//!
//! Covers only the stored object; serving the defined resources is left to `extensions`.

use super::common::{bump_generation, first_generation};
use crate::apimachinery::field::ErrorList;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::Result;
use crate::apimachinery::time;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{restore, set_default, set_default_str, strings};
use crate::controlplane::validation;
use crate::registry::strategy::{DeleteStrategy, Strategy};

/// The finalizer of definitions that are being deleted.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Strategy of CustomResourceDefinitions.
pub struct CustomResourceDefinition;

/// Name of the version with `storage: true`, or `""`.
fn storage_version(v: &Value) -> &str {
    let versions = v.at(&["spec", "versions"]).items();
    let found = versions.iter().find(|x| x.get("storage").as_bool() == Some(true));
    found.map_or("", |x| x.str_at(&["name"]))
}

fn empty_status(v: &mut Value) {
    let stored: Vec<Value> = match storage_version(v) {
        "" => Vec::new(),
        name => vec![name.into()],
    };
    let mut status =
        crate::json!({"acceptedNames": {"kind": "", "plural": ""}, "conditions": null, "storedVersions": null});
    if !stored.is_empty() {
        status.set(&["storedVersions"], stored);
    }
    v.set(&["status"], status);
}

impl Strategy for CustomResourceDefinition {
    fn default(&self, v: &mut Value) {
        let kind = v.str_at(&["spec", "names", "kind"]).to_owned();
        if !kind.is_empty() {
            set_default_str(v, &["spec", "names", "singular"], &kind.to_ascii_lowercase());
            set_default_str(v, &["spec", "names", "listKind"], &format!("{kind}List"));
        }
        set_default(v, &["spec", "conversion"], crate::json!({"strategy": "None"}));
        set_default_str(v, &["spec", "conversion", "strategy"], "None");
        const SERVICE: [&str; 5] = ["spec", "conversion", "webhook", "clientConfig", "service"];
        if !v.at(&SERVICE).is_null() {
            let mut port = SERVICE.to_vec();
            port.push("port");
            set_default(v, &port, 443i64);
        }
        if strings(v.at(&["status", "storedVersions"])).is_empty() && !storage_version(v).is_empty() {
            let stored = storage_version(v).to_owned();
            v.set(&["status", "storedVersions"], vec![stored]);
        }
    }

    fn prepare_create(&self, v: &mut Value) {
        empty_status(v);
        first_generation(v);
    }

    fn validate_create(&self, v: &Value) -> ErrorList {
        validation::crd::definition(v)
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        restore(new, old, &["status"]);
        bump_generation(new, old, &["spec"]);
        // Versions are only ever added here, since objects may still be stored in an older one. An administrator
        // removes them through the status after migrating.
        let stored = storage_version(new).to_owned();
        let mut all = new.at(&["status", "storedVersions"]).items().to_vec();
        if !stored.is_empty() && !all.iter().any(|x| x.as_str() == Some(&stored)) {
            all.push(stored.into());
            new.set(&["status", "storedVersions"], all);
        }
    }

    fn validate_update(&self, new: &Value, old: &Value) -> ErrorList {
        validation::crd::definition_update(new, old)
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        // The metadata may be changed: the controllers remove finalizers through the status.
        restore(new, old, &["spec"]);
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        // Warn only about formats that this write introduces.
        let before = old.map(validation::crd::unknown_formats).unwrap_or_default();
        let before: std::collections::HashSet<String> = before.into_iter().collect();
        let mut found = validation::crd::unknown_formats(new);
        found.retain(|f| !before.contains(f));
        found.iter().map(|f| format!("unrecognized format {f:?}")).collect()
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        match subresource {
            "status" => &["spec"],
            _ => &["status"],
        }
    }

    fn deletion(&self) -> Option<&dyn DeleteStrategy> {
        Some(self)
    }
}

/// The first delete only marks the definition. The controller in `extensions` deletes the custom resources and then
/// removes the finalizer.
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
        if old.is_being_deleted() {
            return;
        }
        // Unlike other kinds, whatever the propagation policy.
        let mut finalizers = old.finalizers();
        if !finalizers.contains(&CLEANUP) {
            finalizers.push(CLEANUP);
        }
        v.set_meta(
            "finalizers",
            finalizers.into_iter().map(Value::from).collect::<Vec<_>>(),
        );
        v.unset_meta("deletionGracePeriodSeconds");
        v.set_meta("generation", old.at(&["metadata", "generation"]).clone());
        let mut conditions = v.at(&["status", "conditions"]).items().to_vec();
        conditions.retain(|c| c.str_at(&["type"]) != "Terminating");
        conditions.push(crate::json!({
            "type": "Terminating", "status": "True", "lastTransitionTime": (time::now()), "reason": "InstanceDeletionPending",
            "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"}));
        v.set(&["status", "conditions"], conditions);
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
    fn the_first_delete_marks_the_definition() {
        let old = json!({"metadata": {"generation": 3, "finalizers": ["x.io/own"]}, "status": {"conditions": [
            {"type": "Established", "status": "True"}]}});
        assert!(CustomResourceDefinition.holds(&old));
        let mut new = old.clone();
        new.set_meta("generation", 4i64);
        new.set_meta("deletionTimestamp", "now");
        new.set_meta("deletionGracePeriodSeconds", 0i64);
        CustomResourceDefinition.mark(&mut new, &old);
        assert_eq!(new.finalizers(), ["x.io/own", CLEANUP]);
        assert_eq!(new.at(&["metadata", "generation"]), &3i64.into());
        assert_eq!(new.at(&["metadata", "deletionGracePeriodSeconds"]), &Value::Null);
        let conditions = new.at(&["status", "conditions"]).items();
        assert_eq!(conditions[1].str_at(&["reason"]), "InstanceDeletionPending");
        assert!(
            !CustomResourceDefinition.holds(&new),
            "the controller's finalizer holds it from now on"
        );
        let mut again = new.clone();
        CustomResourceDefinition.mark(&mut again, &new);
        assert_eq!(again, new);
    }
}
