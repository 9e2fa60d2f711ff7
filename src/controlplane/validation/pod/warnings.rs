//! Warnings about pods and pod templates: valid but deprecated, ineffective or suspicious fields (upstream's
//! `pkg/api/pod/warnings.go`). Entry point: [`template`].

mod paths;
mod ports;

use super::super::common::{is_whole, quantity};
use super::super::service::warnings::ip_warning;
use crate::apimachinery::field::show;
use crate::apimachinery::validation::label_value;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{Seen, strings};
use crate::interrupt::checkpoint;

/// The warning for a deprecated node label; `None` for all others.
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

/// Annotations without effect, each with its warning.
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
];

/// Deprecated or removed volume types: JSON name, name in the warning's path, and message.
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

/// All containers with their paths, in the order of upstream's visitor.
fn containers<'a>(spec: &'a Value, path: &str) -> Vec<(&'a Value, String)> {
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    let each = |list: &'static str| {
        let all = spec.get(list).items().iter().enumerate();
        all.map(move |(i, c)| (c, format!("{path}.{list}[{i}]")))
    };
    lists.into_iter().flat_map(each).collect()
}

/// Warnings about a pod (`at` is empty) or about the template at path `at`.
pub(crate) fn template(v: &Value, at: &str) -> Vec<String> {
    let mut out = Vec::new();
    let base = if at.is_empty() { String::new() } else { format!("{at}.") };
    // Warnings are plain strings, so paths are too; they match those of validation errors.
    let (spec, path) = (v.get("spec"), format!("{base}spec"));
    let annotations = format!("{base}metadata.annotations");
    places(&mut out, spec, &path);
    for (key, text) in ANNOTATIONS {
        if !v.at(&["metadata", "annotations", key]).is_null() {
            out.push(format!("{annotations}[{key}]: {text}"));
        }
    }
    for (i, v) in spec.get("volumes").items().iter().enumerate() {
        for (_, shown, text) in VOLUMES.iter().filter(|(k, ..)| !v.get(k).is_null()) {
            out.push(format!("{path}.volumes[{i}].{shown}: {text}"));
        }
    }
    paths::overlaps(&mut out, spec);
    aliases_and_secrets(&mut out, spec, &path);
    for key in FRACTIONS {
        fraction(
            &mut out,
            spec.at(&["overhead", key]),
            &format!("{path}.overhead[{key}]"),
        );
    }
    let seccomp = |out: &mut Vec<String>, key: &str, holder: &Value| {
        // No warning if the field is set: the annotation is then only left for old servers.
        let unset = holder.at(&["securityContext", "seccompProfile"]).is_null();
        if unset && !v.at(&["metadata", "annotations", key]).is_null() {
            out.push(format!("{annotations}[{key}]: {SECCOMP_TEXT}"));
        }
    };
    seccomp(&mut out, SECCOMP_POD, spec);
    for (c, at) in containers(spec, &path) {
        seccomp(&mut out, &format!("{SECCOMP}{}", c.str_at(&["name"])), c);
        container(&mut out, c, &at);
    }
    ports::ports(&mut out, &containers(spec, &path));
    if spec
        .get("terminationGracePeriodSeconds")
        .as_i64()
        .is_some_and(|n| n < 0)
    {
        out.push(format!(
            "{path}.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"
        ));
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let terms = spec.at(&["affinity", kind]);
        for (list, below, shown) in [(REQUIRED, "", ""), (PREFERRED, "podAffinityTerm", ".podAffinityTerm")] {
            for (i, t) in terms.get(list).items().iter().enumerate() {
                let t = if below.is_empty() { t } else { t.get(below) };
                // Valid, but probably a mistake for an empty selector, which matches all pods.
                if t.get("labelSelector").is_null() {
                    let at = format!("{path}.affinity.{kind}.{list}[{i}]{shown}.labelSelector");
                    out.push(format!("{at}: {MATCHES_NOTHING}"));
                }
            }
        }
    }
    for (i, a) in spec.get("hostAliases").items().iter().enumerate() {
        out.extend(ip_warning(&format!("{path}.hostAliases[{i}].ip"), a.str_at(&["ip"])));
    }
    for (i, ip) in strings(spec.at(&["dnsConfig", "nameservers"])).into_iter().enumerate() {
        out.extend(ip_warning(&format!("{path}.dnsConfig.nameservers[{i}]"), ip));
    }
    out
}

const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP: &str = "container.seccomp.security.alpha.kubernetes.io/";
const SECCOMP_TEXT: &str = "non-functional in v1.27+; use the \"seccompProfile\" field instead";
const MATCHES_NOTHING: &str = "a null labelSelector results in matching no pod";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const FRACTIONS: [&str; 2] = ["memory", "ephemeral-storage"];

/// Warnings about scheduling constraints: deprecated node labels, invalid values and null selectors.
fn places(out: &mut Vec<String>, spec: &Value, path: &str) {
    let selector = spec.get("nodeSelector").as_object();
    for key in selector.into_iter().flat_map(|m| m.keys()) {
        if let Some(text) = deprecated_label(key) {
            out.push(format!("{path}.nodeSelector[{key}]: {text}"));
        }
    }
    let at = format!("{path}.affinity.nodeAffinity");
    let node = spec.at(&["affinity", "nodeAffinity"]);
    let required = node.at(&[REQUIRED, "nodeSelectorTerms"]).items().iter().enumerate();
    let required = required.map(|(i, t)| (t, format!("{at}.{REQUIRED}.nodeSelectorTerms[{i}]")));
    let preferred = node.get(PREFERRED).items().iter().enumerate();
    let preferred = preferred.map(|(i, p)| (p.get("preference"), format!("{at}.{PREFERRED}[{i}].preference")));
    // Preferred terms only: in required ones invalid values are errors.
    for (term, at) in preferred.clone() {
        for (i, e) in term.get("matchExpressions").items().iter().enumerate() {
            for (j, value) in strings(e.get("values")).into_iter().enumerate() {
                let messages = label_value(value).into_iter();
                out.extend(
                    messages.map(|why| format!("{at}.matchExpressions[{i}].values[{j}]: {value} is invalid, {why}")),
                );
            }
        }
    }
    for (term, at) in required.chain(preferred) {
        for (i, e) in term.get("matchExpressions").items().iter().enumerate() {
            let key = e.str_at(&["key"]);
            if let Some(text) = deprecated_label(key) {
                out.push(format!("{at}.matchExpressions[{i}].key: {key} is {text}"));
            }
        }
    }
    for (i, c) in spec.get("topologySpreadConstraints").items().iter().enumerate() {
        let at = format!("{path}.topologySpreadConstraints[{i}]");
        let key = c.str_at(&["topologyKey"]);
        if let Some(text) = deprecated_label(key) {
            out.push(format!("{at}.topologyKey: {key} is {text}"));
        }
        if c.get("labelSelector").is_null() {
            out.push(format!("{at}.labelSelector: {MATCHES_NOTHING}"));
        }
    }
}

fn aliases_and_secrets(out: &mut Vec<String>, spec: &Value, path: &str) {
    for (list, key, word) in [("hostAliases", "ip", "ip"), ("imagePullSecrets", "name", "name")] {
        let mut seen: Seen<&str> = Seen::new();
        for (i, item) in spec.get(list).items().iter().enumerate() {
            let text = item.str_at(&[key]);
            if !seen.insert(text) {
                out.push(format!("{path}.{list}[{i}].{key}: duplicate {word} {text:?}"));
            }
        }
    }
    for (i, s) in spec.get("imagePullSecrets").items().iter().enumerate() {
        if s.str_at(&["name"]).is_empty() {
            out.push(format!("{path}.imagePullSecrets[{i}].name: invalid empty name \"\""));
        }
    }
}

fn fraction(out: &mut Vec<String>, q: &Value, at: &str) {
    if quantity(q).is_some_and(|q| !is_whole(q)) {
        let shown = show(q);
        out.push(format!(
            "{at}: fractional byte value {shown} is invalid, must be an integer"
        ));
    }
}

fn container(out: &mut Vec<String>, c: &Value, at: &str) {
    checkpoint();
    // Resource by resource, with limits before requests: upstream's order.
    for key in FRACTIONS {
        for side in ["limits", "requests"] {
            let q = c.at(&["resources", side, key]);
            fraction(out, q, &format!("{at}.resources.{side}[{key}]"));
        }
    }
    let mut seen: Seen<&str> = Seen::new();
    for (i, e) in c.get("env").items().iter().enumerate() {
        checkpoint();
        let name = e.str_at(&["name"]);
        // With server-side apply the list is a map keyed by name, which cannot hold both.
        if !seen.insert(name) {
            // A value that extends the previous one (`PATH=$(PATH):/x`) is intended.
            let (value, reference) = (e.str_at(&["value"]), format!("$({name})"));
            let grows = e.get("valueFrom").is_null() && value != reference && value.contains(&reference);
            if !grows {
                out.push(format!(
                    "{at}.env[{i}]: hides previous definition of {name:?}, which may be dropped when using apply"
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn warnings_match_the_recordings() {
        let v = json!({"spec": {"nodeSelector": {"beta.kubernetes.io/os": "linux"}, "imagePullSecrets": [{}],
            "volumes": [{"name": "g", "gitRepo": {}}],
            "containers": [{"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}]}});
        assert_eq!(
            template(&v, ""),
            [
                "spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead",
                "spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+",
                "spec.imagePullSecrets[0].name: invalid empty name \"\"",
                "spec.containers[0].env[1]: hides previous definition of \"A\", which may be dropped when using apply",
            ]
        );
        assert!(template(&v, "spec.template")[0].starts_with("spec.template.spec.nodeSelector["));
    }
}
