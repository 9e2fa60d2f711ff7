//! Checks of updates to bound pods against their node: [`PodResizeValidator`] compares capacity and platform,
//! [`NodeDeclaredFeatureValidator`] the features that the node declares. As upstream's `podresize` and
//! `nodedeclaredfeatures`, with the features that v1.36 infers from an update.

use super::pods::{amount, requests};
use crate::admission::{Admission, Attributes, ObjectLookup, Operation, forbidden};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Cause, Result, Status};
use crate::apimachinery::value::Value;
use async_trait::async_trait;

/// The node of a bound pod whose spec (and hence generation) changes; `None` if there is nothing to check.
fn node_name<'a>(attributes: &Attributes, pod: &'a Value) -> Option<&'a str> {
    // The strategy has raised it already, before validation, if the spec changed.
    let generation = |v: &Value| v.at(&["metadata", "generation"]).as_i64();
    let old = attributes.old_object.as_deref()?;
    let node = pod.str_at(&["spec", "nodeName"]);
    (!node.is_empty() && generation(old) != generation(pod)).then_some(node)
}

async fn node(cluster: &ObjectLookup, attributes: &Attributes, pod: &Value, name: &str) -> Result<Value> {
    let found = cluster.get_cached("", "nodes", "", name).await?;
    found.ok_or_else(|| forbidden(attributes, pod, format!("node {name:?} not found")))
}

/// Rejects a resize beyond the node's allocatable resources.
pub(crate) struct PodResizeValidator {
    cluster: ObjectLookup,
}

impl PodResizeValidator {
    /// Reads nodes from `cluster`.
    pub(crate) fn new(cluster: ObjectLookup) -> Self {
        Self { cluster }
    }
}

fn because(reason: &'static str, mut status: Status) -> Status {
    status.details_mut().causes.push(Cause {
        reason: reason.into(),
        message: String::new(),
        field: String::new(),
    });
    status
}

#[async_trait]
impl Admission for PodResizeValidator {
    fn handles(&self, attributes: &Attributes) -> bool {
        attributes.operation == Operation::Update && attributes.subresource == "resize" && attributes.is_for("", "pods")
    }

    async fn validate(&self, attributes: &Attributes, pod: &Value) -> Result<()> {
        let Some(name) = node_name(attributes, pod) else {
            return Ok(());
        };
        let node = node(&self.cluster, attributes, pod, name).await?;
        // A node without the label passes: only the kubelet can tell then.
        if let Some(os) = node.label("kubernetes.io/os").filter(|os| *os != "linux") {
            let why = format!("pod resize is only supported on linux nodes, node {name:?} is {os:?}");
            return Err(because("UnsupportedPlatform", forbidden(attributes, pod, why)));
        }
        let has = |resource: &str| amount(node.at(&["status", "allocatable", resource]));
        let mut missing = Vec::new();
        let (wanted, allocatable) = (requests(pod, "cpu"), has("cpu"));
        if wanted > allocatable {
            let (wanted, allocatable) = (wanted.milli_value(), allocatable.milli_value());
            missing.push(format!("cpu, requested: {wanted}, allocatable: {allocatable}"));
        }
        let (wanted, allocatable) = (requests(pod, "memory"), has("memory"));
        if wanted > allocatable {
            let (wanted, allocatable) = (wanted.value(), allocatable.value());
            missing.push(format!("memory, requested: {wanted}, allocatable: {allocatable}"));
        }
        if missing.is_empty() {
            return Ok(());
        }
        let why = format!("node didn't have enough allocatable resources: {}", missing.join("; "));
        Err(because("NodeCapacity", forbidden(attributes, pod, why)))
    }
}

/// Rejects updates that require a feature the node does not declare.
pub(crate) struct NodeDeclaredFeatureValidator {
    cluster: ObjectLookup,
}

impl NodeDeclaredFeatureValidator {
    /// Reads nodes from `cluster`.
    pub(crate) fn new(cluster: ObjectLookup) -> Self {
        Self { cluster }
    }
}

/// The features that an update requires, sorted by name.
fn needed(old: &Value, new: &Value) -> Vec<&'static str> {
    let mut features = Vec::new();
    // Exclusive CPUs of the static CPU manager are only assigned to this class.
    if old.str_at(&["status", "qosClass"]) == "Guaranteed" {
        let cpus = |pod: &Value| -> Vec<_> {
            let all = pod.at(&["spec", "containers"]).items().iter();
            all.map(|c| amount(c.at(&["resources", "requests", "cpu"]))).collect()
        };
        if cpus(old) != cpus(new) {
            features.push("GuaranteedQoSPodCPUResize");
        }
    }
    if old.at(&["spec", "resources"]) != new.at(&["spec", "resources"]) {
        features.push("InPlacePodLevelResourcesVerticalScaling");
    }
    features
}

#[async_trait]
impl Admission for NodeDeclaredFeatureValidator {
    fn handles(&self, attributes: &Attributes) -> bool {
        attributes.operation == Operation::Update
            && matches!(attributes.subresource.as_str(), "" | "resize")
            && attributes.is_for("", "pods")
    }

    async fn validate(&self, attributes: &Attributes, pod: &Value) -> Result<()> {
        let (Some(name), Some(old)) = (node_name(attributes, pod), attributes.old_object.as_deref()) else {
            return Ok(());
        };
        let mut needed = needed(old, pod);
        if needed.is_empty() {
            return Ok(());
        }
        let node = node(&self.cluster, attributes, pod, name).await?;
        let declared = node.at(&["status", "declaredFeatures"]).items();
        needed.retain(|feature| !declared.iter().any(|d| d.as_str() == Some(feature)));
        if needed.is_empty() {
            return Ok(());
        }
        let why = format!(
            "pod update requires features {} which are not available on node {name:?}",
            needed.join(", ")
        );
        Err(forbidden(attributes, pod, why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::testing::{ask, cluster, pod, update};
    use crate::json;

    fn sized(cpu: &str, generation: i64) -> Value {
        let mut v =
            pod(json!({"nodeName": "n", "containers": [{"name": "a", "resources": {"requests": {"cpu": (cpu)}}}]}));
        v.set(&["metadata", "generation"], generation);
        v.set(&["status", "qosClass"], "Guaranteed");
        v
    }

    fn nodes(os: &str, features: Value) -> ObjectLookup {
        let node = json!({"metadata": {"name": "n", "labels": {"kubernetes.io/os": (os)}},
            "status": {"allocatable": {"cpu": "500m"}}});
        let mut node = node;
        node.set(&["status", "declaredFeatures"], features);
        cluster(&[("", "nodes", vec![node])])
    }

    async fn resize(cluster: ObjectLookup, to: &str) -> std::result::Result<Value, String> {
        let old = update("", "pods/resize", sized("100m", 1));
        ask(&PodResizeValidator::new(cluster), &old, &sized(to, 2)).await
    }

    #[tokio::test]
    async fn a_resize_is_limited_by_the_nodes_capacity() {
        assert!(resize(nodes("linux", json!([])), "500m").await.is_ok());
        assert_eq!(
            resize(nodes("linux", json!([])), "900m").await.unwrap_err(),
            "pods \"p\" is forbidden: node didn't have enough allocatable resources: cpu, requested: 900, allocatable: 500"
        );
        let refused = resize(nodes("windows", json!([])), "200m").await.unwrap_err();
        assert!(refused.ends_with("pod resize is only supported on linux nodes, node \"n\" is \"windows\""));
        let refused = resize(cluster(&[("", "nodes", vec![])]), "200m").await.unwrap_err();
        assert!(refused.ends_with("node \"n\" not found"));
    }

    #[tokio::test]
    async fn an_update_requires_declared_node_features() {
        let old = update("", "pods/resize", sized("100m", 1));
        let able = NodeDeclaredFeatureValidator::new(nodes("linux", json!(["GuaranteedQoSPodCPUResize"])));
        assert!(ask(&able, &old, &sized("200m", 2)).await.is_ok());
        let unable = NodeDeclaredFeatureValidator::new(nodes("linux", json!([])));
        let refused = ask(&unable, &old, &sized("200m", 2)).await.unwrap_err();
        assert!(
            refused.ends_with(
                "pod update requires features GuaranteedQoSPodCPUResize which are not available on node \"n\""
            )
        );
        assert!(ask(&unable, &old, &sized("100m", 2)).await.is_ok());
    }
}
