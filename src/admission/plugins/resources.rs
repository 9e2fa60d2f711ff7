//! What pods ask for: lists of quantities by resource, and their sum over a pod's containers.

use crate::apimachinery::quantity::Quantity;
use crate::apimachinery::value::Value;
use std::collections::{BTreeMap, HashMap};

/// Quantities by resource.
pub(super) type List<'a> = BTreeMap<&'a str, Quantity>;

/// Which half of a container's resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Requests,
    Limits,
}

impl Side {
    pub(super) const fn field(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Limits => "limits",
        }
    }
}

/// Whose numbers count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Account {
    /// Those of the spec's containers alone.
    Spec,
    /// Also what the status says is given already, and the overhead of the runtime.
    Charged,
}

pub(super) fn quantity(v: &Value) -> Option<Quantity> {
    match v {
        Value::String(text) => Quantity::parse(text).ok(),
        Value::Int(n) => Some(Quantity::from_i64(*n)),
        _ => None,
    }
}

/// A map of quantities.
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

/// Resources that may be asked for by a pod as a whole.
fn is_of_pods(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

/// True where the pod as a whole asks for something.
pub(super) fn has_own_resources(spec: &Value) -> bool {
    let sides = ["requests", "limits"].into_iter();
    let lists = sides.filter_map(|side| spec.at(&["resources", side]).as_object());
    lists.flat_map(|m| m.keys()).any(is_of_pods)
}

/// What a pod's status says its containers have, by name. Of several of one name the first counts.
struct Statuses<'a> {
    by_name: HashMap<&'a str, &'a Value>,
    /// What is asked for cannot be had.
    infeasible: bool,
}

impl<'a> Statuses<'a> {
    fn of(pod: &'a Value, list: &str) -> Self {
        let known = pod.at(&["status", list]).items().iter().rev();
        let known = known.filter(|s| !s.get("resources").is_null());
        let mut conditions = pod.at(&["status", "conditions"]).items().iter();
        Self {
            by_name: known.map(|s| (s.str_at(&["name"]), s)).collect(),
            infeasible: conditions
                .any(|c| c.str_at(&["type"]) == "PodResizePending" && c.str_at(&["reason"]) == "Infeasible"),
        }
    }

    /// What one container counts for, with what its status says it has.
    fn charged(&self, container: &'a Value, side: Side) -> List<'a> {
        let wanted = list(container.at(&["resources", side.field()]));
        let Some(status) = self.by_name.get(container.str_at(&["name"])) else {
            return wanted;
        };
        let mut total = if self.infeasible { List::new() } else { wanted };
        take_greater(&mut total, &list(status.at(&["resources", side.field()])));
        if side == Side::Requests {
            take_greater(&mut total, &list(status.get("allocatedResources")));
        }
        total
    }
}

/// What a pod asks for, as upstream's `PodRequests` and `PodLimits`: its containers and sidecars together, or what an
/// init container needs while it runs, if that is more. What the pod asks for as a whole stands above that.
pub(super) fn of_pod<'a>(pod: &'a Value, side: Side, account: Account) -> List<'a> {
    let spec = pod.get("spec");
    let statuses = |list: &str| match account {
        Account::Spec => None,
        Account::Charged => Some(Statuses::of(pod, list)),
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
        let stays = container.str_at(&["restartPolicy"]) == "Always";
        if stays {
            add(&mut total, &needs);
        }
        // Resources that this one does not name are as high as the sidecars before it made them.
        for (name, quantity) in needs {
            let now = sidecars.get(name).map_or(quantity, |q: &Quantity| q.plus(quantity));
            if stays {
                sidecars.insert(name, now);
            }
            let most = peak.get(name).map_or(now, |q: &Quantity| (*q).max(now));
            peak.insert(name, most);
        }
    }
    take_greater(&mut total, &peak);
    for (name, quantity) in list(spec.at(&["resources", side.field()])) {
        if is_of_pods(name) {
            total.insert(name, quantity);
        }
    }
    if account == Account::Charged {
        let overhead = list(spec.get("overhead"));
        match side {
            Side::Requests => add(&mut total, &overhead),
            // Nobody is limited who was not.
            Side::Limits => {
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

    fn shown(list: &List<'_>) -> String {
        let each: Vec<String> = list.iter().map(|(k, v)| format!("{k}={v}")).collect();
        each.join(",")
    }

    fn container(name: &str, cpu: &str) -> Value {
        json!({"name": name, "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}})
    }

    #[test]
    fn sidecars_add_up_and_init_containers_only_raise() {
        let mut sidecar = container("s", "1");
        sidecar.set(&["restartPolicy"], "Always");
        let pod = json!({"spec": {
            "containers": [(container("a", "500m")), (container("b", "1"))],
            "initContainers": [(container("i", "2")), (sidecar), (container("j", "100m"))],
            "overhead": {"cpu": "10m", "memory": "1Mi"}}});
        assert_eq!(shown(&of_pod(&pod, Side::Requests, Account::Spec)), "cpu=2500m");
        assert_eq!(
            shown(&of_pod(&pod, Side::Requests, Account::Charged)),
            "cpu=2510m,memory=1Mi"
        );
        assert_eq!(shown(&of_pod(&pod, Side::Limits, Account::Charged)), "cpu=2510m");
    }

    #[test]
    fn what_the_pod_asks_for_as_a_whole_stands_above_its_containers() {
        let pod = json!({"spec": {"containers": [(container("a", "500m"))],
            "resources": {"requests": {"cpu": "3", "example.com/x": "1"}}}});
        assert_eq!(shown(&of_pod(&pod, Side::Requests, Account::Spec)), "cpu=3");
        assert_eq!(shown(&of_pod(&pod, Side::Limits, Account::Spec)), "cpu=500m");
        assert!(has_own_resources(pod.get("spec")));
    }

    #[test]
    fn a_resized_pod_counts_for_the_most_of_what_it_has_and_wants() {
        let status = json!([{"name": "a", "resources": {"requests": {"cpu": "2"}},
            "allocatedResources": {"cpu": "1"}}]);
        let mut pod = json!({"spec": {"containers": [(container("a", "3"))]}});
        pod.set(&["status", "containerStatuses"], status);
        assert_eq!(shown(&of_pod(&pod, Side::Requests, Account::Charged)), "cpu=3");
        pod.set(
            &["status", "conditions"],
            json!([{"type": "PodResizePending", "reason": "Infeasible"}]),
        );
        assert_eq!(shown(&of_pod(&pod, Side::Requests, Account::Charged)), "cpu=2");
    }
}
