//! PodTolerationRestriction: default tolerations and an allow list per namespace. As upstream's
//! `plugin/pkg/admission/podtolerationrestriction`.

use super::tolerations::{Covered, merge};
use crate::admission::{Admission, Attributes, ObjectLookup, Operation, forbidden};
use crate::apimachinery::codec::json as codec;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use async_trait::async_trait;

const DEFAULTS: &str = "scheduler.alpha.kubernetes.io/defaultTolerations";
const ALLOWED: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";

pub(crate) struct PodTolerationRestriction {
    cluster: ObjectLookup,
    default: Vec<Value>,
    allowed: Vec<Value>,
    memory_pressure: Value,
}

impl PodTolerationRestriction {
    /// Reads namespaces from `cluster`; `configuration` is upstream's `Configuration` with `default` and
    /// `whitelist`.
    pub(crate) fn new(cluster: ObjectLookup, configuration: Option<&Value>) -> Self {
        let list = |name: &str| configuration.map_or_else(Vec::new, |c| c.get(name).items().to_vec());
        Self {
            cluster,
            default: list("default"),
            allowed: list("whitelist"),
            memory_pressure: crate::json!({
                "key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule",
            }),
        }
    }

    /// The tolerations in an annotation of the namespace; `None` if the annotation is absent.
    async fn namespace_tolerations(&self, namespace: &str, annotation: &str) -> Result<Option<Vec<Value>>> {
        let found = self.cluster.get_cached("", "namespaces", "", namespace).await?;
        let text = found.as_ref().and_then(|n| n.annotation(annotation));
        match text {
            None => Ok(None),
            // Present but empty: suppresses the cluster's list without a replacement.
            Some("") => Ok(Some(Vec::new())),
            Some(text) => match codec::decode(text.as_bytes()) {
                Ok(list) => Ok(Some(list.items().to_vec())),
                Err(e) => Err(Status::raw_error(e.to_string())),
            },
        }
    }
}

/// True if neither the pod nor its containers request cpu or memory.
fn is_best_effort(pod: &Value) -> bool {
    let spec = pod.get("spec");
    let asks = |v: &Value| {
        ["requests", "limits"].iter().any(|side| {
            let of = |what: &str| super::pods::amount(v.at(&["resources", side, what])).signum() > 0;
            of("cpu") || of("memory")
        })
    };
    let mut containers = ["containers", "initContainers"]
        .iter()
        .flat_map(|l| spec.get(l).items());
    !asks(spec) && !containers.any(asks)
}

#[async_trait]
impl Admission for PodTolerationRestriction {
    fn handles(&self, attributes: &Attributes) -> bool {
        matches!(attributes.operation, Operation::Create | Operation::Update) && attributes.is("", "pods")
    }

    async fn mutate(&self, attributes: &Attributes, pod: &mut Value) -> Result<()> {
        let mut merged = pod.at(&["spec", "tolerations"]).items().to_vec();
        if attributes.operation == Operation::Create {
            let namespace_tolerations = self.namespace_tolerations(&attributes.namespace, DEFAULTS).await?;
            let defaults = namespace_tolerations.unwrap_or_else(|| self.default.clone());
            // Not merged: `merge` would also drop duplicates within the defaults, which upstream keeps.
            if merged.is_empty() {
                merged = defaults;
            } else if !defaults.is_empty() {
                merged = merge(&defaults, &merged);
            }
        }
        // The taint keeps off best-effort pods only; the kubelet admits others under memory pressure.
        if !is_best_effort(pod) {
            merged = merge(&merged, std::slice::from_ref(&self.memory_pressure));
        }
        if !merged.is_empty() {
            pod.set(&["spec", "tolerations"], merged);
        }
        // Upstream validates at the end of its mutation, so that later plugins do not see a pod that is rejected.
        self.validate(attributes, pod).await
    }

    async fn validate(&self, attributes: &Attributes, pod: &Value) -> Result<()> {
        let tolerations = pod.at(&["spec", "tolerations"]).items();
        if tolerations.is_empty() {
            return Ok(());
        }
        let namespace_tolerations = self.namespace_tolerations(&attributes.namespace, ALLOWED).await?;
        let (allowed, scope) = match &namespace_tolerations {
            Some(namespace_tolerations) => (namespace_tolerations, "namespace"),
            None => (&self.allowed, "cluster"),
        };
        // Indexed once: a pod and an allow list may both have thousands of tolerations.
        let covered = Covered::by(allowed);
        if allowed.is_empty() || tolerations.iter().all(|t| covered.has(t)) {
            return Ok(());
        }
        let why = format!(
            "pod tolerations (possibly merged with namespace default tolerations) conflict with its {scope} whitelist"
        );
        Err(forbidden(attributes, pod, why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::testing::{ask, cluster, pod, request};
    use crate::json;

    #[tokio::test]
    async fn tolerations_are_merged_and_restricted_by_namespace() {
        let mut namespace = json!({"metadata": {"name": "ns"}});
        let text = r#"[{"key": "a", "operator": "Exists"}]"#;
        namespace.set(&["metadata", "annotations", DEFAULTS], text);
        let configuration = json!({"whitelist": [{"key": "a", "operator": "Exists"},
            {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists"}]});
        let cluster = cluster(&[("", "namespaces", vec![namespace])]);
        let plugin = PodTolerationRestriction::new(cluster, Some(&configuration));
        let create = request(Operation::Create, "", "pods", "p");
        let sized = json!({"containers": [{"resources": {"requests": {"cpu": "1"}}}]});
        let got = ask(&plugin, &create, &pod(sized)).await.unwrap();
        let keys: Vec<&str> = got
            .at(&["spec", "tolerations"])
            .items()
            .iter()
            .map(|t| t.str_at(&["key"]))
            .collect();
        assert_eq!(keys, ["a", "node.kubernetes.io/memory-pressure"]);
        let other = pod(json!({"tolerations": [{"key": "b", "operator": "Exists"}]}));
        let refused = ask(&plugin, &create, &other).await.unwrap_err();
        assert!(refused.ends_with("conflict with its cluster whitelist"));
    }
}
