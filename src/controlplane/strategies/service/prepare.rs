//! Field handling of Service updates: carries allocated values over, and clears fields that the new type does
//! not use (upstream's `patchAllocatedValues`, `normalizeClusterIPs` and `dropTypeDependentFields`).

use crate::apimachinery::object::restore;
use crate::apimachinery::value::Value;
use crate::controlplane::defaults::service::externally_accessible;
use crate::controlplane::fields::{Seen, elements_mut, strings};
use std::collections::HashMap;

fn kind(v: &Value) -> &str {
    v.str_at(&["spec", "type"])
}

pub(super) fn needs_cluster_ip(v: &Value) -> bool {
    // Also a Service of an unknown type, which validation refuses.
    kind(v) != "ExternalName"
}

pub(super) fn needs_node_port(v: &Value) -> bool {
    matches!(kind(v), "NodePort" | "LoadBalancer")
}

pub(super) fn needs_health_check(v: &Value) -> bool {
    kind(v) == "LoadBalancer" && v.str_at(&["spec", "externalTrafficPolicy"]) == "Local"
}

pub(super) fn node_port(port: &Value) -> i64 {
    port.get("nodePort").as_i64().unwrap_or(0)
}

pub(super) fn health_port(v: &Value) -> i64 {
    v.at(&["spec", "healthCheckNodePort"]).as_i64().unwrap_or(0)
}

/// Copies allocated values that the update leaves empty, so that a client may omit them.
pub(super) fn keep_allocated(new: &mut Value, old: &Value) {
    if needs_cluster_ip(new) && needs_cluster_ip(old) {
        if new.str_at(&["spec", "clusterIP"]).is_empty() {
            restore(new, old, &["spec", "clusterIP"]);
        }
        if new.at(&["spec", "clusterIPs"]).items().is_empty() {
            restore(new, old, &["spec", "clusterIPs"]);
        }
    }
    if needs_node_port(new) && needs_node_port(old) {
        // Explicit node ports of the update take precedence over inherited ones.
        let mut used: Seen<i64> = new.at(&["spec", "ports"]).items().iter().map(node_port).collect();
        // Reversed, so that the first of several ports with one name wins.
        let had = old.at(&["spec", "ports"]).items().iter().rev();
        let had: HashMap<&str, i64> = had.map(|p| (p.str_at(&["name"]), node_port(p))).collect();
        for port in elements_mut(new, &["spec", "ports"]) {
            if node_port(port) != 0 {
                continue;
            }
            let was = had.get(port.str_at(&["name"])).copied().unwrap_or(0);
            // A node port follows the name of its port, but is never given to two ports.
            if was != 0 && used.insert(was) {
                port.set(&["nodePort"], was);
            }
        }
    }
    if needs_health_check(new) && needs_health_check(old) && health_port(new) == 0 {
        restore(new, old, &["spec", "healthCheckNodePort"]);
    }
}

/// Keeps `clusterIP` and the first of `clusterIPs` in sync for clients that set only one of them.
pub(super) fn synchronise_cluster_ips(new: &mut Value, old: Option<&Value>) {
    let ip = new.at(&["spec", "clusterIP"]).clone();
    let ip_set = ip.as_str().is_some_and(|s| !s.is_empty());
    let list_empty = new.at(&["spec", "clusterIPs"]).items().is_empty();
    let Some(old) = old else {
        if ip_set && list_empty {
            new.set(&["spec", "clusterIPs"], vec![ip]);
        }
        return;
    };
    let same_list = strings(new.at(&["spec", "clusterIPs"])) == strings(old.at(&["spec", "clusterIPs"]));
    let same_ip = ip.as_str().unwrap_or("") == old.str_at(&["spec", "clusterIP"]);
    // A client that does not know the list sent the object back; in the other cases it cleared or changed the
    // single field, and the list follows.
    if list_empty && same_ip && ip_set {
        restore(new, old, &["spec", "clusterIPs"]);
    } else if !same_ip && !ip_set && same_list {
        new.unset(&["spec", "clusterIPs"]);
    } else if !same_ip && ip_set && same_list {
        new.set(&["spec", "clusterIPs"], vec![ip]);
    }
}

/// Clears unchanged fields that the new type does not use. Fields the update changed explicitly are kept, so
/// that validation rejects them.
pub(super) fn drop_dependent(new: &mut Value, old: &Value) {
    if needs_cluster_ip(old) && !needs_cluster_ip(new) {
        let unchanged = |key: &str| new.at(&["spec", key]) == old.at(&["spec", key]);
        if unchanged("clusterIP") && unchanged("clusterIPs") {
            new.unset(&["spec", "clusterIP"]);
            new.unset(&["spec", "clusterIPs"]);
        }
        for key in ["ipFamilies", "ipFamilyPolicy"] {
            if new.at(&["spec", key]) == old.at(&["spec", key]) {
                new.unset(&["spec", key]);
            }
        }
    }
    if needs_node_port(old) && !needs_node_port(new) {
        let had: Seen<i64> = old.at(&["spec", "ports"]).items().iter().map(node_port).collect();
        let known = |p: &Value| node_port(p) == 0 || had.contains(&node_port(p));
        if new.at(&["spec", "ports"]).items().iter().all(known) {
            for port in elements_mut(new, &["spec", "ports"]) {
                port.unset(&["nodePort"]);
            }
        }
    }
    let gone = [
        (
            needs_health_check(old) && !needs_health_check(new),
            "healthCheckNodePort",
        ),
        (
            kind(old) == "LoadBalancer" && kind(new) != "LoadBalancer",
            "allocateLoadBalancerNodePorts",
        ),
        (
            kind(old) == "LoadBalancer" && kind(new) != "LoadBalancer",
            "loadBalancerClass",
        ),
        (
            externally_accessible(old) && !externally_accessible(new),
            "externalTrafficPolicy",
        ),
    ];
    for (gone, key) in gone {
        if gone && new.at(&["spec", key]) == old.at(&["spec", key]) {
            new.unset(&["spec", key]);
        }
    }
}

/// Drops the traffic policy of an ExternalName, which upstream stores but shows to nobody. Validation refuses an invalid
/// one.
pub(super) fn drop_hidden(service: &mut Value) {
    let at = ["spec", "internalTrafficPolicy"];
    if kind(service) == "ExternalName" && matches!(service.str_at(&at), "Cluster" | "Local") {
        service.unset(&at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn an_unknown_type_keeps_its_addresses() {
        let old = json!({"spec": {"type": "ClusterIP", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"]}});
        let mut new = json!({"spec": {"type": "X"}});
        keep_allocated(&mut new, &old);
        assert_eq!(new.at(&["spec", "clusterIPs"]), old.at(&["spec", "clusterIPs"]));
    }

    #[test]
    fn an_external_name_shows_no_traffic_policy() {
        for (kind, policy, want) in [
            ("ExternalName", "Local", Value::Null),
            ("ExternalName", "X", "X".into()),
            ("ClusterIP", "Local", "Local".into()),
        ] {
            let mut service = json!({"spec": {"type": kind, "internalTrafficPolicy": policy}});
            drop_hidden(&mut service);
            assert_eq!(service.at(&["spec", "internalTrafficPolicy"]), &want, "{kind} {policy}");
        }
    }
}
