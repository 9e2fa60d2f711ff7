//! StorageObjectInUseProtection: adds the finalizer that keeps volumes, claims and volume attributes classes
//! until they are no longer in use. As upstream's `storage/storageobjectinuseprotection`; controllers remove it.

use crate::admission::{Admission, Attributes, Operation};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use async_trait::async_trait;

/// Adds the protection finalizer to new storage objects.
pub(crate) struct StorageProtection;

fn finalizer(group: &str, resource: &str) -> Option<&'static str> {
    match (group, resource) {
        ("", "persistentvolumes") => Some("kubernetes.io/pv-protection"),
        ("", "persistentvolumeclaims") => Some("kubernetes.io/pvc-protection"),
        ("storage.k8s.io", "volumeattributesclasses") => Some("kubernetes.io/vac-protection"),
        _ => None,
    }
}

#[async_trait]
impl Admission for StorageProtection {
    fn handles(&self, attributes: &Attributes) -> bool {
        attributes.operation == Operation::Create && attributes.subresource.is_empty()
    }

    async fn mutate(&self, attributes: &Attributes, object: &mut Value) -> Result<()> {
        let resource = &attributes.resource;
        if let Some(name) = finalizer(&resource.group, &resource.resource)
            && !object.finalizers().contains(&name)
        {
            let mut all = object.at(&["metadata", "finalizers"]).items().to_vec();
            all.push(name.into());
            object.set_meta("finalizers", all);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_kinds_have_a_protection_finalizer() {
        assert_eq!(
            finalizer("", "persistentvolumeclaims"),
            Some("kubernetes.io/pvc-protection")
        );
        assert_eq!(finalizer("", "pods"), None);
    }
}
