//! Strategy of PriorityClasses, and the two system classes that every cluster has
//! (upstream's `pkg/apis/scheduling/v1/helpers.go`).

use super::common::first_generation;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{required_choice, set_default};
use crate::registry::strategy::{DeleteStrategy, Strategy};

/// The API group of PriorityClasses.
pub(crate) const GROUP: &str = "scheduling.k8s.io";
/// Greatest value of a class that is not a system class (`HighestUserDefinablePriority`).
const HIGHEST_OF_USERS: i64 = 1_000_000_000;
const SYSTEM_PREFIX: &str = "system-";

/// A priority class that the server creates at start-up.
pub(crate) struct SystemClass {
    /// `metadata.name`, with the reserved prefix `system-`.
    pub name: &'static str,
    /// Priority of pods in this class.
    pub value: i64,
    /// `description`, as upstream words it.
    pub description: &'static str,
}

/// All system classes, with upstream's values and descriptions.
pub(crate) const SYSTEM_CLASSES: [SystemClass; 2] = [
    SystemClass {
        name: "system-node-critical",
        value: 2_000_001_000,
        description: "Used for system critical pods that must not be moved from their current node.",
    },
    SystemClass {
        name: "system-cluster-critical",
        value: 2_000_000_000,
        description: "Used for system critical pods that must run in the cluster, but can be moved to another node if \
                      necessary.",
    },
];

pub(crate) struct PriorityClass;

fn value(v: &Value) -> i64 {
    v.get("value").as_i64().unwrap_or(0)
}

/// Returns why a class with a system name differs from the known one; `None` if it does not.
fn odd_system_class(v: &Value) -> Option<String> {
    let name = v.name();
    let Some(known) = SYSTEM_CLASSES.iter().find(|c| c.name == name) else {
        return Some(format!("{name} is not a known system priority class"));
    };
    if value(v) != known.value {
        return Some(format!("value of {name} PriorityClass must be {}", known.value));
    }
    let default = v.get("globalDefault").as_bool().unwrap_or(false);
    default.then(|| format!("globalDefault of {name} PriorityClass must be false"))
}

impl Strategy for PriorityClass {
    fn default(&self, v: &mut Value) {
        set_default(v, &["preemptionPolicy"], "PreemptLowerPriority");
    }

    fn prepare_create(&self, v: &mut Value) {
        first_generation(v);
    }

    fn validate_create(&self, v: &Value) -> ErrorList {
        let mut out = ErrorList::new();
        // A client may recreate a deleted system class, but only with exactly its values.
        if v.name().starts_with(SYSTEM_PREFIX) {
            if let Some(why) = odd_system_class(v) {
                let text = format!(
                    "priority class names with '{SYSTEM_PREFIX}' prefix are reserved for system use only. error: {why}"
                );
                out.push(FieldError::forbidden(&FieldPath::new("metadata").child("name"), text));
            }
        } else if value(v) > HIGHEST_OF_USERS {
            let text = format!("maximum allowed value of a user defined priority is {HIGHEST_OF_USERS}");
            out.push(FieldError::forbidden(&FieldPath::new("value"), text));
        }
        let policies = ["PreemptLowerPriority", "Never"];
        if !v.get("preemptionPolicy").is_null() {
            required_choice(&mut out, v, "preemptionPolicy", &FieldPath::default(), &policies);
        }
        out
    }

    fn validate_update(&self, new: &Value, old: &Value) -> ErrorList {
        let mut out = ErrorList::new();
        if value(new) != value(old) {
            out.push(FieldError::forbidden(
                &FieldPath::new("value"),
                "may not be changed in an update.",
            ));
        }
        let policy = new.get("preemptionPolicy");
        if policy != old.get("preemptionPolicy") {
            let at = FieldPath::new("preemptionPolicy");
            // A pointer upstream.
            out.push(FieldError::invalid_enum(&at, policy.clone(), "field is immutable"));
        }
        out
    }

    fn deletion(&self) -> Option<&dyn DeleteStrategy> {
        Some(self)
    }
}

impl DeleteStrategy for PriorityClass {
    fn check(&self, v: &Value) -> Result<()> {
        if !SYSTEM_CLASSES.iter().any(|c| c.name == v.name()) {
            return Ok(());
        }
        let resource = crate::apimachinery::gvk::GroupResource::new(GROUP, "priorityclasses");
        Err(Status::forbidden(
            &resource,
            v.name(),
            "this is a system priority class and cannot be deleted",
        ))
    }

    fn holds(&self, _v: &Value) -> bool {
        false
    }

    fn grace(&self, _v: &Value, _requested: Option<i64>) -> Option<i64> {
        None
    }

    fn mark(&self, _v: &mut Value, _old: &Value) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::json;

    #[test]
    fn the_policy_is_immutable_and_printed_as_json() {
        let of = |policy: &str| json!({"metadata": {"name": "a"}, "preemptionPolicy": (policy)});
        let errors = PriorityClass.validate_update(&of("a&b"), &of("Never"));
        assert_eq!(
            aggregate(&errors),
            r#"preemptionPolicy: Invalid value: "a\u0026b": field is immutable"#
        );
    }
}
