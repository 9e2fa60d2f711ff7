//! The QoS class of a pod, which its status shows and which a resize may not change.

use crate::apimachinery::value::Value;
use crate::controlplane::fields::regular_containers;

/// Computes the QoS class from cpu and memory requests and limits (`ComputePodQOS` in upstream's
/// `pkg/apis/core/v1/helper/qos/qos.go`).
pub(crate) fn quality_of_service(v: &Value) -> &'static str {
    fn get<'v>(c: &'v Value, side: &str, what: &str) -> Option<&'v Value> {
        let q = c.at(&["resources", side, what]);
        let zero = matches!(q.as_str(), Some("0")) || q.as_i64() == Some(0) || q.is_null();
        (!zero).then_some(q)
    }
    let spec = v.get("spec");
    let (mut any, mut all) = (false, true);
    // Pod-level resources, if set, replace those of the containers.
    let whole = !spec.get("resources").is_null();
    let judged: Vec<&Value> = if whole {
        vec![spec]
    } else {
        regular_containers(spec).collect()
    };
    for c in judged {
        for what in ["cpu", "memory"] {
            let (request, limit) = (get(c, "requests", what), get(c, "limits", what));
            any |= request.is_some() || limit.is_some();
            all &= limit.is_some() && (request.is_none() || request == limit);
        }
    }
    match (any, all) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
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
    }
}
