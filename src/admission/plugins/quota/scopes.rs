//! Quota scopes: the [`Selector`]s that restrict a quota to some of the objects (upstream's `podMatchesScopeFunc` and
//! its counterpart for claims).

use crate::apimachinery::value::Value;
use std::fmt;

/// A scope selector: scope, operator and values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selector {
    /// Scope name, such as `Terminating` or `PriorityClass`.
    pub(super) scope: String,
    operator: String,
    values: Vec<String>,
}

impl fmt::Display for Selector {
    /// Formats like Go prints the struct, which occurs in error messages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{} {} [{}]}}", self.scope, self.operator, self.values.join(" "))
    }
}

impl Selector {
    /// Parses an element of `scopeSelector.matchExpressions`.
    pub(super) fn of(expression: &Value) -> Self {
        let values = expression.get("values").items().iter();
        Self {
            scope: expression.str_at(&["scopeName"]).to_owned(),
            operator: expression.str_at(&["operator"]).to_owned(),
            values: values.filter_map(Value::as_str).map(str::to_owned).collect(),
        }
    }

    /// All selectors of a quota. An element of `spec.scopes` is equivalent to the operator `Exists`.
    pub(super) fn of_quota(quota: &Value) -> Vec<Self> {
        let scopes = quota.at(&["spec", "scopes"]).items().iter();
        let scopes = scopes.filter_map(Value::as_str).map(|scope| Self {
            scope: scope.to_owned(),
            operator: "Exists".to_owned(),
            values: Vec::new(),
        });
        let expressions = quota.at(&["spec", "scopeSelector", "matchExpressions"]).items();
        scopes.chain(expressions.iter().map(Self::of)).collect()
    }

    /// Applies the operator to a value that may be absent.
    fn selects(&self, value: Option<&str>) -> bool {
        let listed = || self.values.iter().any(|v| Some(&**v) == value);
        match &*self.operator {
            "In" => listed(),
            // Includes objects without a value, as label selectors do.
            "NotIn" => !listed(),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    }

    /// True if the pod is in the scope.
    pub(super) fn matches_pod(&self, pod: &Value) -> bool {
        match &*self.scope {
            "Terminating" => is_terminating(pod),
            "NotTerminating" => !is_terminating(pod),
            "BestEffort" => is_best_effort(pod),
            "NotBestEffort" => !is_best_effort(pod),
            "PriorityClass" => {
                let class = pod.str_at(&["spec", "priorityClassName"]);
                self.selects((!class.is_empty()).then_some(class))
            }
            "CrossNamespacePodAffinity" => crosses_namespaces(pod),
            // Unknown scopes match nothing, so the quota does not apply.
            _ => false,
        }
    }

    /// True if the claim is in the scope by any of its attributes classes: requested, current or being
    /// applied.
    pub(super) fn matches_claim(&self, claim: &Value) -> bool {
        if self.scope != "VolumeAttributesClass" {
            return false;
        }
        let classes = [
            claim.str_at(&["spec", "volumeAttributesClassName"]),
            claim.str_at(&["status", "currentVolumeAttributesClassName"]),
            claim.str_at(&["status", "modifyVolumeStatus", "targetVolumeAttributesClassName"]),
        ];
        let mut named = classes.into_iter().filter(|c| !c.is_empty()).peekable();
        match named.peek() {
            // Only `DoesNotExist` and `NotIn` select a claim without a class.
            None => self.selects(None),
            Some(_) => named.any(|class| self.selects(Some(class))),
        }
    }
}

pub(super) fn is_terminating(pod: &Value) -> bool {
    let seconds = pod.at(&["spec", "activeDeadlineSeconds"]).as_i64();
    // As upstream: zero counts as a deadline, although validation refuses it.
    seconds.is_some_and(|s| s >= 0)
}

fn is_best_effort(pod: &Value) -> bool {
    match pod.str_at(&["status", "qosClass"]) {
        "" => {
            use super::super::resources::{CountingMode, ResourceKind, of_pod};
            let asks = |side| {
                let total = of_pod(pod, side, CountingMode::SpecOnly);
                let counted = ["cpu", "memory"].into_iter().filter_map(|name| total.get(name));
                counted.into_iter().any(|q| q.signum() != 0)
            };
            !asks(ResourceKind::Requests) && !asks(ResourceKind::Limits)
        }
        // The class is fixed at creation; computing it again would be wrong after a resize.
        class => class == "BestEffort",
    }
}

fn crosses_namespaces(pod: &Value) -> bool {
    // An empty selector means all namespaces, so its presence counts and not its content.
    let crosses = |term: &Value| !term.get("namespaces").items().is_empty() || !term.get("namespaceSelector").is_null();
    ["podAffinity", "podAntiAffinity"].into_iter().any(|kind| {
        let affinity = pod.at(&["spec", "affinity", kind]);
        let required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution").items();
        let preferred = affinity.get("preferredDuringSchedulingIgnoredDuringExecution").items();
        required.iter().any(crosses) || preferred.iter().any(|p| crosses(p.get("podAffinityTerm")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn selector(scope: &str, operator: &str, values: Value) -> Selector {
        Selector::of(&json!({"scopeName": scope, "operator": operator, "values": (values)}))
    }

    #[test]
    fn scopes_select_pods() {
        let exists =
            |scope: &str, spec: Value| selector(scope, "Exists", Value::Null).matches_pod(&json!({"spec": (spec)}));
        let resources = json!({"containers": [{"resources": {"limits": {"cpu": "1"}}}]});
        let zero = json!({"containers": [{"resources": {"limits": {"cpu": "0"}}}]});
        let term = json!([{"namespaceSelector": {}}]);
        let weighted = json!([{"weight": 1, "podAffinityTerm": {"namespaces": ["a"]}}]);
        let affinity = |kind: &str, list: &str, terms: &Value| {
            let mut spec = json!({});
            spec.set(&["affinity", kind, list], terms.clone());
            spec
        };
        for (scope, spec, want) in [
            ("Terminating", json!({"activeDeadlineSeconds": 0}), true),
            ("Terminating", json!({}), false),
            ("NotTerminating", json!({}), true),
            ("BestEffort", json!({}), true),
            ("BestEffort", zero, true),
            ("BestEffort", resources.clone(), false),
            ("NotBestEffort", resources, true),
            ("PriorityClass", json!({"priorityClassName": "a"}), true),
            ("PriorityClass", json!({}), false),
            (
                "CrossNamespacePodAffinity",
                affinity("podAffinity", "requiredDuringSchedulingIgnoredDuringExecution", &term),
                true,
            ),
            (
                "CrossNamespacePodAffinity",
                affinity(
                    "podAntiAffinity",
                    "preferredDuringSchedulingIgnoredDuringExecution",
                    &weighted,
                ),
                true,
            ),
            ("CrossNamespacePodAffinity", json!({}), false),
            ("Other", json!({}), false),
        ] {
            assert_eq!(exists(scope, spec.clone()), want, "{scope} {spec:?}");
        }
    }

    #[test]
    fn operators_apply_to_the_class_name() {
        let high = json!({"spec": {"priorityClassName": "high"}});
        let none = json!({});
        for (operator, values, of_high, of_none) in [
            ("In", json!(["high", "low"]), true, false),
            ("NotIn", json!(["high"]), false, true),
            ("Exists", Value::Null, true, false),
            ("DoesNotExist", Value::Null, false, true),
        ] {
            let selector = selector("PriorityClass", operator, values);
            assert_eq!(selector.matches_pod(&high), of_high, "{operator}");
            assert_eq!(selector.matches_pod(&none), of_none, "{operator}");
        }
    }

    #[test]
    fn a_claim_is_in_the_scope_by_any_attributes_class() {
        let gold = selector("VolumeAttributesClass", "In", json!(["gold"]));
        assert!(gold.matches_claim(&json!({"spec": {"volumeAttributesClassName": "gold"}})));
        assert!(
            gold.matches_claim(&json!({"spec": {"volumeAttributesClassName": "silver"},
            "status": {"currentVolumeAttributesClassName": "gold"}}))
        );
        assert!(!gold.matches_claim(&json!({})));
        assert!(selector("VolumeAttributesClass", "DoesNotExist", Value::Null).matches_claim(&json!({})));
        assert_eq!(gold.to_string(), "{VolumeAttributesClass In [gold]}");
    }
}
