//! Quota usage of pods (upstream's `pkg/quota/v1/evaluator/core/pods.go`).

use super::super::resources::{CountingMode, List, ResourceKind, has_own_resources, list, of_pod};
use super::amounts::Amounts;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::quantity::Quantity;
use crate::apimachinery::time;
use crate::apimachinery::validation::qualified_name;
use crate::apimachinery::value::Value;
use std::collections::{BTreeMap, BTreeSet};

const COUNTED: [&str; 11] = [
    "count/pods",
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
];

/// Resources that every container must specify if a quota has them. Upstream regards requiring others as a
/// mistake.
const DEMANDED: [&str; 6] = [
    "cpu",
    "memory",
    "requests.cpu",
    "requests.memory",
    "limits.cpu",
    "limits.memory",
];

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Prefix of devices requested by class without a claim.
const OF_CLASS: &str = "deviceclass.resource.kubernetes.io/";

/// True for resources of device plugins and for device classes.
fn is_extended(name: &str) -> bool {
    name.starts_with(OF_CLASS)
        || !is_native(name) && !name.starts_with("requests.") && qualified_name(&format!("requests.{name}")).is_empty()
}

/// True for the quota resources that apply to pods.
pub(super) fn counts(name: &str) -> bool {
    COUNTED.contains(&name)
        || name.starts_with("hugepages-")
        || name.starts_with("requests.hugepages-")
        || name
            .strip_prefix("requests.")
            .is_some_and(|rest| !is_native(name) || rest.starts_with(OF_CLASS))
}

/// Converts requests and limits to quota resource names.
fn charged(requests: &List<'_>, limits: &List<'_>) -> Amounts {
    let mut amounts = Amounts::from([("pods".to_owned(), Quantity::from_i64(1))]);
    for (name, quantity) in requests {
        let compute = matches!(*name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
        if compute {
            amounts.insert((*name).to_owned(), *quantity);
        }
        if compute || is_extended(name) {
            amounts.insert(format!("requests.{name}"), *quantity);
        }
    }
    for (name, quantity) in limits {
        // Huge pages cannot be overcommitted: their limit equals their request.
        if matches!(*name, "cpu" | "memory" | "ephemeral-storage") {
            amounts.insert(format!("limits.{name}"), *quantity);
        }
    }
    amounts
}

/// The error `must specify …` if containers lack required values.
pub(super) fn missing<'a>(required: impl Iterator<Item = &'a str>, pod: &Value) -> Option<String> {
    let required: Vec<&str> = required.filter(|name| DEMANDED.contains(name)).collect();
    let spec = pod.get("spec");
    // Pod-level resources cover all containers.
    if required.is_empty() || has_own_resources(spec) {
        return None;
    }
    let mut silent: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for container in ["containers", "initContainers"]
        .into_iter()
        .flat_map(|l| spec.get(l).items())
    {
        let [requests, limits] = ["requests", "limits"].map(|side| list(container.at(&["resources", side])));
        // Of the container alone: the sums of the pod would hide one that specifies nothing.
        let counted = charged(&requests, &limits);
        for name in required.iter().filter(|name| !counted.contains_key(**name)) {
            silent.entry(name).or_default().insert(container.str_at(&["name"]));
        }
    }
    if silent.is_empty() {
        return None;
    }
    let each = silent.into_iter().map(|(resource, names)| {
        let names: Vec<&str> = names.into_iter().collect();
        format!("{resource} for: {}", names.join(","))
    });
    Some(format!("must specify {}", each.collect::<Vec<_>>().join("; ")))
}

/// True while the pod holds resources: it has neither terminated nor exceeded the grace period of its
/// deletion.
fn is_alive(pod: &Value) -> bool {
    if matches!(pod.str_at(&["status", "phase"]), "Failed" | "Succeeded") {
        return false;
    }
    let grace = pod.at(&["metadata", "deletionGracePeriodSeconds"]).as_i64();
    match (time::parse(pod.meta("deletionTimestamp")), grace) {
        // Past its grace period, for example on a lost node, a pod must not block the quota any longer.
        (Ok(at), Some(grace)) => at.unix_timestamp().saturating_add(grace) >= now(),
        _ => true,
    }
}

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(i64::MAX))
}

/// The usage of a pod.
pub(super) fn usage(pod: &Value) -> Amounts {
    let mut amounts = match is_alive(pod) {
        true => charged(
            &of_pod(pod, ResourceKind::Requests, CountingMode::IncludeStatus),
            &of_pod(pod, ResourceKind::Limits, CountingMode::IncludeStatus),
        ),
        false => Amounts::new(),
    };
    // Object counts include terminated pods, which still occupy storage.
    amounts.insert("count/pods".to_owned(), Quantity::from_i64(1));
    amounts
}

#[cfg(test)]
mod tests {
    use super::super::amounts::format_amounts;
    use super::*;
    use crate::json;

    #[test]
    fn pods_are_charged_for_requests_and_limits() {
        let pod = json!({"spec": {"containers": [
            {"resources": {"requests": {"cpu": "100m", "memory": "1Gi", "hugepages-2Mi": "4Mi", "nvidia.com/gpu": "2",
                "deviceclass.resource.kubernetes.io/c": "1"},
                "limits": {"cpu": "200m", "nvidia.com/gpu": "2"}}},
            {"resources": {"requests": {"cpu": "100m"}}}]}});
        assert_eq!(
            format_amounts(&usage(&pod)),
            "count/pods=1,cpu=200m,hugepages-2Mi=4Mi,limits.cpu=200m,memory=1Gi,pods=1,requests.cpu=200m,\
             requests.deviceclass.resource.kubernetes.io/c=1,requests.hugepages-2Mi=4Mi,\
             requests.memory=1Gi,requests.nvidia.com/gpu=2"
        );
        assert!(usage(&pod).keys().all(|name| counts(name)));
    }

    #[test]
    fn a_terminated_pod_only_counts_as_an_object() {
        for pod in [
            json!({"status": {"phase": "Succeeded"}}),
            json!({"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30}}),
        ] {
            assert_eq!(format_amounts(&usage(&pod)), "count/pods=1");
        }
    }

    #[test]
    fn containers_must_specify_quota_resources() {
        let pod = json!({"spec": {
            "containers": [{"name": "b"}, {"name": "a"},
                {"name": "c", "resources": {"limits": {"cpu": "1"}, "requests": {"memory": "1"}}}],
            "initContainers": [{"name": "i", "resources": {"limits": {"cpu": "1"}}}]}});
        let required = ["requests.memory", "limits.cpu", "pods", "requests.ephemeral-storage"];
        assert_eq!(
            missing(required.into_iter(), &pod).as_deref(),
            Some("must specify limits.cpu for: a,b; requests.memory for: a,b,i")
        );
        let mut whole = pod.clone();
        whole.set(&["spec", "resources", "requests", "cpu"], "1");
        assert_eq!(missing(required.into_iter(), &whole), None);
    }
}
