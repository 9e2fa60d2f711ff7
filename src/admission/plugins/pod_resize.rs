//! A bound pod is resized only on a node that is there, runs Linux and has that much at all.
//! As upstream's `plugin/pkg/admission/podresize`.

use crate::admission::{Admission, Attributes, Cluster, Operation};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::quantity::Quantity;
use crate::apimachinery::status::{Cause, Result, Status};
use crate::apimachinery::value::Value;
use async_trait::async_trait;

/// The plugin.
pub struct PodResize {
    cluster: Cluster,
}

impl PodResize {
    /// Reads nodes there.
    pub fn new(cluster: Cluster) -> Self {
        Self { cluster }
    }
}

fn nanos(q: &Value) -> i128 {
    let text = match q {
        Value::Int(n) => n.to_string(),
        other => other.as_str().unwrap_or("0").to_owned(),
    };
    Quantity::parse(&text).map_or(0, Quantity::nanos)
}

/// What a pod asks for: its containers and sidecars together, or the hungriest init container with the sidecars that
/// run by then; what is said for the whole pod counts instead. Overhead comes on top.
fn requested(pod: &Value, resource: &str) -> i128 {
    let spec = pod.get("spec");
    let of = |c: &Value| nanos(c.at(&["resources", "requests", resource]));
    let overhead = nanos(spec.at(&["overhead", resource]));
    let whole = spec.at(&["resources", "requests", resource]);
    if !whole.is_null() {
        return nanos(whole) + overhead;
    }
    let (mut sidecars, mut starting) = (0, 0);
    for c in spec.get("initContainers").items() {
        if c.str_at(&["restartPolicy"]) == "Always" {
            sidecars += of(c);
            starting = starting.max(sidecars);
        } else {
            starting = starting.max(sidecars + of(c));
        }
    }
    let running: i128 = spec.get("containers").items().iter().map(of).sum();
    (running + sidecars).max(starting) + overhead
}

/// What the node does not have, in upstream's words.
fn lacking(pod: &Value, node: &Value) -> Vec<String> {
    const NANO: i128 = 1_000_000_000;
    [("cpu", NANO / 1000), ("memory", NANO)]
        .into_iter()
        .filter_map(|(resource, unit)| {
            let asked = requested(pod, resource);
            let there = nanos(node.at(&["status", "allocatable", resource]));
            let shown = |n: i128| (n + unit - 1).div_euclid(unit);
            (asked > there).then(|| format!("{resource}, requested: {}, allocatable: {}", shown(asked), shown(there)))
        })
        .collect()
}

#[async_trait]
impl Admission for PodResize {
    async fn validate(&self, attributes: &Attributes, object: &Value) -> Result<()> {
        let pods = attributes.resource.group.is_empty() && attributes.resource.resource == "pods";
        let node = object.str_at(&["spec", "nodeName"]);
        if !pods || attributes.subresource != "resize" || attributes.operation != Operation::Update || node.is_empty() {
            return Ok(());
        }
        let generation = |v: &Value| v.at(&["metadata", "generation"]).as_i64();
        if attributes
            .old_object
            .as_deref()
            .is_some_and(|old| generation(old) == generation(object))
        {
            return Ok(());
        }
        let refused = |why: &str, reason: &str| {
            let mut status = Status::forbidden(&attributes.resource.group_resource(), &attributes.name, why);
            if !reason.is_empty() {
                status.details_mut().causes.push(Cause {
                    reason: reason.to_owned(),
                    message: why.to_owned(),
                    field: String::new(),
                });
            }
            Err(status)
        };
        let Some(found) = self.cluster.get("", "nodes", "", node).await? else {
            return refused(&format!("node {node:?} not found"), "");
        };
        let os = match found.str_at(&["status", "nodeInfo", "operatingSystem"]) {
            "" => found.label("kubernetes.io/os").unwrap_or_default(),
            os => os,
        };
        if !matches!(os, "" | "linux") {
            let why = format!("pod resize is only supported on linux nodes, node {node:?} is {os:?}");
            return refused(&why, "UnsupportedPlatform");
        }
        let lacking = lacking(object, &found);
        if lacking.is_empty() {
            return Ok(());
        }
        let why = format!("node didn't have enough allocatable resources: {}", lacking.join("; "));
        refused(&why, "NodeCapacity")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn what_a_node_lacks_is_said_in_its_units() {
        let node = json!({"status": {"allocatable": {"cpu": "500m", "memory": "1Ki"}}});
        let pod = json!({"spec": {
            "containers": [{"resources": {"requests": {"cpu": "600m", "memory": "1"}}}, {"resources": {"requests": {"cpu": "100m"}}}],
            "initContainers": [{"restartPolicy": "Always", "resources": {"requests": {"cpu": "200m"}}}],
        }});
        assert_eq!(lacking(&pod, &node), ["cpu, requested: 900, allocatable: 500"]);
    }
}
