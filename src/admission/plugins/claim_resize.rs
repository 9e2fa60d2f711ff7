//! PersistentVolumeClaimResize: restricts expansion of volume claims. As upstream's
//! `storage/persistentvolume/resize`.

use super::default_storage_class::OLD_CLASS;
use super::pods::amount;
use crate::admission::{Admission, Attributes, ObjectLookup, Operation, forbidden};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use async_trait::async_trait;

/// Rejects a larger storage request unless the claim is bound and its storage class allows expansion.
pub(crate) struct PersistentVolumeClaimResize {
    cluster: ObjectLookup,
}

impl PersistentVolumeClaimResize {
    /// Reads storage classes from `cluster`.
    pub(crate) fn new(cluster: ObjectLookup) -> Self {
        Self { cluster }
    }

    async fn may_grow(&self, new: &Value, old: &Value) -> Result<bool> {
        let name = class_of(new);
        // A claim whose class changes together with its size is not resized, as upstream.
        if name.is_empty() || name != class_of(old) {
            return Ok(false);
        }
        let class = self
            .cluster
            .get_cached("storage.k8s.io", "storageclasses", "", name)
            .await?;
        Ok(class.is_some_and(|c| c.get("allowVolumeExpansion").as_bool() == Some(true)))
    }
}

fn class_of(claim: &Value) -> &str {
    let old_way = claim.annotation(OLD_CLASS);
    old_way.unwrap_or_else(|| claim.str_at(&["spec", "storageClassName"]))
}

#[async_trait]
impl Admission for PersistentVolumeClaimResize {
    fn handles(&self, attributes: &Attributes) -> bool {
        attributes.operation == Operation::Update && attributes.is("", "persistentvolumeclaims")
    }

    async fn validate(&self, attributes: &Attributes, claim: &Value) -> Result<()> {
        let Some(old) = attributes.old_object.as_deref() else {
            return Ok(());
        };
        let asked = |claim: &Value| amount(claim.at(&["spec", "resources", "requests", "storage"]));
        // A smaller request is left to validation, which knows when a failed expansion may be undone.
        if asked(claim) <= asked(old) {
            return Ok(());
        }
        // The stored phase, which the caller cannot set through this resource.
        if old.str_at(&["status", "phase"]) != "Bound" {
            let why = "Only bound persistent volume claims can be expanded";
            return Err(forbidden(attributes, claim, why));
        }
        if !self.may_grow(claim, old).await? {
            let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must \
                       support resize";
            return Err(forbidden(attributes, claim, why));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::testing::{ask, cluster, update};
    use crate::json;

    fn claim(class: &str, phase: &str, size: &str) -> Value {
        json!({"metadata": {"name": "c"}, "status": {"phase": (phase)},
            "spec": {"storageClassName": (class), "resources": {"requests": {"storage": (size)}}}})
    }

    async fn grow(class: &str, phase: &str, to: &str) -> std::result::Result<Value, String> {
        let growing = json!({"metadata": {"name": "grows"}, "allowVolumeExpansion": true});
        let fixed = json!({"metadata": {"name": "fixed"}});
        let plugin =
            PersistentVolumeClaimResize::new(cluster(&[("storage.k8s.io", "storageclasses", vec![growing, fixed])]));
        let old = update("", "persistentvolumeclaims", claim(class, phase, "1Gi"));
        ask(&plugin, &old, &claim(class, phase, to)).await
    }

    #[tokio::test]
    async fn only_bound_claims_of_expandable_classes_may_grow() {
        assert!(grow("grows", "Bound", "2Gi").await.is_ok());
        assert!(grow("fixed", "Pending", "1024Mi").await.is_ok());
        let refused = grow("grows", "Pending", "2Gi").await.unwrap_err();
        assert!(refused.ends_with("Only bound persistent volume claims can be expanded"));
        for class in ["fixed", "absent", ""] {
            let refused = grow(class, "Bound", "2Gi").await.unwrap_err();
            assert!(refused.ends_with("must support resize"), "{refused}");
        }
    }
}
