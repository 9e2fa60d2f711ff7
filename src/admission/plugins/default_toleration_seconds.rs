//! DefaultTolerationSeconds: pods tolerate not-ready and unreachable nodes for a limited time, unless they
//! have tolerations of their own. As upstream's `plugin/pkg/admission/defaulttolerationseconds`, also on
//! updates.

use super::pods::push;
use crate::admission::{Admission, Attributes, Operation};
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use async_trait::async_trait;

/// The taints of nodes that are not ready, or that stopped reporting.
const TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

pub(crate) struct DefaultTolerationSeconds {
    // Made once, since every pod gets a copy.
    tolerations: [(&'static str, Value); 2],
}

impl DefaultTolerationSeconds {
    /// The times, in seconds, for which pods tolerate a not-ready and an unreachable node.
    pub(crate) fn new(not_ready: i64, unreachable: i64) -> Self {
        let [first, second] = TAINTS;
        let of = |key: &'static str, seconds: i64| {
            let toleration = crate::json!({
                "key": (key), "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": (seconds),
            });
            (key, toleration)
        };
        Self {
            tolerations: [of(first, not_ready), of(second, unreachable)],
        }
    }
}

#[async_trait]
impl Admission for DefaultTolerationSeconds {
    fn handles(&self, attributes: &Attributes) -> bool {
        matches!(attributes.operation, Operation::Create | Operation::Update) && attributes.is("", "pods")
    }

    async fn mutate(&self, _attributes: &Attributes, pod: &mut Value) -> Result<()> {
        for (taint, toleration) in &self.tolerations {
            let has = pod.at(&["spec", "tolerations"]).items().iter().any(|t| {
                let (key, effect) = (t.str_at(&["key"]), t.str_at(&["effect"]));
                // An empty key or effect tolerates all of them.
                (key.is_empty() || key == *taint) && (effect.is_empty() || effect == "NoExecute")
            });
            if let Some(spec) = pod.at_mut(&["spec"]).filter(|_| !has) {
                push(spec, "tolerations", toleration.clone());
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

    async fn keys(tolerations: Value) -> Vec<String> {
        let plugin = DefaultTolerationSeconds::new(300, 20);
        let create = request(Operation::Create, "", "pods", "p");
        let got = ask(&plugin, &create, &pod(json!({}))).await.unwrap();
        assert_eq!(
            got.at(&["spec", "tolerations"]).items()[1]
                .get("tolerationSeconds")
                .as_i64(),
            Some(20)
        );
        let mut given = pod(json!({}));
        given.set(&["spec", "tolerations"], tolerations);
        let got = ask(&plugin, &create, &given).await.unwrap();
        let all = got.at(&["spec", "tolerations"]).items().iter();
        all.map(|t| t.str_at(&["key"]).to_owned()).collect()
    }

    #[tokio::test]
    async fn existing_tolerations_are_kept() {
        let [not_ready, unreachable] = TAINTS;
        assert_eq!(keys(json!([{"operator": "Exists"}])).await, [""]);
        assert_eq!(
            keys(json!([{"key": (unreachable), "operator": "Exists", "effect": "NoExecute"}])).await,
            [unreachable, not_ready]
        );
        assert_eq!(
            keys(json!([{"key": (not_ready), "operator": "Exists", "effect": "NoSchedule"}])).await,
            [not_ready, not_ready, unreachable]
        );
    }
}
