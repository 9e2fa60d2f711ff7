//! Defaults of pods and pod templates (`pkg/apis/core/v1/defaults.go`).

mod container;
mod gates;
mod volume;

use crate::apimachinery::quantity::Quantity;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{elements_mut, set_default, set_default_str};
pub(super) use volume::source_fields;

/// Fills in what is not said of a Pod.
pub(crate) fn pod(v: &mut Value) {
    for stage in ["alpha", "beta"] {
        for what in ["init-containers", "init-container-statuses"] {
            // Long gone, and removed wherever they come from.
            v.unset(&["metadata", "annotations", &format!("pod.{stage}.kubernetes.io/{what}")]);
        }
    }
    template(v);
    addresses(v);
    let Some(spec) = v.at_mut(&["spec"]) else { return };
    let grace = spec.get("terminationGracePeriodSeconds").as_i64().unwrap_or(0);
    if grace < 0 {
        spec.set(&["terminationGracePeriodSeconds"], 1i64);
    }
    set_default(spec, &["enableServiceLinks"], true);
    let host_network = spec.get("hostNetwork").as_bool() == Some(true);
    for list in ["containers", "initContainers"] {
        for c in elements_mut(spec, &[list]) {
            limits_are_requests(c);
            if host_network {
                for p in elements_mut(c, &["ports"]) {
                    if p.get("hostPort").as_i64().unwrap_or(0) == 0 {
                        let port = p.get("containerPort").clone();
                        p.set(&["hostPort"], port);
                    }
                }
            }
        }
    }
    pod_level_requests(spec);
}

/// A pod's first address is said twice; the single one wins.
fn addresses(v: &mut Value) {
    let single = v.at(&["status", "podIP"]).clone();
    let all = v.at(&["status", "podIPs"]).items();
    let first = all.first().map(|ip| ip.get("ip").clone()).unwrap_or_default();
    match (single.as_str().unwrap_or(""), first.as_str().unwrap_or("")) {
        ("", "") => {}
        ("", _) => v.set(&["status", "podIP"], first),
        (one, other) if one == other => {}
        _ => {
            let mut ip = Value::object();
            ip.set(&["ip"], single);
            v.set(&["status", "podIPs"], vec![ip]);
        }
    }
}

/// Fills in what is not said of a pod template: all that pods and templates share.
pub(crate) fn template(v: &mut Value) {
    let spec = match v.at_mut(&["spec"]) {
        Some(spec) if !spec.is_null() => spec,
        _ => {
            v.set(&["spec"], Value::object());
            match v.at_mut(&["spec"]) {
                Some(spec) => spec,
                None => return,
            }
        }
    };
    gates::drop_disabled(spec);
    let account = spec.str_at(&["serviceAccountName"]).to_owned();
    match (account.is_empty(), spec.str_at(&["serviceAccount"]).to_owned()) {
        (true, old) if !old.is_empty() => spec.set(&["serviceAccountName"], old),
        (false, _) => spec.set(&["serviceAccount"], account),
        _ => {}
    }
    set_default_str(spec, &["dnsPolicy"], "ClusterFirst");
    set_default_str(spec, &["restartPolicy"], "Always");
    set_default(spec, &["securityContext"], Value::object());
    set_default(spec, &["terminationGracePeriodSeconds"], 30i64);
    set_default_str(spec, &["schedulerName"], "default-scheduler");
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for c in elements_mut(spec, &[list]) {
            container::container(c);
        }
    }
    for v in elements_mut(spec, &["volumes"]) {
        volume::volume(v);
    }
}

/// A limit of the whole pod without a request gets what its containers request together, or itself.
fn pod_level_requests(spec: &mut Value) {
    let limits = spec.at(&["resources", "limits"]).clone();
    for (k, limit) in limits.as_object().into_iter().flat_map(|m| m.iter()) {
        if !matches!(k, "cpu" | "memory") || !spec.at(&["resources", "requests", k]).is_null() {
            continue;
        }
        let together = spec
            .get("containers")
            .items()
            .iter()
            .filter_map(|c| c.at(&["resources", "requests", k]).as_str())
            .filter_map(|q| Quantity::parse(q).ok())
            .reduce(Quantity::plus);
        let request = together.map_or_else(|| limit.clone(), |q| q.to_string().into());
        spec.set(&["resources", "requests", k], request);
    }
}

fn limits_are_requests(c: &mut Value) {
    let limits = c.at(&["resources", "limits"]).clone();
    for (k, q) in limits.as_object().into_iter().flat_map(|m| m.iter()) {
        set_default(c, &["resources", "requests", k], q.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::container::tag_is_latest;
    use super::*;
    use crate::json;

    #[test]
    fn a_bare_pod_gets_the_recorded_defaults() {
        let mut v = json!({"spec": {"containers": [{"name": "main", "image": "registry.invalid/app:1"}]}});
        pod(&mut v);
        assert_eq!(
            v.get("spec"),
            &json!({"containers": [{"image": "registry.invalid/app:1", "imagePullPolicy": "IfNotPresent", "name": "main",
                     "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}],
                    "dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "restartPolicy": "Always",
                    "schedulerName": "default-scheduler", "securityContext": {}, "terminationGracePeriodSeconds": 30})
        );
    }

    #[test]
    fn latest_is_pulled_always() {
        for (image, latest) in [
            ("a", true),
            ("a:latest", true),
            ("a:1", false),
            ("host:5000/a", true),
            ("host:5000/a:1", false),
            ("a@sha256:00", false),
        ] {
            assert_eq!(tag_is_latest(image), latest, "{image}");
        }
    }

    #[test]
    fn limits_are_requests_unless_said() {
        let mut v = json!({"spec": {"containers": [{"resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}}]}});
        pod(&mut v);
        let c = &v.at(&["spec", "containers"]).items()[0];
        assert_eq!(
            c.at(&["resources", "requests"]),
            &json!({"cpu": "500m", "memory": "1Gi"})
        );
    }
}
