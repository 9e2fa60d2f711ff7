//! Defaults of Services (`pkg/apis/core/v1/defaults.go`). Cluster IPs, IP families and node ports are not
//! defaulted here: the Service strategy allocates them.

use crate::apimachinery::value::Value;
use crate::controlplane::fields::{elements_mut, set_default, set_default_str};

/// Whether the Service is reachable from outside the cluster; upstream's `service.ExternallyAccessible`.
pub(crate) fn externally_accessible(service: &Value) -> bool {
    match service.str_at(&["spec", "type"]) {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !service.at(&["spec", "externalIPs"]).items().is_empty(),
        _ => false,
    }
}

/// Defaults of a Service.
pub(crate) fn service(v: &mut Value) {
    set_default_str(v, &["spec", "sessionAffinity"], "None");
    match v.str_at(&["spec", "sessionAffinity"]) {
        "None" => {
            v.unset(&["spec", "sessionAffinityConfig"]);
        }
        "ClientIP" => set_default(
            v,
            &["spec", "sessionAffinityConfig", "clientIP", "timeoutSeconds"],
            // Upstream's `DefaultClientIPServiceAffinitySeconds`: three hours.
            10800i64,
        ),
        _ => {}
    }
    set_default_str(v, &["spec", "type"], "ClusterIP");
    for port in elements_mut(v, &["spec", "ports"]) {
        set_default_str(port, &["protocol"], "TCP");
        if port.get("targetPort").is_empty_value() {
            let same = port.get("port").clone();
            port.set(&["targetPort"], if same.is_null() { 0i64.into() } else { same });
        }
    }
    if externally_accessible(v) {
        set_default_str(v, &["spec", "externalTrafficPolicy"], "Cluster");
    }
    if matches!(v.str_at(&["spec", "type"]), "NodePort" | "LoadBalancer" | "ClusterIP") {
        set_default(v, &["spec", "internalTrafficPolicy"], "Cluster");
    }
    if v.str_at(&["spec", "type"]) == "LoadBalancer" {
        set_default(v, &["spec", "allocateLoadBalancerNodePorts"], true);
        for ingress in elements_mut(v, &["status", "loadBalancer", "ingress"]) {
            if !ingress.str_at(&["ip"]).is_empty() {
                set_default(ingress, &["ipMode"], "VIP");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn defaulted(spec: Value) -> Value {
        let mut v = json!({"spec": null});
        v.set(&["spec"], spec);
        service(&mut v);
        v.get("spec").clone()
    }

    #[test]
    fn ports_default_to_tcp_and_target_themselves() {
        assert_eq!(
            defaulted(json!({"ports": [{"port": 80}]})),
            json!({"internalTrafficPolicy": "Cluster", "sessionAffinity": "None", "type": "ClusterIP",
                   "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]})
        );
        assert_eq!(
            defaulted(json!({"ports": [{"port": 80, "targetPort": "web", "protocol": "UDP"}]})).at(&["ports"]),
            &json!([{"port": 80, "protocol": "UDP", "targetPort": "web"}])
        );
    }

    #[test]
    fn affinity_config_follows_session_affinity() {
        let v = defaulted(json!({"sessionAffinity": "ClientIP"}));
        assert_eq!(
            v.at(&["sessionAffinityConfig", "clientIP", "timeoutSeconds"]),
            &10800i64.into()
        );
        assert!(
            defaulted(json!({"sessionAffinityConfig": {"clientIP": {}}}))
                .get("sessionAffinityConfig")
                .is_null()
        );
    }

    #[test]
    fn an_external_name_has_no_traffic_policies() {
        assert_eq!(
            defaulted(json!({"type": "ExternalName", "externalName": "db.example.com"})),
            json!({"externalName": "db.example.com", "sessionAffinity": "None", "type": "ExternalName"})
        );
    }

    #[test]
    fn a_load_balancer_allocates_node_ports() {
        let v = defaulted(json!({"type": "LoadBalancer", "ports": []}));
        assert_eq!(v.get("allocateLoadBalancerNodePorts"), &true.into());
        assert_eq!(v.str_at(&["externalTrafficPolicy"]), "Cluster");
    }
}
