//! PodTopologyLabels: copies zone and region labels from the node to its pods. As upstream's
//! `plugin/pkg/admission/podtopologylabels`.

use crate::admission::{Admission, Attributes, ObjectLookup, Operation};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use async_trait::async_trait;

const LABELS: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

/// Labels pods that are created on a node, and bindings, with the node's topology.
pub(crate) struct PodTopologyLabels {
    cluster: ObjectLookup,
}

impl PodTopologyLabels {
    /// Reads nodes from `cluster`.
    pub(crate) fn new(cluster: ObjectLookup) -> Self {
        Self { cluster }
    }
}

#[async_trait]
impl Admission for PodTopologyLabels {
    fn handles(&self, attributes: &Attributes) -> bool {
        attributes.operation == Operation::Create
            && matches!(attributes.subresource.as_str(), "" | "binding")
            && attributes.is_for("", "pods")
    }

    async fn mutate(&self, attributes: &Attributes, object: &mut Value) -> Result<()> {
        let node = match attributes.subresource.as_str() {
            "" => object.str_at(&["spec", "nodeName"]),
            _ if object.str_at(&["target", "kind"]) == "Node" => object.str_at(&["target", "name"]),
            _ => "",
        };
        if node.is_empty() {
            return Ok(());
        }
        // A node that does not exist yet has no labels; that is not an error.
        let Some(node) = self.cluster.get_cached("", "nodes", "", node).await? else {
            return Ok(());
        };
        for label in LABELS {
            if let Some(value) = node.label(label) {
                // Overwrites labels of the client: the node's topology is authoritative. The registry copies those of a
                // binding to the pod.
                object.set(&["metadata", "labels", label], value);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::testing::{ask, cluster, pod, request};
    use crate::json;

    #[tokio::test]
    async fn bound_pods_and_bindings_get_the_nodes_topology() {
        let node = json!({"metadata": {"name": "n", "labels": {
            "topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r", "other": "o"}}});
        let plugin = PodTopologyLabels::new(cluster(&[("", "nodes", vec![node])]));
        let labels = json!({"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r"});
        let create = request(Operation::Create, "", "pods", "p");
        let got = ask(&plugin, &create, &pod(json!({"nodeName": "n"}))).await.unwrap();
        assert_eq!(*got.at(&["metadata", "labels"]), labels);
        let bind = request(Operation::Create, "", "pods/binding", "p");
        let got = ask(&plugin, &bind, &json!({"target": {"kind": "Node", "name": "n"}})).await;
        assert_eq!(*got.unwrap().at(&["metadata", "labels"]), labels);
        for unbound in [pod(json!({})), pod(json!({"nodeName": "absent"}))] {
            assert_eq!(ask(&plugin, &create, &unbound).await.unwrap(), unbound);
        }
    }
}
