//! Defaults of pods and pod templates (`pkg/apis/core/v1/defaults.go`). [`template`] holds what both share;
//! [`pod`] adds what applies to Pods only.

mod container;
mod image;
mod volume;

use crate::apimachinery::value::Value;
use crate::controlplane::aggregate::together;
use crate::controlplane::fields::{elements_mut, set_default, set_default_str, set_defaults};
use std::collections::BTreeMap;
pub(super) use volume::source_fields;

const HUGE_PAGES: &str = "hugepages-";

/// Defaults of a Pod, including those of its [`template`].
pub(crate) fn pod(v: &mut Value) {
    for stage in ["alpha", "beta"] {
        for what in ["init-containers", "init-container-statuses"] {
            // Annotations of removed alpha and beta APIs; upstream's conversion drops them.
            v.unset(&["metadata", "annotations", &format!("pod.{stage}.kubernetes.io/{what}")]);
        }
    }
    template(v);
    addresses(v);
    let Some(spec) = v.at_mut(&["spec"]) else { return };
    // Negative grace periods were once accepted; upstream reads them as 1.
    let grace = spec.get("terminationGracePeriodSeconds").as_i64().unwrap_or(0);
    if grace < 0 {
        spec.set(&["terminationGracePeriodSeconds"], 1i64);
    }
    set_default(spec, &["enableServiceLinks"], true);
    let host_network = spec.get("hostNetwork").as_bool() == Some(true);
    // Ephemeral containers cannot have resources or ports.
    for list in ["containers", "initContainers"] {
        for c in elements_mut(spec, &[list]) {
            // Before the pod-level defaults below, which read these requests.
            limits_are_requests(c);
            // On the host's network both numbers name the same socket.
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
    pod_level_pages(spec);
    pod_level_requests(spec);
}

/// Synchronizes `status.podIP` with `status.podIPs[0]`; on conflict `podIP` wins.
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

/// Defaults shared by pods and pod templates.
pub(crate) fn template(v: &mut Value) {
    let spec = match v.at_mut(&["spec"]) {
        Some(spec) if !spec.is_null() => spec,
        _ => {
            // The spec is a struct upstream: an absent one is defaulted like an empty one.
            v.set(&["spec"], Value::object());
            match v.at_mut(&["spec"]) {
                Some(spec) => spec,
                None => return,
            }
        }
    };
    // `serviceAccount` is the deprecated alias; both always carry the same value.
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

/// Sets missing pod-level limits of huge pages to what the containers are limited to together, if the pod has pod-level
/// resources.
fn pod_level_pages(spec: &mut Value) {
    let own = spec.get("resources");
    if own.get("requests").is_empty_value() && own.get("limits").is_empty_value() {
        return;
    }
    let pages: Vec<(String, Value)> = together(spec, "limits")
        .into_iter()
        // Requests and limits of huge pages are equal: beside a request, a limit is the client's to set.
        .filter(|(name, _)| name.starts_with(HUGE_PAGES) && own.at(&["requests", name]).is_null())
        .map(|(name, q)| (name.to_owned(), q.to_string().into()))
        .collect();
    let pages = pages.iter().map(|(name, q)| (name.as_str(), q.clone()));
    set_defaults(spec, &["resources", "limits"], pages);
}

/// Sets missing pod-level requests, if the pod has pod-level limits: to what the containers request together, or else
/// to the limit.
fn pod_level_requests(spec: &mut Value) {
    let limits = spec.at(&["resources", "limits"]).clone();
    if limits.is_empty_value() {
        return;
    }
    // Sorted by name, as `set_defaults` requires.
    let mut requests: BTreeMap<String, Value> = BTreeMap::new();
    for (name, limit) in limits.as_object().into_iter().flat_map(|m| m.iter()) {
        if matches!(name, "cpu" | "memory") || name.starts_with(HUGE_PAGES) {
            requests.insert(name.to_owned(), limit.clone());
        }
    }
    // Also of resources without a limit. Not of huge pages, whose request is the limit.
    for (name, sum) in together(spec, "requests") {
        if matches!(name, "cpu" | "memory") {
            requests.insert(name.to_owned(), sum.to_string().into());
        }
    }
    let requests = requests.iter().map(|(name, q)| (name.as_str(), q.clone()));
    set_defaults(spec, &["resources", "requests"], requests);
}

/// Sets missing requests of a container to its limits.
fn limits_are_requests(c: &mut Value) {
    let limits = c.at(&["resources", "limits"]).clone();
    let requests = limits.as_object().into_iter().flat_map(|m| m.iter());
    set_defaults(c, &["resources", "requests"], requests.map(|(k, q)| (k, q.clone())));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn a_minimal_pod_is_defaulted_as_upstream() {
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
    fn pod_level_huge_pages_default_to_the_containers_requests() {
        let container = json!({"resources": {"limits": {"hugepages-2Mi": "4Mi"}}});
        let containers = json!([container.clone(), container]);
        let mut v = json!({"spec": {"containers": containers.clone(), "resources": {"limits": {"cpu": "1"}}}});
        pod(&mut v);
        let pages = json!({"cpu": "1", "hugepages-2Mi": "8Mi"});
        assert_eq!(
            v.at(&["spec", "resources"]),
            &json!({"limits": pages.clone(), "requests": pages})
        );
        let mut bare = json!({"spec": {"containers": containers, "resources": {}}});
        pod(&mut bare);
        assert_eq!(bare.at(&["spec", "resources"]), &json!({}));
    }

    #[test]
    fn pod_level_requests_default_to_those_of_the_containers_even_without_a_limit() {
        let mut v = json!({"spec": {
            "containers": [{"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}},
                {"resources": {"limits": {"hugepages-2Mi": "4Mi"}, "requests": {"hugepages-2Mi": "4Mi", "memory": "1Gi"}}}],
            "initContainers": [{"resources": {"requests": {"cpu": "3"}}}],
            "resources": {"limits": {"cpu": "4", "hugepages-2Mi": "8Mi"}}}});
        pod(&mut v);
        assert_eq!(
            v.at(&["spec", "resources"]),
            &json!({"limits": {"cpu": "4", "hugepages-2Mi": "8Mi"},
                "requests": {"cpu": "3", "hugepages-2Mi": "8Mi", "memory": "2Gi"}})
        );
        // Without limits nothing is added.
        let mut requested = json!({"spec": {"containers": [{"resources": {"requests": {"memory": "1Gi"}}}],
            "resources": {"requests": {"cpu": "1"}}}});
        pod(&mut requested);
        assert_eq!(requested.at(&["spec", "resources"]), &json!({"requests": {"cpu": "1"}}));
    }

    #[test]
    fn requests_default_to_limits() {
        let mut v = json!({"spec": {"containers": [{"resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}}]}});
        pod(&mut v);
        let c = &v.at(&["spec", "containers"]).items()[0];
        assert_eq!(
            c.at(&["resources", "requests"]),
            &json!({"cpu": "500m", "memory": "1Gi"})
        );
    }
}
