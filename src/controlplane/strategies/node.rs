//! Nodes.

use super::common::keep_all_but_status;
use crate::apimachinery::field::ErrorList;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::restore;
use crate::controlplane::validation;
use crate::registry::strategy::Strategy;

/// Behaviour of nodes.
pub struct Node;

impl Strategy for Node {
    fn default(&self, object: &mut Value) {
        // The older single range and the list say the same thing; the single one wins.
        let single = object.at(&["spec", "podCIDR"]).clone();
        let first = object.at(&["spec", "podCIDRs"]).items().first().cloned();
        match (single.as_str().unwrap_or(""), first) {
            ("", Some(first)) => object.set(&["spec", "podCIDR"], first),
            ("", None) => {}
            (_, Some(first)) if first == single => {}
            _ => object.set(&["spec", "podCIDRs"], vec![single]),
        }
        let capacity = object.at(&["status", "capacity"]).clone();
        for (k, q) in capacity.as_object().into_iter().flat_map(|m| m.iter()) {
            if object.at(&["status", "allocatable", k]).is_null() {
                object.set(&["status", "allocatable", k], q.clone());
            }
        }
    }

    fn prepare_create(&self, object: &mut Value) {
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
        validation::node::node_update(new, old)
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
        match subresource {
            "status" => &["spec"],
            _ => &["status"],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn pod_ranges_are_kept_in_step() {
        let mut v = json!({"spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.1.0/24"]}, "status": {"capacity": {"cpu": "1"}}});
        Node.default(&mut v);
        assert_eq!(v.at(&["spec", "podCIDRs"]), &json!(["10.0.0.0/24"]));
        assert_eq!(v.at(&["status", "allocatable"]), &json!({"cpu": "1"}));
    }
}
