//! The versions in which a resource is served, for admission.

use super::StoreLookup;
use crate::admission::{ServedKind, Versions};
use crate::apimachinery::gvk::GroupVersionResource;
use crate::registry::Resource;

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

impl Versions for StoreLookup {
    fn equivalents(&self, resource: &GroupVersionResource, subresource: &str) -> Vec<ServedKind> {
        let stores = self.stores.load();
        let Some(own) = stores.by_version.get(resource) else {
            let custom = self.custom.get();
            return custom.map_or_else(Vec::new, |custom| custom.equivalents(resource, subresource));
        };
        // What shares the key prefix are versions of the same objects.
        let prefix = own.resource().prefix();
        let versions = prefix.and_then(|prefix| stores.by_prefix.get(prefix));
        let others = versions.into_iter().flatten().map(|store| store.resource());
        others
            .filter(|row| row.gvr != *resource)
            .filter_map(|row| served(row, subresource))
            .collect()
    }
}
