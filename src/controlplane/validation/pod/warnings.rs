//! What is accepted, and better left alone.

use super::super::common::{is_whole, quantity};
use crate::apimachinery::field::show;
use crate::apimachinery::value::Value;

/// What a label of nodes that has a successor is told.
pub(crate) fn deprecated_label(key: &str) -> Option<String> {
    let (since, instead) = match key {
        "beta.kubernetes.io/arch" => ("v1.14", "kubernetes.io/arch"),
        "beta.kubernetes.io/os" => ("v1.14", "kubernetes.io/os"),
        "failure-domain.beta.kubernetes.io/region" => ("v1.17", "topology.kubernetes.io/region"),
        "failure-domain.beta.kubernetes.io/zone" => ("v1.17", "topology.kubernetes.io/zone"),
        "beta.kubernetes.io/instance-type" => ("v1.17", "node.kubernetes.io/instance-type"),
        _ => return None,
    };
    Some(format!("deprecated since {since}; use \"{instead}\" instead"))
}

/// Annotations without effect, and what to use.
const ANNOTATIONS: &[(&str, &str)] = &[
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    (
        "security.alpha.kubernetes.io/sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
    (
        "seccomp.security.alpha.kubernetes.io/pod",
        "non-functional in v1.27+; use the \"seccompProfile\" field instead",
    ),
];

/// Volumes that are gone or going.
const VOLUMES: &[(&str, &str, &str)] = &[
    (
        "photonPersistentDisk",
        "photonPersistentDisk",
        "deprecated in v1.11, non-functional in v1.16+",
    ),
    (
        "gitRepo",
        "gitRepo",
        "deprecated in v1.11, and disabled by default in v1.33+",
    ),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
    (
        "storageos",
        "storageOS",
        "deprecated in v1.22, non-functional in v1.25+",
    ),
    ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    (
        "glusterfs",
        "glusterfs",
        "deprecated in v1.25, non-functional in v1.26+",
    ),
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// All of a pod (`at` empty) or of a template at this path.
pub(crate) fn template(v: &Value, at: &str) -> Vec<String> {
    let mut out = Vec::new();
    let base = if at.is_empty() { String::new() } else { format!("{at}.") };
    let (spec, path) = (v.get("spec"), format!("{base}spec"));
    for (key, text) in ANNOTATIONS {
        if !v.at(&["metadata", "annotations", key]).is_null() {
            out.push(format!("{base}metadata.annotations[{key}]: {text}"));
        }
    }
    let selector = spec.get("nodeSelector").as_object();
    for key in selector.into_iter().flat_map(|m| m.keys()) {
        if let Some(text) = deprecated_label(key) {
            out.push(format!("{path}.nodeSelector[{key}]: {text}"));
        }
    }
    for (i, c) in spec.get("topologySpreadConstraints").items().iter().enumerate() {
        let at = format!("{path}.topologySpreadConstraints[{i}]");
        if let Some(text) = deprecated_label(c.str_at(&["topologyKey"])) {
            out.push(format!("{at}.topologyKey: {text}"));
        }
        if c.get("labelSelector").is_null() {
            out.push(format!(
                "{at}.labelSelector: a null labelSelector results in matching no pod"
            ));
        }
    }
    secrets(&mut out, spec, &path);
    for (i, v) in spec.get("volumes").items().iter().enumerate() {
        for (_, shown, text) in VOLUMES.iter().filter(|(k, ..)| !v.get(k).is_null()) {
            out.push(format!("{path}.volumes[{i}].{shown}: {text}"));
        }
    }
    for list in ["initContainers", "containers"] {
        for (i, c) in spec.get(list).items().iter().enumerate() {
            container(&mut out, c, &format!("{path}.{list}[{i}]"));
        }
    }
    out
}

fn secrets(out: &mut Vec<String>, spec: &Value, path: &str) {
    let mut seen: Vec<&str> = Vec::new();
    for (i, s) in spec.get("imagePullSecrets").items().iter().enumerate() {
        let name = s.str_at(&["name"]);
        if name.is_empty() {
            out.push(format!("{path}.imagePullSecrets[{i}].name: invalid empty name \"\""));
        } else if seen.contains(&name) {
            out.push(format!("{path}.imagePullSecrets[{i}].name: duplicate name {name:?}"));
        }
        seen.push(name);
    }
    let mut seen: Vec<&str> = Vec::new();
    for (i, a) in spec.get("hostAliases").items().iter().enumerate() {
        let ip = a.str_at(&["ip"]);
        if seen.contains(&ip) {
            out.push(format!("{path}.hostAliases[{i}].ip: duplicate ip {ip:?}"));
        }
        seen.push(ip);
    }
}

fn container(out: &mut Vec<String>, c: &Value, at: &str) {
    for side in ["limits", "requests"] {
        for key in ["memory", "ephemeral-storage"] {
            let q = c.at(&["resources", side, key]);
            if quantity(q).is_some_and(|q| !is_whole(q)) {
                let shown = show(q);
                out.push(format!(
                    "{at}.resources.{side}[{key}]: fractional byte value {shown} is invalid, must be an integer"
                ));
            }
        }
    }
    let mut seen: Vec<&str> = Vec::new();
    for (i, e) in c.get("env").items().iter().enumerate() {
        let name = e.str_at(&["name"]);
        if seen.contains(&name) {
            out.push(format!(
                "{at}.env[{i}]: hides previous definition of {name:?}, which may be dropped when using apply"
            ));
        }
        seen.push(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn warnings_read_as_recorded() {
        let v = json!({"spec": {"nodeSelector": {"beta.kubernetes.io/os": "linux"}, "imagePullSecrets": [{}],
            "volumes": [{"name": "g", "gitRepo": {}}],
            "containers": [{"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}]}});
        assert_eq!(
            template(&v, ""),
            [
                "spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead",
                "spec.imagePullSecrets[0].name: invalid empty name \"\"",
                "spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+",
                "spec.containers[0].env[1]: hides previous definition of \"A\", which may be dropped when using apply",
            ]
        );
        assert!(template(&v, "spec.template")[0].starts_with("spec.template.spec.nodeSelector["));
    }
}
