//! Legacy AppArmor annotations, which are copied to the containers' `securityContext.appArmorProfile` on
//! create.

use crate::apimachinery::value::Value;
use crate::controlplane::fields::elements_mut;
use crate::json;

const PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Converts an annotation's value to a profile; `None` if it is not recognized.
fn profile(text: &str) -> Option<Value> {
    match text {
        "unconfined" => Some(json!({"type": "Unconfined"})),
        "runtime/default" => Some(json!({"type": "RuntimeDefault"})),
        _ => text
            .strip_prefix("localhost/")
            .map(|local| json!({"type": "Localhost", "localhostProfile": local})),
    }
}

fn is_windows(pod: &Value) -> bool {
    pod.at(&["spec", "os", "name"]).as_str() == Some("windows")
}

/// Sets the profile of each container that has an annotation but no profile, unless the pod-level profile is
/// the same. Windows pods have no AppArmor.
pub(super) fn copy(pod: &mut Value) {
    let annotations = pod.at(&["metadata", "annotations"]).clone();
    let of_pod = pod.at(&["spec", "securityContext", "appArmorProfile"]).clone();
    if is_windows(pod) || annotations.is_empty_value() {
        return;
    }
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for c in elements_mut(pod, &["spec", list]) {
            let annotation = annotations.str_at(&[&format!("{PREFIX}{}", c.str_at(&["name"]))]);
            let path = ["securityContext", "appArmorProfile"];
            if let Some(profile) = profile(annotation).filter(|p| *p != of_pod)
                && c.at(&path).is_null()
            {
                c.set(&path, profile);
            }
        }
    }
}

/// Deprecation warnings, one for each container with an annotation.
pub(super) fn warnings(pod: &Value) -> Vec<String> {
    if is_windows(pod) {
        return Vec::new();
    }
    let annotation = |c: &Value| format!("{PREFIX}{}", c.str_at(&["name"]));
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    let containers = lists.into_iter().flat_map(|l| pod.at(&["spec", l]).items());
    containers
        .map(annotation)
        .filter(|key| !pod.at(&["metadata", "annotations", key]).is_null())
        .map(|key| {
            format!("metadata.annotations[{key}]: deprecated since v1.30; use the \"appArmorProfile\" field instead")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotation_becomes_a_profile() {
        let mut v = json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}});
        v.set(&["metadata", "annotations", &format!("{PREFIX}a")], "localhost/x");
        copy(&mut v);
        assert_eq!(
            v.at(&["spec", "containers"]),
            &json!([{"name": "a", "securityContext": {"appArmorProfile": {"type": "Localhost", "localhostProfile": "x"}}}, {"name": "b"}])
        );
        assert_eq!(warnings(&v).len(), 1);
    }
}
