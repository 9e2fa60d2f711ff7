//! Legacy AppArmor annotations, which are copied to the containers' `securityContext.appArmorProfile` on
//! create.

use crate::apimachinery::value::Value;
use crate::controlplane::fields::elements_mut;
use crate::json;

const PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";
/// Maximum length in bytes of the name of a profile.
const MAX_LOCAL: usize = 4095;

/// Converts an annotation's value to a profile; `None` if it is not recognized.
fn profile(text: &str) -> Option<Value> {
    match text {
        "unconfined" => Some(json!({"type": "Unconfined"})),
        "runtime/default" => Some(json!({"type": "RuntimeDefault"})),
        _ => text
            .strip_prefix("localhost/")
            // The same check as the validation of the field.
            .filter(|local| !local.is_empty() && local.trim() == *local && local.len() <= MAX_LOCAL)
            .map(|local| json!({"type": "Localhost", "localhostProfile": local})),
    }
}

fn is_windows(pod: &Value) -> bool {
    pod.at(&["spec", "os", "name"]).as_str() == Some("windows")
}

/// Sets the profile of each container that has an annotation but no profile, unless the pod-level profile is
/// the same. Windows pods have no AppArmor. Returns the deprecation warnings: of annotations that were copied, and
/// of those that cannot be. Others repeat what the fields say.
pub(super) fn copy(pod: &mut Value) -> Vec<String> {
    let mut warnings = Vec::new();
    // Cloned, because the containers are changed in place below.
    let annotations = pod.at(&["metadata", "annotations"]).clone();
    let of_pod = pod.at(&["spec", "securityContext", "appArmorProfile"]).clone();
    if is_windows(pod) || annotations.is_empty_value() {
        return warnings;
    }
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for c in elements_mut(pod, &["spec", list]) {
            let key = format!("{PREFIX}{}", c.str_at(&["name"]));
            let path = ["securityContext", "appArmorProfile"];
            // A profile in the field wins over the annotation.
            let Some(annotation) = annotations.get(&key).as_str().filter(|_| c.at(&path).is_null()) else {
                continue;
            };
            match profile(annotation) {
                Some(profile) if profile == of_pod => continue,
                Some(profile) => c.set(&path, profile),
                None => {}
            }
            warnings.push(format!(
                "metadata.annotations[{key}]: deprecated since v1.30; use the \"appArmorProfile\" field instead"
            ));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotation_becomes_a_profile() {
        let mut v = json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}});
        v.set(&["metadata", "annotations", &format!("{PREFIX}a")], "localhost/x");
        assert_eq!(copy(&mut v).len(), 1);
        assert_eq!(
            v.at(&["spec", "containers"]),
            &json!([{"name": "a", "securityContext": {"appArmorProfile": {"type": "Localhost", "localhostProfile": "x"}}}, {"name": "b"}])
        );
        // Now the annotation repeats the field.
        assert_eq!(copy(&mut v).len(), 0);
    }

    #[test]
    fn annotations_that_repeat_a_field_are_not_warned_about() {
        let mut v = json!({"spec": {"securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "a"}, {"name": "b"}]}});
        v.set(&["metadata", "annotations", &format!("{PREFIX}a")], "runtime/default");
        v.set(&["metadata", "annotations", &format!("{PREFIX}b")], "localhost/");
        let warned = copy(&mut v);
        assert_eq!(warned.len(), 1);
        assert!(
            warned[0].starts_with(&format!("metadata.annotations[{PREFIX}b]: deprecated")),
            "{warned:?}"
        );
        assert_eq!(v.at(&["spec", "containers"]), &json!([{"name": "a"}, {"name": "b"}]));
    }
}
