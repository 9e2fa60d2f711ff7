//! Annotations of pods that mean something.

use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::Value;

const MIRROR: &str = "kubernetes.io/config.mirror";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const APPARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP: &str = "container.seccomp.security.alpha.kubernetes.io/";

fn is_seccomp(profile: &str) -> bool {
    matches!(profile, "runtime/default" | "docker/default" | "unconfined") || profile.starts_with("localhost/")
}

/// The 32-bit integers that are written the one way.
fn is_cost(text: &str) -> bool {
    text.parse::<i32>().is_ok_and(|n| n.to_string() == text)
}

pub(super) fn annotations(out: &mut ErrorList, v: &Value, old: Option<&Value>) {
    let path = FieldPath::new("metadata").child("annotations");
    if let Some(mirror) = v.annotation(MIRROR)
        && v.str_at(&["spec", "nodeName"]).is_empty()
    {
        let why = "must set spec.nodeName if mirror pod annotation is set";
        out.push(FieldError::invalid(&path.key(MIRROR), mirror, why));
    }
    if let Some(cost) = v.annotation(DELETION_COST) {
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
    let names: Vec<&str> = ["containers", "initContainers", "ephemeralContainers"]
        .iter()
        .flat_map(|list| spec.get(list).items())
        .map(|c| c.str_at(&["name"]))
        .collect();
    let all = v.at(&["metadata", "annotations"]).as_object();
    for (key, value) in all.into_iter().flat_map(|m| m.iter()) {
        let value = value.as_str().unwrap_or("");
        if (key == SECCOMP_POD || key.starts_with(SECCOMP)) && !is_seccomp(value) {
            out.push(FieldError::invalid(
                &path.key(key),
                value,
                "must be a valid seccomp profile",
            ));
        }
        let Some(container) = key.strip_prefix(APPARMOR) else {
            continue;
        };
        if !names.contains(&container) {
            out.push(FieldError::invalid(&path.key(key), container, "container not found"));
        }
        if !matches!(value, "" | "runtime/default" | "unconfined") && !value.starts_with("localhost/") {
            let why = format!("invalid AppArmor profile name: {value:?}");
            out.push(FieldError::invalid(&path.key(key), value, why));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::json;

    #[test]
    fn annotations_are_refused_in_the_recorded_words() {
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
        ] {
            let mut v = json!({"spec": {}});
            v.set(&["metadata", "annotations", key], value);
            let mut out = Vec::new();
            annotations(&mut out, &v, None);
            assert_eq!(aggregate(&out), want);
        }
    }
}
