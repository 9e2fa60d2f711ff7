//! Defaults of pods (`pkg/apis/core/v1/defaults.go`).

use crate::apimachinery::quantity::Quantity;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{elements_mut, set_default, set_default_str};

/// Fills in what is not said.
pub(crate) fn pod(v: &mut Value) {
    let account = v.str_at(&["spec", "serviceAccountName"]).to_owned();
    match (account.is_empty(), v.str_at(&["spec", "serviceAccount"]).to_owned()) {
        (true, old) if !old.is_empty() => v.set(&["spec", "serviceAccountName"], old),
        (false, _) => v.set(&["spec", "serviceAccount"], account),
        _ => {}
    }
    let Some(spec) = v.at_mut(&["spec"]) else { return };
    set_default_str(spec, &["dnsPolicy"], "ClusterFirst");
    set_default_str(spec, &["restartPolicy"], "Always");
    set_default(spec, &["securityContext"], Value::object());
    set_default(spec, &["terminationGracePeriodSeconds"], 30i64);
    if spec
        .get("terminationGracePeriodSeconds")
        .as_i64()
        .is_some_and(|n| n < 0)
    {
        spec.set(&["terminationGracePeriodSeconds"], 1i64);
    }
    set_default_str(spec, &["schedulerName"], "default-scheduler");
    set_default(spec, &["enableServiceLinks"], true);
    let host_network = spec.get("hostNetwork").as_bool() == Some(true);
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for c in elements_mut(spec, &[list]) {
            container(c);
            if list == "ephemeralContainers" {
                continue;
            }
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
    for volume in elements_mut(spec, &["volumes"]) {
        self::volume(volume);
    }
    pod_level_requests(spec);
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

fn container(c: &mut Value) {
    if c.str_at(&["imagePullPolicy"]).is_empty() {
        let policy = if tag_is_latest(c.str_at(&["image"])) {
            "Always"
        } else {
            "IfNotPresent"
        };
        c.set(&["imagePullPolicy"], policy);
    }
    set_default_str(c, &["terminationMessagePath"], "/dev/termination-log");
    set_default_str(c, &["terminationMessagePolicy"], "File");
    for port in elements_mut(c, &["ports"]) {
        set_default_str(port, &["protocol"], "TCP");
    }
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(p) = c.at_mut(&[key]).filter(|p| p.as_object().is_some()) {
            for (key, value) in [
                ("timeoutSeconds", 1),
                ("periodSeconds", 10),
                ("successThreshold", 1),
                ("failureThreshold", 3),
            ] {
                if p.get(key).as_i64().unwrap_or(0) == 0 {
                    p.set(&[key], i64::from(value));
                }
            }
            handler(p);
            if !p.get("grpc").is_null() {
                set_default(p, &["grpc", "service"], "");
            }
        }
    }
    for key in ["postStart", "preStop"] {
        if let Some(h) = c.at_mut(&["lifecycle", key]).filter(|h| h.as_object().is_some()) {
            handler(h);
        }
    }
    for env in elements_mut(c, &["env"]) {
        if !env.at(&["valueFrom", "fieldRef"]).is_null() {
            set_default_str(env, &["valueFrom", "fieldRef", "apiVersion"], "v1");
        }
    }
}

fn handler(h: &mut Value) {
    if !h.get("httpGet").is_null() {
        set_default_str(h, &["httpGet", "path"], "/");
        set_default_str(h, &["httpGet", "scheme"], "HTTP");
    }
}

fn limits_are_requests(c: &mut Value) {
    let limits = c.at(&["resources", "limits"]).clone();
    for (k, q) in limits.as_object().into_iter().flat_map(|m| m.iter()) {
        set_default(c, &["resources", "requests", k], q.clone());
    }
}

/// True where the image has the tag `latest`, or neither tag nor digest.
fn tag_is_latest(image: &str) -> bool {
    if image.contains('@') || image.is_empty() {
        return false;
    }
    let last = image.rsplit('/').next().unwrap_or(image);
    match last.split_once(':') {
        None => true,
        Some((_, tag)) => tag == "latest",
    }
}

fn volume(v: &mut Value) {
    if v.as_object().is_some_and(|m| m.keys().all(|k| k == "name")) {
        v.set(&["emptyDir"], Value::object());
    }
    for key in ["secret", "configMap", "downwardAPI", "projected"] {
        if !v.get(key).is_null() {
            set_default(v, &[key, "defaultMode"], 420i64);
        }
    }
    for item in elements_mut(v, &["downwardAPI", "items"]) {
        field_ref(item);
    }
    for source in elements_mut(v, &["projected", "sources"]) {
        if !source.get("serviceAccountToken").is_null() {
            set_default(source, &["serviceAccountToken", "expirationSeconds"], 3600i64);
        }
        for item in elements_mut(source, &["downwardAPI", "items"]) {
            field_ref(item);
        }
    }
    if !v.get("hostPath").is_null() {
        set_default(v, &["hostPath", "type"], "");
    }
    if !v.get("ephemeral").is_null() {
        set_default(
            v,
            &["ephemeral", "volumeClaimTemplate", "spec", "volumeMode"],
            "Filesystem",
        );
    }
    if !v.get("image").is_null() && v.str_at(&["image", "pullPolicy"]).is_empty() {
        let policy = if tag_is_latest(v.str_at(&["image", "reference"])) {
            "Always"
        } else {
            "IfNotPresent"
        };
        v.set(&["image", "pullPolicy"], policy);
    }
}

fn field_ref(item: &mut Value) {
    if !item.get("fieldRef").is_null() {
        set_default_str(item, &["fieldRef", "apiVersion"], "v1");
    }
}

#[cfg(test)]
mod tests {
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
