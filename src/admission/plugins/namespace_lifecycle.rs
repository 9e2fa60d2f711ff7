//! NamespaceLifecycle: rejects content in namespaces that do not exist or are terminating, and protects
//! system namespaces from deletion. As upstream's `plugin/namespace/lifecycle`: a cached namespace suffices,
//! a missing one is looked up consistently.

use crate::admission::{Admission, Attributes, ObjectLookup, Operation, forbidden};
use crate::apimachinery::gvk::GroupResource;
use crate::apimachinery::status::{Cause, Result, Status};
use crate::apimachinery::value::Value;
use async_trait::async_trait;

/// Namespaces that cannot be deleted; `kube-node-lease` can, as upstream.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

pub(crate) struct NamespaceLifecycle {
    cluster: ObjectLookup,
}

impl NamespaceLifecycle {
    /// Reads namespaces from `cluster`.
    pub(crate) fn new(cluster: ObjectLookup) -> Self {
        Self { cluster }
    }
}

fn namespaces() -> GroupResource {
    GroupResource::new("", "namespaces")
}

#[async_trait]
impl Admission for NamespaceLifecycle {
    fn handles(&self, attributes: &Attributes) -> bool {
        match attributes.operation {
            Operation::Create | Operation::Update => !attributes.namespace.is_empty(),
            Operation::Delete => attributes.is_for("", "namespaces"),
            Operation::Connect => false,
        }
    }

    async fn mutate(&self, attributes: &Attributes, object: &mut Value) -> Result<()> {
        if attributes.is_for("", "namespaces") {
            let immortal = attributes.operation == Operation::Delete && IMMORTAL.contains(&&*attributes.name);
            return match immortal {
                true => Err(Status::forbidden(
                    &namespaces(),
                    &attributes.name,
                    "this namespace may not be deleted",
                )),
                false => Ok(()),
            };
        }
        // A review stores nothing, so its namespace need not exist.
        let review =
            attributes.resource.group == "authorization.k8s.io" && attributes.kind.kind == "LocalSubjectAccessReview";
        if review {
            return Ok(());
        }
        let name = attributes.namespace.as_str();
        let storage = self.cluster.storage("", "namespaces")?;
        let known = ObjectLookup::cached_entry(&storage, name).await;
        // Updates need an existing namespace, too, but may change objects in one that terminates: their finalizers
        // have to be removed.
        let Some(entry) = known.map_err(Status::internal)? else {
            return Err(Status::not_found(&namespaces(), name));
        };
        // The selectable field, because this runs on every namespaced create, and a namespace may have megabytes of
        // annotations: not even a search through them is affordable.
        if attributes.operation != Operation::Create || entry.field("status.phase") != Some("Terminating") {
            return Ok(());
        }
        let why = format!("unable to create new content in namespace {name} because it is being terminated");
        let mut status = forbidden(attributes, object, why);
        // Controllers recognize this cause and stop retrying.
        status.details_mut().causes.push(Cause {
            reason: "NamespaceTerminating".into(),
            message: format!("namespace {name} is being terminated"),
            field: "metadata.namespace".into(),
        });
        Err(status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::testing::{ask, cluster, request};
    use crate::json;

    #[tokio::test]
    async fn content_requires_an_active_namespace() {
        let namespace = |name: &str, phase: &str| json!({"metadata": {"name": (name)}, "status": {"phase": (phase)}});
        let spaces = vec![namespace("ns", "Active"), namespace("going", "Terminating")];
        let plugin = NamespaceLifecycle::new(cluster(&[("", "namespaces", spaces)]));
        let object = json!({"metadata": {"generateName": "c-"}});
        let in_namespace = |operation, namespace: &str| Attributes {
            namespace: namespace.to_owned(),
            ..request(operation, "", "configmaps", "")
        };
        let outcome = async |operation, namespace| ask(&plugin, &in_namespace(operation, namespace), &object).await;
        assert!(outcome(Operation::Create, "ns").await.is_ok());
        assert_eq!(
            outcome(Operation::Create, "absent").await.unwrap_err(),
            "namespaces \"absent\" not found"
        );
        assert_eq!(
            outcome(Operation::Create, "going").await.unwrap_err(),
            "configmaps \"c-\" is forbidden: unable to create new content in namespace going because it is being \
             terminated"
        );
        assert!(outcome(Operation::Update, "going").await.is_ok());
        assert!(outcome(Operation::Delete, "absent").await.is_ok());
    }

    #[tokio::test]
    async fn system_namespaces_cannot_be_deleted() {
        let plugin = NamespaceLifecycle::new(cluster(&[]));
        for (name, stays) in [("default", true), ("kube-system", true), ("mine", false)] {
            let delete = request(Operation::Delete, "", "namespaces", name);
            assert_eq!(ask(&plugin, &delete, &Value::Null).await.is_err(), stays);
        }
    }
}
