//! Validation of pod annotations with a meaning: mirror pods, deletion cost, and legacy tolerations, seccomp
//! and AppArmor profiles.

use super::super::common::local_path;
use crate::apimachinery::codec::json;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath, quote};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::Seen;

pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const APPARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
const SECCOMP: &str = "container.seccomp.security.alpha.kubernetes.io/";

/// True for a 32-bit integer without a plus sign or leading zeros. As upstream, zeros may follow a minus sign.
fn is_cost(text: &str) -> bool {
    let starts_well = text == "0" || text.starts_with(|c: char| c == '-' || ('1'..='9').contains(&c));
    starts_well && text.parse::<i32>().is_ok()
}

/// Checks the annotations of a pod or template at `path`; `old` is the stored pod on update.
pub(super) fn annotations(out: &mut ErrorList, v: &Value, old: Option<&Value>, path: &FieldPath) {
    // A mirror pod represents a pod that already runs on a node.
    if let Some(mirror) = v.annotation(MIRROR)
        && v.str_at(&["spec", "nodeName"]).is_empty()
    {
        let why = "must set spec.nodeName if mirror pod annotation is set";
        out.push(FieldError::invalid(&path.key(MIRROR), mirror, why));
    }
    if let Some(text) = v.annotation(TOLERATIONS).filter(|t| !t.is_empty()) {
        tolerations(out, text, path);
    }
    if let Some(cost) = v.annotation(DELETION_COST) {
        // Ratcheting: a bad value that is already stored must not block other changes.
        let was_bad = old
            .and_then(|o| o.annotation(DELETION_COST))
            .is_some_and(|c| !is_cost(c));
        if !is_cost(cost) && !was_bad {
            out.push(FieldError::invalid(
                &path.key(DELETION_COST),
                cost,
                "must be a 32bit integer",
            ));
        }
    }
    let spec = v.get("spec");
    // Collected once: an annotation per container would otherwise make this quadratic.
    let names: Seen<&str> = ["containers", "initContainers", "ephemeralContainers"]
        .iter()
        .flat_map(|list| spec.get(list).items())
        .map(|c| c.str_at(&["name"]))
        .collect();
    let all = v.at(&["metadata", "annotations"]).as_object();
    if let Some(text) = v.annotation(SECCOMP_POD) {
        seccomp(out, text, &path.child(SECCOMP_POD));
    }
    // Two passes over the annotations: upstream reports all seccomp errors before those of AppArmor.
    for (key, value) in all.into_iter().flat_map(|m| m.iter()) {
        let value = value.as_str().unwrap_or("");
        if key.starts_with(SECCOMP) {
            seccomp(out, value, &path.child(key));
        }
    }
    for (key, value) in all.into_iter().flat_map(|m| m.iter()) {
        let value = value.as_str().unwrap_or("");
        let Some(container) = key.strip_prefix(APPARMOR) else {
            continue;
        };
        // Only AppArmor annotations are checked for their container, as upstream.
        if !names.contains(&container) {
            out.push(FieldError::invalid(&path.key(key), container, "container not found"));
        }
        if !matches!(value, "" | "runtime/default" | "unconfined") && !value.starts_with("localhost/") {
            let why = format!("invalid AppArmor profile name: {}", quote(value));
            out.push(FieldError::invalid(&path.key(key), value, why));
        }
    }
}

fn seccomp(out: &mut ErrorList, profile: &str, at: &FieldPath) {
    if matches!(profile, "runtime/default" | "docker/default" | "unconfined") {
        return;
    }
    match profile.strip_prefix("localhost/") {
        // Relative to the kubelet's directory of profiles, from which it must not escape.
        Some(file) => local_path(out, file, at),
        None => out.push(FieldError::invalid(at, profile, "must be a valid seccomp profile")),
    }
}

/// Checks legacy tolerations. As upstream, malformed JSON is reported at the annotations as a whole.
fn tolerations(out: &mut ErrorList, text: &str, path: &FieldPath) {
    match json::decode(text.as_bytes()) {
        Err(why) => out.push(FieldError::invalid(path, TOLERATIONS, why.to_string())),
        Ok(list) => {
            for (i, t) in list.items().iter().enumerate() {
                super::spec::toleration(out, t, &path.child(TOLERATIONS).index(i));
            }
        }
    }
}

fn entries(v: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let all = v.at(&["metadata", "annotations"]).as_object();
    all.into_iter().flat_map(|m| m.iter())
}

/// Checks that the immutable annotations are neither added, removed nor changed, then all of the pod's annotations.
pub(super) fn update(out: &mut ErrorList, new: &Value, old: &Value) {
    let path = FieldPath::new("metadata").child("annotations");
    // The kubelet sets mirror annotations and applies AppArmor profiles at start, so later changes would have
    // no effect or mislead.
    let kinds = |key: &str| match key {
        MIRROR => Some("mirror pod annotation"),
        k if k.starts_with(APPARMOR) => Some("AppArmor annotations"),
        _ => None,
    };
    for (key, was) in entries(old) {
        if let Some(what) = kinds(key)
            && new.at(&["metadata", "annotations", key]) != was
        {
            let why = format!("may not remove or update {what}");
            out.push(FieldError::forbidden(&path.key(key), why));
        }
    }
    for (key, _) in entries(new) {
        if let Some(what) = kinds(key)
            && old.at(&["metadata", "annotations", key]).is_null()
        {
            out.push(FieldError::forbidden(&path.key(key), format!("may not add {what}")));
        }
    }
    annotations(out, new, Some(old), &path);
}

/// Checks that profiles set by both an annotation and a field agree; `path` is the spec's.
pub(super) fn agreement(out: &mut ErrorList, v: &Value, path: &FieldPath) {
    let mut agree = |annotation: Option<&str>, field: &Value, at: FieldPath, word: &str| {
        let Some(annotation) = annotation else { return };
        let local = annotation.strip_prefix("localhost/");
        let fine = match field.str_at(&["type"]) {
            "Unconfined" => annotation == "unconfined",
            "RuntimeDefault" => {
                annotation == "runtime/default" || (word == "seccomp" && annotation == "docker/default")
            }
            "Localhost" => local.is_some(),
            // Without a field there is nothing to agree with; an unknown type has its own error.
            _ => return,
        };
        if !fine {
            let why = format!("{word} type in annotation and field must match");
            out.push(FieldError::forbidden(&at.child("type"), why));
        } else if field.str_at(&["type"]) == "Localhost" && field.get("localhostProfile").as_str() != local {
            let why = format!("{word} profile in annotation and field must match");
            out.push(FieldError::forbidden(&at.child("localhostProfile"), why));
        }
    };
    let context = v.at(&["spec", "securityContext"]);
    let at = path.child("securityContext").child("seccompProfile");
    agree(v.annotation(SECCOMP_POD), context.get("seccompProfile"), at, "seccomp");
    // Windows has no AppArmor; the field is forbidden there.
    let windows = v.str_at(&["spec", "os", "name"]) == "windows";
    for (prefix, key, word) in [
        (SECCOMP, "seccompProfile", "seccomp"),
        (APPARMOR, "appArmorProfile", "apparmor"),
    ] {
        let all = v.at(&["metadata", "annotations"]).as_object();
        // Skips the loop over containers for the many pods without such annotations.
        if !all.is_some_and(|m| m.keys().any(|k| k.starts_with(prefix))) || (windows && prefix == APPARMOR) {
            continue;
        }
        for list in ["initContainers", "containers", "ephemeralContainers"] {
            for (i, c) in v.at(&["spec", list]).items().iter().enumerate() {
                let annotation = format!("{prefix}{}", c.str_at(&["name"]));
                let at = path.child(list).index(i).child("securityContext").child(key);
                let own = c.at(&["securityContext", key]);
                // Containers inherit the pod's AppArmor profile; upstream does not consider this for seccomp.
                let field = if own.is_null() && prefix == APPARMOR {
                    context.get(key)
                } else {
                    own
                };
                agree(v.annotation(&annotation), field, at, word);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::json;

    #[test]
    fn annotation_errors_match_the_recordings() {
        for (key, value, want) in [
            (
                MIRROR,
                "x",
                "metadata.annotations[kubernetes.io/config.mirror]: Invalid value: \"x\": must set spec.nodeName if mirror pod annotation is set",
            ),
            (
                DELETION_COST,
                "+1",
                "metadata.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: \"+1\": must be a 32bit integer",
            ),
            (DELETION_COST, "-1", "[]"),
            (DELETION_COST, "-01", "[]"),
            (
                DELETION_COST,
                "01",
                "metadata.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: \"01\": must be a 32bit integer",
            ),
            (
                SECCOMP_POD,
                "localhost/../x",
                "metadata.annotations.seccomp.security.alpha.kubernetes.io/pod: Invalid value: \"../x\": must not contain '..'",
            ),
            (
                TOLERATIONS,
                "[{}]",
                "metadata.annotations.scheduler.alpha.kubernetes.io/tolerations[0].operator: Invalid value: \"\": operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            ),
        ] {
            let mut v = json!({"spec": {}});
            v.set(&["metadata", "annotations", key], value);
            let mut out = ErrorList::new();
            annotations(&mut out, &v, None, &FieldPath::new("metadata").child("annotations"));
            assert_eq!(aggregate(&out), want);
        }
    }
}
