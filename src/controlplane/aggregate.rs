//! The sum of the requests or limits of a pod's containers (`AggregateContainerRequests` and
//! `AggregateContainerLimits` in upstream's `k8s.io/component-helpers/resource`). Entry point: [`together`], for the
//! defaults and the validation of pod-level resources.

use super::validation::common::quantity;
use crate::apimachinery::quantity::Quantity;
use crate::apimachinery::value::Value;
use std::collections::BTreeMap;

/// Aggregate of one resource over a pod's containers.
#[derive(Default)]
struct Need {
    /// Sum of regular containers and sidecars, which run concurrently.
    all: Option<Quantity>,
    sidecars: Option<Quantity>,
    /// Maximum of an init container plus the sidecars started before it.
    first: Option<Quantity>,
}

/// Aggregates `requests` or `limits` (`side`) per resource: the larger of the concurrent sum and the peak during
/// initialization. A resource that no container has is absent.
pub(super) fn together<'a>(spec: &'a Value, side: &str) -> BTreeMap<&'a str, Quantity> {
    // `None` stays distinct from zero: a resource that no container has is not compared.
    let plus = |a: Option<Quantity>, b: Quantity| Some(a.map_or(b, |a| a.plus(b)));
    let mut needs: BTreeMap<&str, Need> = BTreeMap::new();
    let of = |c: &'a Value| {
        let amounts = c.at(&["resources", side]).as_object();
        let amounts = amounts.into_iter().flat_map(|m| m.iter());
        amounts.filter_map(|(name, q)| Some((name, quantity(q)?)))
    };
    for (name, q) in spec.get("containers").items().iter().flat_map(of) {
        let need = needs.entry(name).or_default();
        need.all = plus(need.all, q);
    }
    for c in spec.get("initContainers").items() {
        let stays = c.str_at(&["restartPolicy"]) == "Always";
        for (name, q) in of(c) {
            let need = needs.entry(name).or_default();
            // Sidecars listed before this container are already running when it starts.
            let now = plus(need.sidecars, q);
            if stays {
                need.all = plus(need.all, q);
                need.sidecars = now;
            }
            need.first = need.first.max(now);
        }
    }
    let most = needs.into_iter();
    most.filter_map(|(name, need)| Some((name, need.all.max(need.first)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn sidecar_resources_add_to_those_of_later_containers() {
        let spec = json!({
            "containers": [{"resources": {"requests": {"cpu": "1"}}}, {"resources": {"requests": {"cpu": "1"}}}],
            "initContainers": [
                {"restartPolicy": "Always", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}},
                {"resources": {"requests": {"cpu": "3", "memory": "1Gi"}}},
            ],
        });
        let shown: Vec<_> = together(&spec, "requests")
            .into_iter()
            .map(|(name, q)| (name, q.to_string()))
            .collect();
        assert_eq!(shown, [("cpu", "3500m".to_owned()), ("memory", "2Gi".to_owned())]);
        assert!(together(&spec, "limits").is_empty());
    }
}
