//! DefaultStorageClass: sets the default class on claims without one. As upstream's
//! `storage/storageclass/setdefault`.

use super::defaults::default_of;
use crate::admission::{Admission, Attributes, ObjectLookup, Operation};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use async_trait::async_trait;

const MARKS: &[&str] = &[
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];
/// The annotation that specified a claim's class before the field existed.
pub(super) const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

pub(crate) struct DefaultStorageClass {
    cluster: ObjectLookup,
}

impl DefaultStorageClass {
    /// Reads storage classes from `cluster`.
    pub(crate) fn new(cluster: ObjectLookup) -> Self {
        Self { cluster }
    }
}

#[async_trait]
impl Admission for DefaultStorageClass {
    fn handles(&self, attributes: &Attributes) -> bool {
        attributes.operation == Operation::Create && attributes.is("", "persistentvolumeclaims")
    }

    async fn mutate(&self, _attributes: &Attributes, claim: &mut Value) -> Result<()> {
        // An empty name is a choice: it asks for a volume without a class.
        if claim.annotation(OLD_CLASS).is_some() || !claim.at(&["spec", "storageClassName"]).is_null() {
            return Ok(());
        }
        // Without a default the claim stays without a class, and the volume controller sets one later.
        if let Some(name) = default_of(&self.cluster, "storage.k8s.io", "storageclasses", MARKS).await? {
            claim.set(&["spec", "storageClassName"], name);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::testing::{ask, cluster, request};
    use crate::json;

    #[tokio::test]
    async fn claims_without_a_class_get_the_newest_default() {
        let class = |name: &str, born: &str, default: &str| {
            json!({"metadata": {"name": (name), "creationTimestamp": (born),
                "annotations": {"storageclass.kubernetes.io/is-default-class": (default)}}})
        };
        let plugin = DefaultStorageClass::new(cluster(&[(
            "storage.k8s.io",
            "storageclasses",
            vec![
                class("newest", "2026-01-04T00:00:00Z", "false"),
                class("new-b", "2026-01-03T00:00:00Z", "true"),
                class("new-a", "2026-01-03T00:00:00Z", "true"),
                class("old", "2026-01-02T00:00:00Z", "true"),
            ],
        )]));
        let create = request(Operation::Create, "", "persistentvolumeclaims", "c");
        let got = ask(&plugin, &create, &json!({"spec": {}})).await.unwrap();
        assert_eq!(got.str_at(&["spec", "storageClassName"]), "new-a");
        for named in [
            json!({"spec": {"storageClassName": ""}}),
            json!({"spec": {}, "metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "x"}}}),
        ] {
            assert_eq!(ask(&plugin, &create, &named).await.unwrap(), named);
        }
    }
}
