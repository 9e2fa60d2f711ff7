//! Minimum, maximum and ratio constraints, with upstream's messages. Upstream iterates over Go maps in random
//! order; here the order is by resource name.

use super::super::resources::{CountingMode, List, ResourceKind, list, of_pod as resources_of_pod};
use super::Violations;
use crate::apimachinery::quantity::Quantity;
use crate::apimachinery::value::Value;

/// Up to this value upstream compares thousandths, beyond it whole units, to avoid overflow.
const MAX_MILLI: i64 = i64::MAX / 1000;

/// The resources of the object that a LimitRange item constrains.
struct Constrained<'a> {
    /// `Container`, `Pod` or `PersistentVolumeClaim`.
    kind: &'a str,
    requests: List<'a>,
    limits: List<'a>,
}

/// Converts quantities to integers that compare the way upstream's do.
fn comparable<const N: usize>(quantities: [Option<Quantity>; N]) -> [i64; N] {
    let quantities = quantities.map(|q| q.unwrap_or(Quantity::ZERO));
    let units = quantities.map(Quantity::value);
    match units.iter().all(|n| *n <= MAX_MILLI) {
        true => quantities.map(Quantity::milli_value),
        false => units,
    }
}

impl Constrained<'_> {
    fn minimum(&self, name: &str, least: Quantity) -> Option<String> {
        let (request, limit) = (self.requests.get(name).copied(), self.limits.get(name).copied());
        let [asked, limited, bound] = comparable([request, limit, Some(least)]);
        let rule = format!("minimum {name} usage per {} is {least}", self.kind);
        match (request, limit) {
            // The two spaces are upstream's.
            (None, _) => Some(format!("{rule}.  No request is specified")),
            (Some(request), _) if asked < bound => Some(format!("{rule}, but request is {request}")),
            (_, Some(limit)) if limited < bound => Some(format!("{rule}, but limit is {limit}")),
            _ => None,
        }
    }

    fn maximum(&self, name: &str, most: Quantity) -> Option<String> {
        let (request, limit) = (self.requests.get(name).copied(), self.limits.get(name).copied());
        let [asked, limited, bound] = comparable([request, limit, Some(most)]);
        let rule = format!("maximum {name} usage per {} is {most}", self.kind);
        match (request, limit) {
            (_, None) => Some(format!("{rule}.  No limit is specified")),
            (_, Some(limit)) if limited > bound => Some(format!("{rule}, but limit is {limit}")),
            (Some(request), _) if asked > bound => Some(format!("{rule}, but request is {request}")),
            _ => None,
        }
    }

    /// The maximum of an object without limits (a claim).
    fn maximum_request(&self, name: &str, most: Quantity) -> Option<String> {
        let request = self.requests.get(name).copied();
        // Claims have no limits, so only the request is compared.
        let [asked, bound] = comparable([request, Some(most)]);
        let rule = format!("maximum {name} usage per {} is {most}", self.kind);
        match request {
            None => Some(format!("{rule}.  No request is specified")),
            Some(request) if asked > bound => Some(format!("{rule}, but request is {request}")),
            Some(_) => None,
        }
    }

    fn ratio(&self, name: &str, most: Quantity) -> Option<String> {
        let (request, limit) = (self.requests.get(name).copied(), self.limits.get(name).copied());
        let [asked, limited, _] = comparable([request, limit, Some(most)]);
        // Requests and limits are scaled alike, so their ratio needs no conversion.
        let rule = format!("{name} max limit to request ratio per {} is {most}", self.kind);
        if request.is_none() || asked == 0 {
            return Some(format!("{rule}, but no request is specified or request is 0"));
        }
        if limit.is_none() || limited == 0 {
            return Some(format!("{rule}, but no limit is specified or limit is 0"));
        }
        let ratio = limited as f64 / asked as f64;
        let over = match most.value() <= MAX_MILLI {
            // As upstream's `limitRequestRatioConstraint`, in floating point.
            true => ratio * 1000.0 > most.milli_value() as f64,
            false => ratio > most.value() as f64,
        };
        over.then(|| format!("{rule}, but provided ratio is {ratio:.6}"))
    }

    /// Adds a message per violated constraint. Satisfied constraints produce nothing, so the cost is bounded
    /// by the size of the item plus the maximum number of messages.
    fn check(&self, item: &Limits<'_>, out: &mut Violations) {
        // Lazily: the iterators end as soon as enough violations were found.
        let least = item.min.iter().filter_map(|(k, v)| self.minimum(k, *v));
        let most = item.max.iter().filter_map(|(k, v)| self.maximum(k, *v));
        let ratios = item.ratios.iter().filter_map(|(k, v)| self.ratio(k, *v));
        for text in least.chain(most).chain(ratios) {
            out.push(text);
            if out.more {
                return;
            }
        }
    }
}

/// The constraints of a parsed LimitRange item.
struct Limits<'a> {
    min: List<'a>,
    max: List<'a>,
    ratios: List<'a>,
}

impl<'a> Limits<'a> {
    fn of(item: &'a Value) -> Self {
        Self {
            min: list(item.get("min")),
            max: list(item.get("max")),
            ratios: list(item.get("maxLimitRequestRatio")),
        }
    }
}

/// Checks a pod and its containers.
pub(super) fn of_pod(pod: &Value, limits: &[Value]) -> Violations {
    let mut out = Violations::default();
    for item in limits {
        let read = Limits::of(item);
        match item.str_at(&["type"]) {
            kind @ "Container" => {
                // Not ephemeral containers, which have no resources.
                for containers in ["containers", "initContainers"] {
                    for container in pod.at(&["spec", containers]).items() {
                        if out.more {
                            return out;
                        }
                        let measured = Constrained {
                            kind,
                            requests: list(container.at(&["resources", "requests"])),
                            limits: list(container.at(&["resources", "limits"])),
                        };
                        measured.check(&read, &mut out);
                    }
                }
            }
            kind @ "Pod" => {
                let measured = Constrained {
                    kind,
                    requests: resources_of_pod(pod, ResourceKind::Requests, CountingMode::SpecOnly),
                    limits: resources_of_pod(pod, ResourceKind::Limits, CountingMode::SpecOnly),
                };
                measured.check(&read, &mut out);
            }
            _ => {}
        }
    }
    out
}

pub(super) fn of_claim(claim: &Value, limits: &[Value]) -> Violations {
    let mut out = Violations::default();
    for item in limits.iter().filter(|i| i.str_at(&["type"]) == "PersistentVolumeClaim") {
        let measured = Constrained {
            kind: "PersistentVolumeClaim",
            requests: list(claim.at(&["spec", "resources", "requests"])),
            limits: List::new(),
        };
        // No ratios, as upstream: a claim has no limit to compare its request with.
        let (least, most) = (list(item.get("min")), list(item.get("max")));
        let least = least.into_iter().filter_map(|(k, v)| measured.minimum(k, v));
        let most = most.into_iter().filter_map(|(k, v)| measured.maximum_request(k, v));
        least.chain(most).for_each(|text| out.push(text));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn violations(item: Value, resources: Value) -> String {
        let pod = json!({"spec": {"containers": [{"name": "a", "resources": (resources)}]}});
        of_pod(&pod, &[item]).joined().unwrap_or_default()
    }

    #[test]
    fn messages_name_the_violated_constraint() {
        let item = |part: &str, value: &str| {
            let mut item = json!({"type": "Container"});
            item.set(&[part, "cpu"], value);
            item
        };
        let both = |request: &str, limit: &str| json!({"requests": {"cpu": request}, "limits": {"cpu": limit}});
        for (limits, resources, want) in [
            (item("min", "100m"), both("100m", "1"), ""),
            (
                item("min", "100m"),
                both("50m", "1"),
                "minimum cpu usage per Container is 100m, but request is 50m",
            ),
            (
                item("min", "100m"),
                both("1", "50m"),
                "minimum cpu usage per Container is 100m, but limit is 50m",
            ),
            (
                item("min", "100m"),
                json!({}),
                "minimum cpu usage per Container is 100m.  No request is specified",
            ),
            (item("max", "1"), both("1", "1"), ""),
            (
                item("max", "1"),
                both("1", "2"),
                "maximum cpu usage per Container is 1, but limit is 2",
            ),
            (
                item("max", "1"),
                both("2", "1"),
                "maximum cpu usage per Container is 1, but request is 2",
            ),
            (
                item("max", "1"),
                json!({"requests": {"cpu": "1"}}),
                "maximum cpu usage per Container is 1.  No limit is specified",
            ),
            (item("maxLimitRequestRatio", "2"), both("1", "2"), ""),
            (
                item("maxLimitRequestRatio", "1500m"),
                both("300m", "1"),
                "cpu max limit to request ratio per Container is 1500m, but provided ratio is 3.333333",
            ),
            (
                item("maxLimitRequestRatio", "2"),
                json!({"limits": {"cpu": "1"}}),
                "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0",
            ),
            (
                item("maxLimitRequestRatio", "2"),
                both("1", "0"),
                "cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0",
            ),
        ] {
            assert_eq!(violations(limits, resources), want);
        }
    }

    #[test]
    fn huge_quantities_are_compared_in_whole_units() {
        let huge = |n: i64| json!({"requests": {"memory": (n.to_string())}, "limits": {"memory": (n.to_string())}});
        let item = json!({"type": "Container", "max": {"memory": "9223372036854775806"}});
        assert_eq!(violations(item.clone(), huge(i64::MAX - 1)), "");
        assert!(violations(item, huge(i64::MAX)).ends_with("but limit is 9223372036854775807"));
    }

    #[test]
    fn pod_constraints_apply_to_the_sum_and_errors_are_aggregated() {
        let container = json!({"name": "a", "resources": {"limits": {"memory": "512Mi"}}});
        let pod = json!({"spec": {"containers": [(container.clone()), (container.clone()), (container)]}});
        let limits = [json!({"type": "Pod", "max": {"memory": "1Gi"}, "min": {"cpu": "1"}})];
        assert_eq!(
            of_pod(&pod, &limits).joined().unwrap(),
            "[minimum cpu usage per Pod is 1.  No request is specified, maximum memory usage per Pod is 1Gi, but limit \
             is 1536Mi]"
        );
    }

    #[test]
    fn a_rejection_lists_at_most_a_hundred_violations() {
        let mut most = Value::object();
        (0..500).for_each(|i| most.set(&[&format!("x/r{i}")], "1"));
        let mut item = json!({"type": "Container"});
        item.set(&["max"], most);
        let containers = vec![json!({"name": "a"}); 1_000];
        let mut pod = json!({});
        pod.set(&["spec", "containers"], containers);
        let violations = of_pod(&pod, &[item]).joined().unwrap();
        assert_eq!(violations.matches("No limit is specified").count(), 100);
        assert!(violations.ends_with(", and more]"), "{violations}");
    }

    #[test]
    fn claims_are_checked_by_request_only() {
        let limits = [json!({"type": "PersistentVolumeClaim", "max": {"storage": "2Gi"}, "min": {"storage": "1Gi"}})];
        let claim = |size: &str| json!({"spec": {"resources": {"requests": {"storage": size}}}});
        assert_eq!(of_claim(&claim("1Gi"), &limits).joined(), None);
        assert_eq!(
            of_claim(&claim("5Gi"), &limits).joined().unwrap(),
            "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 5Gi"
        );
        assert_eq!(
            of_claim(&json!({}), &limits).joined().unwrap(),
            "[minimum storage usage per PersistentVolumeClaim is 1Gi.  No request is specified, maximum storage usage \
             per PersistentVolumeClaim is 2Gi.  No request is specified]"
        );
    }
}
