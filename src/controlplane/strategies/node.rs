//! Strategy of nodes, following upstream's `pkg/registry/core/node/strategy.go`.

use super::common::keep_all_but_status;
use crate::apimachinery::field::ErrorList;
use crate::apimachinery::object::restore;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::set_default;
use crate::controlplane::validation;
use crate::registry::strategy::{Rules, Strategy, reset_spec_or_status};

pub(crate) struct Node;

impl Strategy for Node {
    fn rules(&self) -> Rules {
        Rules {
            defaults_prevented_by_empties: &["status.allocatable"],
            ..Rules::DEFAULT
        }
    }

    fn default(&self, object: &mut Value) {
        // `podCIDR` mirrors the first of `podCIDRs`; if they disagree, `podCIDR` wins.
        let single = object.at(&["spec", "podCIDR"]).clone();
        let first = object.at(&["spec", "podCIDRs"]).items().first().cloned();
        match (single.as_str().unwrap_or(""), first) {
            ("", Some(first)) => object.set(&["spec", "podCIDR"], first),
            ("", None) => {}
            (_, Some(first)) if first == single => {}
            _ => object.set(&["spec", "podCIDRs"], vec![single]),
        }
        // Upstream's `SetDefaults_NodeStatus`.
        let capacity = object.at(&["status", "capacity"]).clone();
        if !capacity.is_null() {
            set_default(object, &["status", "allocatable"], capacity);
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        // Dynamic kubelet configuration was removed; its fields survive only where they are already stored.
        object.unset(&["spec", "configSource"]);
        object.unset(&["status", "config"]);
    }

    fn validate_create(&self, object: &Value) -> ErrorList {
        validation::node::node(object)
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        restore(new, old, &["status"]);
        if old.at(&["spec", "configSource"]).is_null() {
            new.unset(&["spec", "configSource"]);
        }
    }

    fn validate_update(&self, new: &Value, old: &Value) -> ErrorList {
        // Upstream runs the create validation here too, so some causes appear twice.
        let mut out = validation::node::node(new);
        out.extend(validation::node::node_update(new, old));
        out
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        keep_all_but_status(new, old);
        if old.at(&["status", "config"]).is_null() {
            new.unset(&["status", "config"]);
        }
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> ErrorList {
        validation::node::node_update(new, old)
    }

    fn warnings(&self, new: &Value, _old: Option<&Value>) -> Vec<String> {
        let mut out = Vec::new();
        if !new.at(&["spec", "configSource"]).is_null() {
            out.push("spec.configSource: the feature is removed".to_owned());
        }
        if !new.str_at(&["spec", "externalID"]).is_empty() {
            out.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
        }
        for (i, range) in new.at(&["spec", "podCIDRs"]).items().iter().enumerate() {
            let path = format!("spec.podCIDRs[{i}]");
            out.extend(validation::service::warnings::cidr_warning(
                &path,
                range.as_str().unwrap_or_default(),
            ));
        }
        out
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        reset_spec_or_status(subresource)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn pod_cidr_overrides_pod_cidrs() {
        let mut v = json!({"spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.1.0/24"]}, "status": {"capacity": {"cpu": "1"}}});
        Node.default(&mut v);
        assert_eq!(v.at(&["spec", "podCIDRs"]), &json!(["10.0.0.0/24"]));
        assert_eq!(v.at(&["status", "allocatable"]), &json!({"cpu": "1"}));
    }

    #[test]
    fn allocatable_defaults_to_capacity() {
        let mut v =
            json!({"spec": {}, "status": {"capacity": {"cpu": "1", "memory": "1"}, "allocatable": {"cpu": "1"}}});
        Node.default(&mut v);
        assert_eq!(v.at(&["status", "allocatable"]), &json!({"cpu": "1"}));
    }

    #[test]
    fn update_repeats_create_validation() {
        let old = json!({"spec": {"podCIDRs": ["10.0.0.0/24"]}});
        let new = json!({"spec": {"podCIDRs": ["10.0.0.0/24", "x"], "taints": [{"key": "a", "effect": "X"}]}});
        let errors = Node.validate_update(&new, &old);
        let count = |text: &str| errors.iter().filter(|e| e.to_string().contains(text)).count();
        assert_eq!(count("metadata.taints[0].effect"), 2);
        assert_eq!(
            count(
                "Internal error: invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[1]: <nil> (invalid CIDR address: x)"
            ),
            1
        );
    }
}
