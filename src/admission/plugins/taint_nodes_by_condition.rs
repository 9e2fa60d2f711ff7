//! TaintNodesByCondition: new nodes are tainted as not ready until a controller has observed them. As
//! upstream's `plugin/pkg/admission/nodetaint`.

use super::pods::push;
use crate::admission::{Admission, Attributes, Operation};
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use async_trait::async_trait;

const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// Adds the not-ready taint to new nodes.
pub(crate) struct TaintNodesByCondition;

#[async_trait]
impl Admission for TaintNodesByCondition {
    fn handles(&self, attributes: &Attributes) -> bool {
        attributes.operation == Operation::Create && attributes.is("", "nodes")
    }

    async fn mutate(&self, _attributes: &Attributes, node: &mut Value) -> Result<()> {
        let is = |t: &Value| t.str_at(&["key"]) == NOT_READY && t.str_at(&["effect"]) == "NoSchedule";
        // Otherwise pods could be scheduled in the moment before the node controller taints the node itself.
        if !node.at(&["spec", "taints"]).items().iter().any(is) {
            let mut taint = Value::object();
            taint.set(&["effect"], "NoSchedule");
            taint.set(&["key"], NOT_READY);
            let spec = node.make_object().entry("spec");
            spec.make_object();
            push(spec, "taints", taint);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::testing::{ask, request};
    use crate::json;

    #[tokio::test]
    async fn a_new_node_is_tainted_once() {
        let create = request(Operation::Create, "", "nodes", "n");
        let once = ask(&TaintNodesByCondition, &create, &json!({"metadata": {"name": "n"}})).await;
        let once = once.unwrap();
        assert_eq!(
            *once.at(&["spec", "taints"]),
            json!([{"key": (NOT_READY), "effect": "NoSchedule"}])
        );
        assert_eq!(ask(&TaintNodesByCondition, &create, &once).await.unwrap(), once);
    }
}
