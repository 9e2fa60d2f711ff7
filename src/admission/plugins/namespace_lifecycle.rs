//! Keeps objects out of namespaces that do not exist or are going, and the system namespaces in place.
//! As upstream's `plugin/namespace/lifecycle`, except that the namespace is always read live: reads are from memory.

use crate::admission::{Admission, Attributes, Cluster, Operation};
use crate::apimachinery::gvk::GroupResource;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Cause, Result, Status};
use crate::apimachinery::value::Value;
use crate::storage::MinRevision;
use async_trait::async_trait;

/// Namespaces nobody may delete.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// The plugin.
pub struct NamespaceLifecycle {
    cluster: Cluster,
}

impl NamespaceLifecycle {
    /// Reads namespaces there.
    pub fn new(cluster: Cluster) -> Self {
        Self { cluster }
    }
}

fn namespaces() -> GroupResource {
    GroupResource::new("", "namespaces")
}

#[async_trait]
impl Admission for NamespaceLifecycle {
    async fn mutate(&self, attributes: &Attributes, object: &mut Value) -> Result<()> {
        let of_namespaces = attributes.resource.group.is_empty() && attributes.resource.resource == "namespaces";
        if of_namespaces {
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
        let review =
            attributes.resource.group == "authorization.k8s.io" && attributes.kind.kind == "LocalSubjectAccessReview";
        if attributes.namespace.is_empty() || attributes.operation == Operation::Delete || review {
            return Ok(());
        }
        let name = attributes.namespace.as_str();
        let got = self
            .cluster
            .storage("", "namespaces")?
            .get(name, MinRevision::Latest)
            .await;
        let Some(entry) = got.map_err(Status::internal)? else {
            return Err(Status::not_found(&namespaces(), name));
        };
        if attributes.operation != Operation::Create {
            return Ok(());
        }
        let namespace = entry.decode();
        if namespace.str_at(&["status", "phase"]) != "Terminating" {
            return Ok(());
        }
        let why = format!("unable to create new content in namespace {name} because it is being terminated");
        let names = [&*attributes.name, object.name(), object.meta("generateName")];
        let shown = names.into_iter().find(|n| !n.is_empty()).unwrap_or("Unknown");
        let mut status = Status::forbidden(&attributes.resource.group_resource(), shown, &why);
        status.details_mut().causes.push(Cause {
            reason: "NamespaceTerminating".into(),
            message: format!("namespace {name} is being terminated"),
            field: "metadata.namespace".into(),
        });
        Err(status)
    }
}
