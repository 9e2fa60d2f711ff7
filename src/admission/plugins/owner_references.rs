//! OwnerReferencesPermissionEnforcement: changing an object's owners requires permission to delete it, and
//! blocking an owner's deletion requires permission to update its finalizers. As upstream's
//! `plugin/pkg/admission/gc`.

use crate::admission::{Admission, Attributes, ObjectLookup, Operation, forbidden};
use crate::apimachinery::gvk::GroupVersion;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use crate::authz::{self, Authorizer, Decision, Verdict};
use async_trait::async_trait;
use std::collections::HashSet;
use std::sync::Arc;

pub(crate) struct OwnerReferencesPermissionEnforcement {
    cluster: ObjectLookup,
    authorizer: Arc<dyn Authorizer>,
}

impl OwnerReferencesPermissionEnforcement {
    /// Resolves kinds through `cluster` and checks permissions with `authorizer`.
    pub(crate) fn new(cluster: ObjectLookup, authorizer: Arc<dyn Authorizer>) -> Self {
        Self { cluster, authorizer }
    }
}

fn owners(object: &Value) -> &[Value] {
    object.at(&["metadata", "ownerReferences"]).items()
}

fn blocks(reference: &Value) -> bool {
    reference.get("blockOwnerDeletion").as_bool() == Some(true)
}

/// The references that block their owner's deletion and did not before.
fn newly_blocking<'a>(new: &'a Value, old: &Value) -> Vec<&'a Value> {
    let had = owners(old).iter().filter(|o| blocks(o));
    // By UID: changes of other fields of a reference that blocked before need no permission.
    let had: HashSet<&str> = had.map(|o| o.str_at(&["uid"])).collect();
    let is_new = |r: &&Value| blocks(r) && !had.contains(r.str_at(&["uid"]));
    owners(new).iter().filter(is_new).collect()
}

/// Formats `reason, error` as upstream does.
fn words(verdict: &Verdict) -> String {
    let error = verdict.error.as_deref().unwrap_or("<nil>");
    format!("{}, {error}", verdict.reason)
}

#[async_trait]
impl Admission for OwnerReferencesPermissionEnforcement {
    fn handles(&self, attributes: &Attributes) -> bool {
        let report = attributes.subresource == "status" && attributes.is_for("", "pods");
        // Kubelets update Pod status very often and cannot change owners that way.
        matches!(attributes.operation, Operation::Create | Operation::Update) && !report
    }

    async fn validate(&self, attributes: &Attributes, object: &Value) -> Result<()> {
        let old = attributes.old_object.as_deref().unwrap_or(&Value::Null);
        if owners(object) == owners(old) {
            return Ok(());
        }
        let asked = authz::Attributes {
            user: &attributes.user,
            verb: "delete",
            is_resource: true,
            api_group: &attributes.resource.group,
            api_version: &attributes.resource.version,
            namespace: &attributes.namespace,
            resource: &attributes.resource.resource,
            subresource: &attributes.subresource,
            name: &attributes.name,
            path: "",
            field_selector: "",
            label_selector: "",
        };
        // Whoever creates an object may give it owners: it did not exist to be protected.
        if attributes.operation == Operation::Update {
            let verdict = self.authorizer.authorize(&asked).await;
            if verdict.decision != Decision::Allow {
                let why = format!(
                    "cannot set an ownerRef on a resource you can't delete: {}",
                    words(&verdict)
                );
                return Err(forbidden(attributes, object, why));
            }
        }
        for reference in newly_blocking(object, old) {
            let (version, kind) = (reference.api_version(), ObjectView::kind(reference));
            let parsed = GroupVersion::parse(version).unwrap_or_default();
            // Upstream resolves kinds with a RESTMapper and refuses unknown ones: their permission cannot be checked.
            let Some((resource, namespaced)) = self.cluster.resource_of(&parsed.group, kind) else {
                let why = format!(
                    "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {version} \
                     Kind {kind}: no matches for kind {kind:?} in version {version:?}"
                );
                return Err(forbidden(attributes, object, why));
            };
            let verdict = self
                .authorizer
                .authorize(&authz::Attributes {
                    verb: "update",
                    api_group: &parsed.group,
                    api_version: &parsed.version,
                    namespace: if namespaced { &attributes.namespace } else { "" },
                    resource: &resource,
                    subresource: "finalizers",
                    name: reference.str_at(&["name"]),
                    ..asked
                })
                .await;
            if verdict.decision != Decision::Allow {
                let why = format!(
                    "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: {}",
                    words(&verdict)
                );
                return Err(forbidden(attributes, object, why));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::object_lookup::Cluster;
    use crate::admission::testing::{AllowIf, ask, request, update};
    use crate::admission::{ServedKind, Versions, Wanted};
    use crate::apimachinery::apply::OverlayError;
    use crate::apimachinery::gvk::GroupVersionResource;
    use crate::json;
    use crate::storage::Storage;

    struct Widgets;

    #[async_trait]
    impl Versions for Widgets {
        fn equivalents(&self, _: &GroupVersionResource, _: &str) -> Vec<ServedKind> {
            Vec::new()
        }

        async fn convert(&self, object: Value, _: &GroupVersionResource, _: &GroupVersionResource) -> Result<Value> {
            Ok(object)
        }

        async fn objects(&self, _: &GroupVersionResource, _: &str, _: Wanted<'_>) -> Result<Vec<Value>> {
            Ok(Vec::new())
        }

        async fn complete(&self, _: &ServedKind, _: &str, _: &mut Value) -> Result<Vec<String>> {
            Ok(Vec::new())
        }

        async fn overlay(
            &self,
            _: &ServedKind,
            _: &str,
            _: &Value,
            _: &Value,
        ) -> Result<std::result::Result<Value, OverlayError>> {
            Ok(Err(OverlayError::Nonconforming(
                "this cluster has no schemas".to_owned(),
            )))
        }
    }

    #[async_trait]
    impl Cluster for Widgets {
        fn storage(&self, _group: &str, _resource: &str) -> Option<Arc<dyn Storage>> {
            None
        }

        async fn create_namespace(&self, _name: &str) -> Result<()> {
            Ok(())
        }

        fn resource_of(&self, group: &str, kind: &str) -> Option<(String, bool)> {
            ((group, kind) == ("example.com", "Widget")).then(|| ("widgets".to_owned(), true))
        }
    }

    fn owned(blocking: bool) -> Value {
        json!({"metadata": {"name": "c", "ownerReferences": [{"apiVersion": "example.com/v1", "kind": "Widget",
            "name": "w", "uid": "u", "blockOwnerDeletion": (blocking)}]}})
    }

    fn plugin(verb: &'static str, resource: &'static str) -> OwnerReferencesPermissionEnforcement {
        let cluster = ObjectLookup::new(Arc::new(Widgets));
        let only = move |asked: &authz::Attributes<'_>| asked.verb == verb && asked.resource == resource;
        OwnerReferencesPermissionEnforcement::new(cluster, Arc::new(AllowIf(only)))
    }

    #[tokio::test]
    async fn changing_owners_requires_delete_permission() {
        let none = update("", "configmaps", json!({"metadata": {"name": "c"}}));
        assert!(ask(&plugin("delete", "configmaps"), &none, &owned(false)).await.is_ok());
        assert_eq!(
            ask(&plugin("x", "x"), &none, &owned(false)).await.unwrap_err(),
            "configmaps \"c\" is forbidden: cannot set an ownerRef on a resource you can't delete: no rule, <nil>"
        );
        let same = update("", "configmaps", owned(false));
        assert!(ask(&plugin("x", "x"), &same, &owned(false)).await.is_ok());
    }

    #[tokio::test]
    async fn blocking_deletion_requires_finalizers_permission() {
        let create = request(Operation::Create, "", "configmaps", "c");
        assert!(ask(&plugin("update", "widgets"), &create, &owned(true)).await.is_ok());
        assert!(ask(&plugin("x", "x"), &create, &owned(false)).await.is_ok());
        let refused = ask(&plugin("x", "x"), &create, &owned(true)).await.unwrap_err();
        assert!(refused.ends_with("refers to a resource you can't set finalizers on: no rule, <nil>"));
    }
}
