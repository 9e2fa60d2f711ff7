//! Computes the rules that a live role lacks.

use crate::apimachinery::value::Value;
use crate::authz::rbac::{HeldRules, PolicyRule};

/// The grants of `wanted` that no rule of `held` covers, as rules of one verb and one resource (or path)
/// each.
pub(super) fn missing(held: &[Value], wanted: &[Value]) -> Vec<Value> {
    let parse = |rules: &[Value]| -> Vec<PolicyRule> { rules.iter().map(PolicyRule::parse).collect() };
    let (held, wanted) = (parse(held), parse(wanted));
    let missing = HeldRules::of(held.iter()).missing_grants(&wanted);
    missing.iter().map(PolicyRule::to_value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn covered_grants_are_not_missing() {
        let held = [
            json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]}),
            json!({"apiGroups": ["*"], "resources": ["*/scale"], "verbs": ["get"]}),
            json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a"], "verbs": ["get"]}),
            json!({"nonResourceURLs": ["/api/*"], "verbs": ["get"]}),
        ];
        let wanted = [
            json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}),
            json!({"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["get", "update"]}),
            json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}),
            json!({"nonResourceURLs": ["/api/v1", "/version"], "verbs": ["get"]}),
        ];
        assert_eq!(
            missing(&held, &wanted),
            [
                json!({"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["update"]}),
                json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}),
                json!({"nonResourceURLs": ["/version"], "verbs": ["get"]}),
            ]
        );
        assert!(missing(&wanted, &wanted).is_empty());
    }
}
