//! Plugins for missing namespaces: [`NamespaceExists`] rejects the request, [`NamespaceAutoProvision`]
//! creates the namespace. As upstream's `namespace/exists` and `namespace/autoprovision`.

use crate::admission::{Admission, Attributes, ObjectLookup, Operation};
use crate::apimachinery::gvk::GroupResource;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use async_trait::async_trait;

fn is_about_content(attributes: &Attributes) -> bool {
    !attributes.namespace.is_empty() && &*attributes.kind.kind != "Namespace"
}

/// Rejects content of namespaces that do not exist.
pub(crate) struct NamespaceExists(pub ObjectLookup);

#[async_trait]
impl Admission for NamespaceExists {
    fn handles(&self, attributes: &Attributes) -> bool {
        attributes.operation != Operation::Connect && is_about_content(attributes)
    }

    async fn validate(&self, attributes: &Attributes, _object: &Value) -> Result<()> {
        let name = attributes.namespace.as_str();
        match self.0.get_cached("", "namespaces", "", name).await? {
            Some(_) => Ok(()),
            None => Err(Status::not_found(&GroupResource::new("", "namespaces"), name)),
        }
    }
}

/// Creates the namespace of an object if it is missing.
pub(crate) struct NamespaceAutoProvision(pub ObjectLookup);

#[async_trait]
impl Admission for NamespaceAutoProvision {
    fn handles(&self, attributes: &Attributes) -> bool {
        // A dry run must not leave a namespace behind.
        attributes.operation == Operation::Create && !attributes.dry_run && is_about_content(attributes)
    }

    async fn mutate(&self, attributes: &Attributes, _object: &mut Value) -> Result<()> {
        let name = attributes.namespace.as_str();
        if self.0.get_cached("", "namespaces", "", name).await?.is_some() {
            return Ok(());
        }
        // As the server, since the caller need not be permitted to create namespaces.
        match self.0.create_namespace(name).await {
            // A concurrent request created it first.
            Err(e) if e.reason == "AlreadyExists" => Ok(()),
            made => made,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::testing::{ask, cluster, request};
    use crate::json;

    #[tokio::test]
    async fn content_requires_an_existing_namespace() {
        let exists = |name: &str| {
            let namespace = json!({"metadata": {"name": (name)}});
            NamespaceExists(cluster(&[("", "namespaces", vec![namespace])]))
        };
        let create = request(Operation::Create, "", "configmaps", "c");
        assert!(ask(&exists("ns"), &create, &json!({})).await.is_ok());
        let refused = ask(&exists("other"), &create, &json!({})).await.unwrap_err();
        assert_eq!(refused, "namespaces \"ns\" not found");
    }
}
