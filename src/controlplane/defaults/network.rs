//! Defaults of networking kinds (`pkg/apis/networking/v1/defaults.go`).

use crate::apimachinery::value::Value;
use crate::controlplane::fields::{elements_mut, set_default};

pub(crate) fn ingress_class(v: &mut Value) {
    if !v.at(&["spec", "parameters"]).is_null() {
        set_default(v, &["spec", "parameters", "scope"], "Cluster");
    }
}

pub(crate) fn network_policy(v: &mut Value) {
    for side in ["ingress", "egress"] {
        for rule in elements_mut(v, &["spec", side]) {
            for port in elements_mut(rule, &["ports"]) {
                set_default(port, &["protocol"], "TCP");
            }
        }
    }
    if v.at(&["spec", "policyTypes"]).is_empty_value() {
        // Every policy isolates ingress, but egress only if it has egress rules.
        let types = if v.at(&["spec", "egress"]).is_empty_value() {
            crate::json!(["Ingress"])
        } else {
            crate::json!(["Ingress", "Egress"])
        };
        v.set(&["spec", "policyTypes"], types);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn egress_rules_imply_the_egress_policy_type() {
        let mut v = json!({"spec": {"egress": [{"ports": [{"port": 53}]}]}});
        network_policy(&mut v);
        assert_eq!(
            v,
            json!({"spec": {"egress": [{"ports": [{"port": 53, "protocol": "TCP"}]}], "policyTypes": ["Ingress", "Egress"]}})
        );
    }
}
