//! Defaults of containers, init containers and ephemeral containers (`pkg/apis/core/v1/defaults.go`).

use super::image;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{elements_mut, set_default, set_default_str};

/// Defaults of a container of any type.
pub(super) fn container(c: &mut Value) {
    if c.str_at(&["imagePullPolicy"]).is_empty() {
        let policy = pull_policy(c.str_at(&["image"]));
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
                // Go integers without a pointer: zero means unset.
                if p.get(key).as_i64().unwrap_or(0) == 0 {
                    p.set(&[key], i64::from(value));
                }
            }
            handler(p);
            if !p.get("grpc").is_null() {
                // A pointer upstream, whose default is the empty string.
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
        if !env.at(&["valueFrom", "fileKeyRef"]).is_null() {
            set_default(env, &["valueFrom", "fileKeyRef", "optional"], false);
        }
    }
}

fn handler(h: &mut Value) {
    if !h.get("httpGet").is_null() {
        set_default_str(h, &["httpGet", "path"], "/");
        set_default_str(h, &["httpGet", "scheme"], "HTTP");
    }
}

/// The default `imagePullPolicy` of an image.
pub(super) fn pull_policy(image: &str) -> &'static str {
    if image::tag_is_latest(image) {
        "Always"
    } else {
        "IfNotPresent"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn a_key_of_a_file_is_not_optional() {
        let mut c = json!({"env": [{"name": "A", "valueFrom": {"fileKeyRef": {"key": "K"}}},
            {"name": "B", "valueFrom": {"secretKeyRef": {"key": "K"}}}]});
        container(&mut c);
        assert_eq!(
            c.get("env"),
            &json!([{"name": "A", "valueFrom": {"fileKeyRef": {"key": "K", "optional": false}}},
                {"name": "B", "valueFrom": {"secretKeyRef": {"key": "K"}}}])
        );
    }
}
