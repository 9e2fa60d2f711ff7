//! Pods stay for a while on a node that is not ready or cannot be reached: each gets two tolerations, unless it has its
//! own. As upstream's `plugin/pkg/admission/defaulttolerationseconds`, on updates too.

use super::pods::push;
use crate::admission::{Admission, Attributes, Operation};
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use async_trait::async_trait;

/// The taints of a node that is not ready, or that nobody hears from.
const TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// The plugin.
pub struct DefaultTolerationSeconds {
    tolerations: [(&'static str, Value); 2],
}

impl DefaultTolerationSeconds {
    /// Seconds on a node that is not ready, and on one that cannot be reached.
    pub fn new(not_ready: i64, unreachable: i64) -> Self {
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
    async fn what_a_pod_tolerates_already_is_left_to_it() {
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
