//! RuntimeClass: applies the overhead and scheduling constraints of a pod's runtime class. As upstream's
//! `plugin/pkg/admission/runtimeclass`.

use super::tolerations;
use crate::admission::{Admission, Attributes, ObjectLookup, forbidden};
use crate::apimachinery::quantity::Quantity;
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use async_trait::async_trait;

pub(crate) struct RuntimeClass {
    cluster: ObjectLookup,
}

impl RuntimeClass {
    /// Reads runtime classes from `cluster`.
    pub(crate) fn new(cluster: ObjectLookup) -> Self {
        Self { cluster }
    }

    /// The pod's runtime class; `None` if it specifies none.
    async fn class(&self, attributes: &Attributes, pod: &Value) -> Result<Option<Value>> {
        let Some(name) = pod.at(&["spec", "runtimeClassName"]).as_str() else {
            return Ok(None);
        };
        match self
            .cluster
            .get_cached("node.k8s.io", "runtimeclasses", "", name)
            .await?
        {
            Some(class) => Ok(Some(class)),
            None => {
                let why = format!("pod rejected: RuntimeClass {name:?} not found");
                Err(forbidden(attributes, pod, why))
            }
        }
    }
}

const MISMATCH: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

/// True if both list the same resources with equal amounts, whatever their notation.
fn same_amounts(a: &Value, b: &Value) -> bool {
    let amounts = |v: &Value| -> Vec<(String, Option<Quantity>)> {
        let all = v.as_object().into_iter().flat_map(|m| m.iter());
        all.map(|(k, q)| (k.to_owned(), q.as_str().and_then(|q| Quantity::parse(q).ok())))
            .collect()
    };
    amounts(a) == amounts(b)
}

fn set_overhead(attributes: &Attributes, pod: &mut Value, class: &Value) -> Result<()> {
    // An overhead that the client gave is refused later, in `validate`.
    if class.get("overhead").is_null() {
        return Ok(());
    }
    let fixed = class.at(&["overhead", "podFixed"]);
    let given = pod.at(&["spec", "overhead"]);
    // A client may repeat the class's overhead, as when it recreates a pod, but not choose its own.
    if !given.is_null() && !same_amounts(given, fixed) {
        return Err(forbidden(attributes, pod, MISMATCH));
    }
    if !fixed.is_null() {
        pod.set(&["spec", "overhead"], fixed.clone());
    }
    Ok(())
}

fn set_scheduling(attributes: &Attributes, pod: &mut Value, class: &Value) -> Result<()> {
    let scheduling = class.get("scheduling");
    if scheduling.is_null() {
        return Ok(());
    }
    let selector = scheduling.get("nodeSelector").as_object();
    for (key, value) in selector.into_iter().flat_map(|m| m.iter()) {
        let wanted = value.as_str().unwrap_or("");
        let given = pod.at(&["spec", "nodeSelector", key]).as_str();
        if let Some(given) = given.filter(|given| *given != wanted) {
            let why = format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {wanted}; pod.spec.nodeSelector[{key}] = {given}"
            );
            return Err(forbidden(attributes, pod, why));
        }
        // Set one by one: after a conflict the write is rejected, so a partial merge does no harm.
        pod.set(&["spec", "nodeSelector", key], wanted);
    }
    let merged = tolerations::merge(
        pod.at(&["spec", "tolerations"]).items(),
        scheduling.get("tolerations").items(),
    );
    if !merged.is_empty() {
        pod.set(&["spec", "tolerations"], merged);
    }
    Ok(())
}

#[async_trait]
impl Admission for RuntimeClass {
    fn handles(&self, attributes: &Attributes) -> bool {
        attributes.is_new_pod()
    }

    async fn mutate(&self, attributes: &Attributes, pod: &mut Value) -> Result<()> {
        let Some(class) = self.class(attributes, pod).await? else {
            return Ok(());
        };
        set_overhead(attributes, pod, &class)?;
        set_scheduling(attributes, pod, &class)
    }

    async fn validate(&self, attributes: &Attributes, pod: &Value) -> Result<()> {
        let class = self.class(attributes, pod).await?;
        let overhead = pod.at(&["spec", "overhead"]);
        match class.as_ref().map(|c| c.get("overhead")).filter(|o| !o.is_null()) {
            Some(defined) if same_amounts(defined.get("podFixed"), overhead) => Ok(()),
            Some(_) => Err(forbidden(attributes, pod, MISMATCH)),
            // Overhead without a class would raise requests that nothing justifies. To upstream an empty one is set, too.
            None if overhead.is_null() && !attributes.empties.is_at("spec.overhead") => Ok(()),
            None => {
                let why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
                Err(forbidden(attributes, pod, why))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::Operation;
    use crate::admission::testing::{ask, cluster, pod, request};
    use crate::api::by_gvk;
    use crate::api::decode::normalize_with_empties;
    use crate::json;

    async fn outcome(spec: Value) -> std::result::Result<Value, String> {
        let class = json!({"metadata": {"name": "rc"}, "overhead": {"podFixed": {"cpu": "100m"}},
            "scheduling": {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "k", "operator": "Exists"}]}});
        let plugin = RuntimeClass::new(cluster(&[("node.k8s.io", "runtimeclasses", vec![class])]));
        ask(&plugin, &request(Operation::Create, "", "pods", "p"), &pod(spec)).await
    }

    #[tokio::test]
    async fn overhead_selector_and_tolerations_are_applied() {
        let got = outcome(json!({"runtimeClassName": "rc", "nodeSelector": {"z": "z"}}))
            .await
            .unwrap();
        assert_eq!(
            *got.get("spec"),
            json!({"runtimeClassName": "rc", "nodeSelector": {"a": "b", "z": "z"}, "overhead": {"cpu": "100m"},
                "tolerations": [{"key": "k", "operator": "Exists"}]})
        );
        let same = outcome(json!({"runtimeClassName": "rc", "overhead": {"cpu": "0.1"}})).await;
        assert!(same.is_ok());
    }

    #[tokio::test]
    async fn an_empty_overhead_needs_a_class_that_defines_one() {
        let defines = json!({"metadata": {"name": "rc"}, "overhead": {"podFixed": {"cpu": "100m"}}});
        let plugin = RuntimeClass::new(cluster(&[("node.k8s.io", "runtimeclasses", vec![defines])]));
        let definition = by_gvk("", "v1", "Pod").unwrap();
        for (class, is_refused) in [(Value::Null, true), ("rc".into(), false)] {
            let mut object = pod(json!({"runtimeClassName": (class), "overhead": {}}));
            let (_, empties) = normalize_with_empties(definition, &mut object).unwrap();
            let request = Attributes {
                empties,
                ..request(Operation::Create, "", "pods", "p")
            };
            assert_eq!(ask(&plugin, &request, &object).await.is_err(), is_refused);
        }
    }

    #[tokio::test]
    async fn conflicts_with_the_class_are_rejected() {
        for (spec, why) in [
            (
                json!({"runtimeClassName": "x"}),
                "pod rejected: RuntimeClass \"x\" not found",
            ),
            (json!({"runtimeClassName": "rc", "overhead": {"cpu": "5"}}), MISMATCH),
            (
                json!({"overhead": {"cpu": "5"}}),
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
            ),
            (
                json!({"runtimeClassName": "rc", "nodeSelector": {"a": "c"}}),
                "conflict: runtimeClass.scheduling.nodeSelector[a] = b; pod.spec.nodeSelector[a] = c",
            ),
        ] {
            assert_eq!(
                outcome(spec).await.unwrap_err(),
                format!("pods \"p\" is forbidden: {why}")
            );
        }
    }
}
