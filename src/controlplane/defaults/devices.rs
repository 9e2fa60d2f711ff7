//! Defaults of ResourceClaims, ResourceClaimTemplates and ResourceSlices
//! (`pkg/apis/resource/v1/defaults.go`).

use crate::apimachinery::time;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{elements_mut, set_default, set_default_str};

fn tolerations(holder: &mut Value, path: &[&str]) {
    for t in elements_mut(holder, path) {
        set_default_str(t, &["operator"], "Equal");
    }
}

/// Defaults of one device request, exact or alternative.
fn device_request(v: &mut Value) {
    set_default_str(v, &["allocationMode"], "ExactCount");
    if v.str_at(&["allocationMode"]) == "ExactCount" && v.get("count").as_i64().unwrap_or(0) == 0 {
        v.set(&["count"], 1i64);
    }
    tolerations(v, &["tolerations"]);
}

pub(crate) fn claim_spec(spec: &mut Value) {
    for r in elements_mut(spec, &["devices", "requests"]) {
        if let Some(exactly) = r.at_mut(&["exactly"]).filter(|e| !e.is_null()) {
            device_request(exactly);
        }
        for s in elements_mut(r, &["firstAvailable"]) {
            device_request(s);
        }
    }
}

pub(crate) fn claim(v: &mut Value) {
    if let Some(spec) = v.at_mut(&["spec"]) {
        claim_spec(spec);
    }
    for r in elements_mut(v, &["status", "allocation", "devices", "results"]) {
        tolerations(r, &["tolerations"]);
    }
}

/// Stamps taints with the time they are added.
pub(crate) fn slice(v: &mut Value) {
    for d in elements_mut(v, &["spec", "devices"]) {
        for t in elements_mut(d, &["taints"]) {
            set_default(t, &["timeAdded"], time::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn requests_default_to_exactly_one_device() {
        let mut v = json!({"spec": {"devices": {"requests": [
            {"name": "a", "exactly": {"deviceClassName": "c", "tolerations": [{"key": "k"}]}},
            {"name": "b", "exactly": {"deviceClassName": "c", "allocationMode": "All"}},
            {"name": "c", "firstAvailable": [{"name": "x", "count": 2}]},
            {"name": "d"}]}}});
        claim(&mut v);
        assert_eq!(
            v.at(&["spec", "devices", "requests"]),
            &json!([
                {"name": "a", "exactly": {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1,
                                          "tolerations": [{"key": "k", "operator": "Equal"}]}},
                {"name": "b", "exactly": {"deviceClassName": "c", "allocationMode": "All"}},
                {"name": "c", "firstAvailable": [{"name": "x", "allocationMode": "ExactCount", "count": 2}]},
                {"name": "d"}])
        );
    }
}
