//! Strategy of Leases, following upstream's `pkg/registry/coordination/lease/strategy.go`.

use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::validation::qualified_name;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::invalid_each_enum;
use crate::registry::strategy::Strategy;

/// Strategy of Leases. The feature gate `CoordinatedLeaderElection` is off: its fields are dropped unless the
/// stored object already uses them.
pub(crate) struct Lease;

fn drop_disabled(new: &mut Value, old: Option<&Value>) {
    for key in ["strategy", "preferredHolder"] {
        if old.is_none_or(|o| o.at(&["spec", key]).is_null()) {
            new.unset(&["spec", key]);
        }
    }
}

/// Checks the fields of the disabled gate, which only stored objects have.
fn election(out: &mut ErrorList, spec: &Value, path: &FieldPath) {
    let strategy = spec.get("strategy").as_str();
    if let Some(text) = strategy {
        // Upstream appends the field's name twice.
        let at = path.child("strategy").child("strategy");
        if text.contains('/') {
            invalid_each_enum(out, &at, text, qualified_name(text));
        } else if text != "OldestEmulationVersion" {
            out.push(FieldError::not_supported(&at, text, &["OldestEmulationVersion"]));
        }
    }
    if strategy.unwrap_or("").is_empty() && !spec.str_at(&["preferredHolder"]).is_empty() {
        let why = "may only be specified if `strategy` is defined";
        out.push(FieldError::forbidden(&path.child("preferredHolder"), why));
    }
}

impl Strategy for Lease {
    fn prepare_create(&self, object: &mut Value) {
        drop_disabled(object, None);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        drop_disabled(new, Some(old));
    }

    fn validate_create(&self, object: &Value) -> ErrorList {
        let mut out = ErrorList::new();
        let path = FieldPath::new("spec");
        let number = |key: &str| object.at(&["spec", key]).as_i64();
        if let Some(n) = number("leaseDurationSeconds").filter(|n| *n <= 0) {
            out.push(FieldError::invalid(
                &path.child("leaseDurationSeconds"),
                n,
                "must be greater than 0",
            ));
        }
        if let Some(n) = number("leaseTransitions").filter(|n| *n < 0) {
            out.push(FieldError::invalid(
                &path.child("leaseTransitions"),
                n,
                "must be greater than or equal to 0",
            ));
        }
        election(&mut out, object.get("spec"), &path);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::json;

    #[test]
    fn election_fields_of_stored_leases_are_checked() {
        let errors = |spec: Value| aggregate(&Lease.validate_create(&json!({"spec": (spec)})));
        assert_eq!(errors(json!({"strategy": "a.b/C", "preferredHolder": "x"})), "[]");
        assert_eq!(
            errors(json!({"strategy": "X&", "preferredHolder": "x"})),
            r#"spec.strategy.strategy: Unsupported value: "X\u0026": supported values: "OldestEmulationVersion""#
        );
        assert!(
            errors(json!({"strategy": "a/&"})).starts_with(r#"spec.strategy.strategy: Invalid value: "a/\u0026": "#)
        );
        assert_eq!(
            errors(json!({"preferredHolder": "x"})),
            "spec.preferredHolder: Forbidden: may only be specified if `strategy` is defined"
        );
    }

    #[test]
    fn durations_must_be_positive_and_election_fields_drop() {
        let mut v = json!({"spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1, "strategy": "X", "preferredHolder": "y"}});
        Lease.prepare_create(&mut v);
        assert_eq!(v, json!({"spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1}}));
        assert_eq!(
            aggregate(&Lease.validate_create(&v)),
            "[spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0, spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0]"
        );
    }
}
