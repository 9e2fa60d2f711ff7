//! ExtendedResourceToleration: pods that request extended resources tolerate the taints of nodes dedicated to
//! them. As upstream's `plugin/pkg/admission/extendedresourcetoleration`.

use super::pods::push;
use crate::admission::{Admission, Attributes, Operation};
use crate::apimachinery::status::Result;
use crate::apimachinery::validation::qualified_name;
use crate::apimachinery::value::Value;
use async_trait::async_trait;
use std::collections::BTreeSet;

/// Adds a toleration for each extended resource that a pod requests.
pub(crate) struct ExtendedResourceToleration;

/// True for a resource outside of `kubernetes.io` whose name is also valid in a quota.
fn is_extended(resource: &str) -> bool {
    resource.contains('/')
        && !resource.contains("kubernetes.io/")
        // The prefix of names in quotas, where this one would be ambiguous.
        && !resource.starts_with("requests.")
        && qualified_name(&format!("requests.{resource}")).is_empty()
}

#[async_trait]
impl Admission for ExtendedResourceToleration {
    fn handles(&self, attributes: &Attributes) -> bool {
        matches!(attributes.operation, Operation::Create | Operation::Update) && attributes.is("", "pods")
    }

    async fn mutate(&self, _attributes: &Attributes, pod: &mut Value) -> Result<()> {
        let mut resources: BTreeSet<String> = BTreeSet::new();
        // Not ephemeral containers, which have no resources.
        for list in ["containers", "initContainers"] {
            for container in pod.at(&["spec", list]).items() {
                let requests = container.at(&["resources", "requests"]).as_object();
                let names = requests.into_iter().flat_map(|m| m.keys());
                resources.extend(names.filter(|n| is_extended(n)).map(str::to_owned));
            }
        }
        let field = |t: &Value, key: &str| t.str_at(&[key]).to_owned();
        let plain = |t: &&Value| {
            t.str_at(&["operator"]) == "Exists" && ["effect", "value"].iter().all(|k| t.str_at(&[k]).is_empty())
        };
        let had = pod.at(&["spec", "tolerations"]).items().iter().filter(plain);
        // Only an equal toleration counts; a narrower one would not tolerate all taints of the resource.
        let had: BTreeSet<String> = had.map(|t| field(t, "key")).collect();
        for resource in resources.difference(&had) {
            let mut toleration = Value::object();
            toleration.set(&["key"], resource.as_str());
            toleration.set(&["operator"], "Exists");
            if let Some(spec) = pod.at_mut(&["spec"]) {
                push(spec, "tolerations", toleration);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::testing::{ask, pod, request};
    use crate::json;

    #[tokio::test]
    async fn each_extended_resource_is_tolerated_once_in_order_of_name() {
        let given = pod(json!({
            "containers": [{"resources": {"requests": {"z.com/gpu": "1", "cpu": "1", "x.kubernetes.io/y": "1"}}}],
            "initContainers": [{"resources": {"requests": {"a.com/fpga": "1"}}}],
        }));
        let create = request(Operation::Create, "", "pods", "p");
        let once = ask(&ExtendedResourceToleration, &create, &given).await.unwrap();
        assert_eq!(
            *once.at(&["spec", "tolerations"]),
            json!([{"key": "a.com/fpga", "operator": "Exists"}, {"key": "z.com/gpu", "operator": "Exists"}])
        );
        assert_eq!(ask(&ExtendedResourceToleration, &create, &once).await.unwrap(), once);
    }
}
