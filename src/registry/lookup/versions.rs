//! The versions in which a resource is served, for admission.

use super::StoreLookup;
use crate::admission::{ObjectLookup, ServedKind, Versions, Wanted};
use crate::api::apply_schema::ApplyType;
use crate::api::{by_gvk, decode};
use crate::apimachinery::apply::{self, OverlayError};
use crate::apimachinery::gvk::GroupVersionResource;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::registry::resource::Backing;
use crate::registry::{Resource, Store, SubresourceBehaviour};
use async_trait::async_trait;
use std::sync::Arc;

/// The version that a row serves, if it has the subresource.
fn served(row: &Resource, subresource: &str) -> Option<ServedKind> {
    let kind = match subresource {
        "" => row.gvk(),
        name => row.subresource(name)?.kind.clone(),
    };
    Some(ServedKind {
        resource: row.gvr.clone(),
        kind,
    })
}

fn unknown(resource: &GroupVersionResource) -> Status {
    let (group, version, plural) = (&resource.group, &resource.version, &resource.resource);
    Status::internal(format!(
        "unable to convert to {group}/{version}, Resource={plural}: unknown kind"
    ))
}

impl StoreLookup {
    fn built_in(&self, resource: &GroupVersionResource) -> Option<Arc<Store>> {
        self.stores.load().by_version.get(resource).cloned()
    }

    async fn of_version(&self, resource: &GroupVersionResource) -> Result<Arc<Store>> {
        if let Some(store) = self.built_in(resource) {
            return Ok(store);
        }
        let found = match self.custom.get() {
            Some(custom) => custom.store(resource).await,
            None => None,
        };
        found.ok_or_else(|| unknown(resource))
    }
}

#[async_trait]
impl Versions for StoreLookup {
    fn equivalents(&self, resource: &GroupVersionResource, subresource: &str) -> Vec<ServedKind> {
        let stores = self.stores.load();
        let Some(own) = stores.by_version.get(resource) else {
            let custom = self.custom.get();
            return custom.map_or_else(Vec::new, |custom| custom.equivalents(resource, subresource));
        };
        // Resources that share a key prefix are versions of the same objects.
        let prefix = own.resource().prefix();
        let versions = prefix.and_then(|prefix| stores.by_prefix.get(prefix));
        let others = versions.into_iter().flatten().map(|store| store.resource());
        others
            .filter(|row| row.gvr != *resource)
            .filter_map(|row| served(row, subresource))
            .collect()
    }

    async fn convert(&self, object: Value, from: &GroupVersionResource, to: &GroupVersionResource) -> Result<Value> {
        // Mixed pairs do not occur: a resource is either built in or custom.
        let (Some(source), Some(target)) = (self.built_in(from), self.built_in(to)) else {
            let custom = self.custom.get().ok_or_else(|| unknown(to))?;
            return custom.convert(object, from, to).await;
        };
        // A built-in kind is stored in one version, and its other versions are converted from and to it.
        let stored = match &source.resource().backing {
            Backing::Converted { conversion, .. } => {
                let mut stored = conversion.store(object);
                // Without the completion, fields that only the stored version has would be missing.
                conversion.complete(&mut stored);
                stored
            }
            _ => object,
        };
        Ok(match &target.resource().backing {
            Backing::Converted { conversion, .. } => conversion.serve(stored),
            _ => stored,
        })
    }

    async fn objects(&self, of: &GroupVersionResource, namespace: &str, wanted: Wanted<'_>) -> Result<Vec<Value>> {
        let store = self.of_version(of).await?;
        let found = ObjectLookup::objects_in(store.storage(), namespace, wanted).await;
        found.map_err(Status::internal)
    }

    async fn complete(&self, kind: &ServedKind, subresource: &str, object: &mut Value) -> Result<Vec<String>> {
        let store = self.of_version(&kind.resource).await?;
        let row = store.resource();
        if row.gvk() == kind.kind {
            let unknown = row.schema.normalize(object)?;
            // Normalised first: defaults must not fill in for fields of a wrong type.
            store.strategy.default(object);
            // Objects without a Go type are pruned instead.
            return Ok(if row.schema.definition().is_some() {
                unknown
            } else {
                Vec::new()
            });
        }
        let mut unknown = Vec::new();
        // The object of a subresource with a kind of its own, such as a Scale or the options of a connection.
        if let Some(def) = by_gvk(&kind.kind.group, &kind.kind.version, &kind.kind.kind) {
            unknown = decode::normalize(def, object).map_err(|e| Status::bad_request(e.to_string()))?;
        }
        if let Some(SubresourceBehaviour::Custom(handler)) = row.subresource(subresource).map(|s| &s.behaviour) {
            handler.default(object);
        }
        Ok(unknown)
    }

    async fn overlay(
        &self,
        kind: &ServedKind,
        subresource: &str,
        object: &Value,
        config: &Value,
    ) -> Result<std::result::Result<Value, OverlayError>> {
        let store = self.of_version(&kind.resource).await?;
        let row = store.resource();
        let of = &kind.kind;
        if subresource.is_empty() || row.gvk() == *of {
            return Ok(row.schema.overlay(object, config));
        }
        match by_gvk(&of.group, &of.version, &of.kind) {
            Some(def) => Ok(apply::overlay(ApplyType::Root(def), object, config)),
            None => Err(Status::service_unavailable(format!(
                "Resource kind {of} not found. There can be a delay between when CustomResourceDefinitions are created and \
                 when they are available."
            ))),
        }
    }
}
