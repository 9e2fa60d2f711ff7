//! [`Definition`]: what the gateway keeps in memory of a CustomResourceDefinition, besides its stored bytes.

use crate::apimachinery::codec::json::{self, projection, projection::Mask};
use crate::apimachinery::conditions;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::{Str, Value};
use crate::extensions::conversion::declarative;
use crate::extensions::definitions::is_protected;
use crate::extensions::naming::Names;
use crate::storage::Entry;
use crate::storage::stored_json::StoredJson;
use std::sync::LazyLock;

/// The parts that are read of every definition: everything but the schemas, which make up nearly all of it.
static PARTS: LazyLock<Mask> = LazyLock::new(|| {
    Mask::of(&[
        "metadata.{name,uid,generation,deletionTimestamp,finalizers,resourceVersion,annotations}",
        "spec.{group,scope,names,conversion}",
        "spec.versions.{name,served,storage,deprecated,deprecationWarning,subresources}",
        "status.{acceptedNames,conditions}",
    ])
});

/// A definition without its schemas: everything needed to route requests, run controllers and publish discovery.
#[derive(Clone, Debug)]
pub(crate) struct Definition {
    /// The revision of the stored object.
    pub revision: u64,
    /// `<plural>.<group>`
    pub name: Str,
    /// The UID, which tells a definition from an earlier one of the same name.
    pub uid: Str,
    /// Counts the changes of the spec.
    pub generation: i64,
    /// The annotation with conversion rules, which is not part of the spec.
    pub conversion_rules: Option<Str>,
    /// The group of the custom resources.
    pub group: Str,
    /// The names in the spec, of which another definition may own some.
    pub requested: Names,
    /// The accepted names, under which the resource is served.
    pub accepted: Names,
    /// True for namespaced custom resources.
    pub namespaced: bool,
    /// The versions in the order of the spec.
    pub versions: Vec<Version>,
    /// The conditions that decide what is served.
    pub conditions: Conditions,
    /// True if the group needs an approval (`KubernetesAPIApprovalPolicyConformant`).
    pub protected: bool,
    /// True if the definition is being deleted.
    pub deleting: bool,
    /// `metadata.finalizers`.
    pub finalizers: Vec<Str>,
    /// The stored object; empty for a definition that was not read from storage.
    pub stored: StoredJson,
}

/// A version of a definition, without its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// The name, such as `v1beta1`.
    pub name: Str,
    /// Whether requests for it are served.
    pub served: bool,
    /// Whether objects are stored in it.
    pub storage: bool,
    /// Whether requests for it are answered with a warning.
    pub deprecated: bool,
    /// The text of that warning, if the definition gives one.
    pub deprecation_warning: Option<Str>,
    /// Whether it has the subresource `status`.
    pub status: bool,
    /// Whether it has the subresource `scale`.
    pub scale: bool,
}

/// Which conditions are `True`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conditions {
    /// `NamesAccepted`
    pub names_accepted: bool,
    /// `Established`
    pub established: bool,
    /// `Terminating`
    pub terminating: bool,
    /// `NonStructuralSchema` is present, whatever its status.
    pub non_structural: bool,
}

impl Version {
    fn of(v: &Value) -> Self {
        let flag = |key: &str| v.get(key).as_bool() == Some(true);
        let has = |subresource: &str| !v.at(&["subresources", subresource]).is_null();
        Self {
            name: v.str_at(&["name"]).into(),
            served: flag("served"),
            storage: flag("storage"),
            deprecated: flag("deprecated"),
            deprecation_warning: v.get("deprecationWarning").as_str().map(Str::new),
            status: has("status"),
            scale: has("scale"),
        }
    }
}

impl Definition {
    /// Reads a stored definition.
    pub(crate) fn from_entry(entry: &Entry) -> Self {
        Self {
            stored: entry.json.clone(),
            ..Self::from_value(&entry.decode_parts(&PARTS), entry.revision.0)
        }
    }

    /// Reads a definition's tree.
    pub(crate) fn from_value(v: &Value, revision: u64) -> Self {
        let holds = |kind: &str| conditions::holds(v, kind);
        Self {
            revision,
            name: v.name().into(),
            uid: v.uid().into(),
            // Definitions stored before generations existed count as the first.
            generation: v.at(&["metadata", "generation"]).as_i64().unwrap_or(1),
            conversion_rules: declarative::annotation(v).map(Str::new),
            group: v.str_at(&["spec", "group"]).into(),
            requested: Names::of(v.at(&["spec", "names"])),
            accepted: Names::of(v.at(&["status", "acceptedNames"])),
            namespaced: v.str_at(&["spec", "scope"]) == "Namespaced",
            versions: v.at(&["spec", "versions"]).items().iter().map(Version::of).collect(),
            conditions: Conditions {
                names_accepted: holds("NamesAccepted"),
                established: holds("Established"),
                terminating: holds("Terminating"),
                non_structural: conditions::find(v, "NonStructuralSchema").is_some(),
            },
            protected: is_protected(v.str_at(&["spec", "group"])),
            deleting: v.is_being_deleted(),
            finalizers: v.finalizers().iter().map(|f| Str::new(f)).collect(),
            stored: StoredJson::default(),
        }
    }

    /// The whole object, which takes long to decode if its schemas are large.
    pub(crate) fn tree(&self) -> Value {
        json::decode(&self.stored.bytes()).unwrap_or_default()
    }

    /// Reads parts of the stored object.
    pub(crate) fn read(&self, parts: &Mask) -> Value {
        // The projection only reads our own encoding; definitions written by other servers are decoded whole.
        projection::read(&self.stored.bytes(), parts).unwrap_or_else(|_| self.tree())
    }

    /// The version of this name, if it is served.
    pub(crate) fn served(&self, version: &str) -> Option<&Version> {
        self.versions.iter().find(|v| v.served && v.name == version)
    }

    /// The version in which objects are stored.
    pub(crate) fn storage_version(&self) -> Option<&Version> {
        self.versions.iter().find(|v| v.storage)
    }

    /// True once requests for custom resources are answered. Discovery shows them a little later, when the
    /// definition is established.
    pub(crate) fn answers(&self) -> bool {
        // Established implies accepted names, unless these were lost to a conflict later on.
        self.conditions.names_accepted || self.conditions.established
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use crate::storage::{Draft, Revision};

    #[test]
    fn an_entry_is_read_like_its_tree() {
        let tree = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "as.x.io", "uid": "u", "generation": 3},
            "spec": {"group": "x.io", "scope": "Namespaced", "names": {"plural": "as", "kind": "A", "shortNames": ["a"]},
                "versions": [
                    {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}},
                     "subresources": {"status": {}}},
                    {"name": "v0", "served": false, "storage": false, "deprecated": true, "deprecationWarning": "old"}]},
            "status": {"acceptedNames": {"plural": "as", "kind": "A"}, "conditions": [
                {"type": "NamesAccepted", "status": "True"}, {"type": "Established", "status": "False"}]}});
        let entry = Draft::new(&tree, Vec::new()).into_entry("as.x.io", Revision(7));
        let (read, want) = (Definition::from_entry(&entry), Definition::from_value(&tree, 7));
        assert_eq!(
            format!(
                "{:?}",
                Definition {
                    stored: StoredJson::default(),
                    ..read.clone()
                }
            ),
            format!("{want:?}")
        );
        assert!(read.answers() && !read.conditions.established && read.namespaced);
        assert_eq!(read.served("v0"), None);
        let v1 = read.served("v1").unwrap();
        assert!(v1.status && !v1.scale && v1.storage);
        assert_eq!(read.versions[1].deprecation_warning.as_deref(), Some("old"));
    }
}
