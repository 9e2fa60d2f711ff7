//! Validation of LimitRanges and ResourceQuotas, and the rules for resource names and quantities that
//! containers and nodes share.

mod limit_range;

pub(crate) use limit_range::limit_range;

use super::common::{NOT_NEGATIVE, is_negative, is_whole, quantity};
use super::go_form;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::validation::qualified_name;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{IMMUTABLE, invalid_each_enum, strings};
use crate::interrupt::checkpoint;
use std::collections::{HashMap, HashSet};

fn entries(v: &Value) -> impl Iterator<Item = (&str, &Value)> {
    v.as_object().into_iter().flat_map(|m| m.iter())
}

fn is_container_resource(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-")
}

/// True if the resource may be overcommitted, that is, have a limit greater than its request.
pub(super) fn is_overcommitted(name: &str) -> bool {
    // Huge pages are reserved, and extended resources are devices: neither can be shared.
    !name.starts_with("hugepages-") && (!name.contains('/') || name.contains("kubernetes.io/"))
}

/// True for an extended resource: integral, and not overcommittable.
fn is_extended(name: &str) -> bool {
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    // Quotas count them as `requests.<name>`, so the name must stay valid with the prefix.
    !native && !name.starts_with("requests.") && qualified_name(&format!("requests.{name}")).is_empty()
}

/// Checks a quantity: not negative, and an integer for countable resources.
pub(super) fn amount(out: &mut ErrorList, name: &str, q: &Value, at: &FieldPath) {
    let Some(n) = quantity(q) else { return };
    // Both checks run: `-500m` pods are negative and fractional.
    if is_negative(n) {
        out.push(FieldError::invalid(at, q.clone(), NOT_NEGATIVE));
    }
    if is_integer(name) && !is_whole(n) {
        out.push(FieldError::invalid(at, q.clone(), "must be an integer"));
    }
}

/// True for resources counted in whole units.
fn is_integer(name: &str) -> bool {
    COUNTED.contains(&name) || is_extended(name)
}

/// Checks a resource name: a standard or a qualified one.
pub(super) fn resource_name(out: &mut ErrorList, name: &str, at: &FieldPath) {
    let messages = qualified_name(name);
    if !messages.is_empty() {
        invalid_each_enum(out, at, name, messages);
    // Names with a domain are not compared with any list.
    } else if !name.contains('/') && !is_quota_resource(name) && name != "storage" {
        let why = "must be a standard resource type or fully qualified";
        out.push(FieldError::invalid_enum(at, name, why));
    }
}

/// Checks the name of a resource in a container.
pub(super) fn container_name(out: &mut ErrorList, name: &str, at: &FieldPath) {
    resource_name(out, name, at);
    if !name.contains('/') {
        // An unknown name is reported twice: `resource_name` has other standard resources too, such as
        // `pods`.
        if !is_container_resource(name) {
            let why = "must be a standard resource for containers";
            out.push(FieldError::invalid_enum(at, name, why));
        }
    // Native domains are reserved for the project and are not validated.
    } else if !name.contains("kubernetes.io/") && !is_extended(name) {
        let why = "doesn't follow extended resource name standard";
        out.push(FieldError::invalid_enum(at, name, why));
    }
}

/// Quota resources that count objects, in whole units.
const COUNTED: &[&str] = &[
    "pods",
    "services",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

fn is_quota_resource(name: &str) -> bool {
    COUNTED.contains(&name)
        || matches!(
            name,
            "cpu"
                | "memory"
                | "ephemeral-storage"
                | "requests.cpu"
                | "requests.memory"
                | "requests.storage"
                | "requests.ephemeral-storage"
                | "limits.cpu"
                | "limits.memory"
                | "limits.ephemeral-storage"
        )
        || name.starts_with("hugepages-")
        || name.starts_with("requests.hugepages-")
}

/// Checks the names and quantities of a list of quota resources.
fn amounts(out: &mut ErrorList, list: &Value, path: &FieldPath) {
    for (name, q) in entries(list) {
        checkpoint();
        let at = path.key(name);
        resource_name(out, name, &at);
        if !name.contains('/') && !is_quota_resource(name) {
            let why = "must be a standard resource for quota";
            out.push(FieldError::invalid_enum(&at, name, why));
        }
        amount(out, name, q, &at);
    }
}

const SCOPES: &[&str] = &[
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];

/// True if a quota on the resource can have this scope. Unknown resources are accepted with any scope.
fn applies(scope: &str, resource: &str) -> bool {
    let computes = matches!(
        resource,
        "cpu" | "memory" | "limits.cpu" | "limits.memory" | "requests.cpu" | "requests.memory"
    );
    // Extended resources and counts of arbitrary kinds (`count/…`) are not known to the server's scopes.
    !is_quota_resource(resource)
        || match scope {
            "BestEffort" => resource == "pods",
            "VolumeAttributesClass" => matches!(resource, "persistentvolumeclaims" | "requests.storage"),
            // The other scopes select pods.
            _ if SCOPES.contains(&scope) => resource == "pods" || computes,
            _ => true,
        }
}

/// Counts the pairs of scopes that exclude each other.
fn conflicts(scopes: &[&str]) -> usize {
    [("Terminating", "NotTerminating"), ("BestEffort", "NotBestEffort")]
        .iter()
        .filter(|(a, b)| scopes.contains(a) && scopes.contains(b))
        .count()
}

pub(crate) fn resource_quota(v: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let (spec, path) = (v.get("spec"), FieldPath::new("spec"));
    amounts(&mut out, spec.get("hard"), &path.child("hard"));
    // Shared by both ways to name scopes, `scopes` and `scopeSelector`.
    let mut unfit = InapplicableCounts::new(spec.get("hard"));
    let (scopes, at) = (strings(spec.get("scopes")), path.child("scopes"));
    // Each error contains the whole list; `push_times` formats only as many as the error list keeps.
    let mut refuse = |times: usize, why: &str| {
        out.push_times(times, || FieldError::invalid(&at, spec.get("scopes").clone(), why));
    };
    for scope in &scopes {
        if !SCOPES.contains(scope) {
            refuse(1, "unsupported scope");
        }
        refuse(unfit.count(scope), "unsupported scope applied to resource");
    }
    refuse(conflicts(&scopes), "conflicting scopes");
    selector(
        &mut out,
        spec,
        &mut unfit,
        &path.child("scopeSelector").child("matchExpressions"),
    );
    out
}

/// Counts the quota's resources that a scope does not apply to, cached per scope: a client may repeat scopes.
struct InapplicableCounts<'a> {
    resources: Vec<&'a str>,
    known: HashMap<&'static str, usize>,
}

impl<'a> InapplicableCounts<'a> {
    fn new(hard: &'a Value) -> Self {
        Self {
            resources: entries(hard).map(|(k, _)| k).collect(),
            known: HashMap::new(),
        }
    }

    fn count(&mut self, scope: &str) -> usize {
        // Unknown scopes are reported separately.
        let Some(scope) = SCOPES.iter().find(|s| **s == scope) else {
            return 0;
        };
        let resources = &self.resources;
        let count = || resources.iter().filter(|r| !applies(scope, r)).count();
        *self.known.entry(scope).or_insert_with(count)
    }
}

fn selector(out: &mut ErrorList, spec: &Value, unfit: &mut InapplicableCounts<'_>, at: &FieldPath) {
    let expressions = spec.at(&["scopeSelector", "matchExpressions"]).items();
    let mut scopes = Vec::new();
    for e in expressions {
        let (scope, operator) = (e.str_at(&["scopeName"]), e.str_at(&["operator"]));
        scopes.push(scope);
        if !SCOPES.contains(&scope) {
            out.push(FieldError::invalid_enum(
                &at.child("scopeName"),
                scope,
                "unsupported scope",
            ));
        }
        out.push_times(unfit.count(scope), || {
            let shown = go_form::compact(spec.get("scopeSelector"), go_form::SCOPE_SELECTOR);
            FieldError::invalid_raw(at, shown, "unsupported scope applied to resource")
        });
        // Only these two scopes have values: names of classes.
        let bare = SCOPES.contains(&scope) && !matches!(scope, "PriorityClass" | "VolumeAttributesClass");
        if bare && operator != "Exists" {
            out.push(FieldError::invalid_enum(&at.child("operator"), operator, "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"));
        }
        // As upstream, none of these paths has the index of the expression.
        let values = e.get("values");
        match operator {
            "In" | "NotIn" if values.items().is_empty() => out.push(FieldError::required(
                &at.child("values"),
                "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
            )),
            "In" | "NotIn" => {}
            "Exists" | "DoesNotExist" if !values.items().is_empty() => out.push(FieldError::invalid(
                &at.child("values"),
                values.clone(),
                "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
            )),
            "Exists" | "DoesNotExist" => {}
            other => out.push(FieldError::invalid_enum(
                &at.child("operator"),
                other,
                "not a valid selector operator",
            )),
        }
    }
    out.push_times(conflicts(&scopes), || {
        // Upstream's bad value is `scopes`, which is usually null here.
        FieldError::invalid(at, spec.get("scopes").clone(), "conflicting scopes")
    });
}

/// Warns if the quota of requests exceeds the quota of limits, which can never be used up.
pub(crate) fn resource_quota_warnings(v: &Value) -> Vec<String> {
    let hard = v.at(&["spec", "hard"]);
    let mut out = Vec::new();
    for name in ["cpu", "memory", "storage", "ephemeral-storage"] {
        let mut request = format!("requests.{name}");
        // `cpu` and `memory` are aliases of `requests.cpu` and `requests.memory`.
        if hard.get(&request).is_null() && matches!(name, "cpu" | "memory") {
            request = name.to_owned();
        }
        let limit = format!("limits.{name}");
        if let (Some(r), Some(l)) = (quantity(hard.get(&request)), quantity(hard.get(&limit)))
            // Pods cannot request more than their limit, so the difference is never used.
            && r > l
        {
            out.push(format!(
                "ResourceQuota {request} ({r}) should be less than {limit} ({l})"
            ));
        }
    }
    out
}

pub(crate) fn resource_quota_update(new: &Value, old: &Value) -> ErrorList {
    let mut out = resource_quota(new);
    let scopes = ["spec", "scopes"];
    // Their order does not matter.
    let now: HashSet<&str> = strings(new.at(&scopes)).into_iter().collect();
    let was: HashSet<&str> = strings(old.at(&scopes)).into_iter().collect();
    if now != was {
        let at = FieldPath::new("spec").child("scopes");
        out.push(FieldError::invalid(&at, new.at(&scopes).clone(), IMMUTABLE));
    }
    out
}

pub(crate) fn resource_quota_status(new: &Value, _old: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let path = FieldPath::new("status");
    for key in ["hard", "used"] {
        amounts(&mut out, new.at(&["status", key]), &path.child(key));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::json;

    #[test]
    fn limit_range_errors_match_the_recordings() {
        for (item, want) in [
            (
                json!({"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}}),
                "[spec.limits[0].min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1, spec.limits[0].defaultRequest[cpu]: Invalid value: \"1\": min value 2 is greater than default request value 1, spec.limits[0].default[cpu]: Invalid value: \"2\": min value 2 is greater than default value 1]",
            ),
            (
                json!({"type": "Container", "default": {"cpu": "2"}, "max": {"cpu": "1"}}),
                "[spec.limits[0].defaultRequest[cpu]: Invalid value: \"2\": default request value 2 is greater than max value 1, spec.limits[0].default[cpu]: Invalid value: \"1\": default value 2 is greater than max value 1]",
            ),
            (
                json!({"type": "Container", "maxLimitRequestRatio": {"cpu": "500m"}}),
                "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"500m\": ratio 500m is less than 1",
            ),
            // In thousandths these do not fit 64 bits.
            (
                json!({"type": "Container", "min": {"memory": "8Pi"}, "max": {"memory": "16Pi"}, "maxLimitRequestRatio": {"memory": "2"}}),
                "[]",
            ),
            (
                json!({"type": "PersistentVolumeClaim"}),
                "spec.limits[0].limits: Required value: either minimum or maximum storage value is required, but neither was provided",
            ),
        ] {
            let mut v = json!({});
            v.set(&["spec", "limits"], vec![item]);
            crate::controlplane::defaults::storage::limit_range(&mut v);
            assert_eq!(aggregate(&limit_range(&v)), want);
        }
    }

    #[test]
    fn names_of_resources_and_types_are_printed_as_json() {
        let quota = aggregate(&resource_quota(&json!({"spec": {"hard": {"a<b": "1"}}})));
        assert!(quota.starts_with("[spec.hard[a<b]: Invalid value: \"a\\u003cb\": name part must consist"));
        assert!(
            quota.ends_with("spec.hard[a<b]: Invalid value: \"a\\u003cb\": must be a standard resource for quota]")
        );
        let range = aggregate(&limit_range(
            &json!({"spec": {"limits": [{"type": "a<b"}, {"type": "a<b"}]}}),
        ));
        assert!(range.starts_with("[spec.limits[0].type: Invalid value: \"a\\u003cb\": name part must consist"));
        assert!(range.ends_with("spec.limits[1].type: Duplicate value: \"a\\u003cb\"]"));
    }

    #[test]
    fn quota_with_requests_above_limits_yields_a_warning() {
        let v = json!({"spec": {"hard": {"cpu": "2", "limits.cpu": "1", "requests.memory": "1Gi", "limits.memory": "2Gi"}}});
        assert_eq!(
            resource_quota_warnings(&v),
            ["ResourceQuota cpu (2) should be less than limits.cpu (1)"]
        );
    }

    #[test]
    fn every_pair_of_conflicting_scopes_is_reported() {
        let scopes = ["Terminating", "NotTerminating", "BestEffort", "NotBestEffort"];
        let expressions = scopes.map(|s| json!({"scopeName": s, "operator": "Exists"}));
        let mut v = json!({"spec": {"hard": {"pods": "5"}}});
        v.set(&["spec", "scopes"], scopes.map(Value::from).to_vec());
        v.set(&["spec", "scopeSelector", "matchExpressions"], expressions.to_vec());
        let errors = resource_quota(&v);
        assert_eq!(errors.iter().filter(|e| e.detail == "conflicting scopes").count(), 4);
    }

    #[test]
    fn scopes_are_immutable_but_not_their_order() {
        let of = |scopes: Value| {
            let mut v = json!({"spec": {"hard": {"pods": "5"}}});
            v.set(&["spec", "scopes"], scopes);
            v
        };
        let old = of(json!(["BestEffort", "Terminating"]));
        let errors = |scopes: Value| aggregate(&resource_quota_update(&of(scopes), &old));
        assert_eq!(errors(json!(["Terminating", "BestEffort"])), "[]");
        assert_eq!(
            errors(json!(["BestEffort"])),
            "spec.scopes: Invalid value: [\"BestEffort\"]: field is immutable"
        );
    }

    #[test]
    fn quota_errors_match_the_recordings() {
        for (spec, want) in [
            (
                json!({"hard": {"pods": "5", "bogus": "1"}}),
                "[spec.hard[bogus]: Invalid value: \"bogus\": must be a standard resource type or fully qualified, spec.hard[bogus]: Invalid value: \"bogus\": must be a standard resource for quota]",
            ),
            (
                json!({"hard": {"pods": "500m"}}),
                "spec.hard[pods]: Invalid value: \"500m\": must be an integer",
            ),
            (
                json!({"hard": {"pods": "5"}, "scopes": ["Terminating", "NotTerminating"]}),
                "spec.scopes: Invalid value: [\"Terminating\",\"NotTerminating\"]: conflicting scopes",
            ),
            (
                json!({"hard": {"pods": "5", "configmaps": "1"}, "scopes": ["BestEffort"]}),
                "spec.scopes: Invalid value: [\"BestEffort\"]: unsupported scope applied to resource",
            ),
            (
                json!({"hard": {"pods": "5"}, "scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In"}]}}),
                "spec.scopeSelector.matchExpressions.values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
            ),
        ] {
            let mut v = json!({});
            v.set(&["spec"], spec);
            assert_eq!(aggregate(&resource_quota(&v)), want);
        }
    }
}
