//! Validation of PodDisruptionBudgets (upstream's `pkg/apis/policy/validation`).

use super::common::{int_or_percent, not_negative, percentage_at_most_100};
use super::go_form;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::validation::validate_conditions;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{optional_choice, selector_check};

pub(crate) fn budget(v: &Value) -> ErrorList {
    checked_budget(v, None)
}

pub(crate) fn budget_update(new: &Value, old: &Value) -> ErrorList {
    checked_budget(new, Some(old))
}

fn checked_budget(v: &Value, old: Option<&Value>) -> ErrorList {
    let mut out = ErrorList::new();
    let (spec, path) = (v.get("spec"), FieldPath::new("spec"));
    // Setting neither is valid upstream.
    if !spec.get("minAvailable").is_null() && !spec.get("maxUnavailable").is_null() {
        let why = "minAvailable and maxUnavailable cannot be both set";
        let shown = go_form::compact(spec, go_form::BUDGET);
        out.push(FieldError::invalid_raw(&path, shown, why));
    }
    for key in ["minAvailable", "maxUnavailable"] {
        int_or_percent(&mut out, spec.get(key), &path.child(key));
        // Counts have no such bound: the number of pods may grow.
        percentage_at_most_100(&mut out, spec.get(key), &path.child(key));
    }
    let selector = selector_check(old.map(|old| old.at(&["spec", "selector"])));
    selector(&mut out, spec.get("selector"), &path.child("selector"));
    optional_choice(
        &mut out,
        spec,
        "unhealthyPodEvictionPolicy",
        &path,
        &["AlwaysAllow", "IfHealthyBudget"],
    );
    out
}

pub(crate) fn budget_status(new: &Value, _old: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let (status, path) = (new.get("status"), FieldPath::new("status"));
    validate_conditions(status.get("conditions"), &path.child("conditions"), &mut out);
    // The eviction subresource decides by these counts, so they are checked although a controller writes
    // them.
    for key in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
        not_negative(&mut out, status, key, &path);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::json;

    #[test]
    fn budget_errors_match_the_recordings() {
        let v = json!({"spec": {"minAvailable": 1, "maxUnavailable": 1, "selector": {"matchLabels": {"app": "demo"}}}});
        assert_eq!(
            aggregate(&budget(&v)),
            "spec: Invalid value: {\"MinAvailable\":1,\"Selector\":{\"matchLabels\":{\"app\":\"demo\"}},\"MaxUnavailable\":1,\"UnhealthyPodEvictionPolicy\":null}: minAvailable and maxUnavailable cannot be both set"
        );
        assert_eq!(
            aggregate(&budget(&json!({"spec": {"minAvailable": "101%"}}))),
            "spec.minAvailable: Invalid value: \"101%\": must not be greater than 100%"
        );
    }

    #[test]
    fn stored_values_of_the_selector_are_not_checked_on_update() {
        let with = |value: &str| {
            let expression = json!({"key": "k", "operator": "In", "values": [(value)]});
            json!({"spec": {"selector": {"matchExpressions": [(expression)]}}})
        };
        assert_ne!(aggregate(&budget(&with("not valid"))), "[]");
        assert_ne!(aggregate(&budget_update(&with("not valid"), &with("a"))), "[]");
        assert_eq!(aggregate(&budget_update(&with("not valid"), &with("not valid"))), "[]");
    }
}
