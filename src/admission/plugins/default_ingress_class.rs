//! DefaultIngressClass: sets the default class on ingresses without one. As upstream's
//! `network/defaultingressclass`.

use super::defaults::default_of;
use crate::admission::{Admission, Attributes, ObjectLookup, Operation};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use async_trait::async_trait;

const GROUP: &str = "networking.k8s.io";

pub(crate) struct DefaultIngressClass {
    cluster: ObjectLookup,
}

impl DefaultIngressClass {
    /// Reads ingress classes from `cluster`.
    pub(crate) fn new(cluster: ObjectLookup) -> Self {
        Self { cluster }
    }
}

#[async_trait]
impl Admission for DefaultIngressClass {
    fn handles(&self, attributes: &Attributes) -> bool {
        attributes.operation == Operation::Create && attributes.is(GROUP, "ingresses")
    }

    async fn mutate(&self, _attributes: &Attributes, ingress: &mut Value) -> Result<()> {
        let old_way = ingress.annotation("kubernetes.io/ingress.class").is_some();
        if old_way || !ingress.at(&["spec", "ingressClassName"]).is_null() {
            return Ok(());
        }
        // The annotation of before the field excludes the default, too: its controller would not expect both.
        const MARKS: &[&str] = &["ingressclass.kubernetes.io/is-default-class"];
        if let Some(name) = default_of(&self.cluster, GROUP, "ingressclasses", MARKS).await? {
            ingress.set(&["spec", "ingressClassName"], name);
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
    async fn ingresses_without_a_class_get_the_default() {
        let class = json!({"metadata": {"name": "d",
            "annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}}});
        let plugin = DefaultIngressClass::new(cluster(&[(GROUP, "ingressclasses", vec![class])]));
        let create = request(Operation::Create, GROUP, "ingresses", "i");
        let got = ask(&plugin, &create, &json!({"spec": {}})).await.unwrap();
        assert_eq!(got.str_at(&["spec", "ingressClassName"]), "d");
        let old_way = json!({"metadata": {"annotations": {"kubernetes.io/ingress.class": "x"}}, "spec": {}});
        assert_eq!(ask(&plugin, &create, &old_way).await.unwrap(), old_way);
    }
}
