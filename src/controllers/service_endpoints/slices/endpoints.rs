//! The endpoints of a slice: their identity, the state of their Pod, and their hints.

use crate::apimachinery::value::{Str, Value};
use crate::controllers::service_endpoints::workloads::{Pod, Service};
use crate::json;
use std::collections::BTreeMap;

/// Identifies an endpoint: its sorted addresses, host name, and the target's namespace and name.
pub(crate) type Identity = (Vec<Str>, Str, Str, Str);
pub(crate) type Endpoints = BTreeMap<Identity, Value>;

/// The identity of an endpoint.
pub(crate) fn identity(endpoint: &Value) -> Identity {
    let target = |key| endpoint.str_at(&["targetRef", key]).into();
    let addresses = endpoint.get("addresses").items().iter();
    let mut addresses: Vec<Str> = addresses.filter_map(Value::as_str).map(Str::from).collect();
    // Clients may list them in any order.
    addresses.sort();
    let hostname = endpoint.str_at(&["hostname"]).into();
    (addresses, hostname, target("namespace"), target("name"))
}

/// Whether two endpoints of one identity are equal, ignoring the Pod's resourceVersion and the hints.
pub(crate) fn same(a: &Value, b: &Value) -> bool {
    let target = |e: &Value| {
        let mut target = e.get("targetRef").clone();
        // It changes with each status update of the Pod, which must not rewrite the slice.
        target.unset(&["resourceVersion"]);
        target
    };
    let conditions = ["ready", "serving", "terminating"];
    ["nodeName", "zone"].iter().all(|key| a.get(key) == b.get(key))
        && conditions
            .iter()
            .all(|c| a.at(&["conditions", c]) == b.at(&["conditions", c]))
        && target(a) == target(b)
}

/// The endpoint of a Pod; `None` if it has no address of the family.
pub(super) fn endpoint(pod: &Pod, service: &Service, namespace: &str, zone: Option<&Str>, ipv6: bool) -> Option<Value> {
    let addresses = pod.ips.iter().filter(|ip| ip.is_ipv6() == ipv6);
    let addresses: Vec<Value> = addresses.map(|ip| ip.to_string().into()).collect();
    if addresses.is_empty() {
        return None;
    }
    // Clients that do not know the other conditions must not send requests to a Pod that ends.
    let ready = service.publishes_unready() || (pod.ready && !pod.deleting);
    let mut endpoint = json!({"addresses": (addresses),
        "conditions": {"ready": ready, "serving": (pod.ready), "terminating": (pod.deleting)},
        "targetRef": {"kind": "Pod", "namespace": namespace, "name": (pod.name.as_str()), "uid": (pod.uid.as_str())}});
    let optional = [
        ("nodeName", Some(pod.node.as_str())),
        ("zone", zone.map(Str::as_str)),
        ("hostname", service.hostname_of(pod)),
    ];
    for (key, value) in optional {
        if let Some(value) = value.filter(|v| !v.is_empty()) {
            endpoint.set(&[key], value);
        }
    }
    Some(endpoint)
}

/// Sets the hints of the endpoints that are ready: their zone and, if nodes are preferred, their Node.
/// Without a preference removes all hints. Returns whether any changed.
pub(super) fn set_hints(slice: &mut Value, prefers_node: Option<bool>) -> bool {
    let mut changed = false;
    let endpoints = slice.at_mut(&["endpoints"]).and_then(Value::as_array_mut);
    for endpoint in endpoints.into_iter().flatten() {
        // As upstream, which leaves the hints of these endpoints as they are.
        if prefers_node.is_some() && endpoint.at(&["conditions", "ready"]).as_bool() != Some(true) {
            continue;
        }
        let mut hints = Value::Null;
        for (wanted, from, to) in [
            (prefers_node.is_some(), "zone", "forZones"),
            (prefers_node == Some(true), "nodeName", "forNodes"),
        ] {
            if let (true, Some(name)) = (wanted, endpoint.get(from).as_str()) {
                hints.set(&[to], json!([{"name": name}]));
            }
        }
        if *endpoint.get("hints") != hints {
            changed = true;
            match hints {
                Value::Null => drop(endpoint.unset(&["hints"])),
                hints => endpoint.set(&["hints"], hints),
            }
        }
    }
    changed
}
