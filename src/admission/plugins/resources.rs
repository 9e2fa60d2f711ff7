//! Resource requests and limits: quantities by resource, and their total over a pod's containers
//! ([`of_pod`]).

use crate::apimachinery::quantity::Quantity;
use crate::apimachinery::value::Value;
use std::collections::{BTreeMap, HashMap};

/// Quantities by resource.
pub(super) type List<'a> = BTreeMap<&'a str, Quantity>;

/// Requests or limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResourceKind {
    Requests,
    Limits,
}

impl ResourceKind {
    pub(super) const fn field(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Limits => "limits",
        }
    }
}

/// The quantities of a pod that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CountingMode {
    /// Only those in the spec of its containers.
    SpecOnly,
    /// Also the resources already allocated according to the status, and the runtime overhead.
    IncludeStatus,
}

pub(super) fn quantity(v: &Value) -> Option<Quantity> {
    match v {
        Value::String(text) => Quantity::parse(text).ok(),
        // Objects of before quantities were normalized may have numbers.
        Value::Int(n) => Some(Quantity::from_i64(*n)),
        _ => None,
    }
}

/// Parses a map of quantities; invalid ones are skipped.
pub(super) fn list(v: &Value) -> List<'_> {
    let entries = v.as_object().into_iter().flat_map(|m| m.iter());
    entries.filter_map(|(k, v)| Some((k, quantity(v)?))).collect()
}

pub(super) fn add<'a>(into: &mut List<'a>, more: &List<'a>) {
    for (name, quantity) in more {
        let sum = into.get(name).map_or(*quantity, |q| q.plus(*quantity));
        into.insert(name, sum);
    }
}

fn take_greater<'a>(into: &mut List<'a>, other: &List<'a>) {
    for (name, quantity) in other {
        let greater = into.get(name).map_or(*quantity, |q| (*q).max(*quantity));
        into.insert(name, greater);
    }
}

/// Resources that can be set at pod level.
fn is_of_pods(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

/// True if the pod sets pod-level resources.
pub(super) fn has_own_resources(spec: &Value) -> bool {
    let sides = ["requests", "limits"].into_iter();
    let lists = sides.filter_map(|side| spec.at(&["resources", side]).as_object());
    lists.flat_map(|m| m.keys()).any(is_of_pods)
}

/// Container statuses with resources, by name. If names repeat, the first one counts.
struct Statuses<'a> {
    by_name: HashMap<&'a str, &'a Value>,
    /// True if the kubelet reported the pending resize as infeasible.
    infeasible: bool,
}

impl<'a> Statuses<'a> {
    fn of(pod: &'a Value, list: &str) -> Self {
        // Reversed, so that the first of several statuses with one name wins.
        let known = pod.at(&["status", list]).items().iter().rev();
        let known = known.filter(|s| !s.get("resources").is_null());
        let mut conditions = pod.at(&["status", "conditions"]).items().iter();
        Self {
            by_name: known.map(|s| (s.str_at(&["name"]), s)).collect(),
            infeasible: conditions
                .any(|c| c.str_at(&["type"]) == "PodResizePending" && c.str_at(&["reason"]) == "Infeasible"),
        }
    }

    /// The quantity counted for a container: the maximum of its spec and of the allocation that its status
    /// reports.
    fn charged(&self, container: &'a Value, side: ResourceKind) -> List<'a> {
        let wanted = list(container.at(&["resources", side.field()]));
        let Some(status) = self.by_name.get(container.str_at(&["name"])) else {
            return wanted;
        };
        // A resize that the node has rejected will not happen, so only the allocation counts.
        let mut total = if self.infeasible { List::new() } else { wanted };
        take_greater(&mut total, &list(status.at(&["resources", side.field()])));
        // Only requests are allocated by the kubelet.
        if side == ResourceKind::Requests {
            take_greater(&mut total, &list(status.get("allocatedResources")));
        }
        total
    }
}

/// The resources of a pod, as upstream's `PodRequests` and `PodLimits`: the sum of containers and sidecars,
/// or the peak during initialisation if that is higher. Pod-level resources override both.
pub(super) fn of_pod<'a>(pod: &'a Value, side: ResourceKind, account: CountingMode) -> List<'a> {
    let spec = pod.get("spec");
    let statuses = |list: &str| match account {
        CountingMode::SpecOnly => None,
        CountingMode::IncludeStatus => Some(Statuses::of(pod, list)),
    };
    let one = |container: &'a Value, statuses: &Option<Statuses<'a>>| match statuses {
        None => list(container.at(&["resources", side.field()])),
        Some(statuses) => statuses.charged(container, side),
    };
    let mut total = List::new();
    let known = statuses("containerStatuses");
    for container in spec.get("containers").items() {
        add(&mut total, &one(container, &known));
    }
    let known = statuses("initContainerStatuses");
    let (mut sidecars, mut peak) = (List::new(), List::new());
    for container in spec.get("initContainers").items() {
        let needs = one(container, &known);
        // A sidecar runs beside all later init containers and the regular ones.
        let stays = container.str_at(&["restartPolicy"]) == "Always";
        if stays {
            add(&mut total, &needs);
        }
        // A resource absent from this container does not raise the peak beyond that of earlier sidecars.
        for (name, quantity) in needs {
            let now = sidecars.get(name).map_or(quantity, |q: &Quantity| q.plus(quantity));
            if stays {
                sidecars.insert(name, now);
            }
            let most = peak.get(name).map_or(now, |q: &Quantity| (*q).max(now));
            peak.insert(name, most);
        }
    }
    // The two phases never overlap, so the larger one decides.
    take_greater(&mut total, &peak);
    for (name, quantity) in list(spec.at(&["resources", side.field()])) {
        if is_of_pods(name) {
            total.insert(name, quantity);
        }
    }
    if account == CountingMode::IncludeStatus {
        let overhead = list(spec.get("overhead"));
        match side {
            ResourceKind::Requests => add(&mut total, &overhead),
            // Overhead is added only to existing limits: a resource without one stays unlimited.
            ResourceKind::Limits => {
                for (name, more) in overhead {
                    if let Some(limit) = total.get_mut(name).filter(|q| q.signum() != 0) {
                        *limit = limit.plus(more);
                    }
                }
            }
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn format_list(list: &List<'_>) -> String {
        let each: Vec<String> = list.iter().map(|(k, v)| format!("{k}={v}")).collect();
        each.join(",")
    }

    fn container(name: &str, cpu: &str) -> Value {
        json!({"name": name, "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}})
    }

    #[test]
    fn sidecars_are_summed_and_init_containers_take_the_maximum() {
        let mut sidecar = container("s", "1");
        sidecar.set(&["restartPolicy"], "Always");
        let pod = json!({"spec": {
            "containers": [(container("a", "500m")), (container("b", "1"))],
            "initContainers": [(container("i", "2")), (sidecar), (container("j", "100m"))],
            "overhead": {"cpu": "10m", "memory": "1Mi"}}});
        assert_eq!(
            format_list(&of_pod(&pod, ResourceKind::Requests, CountingMode::SpecOnly)),
            "cpu=2500m"
        );
        assert_eq!(
            format_list(&of_pod(&pod, ResourceKind::Requests, CountingMode::IncludeStatus)),
            "cpu=2510m,memory=1Mi"
        );
        assert_eq!(
            format_list(&of_pod(&pod, ResourceKind::Limits, CountingMode::IncludeStatus)),
            "cpu=2510m"
        );
    }

    #[test]
    fn pod_level_resources_override_those_of_containers() {
        let pod = json!({"spec": {"containers": [(container("a", "500m"))],
            "resources": {"requests": {"cpu": "3", "example.com/x": "1"}}}});
        assert_eq!(
            format_list(&of_pod(&pod, ResourceKind::Requests, CountingMode::SpecOnly)),
            "cpu=3"
        );
        assert_eq!(
            format_list(&of_pod(&pod, ResourceKind::Limits, CountingMode::SpecOnly)),
            "cpu=500m"
        );
        assert!(has_own_resources(pod.get("spec")));
    }

    #[test]
    fn a_resized_pod_counts_the_maximum_of_spec_and_status() {
        let status = json!([{"name": "a", "resources": {"requests": {"cpu": "2"}},
            "allocatedResources": {"cpu": "1"}}]);
        let mut pod = json!({"spec": {"containers": [(container("a", "3"))]}});
        pod.set(&["status", "containerStatuses"], status);
        assert_eq!(
            format_list(&of_pod(&pod, ResourceKind::Requests, CountingMode::IncludeStatus)),
            "cpu=3"
        );
        pod.set(
            &["status", "conditions"],
            json!([{"type": "PodResizePending", "reason": "Infeasible"}]),
        );
        assert_eq!(
            format_list(&of_pod(&pod, ResourceKind::Requests, CountingMode::IncludeStatus)),
            "cpu=2"
        );
    }
}
