//! Computes the QoS class of a pod, which is published in its status and which a resize may not change. Start
//! at [`quality_of_service`]; it is pure, and setting the status is left to the pod's strategy.

use crate::apimachinery::quantity::Quantity;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::regular_containers;
use crate::controlplane::validation::common::quantity;

/// Computes the QoS class from cpu and memory requests and limits (`ComputePodQOS` in upstream's
/// `pkg/apis/core/v1/helper/qos/qos.go`).
pub(crate) fn quality_of_service(v: &Value) -> &'static str {
    let spec = v.get("spec");
    // Sums of cpu and memory.
    let (mut requests, mut limits) = ([Quantity::ZERO; 2], [Quantity::ZERO; 2]);
    let mut limited = true;
    // Pod-level resources, if set, replace those of the containers.
    let whole = !spec.get("resources").is_null();
    let judged: Vec<&Value> = if whole {
        vec![spec]
    } else {
        regular_containers(spec).collect()
    };
    for c in judged {
        for (i, what) in ["cpu", "memory"].into_iter().enumerate() {
            // Upstream ignores quantities that are not positive.
            let of = |side: &str| quantity(c.at(&["resources", side, what])).filter(|q| q.signum() > 0);
            requests[i] = requests[i].plus(of("requests").unwrap_or(Quantity::ZERO));
            limits[i] = limits[i].plus(of("limits").unwrap_or(Quantity::ZERO));
            limited &= of("limits").is_some();
        }
    }
    // Compared by value, not as text: `1Gi` is `1073741824`.
    if [requests, limits].concat().iter().all(|q| q.signum() == 0) {
        "BestEffort"
    } else if limited && requests == limits {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn qos_class_follows_requests_and_limits() {
        let of = |resources: Value| {
            let mut v = json!({"spec": {"containers": [{}]}});
            let mut c = json!({});
            c.set(&["resources"], resources);
            v.set(&["spec", "containers"], vec![c]);
            quality_of_service(&v)
        };
        assert_eq!(of(json!({})), "BestEffort");
        assert_eq!(of(json!({"requests": {"cpu": "1"}})), "Burstable");
        let both = json!({"cpu": "1", "memory": "1Gi"});
        let mut r = json!({});
        r.set(&["limits"], both.clone());
        r.set(&["requests"], both);
        assert_eq!(of(r), "Guaranteed");
        let written_differently = json!({"limits": {"cpu": "1", "memory": "1Gi"},
            "requests": {"cpu": "1000m", "memory": 1073741824}});
        assert_eq!(of(written_differently), "Guaranteed");
        assert_eq!(of(json!({"limits": {"cpu": "0m"}})), "BestEffort");
    }
}
