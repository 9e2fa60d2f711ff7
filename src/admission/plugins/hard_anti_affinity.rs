//! LimitPodHardAntiAffinityTopology: required pod anti-affinity only by hostname, because wider topologies
//! could lock other pods out of many nodes. As upstream's `plugin/pkg/admission/antiaffinity`.

use crate::admission::{Admission, Attributes, Operation, forbidden};
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use async_trait::async_trait;

const HOST: &str = "kubernetes.io/hostname";

/// Rejects pods with required anti-affinity by any other topology key.
pub(crate) struct LimitPodHardAntiAffinityTopology;

#[async_trait]
impl Admission for LimitPodHardAntiAffinityTopology {
    fn handles(&self, attributes: &Attributes) -> bool {
        matches!(attributes.operation, Operation::Create | Operation::Update) && attributes.is("", "pods")
    }

    async fn validate(&self, attributes: &Attributes, pod: &Value) -> Result<()> {
        // Preferred terms only rank nodes, so they lock nobody out.
        let terms = [
            "spec",
            "affinity",
            "podAntiAffinity",
            "requiredDuringSchedulingIgnoredDuringExecution",
        ];
        let keys = pod.at(&terms).items().iter().map(|t| t.str_at(&["topologyKey"]));
        match keys.into_iter().find(|key| *key != HOST) {
            None => Ok(()),
            Some(key) => {
                let why = format!(
                    "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key {HOST} is allowed"
                );
                Err(forbidden(attributes, pod, why))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::testing::{ask, pod, request};
    use crate::json;

    #[tokio::test]
    async fn only_the_hostname_topology_key_is_allowed() {
        let apart = |key: &str| {
            pod(json!({"affinity": {"podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": (key)}]}}}))
        };
        let create = request(Operation::Create, "", "pods", "p");
        assert!(
            ask(&LimitPodHardAntiAffinityTopology, &create, &apart(HOST))
                .await
                .is_ok()
        );
        let refused = ask(&LimitPodHardAntiAffinityTopology, &create, &apart("zone")).await;
        assert!(
            refused
                .unwrap_err()
                .ends_with("has TopologyKey zone but only key kubernetes.io/hostname is allowed")
        );
    }
}
