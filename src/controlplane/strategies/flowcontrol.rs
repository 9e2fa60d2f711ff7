//! Strategy of FlowSchemas and PriorityLevelConfigurations.

use super::common::{bump_generation, first_generation, keep_all_but_status, keep_all_meta};
use crate::apimachinery::field::ErrorList;
use crate::apimachinery::object::restore;
use crate::apimachinery::value::Value;
use crate::controlplane::{defaults, validation};
use crate::registry::strategy::Strategy;

/// Strategy of one of the group's two kinds.
pub(crate) struct FlowControl {
    /// True for PriorityLevelConfigurations, false for FlowSchemas.
    pub levels: bool,
}

impl Strategy for FlowControl {
    fn default(&self, v: &mut Value) {
        if self.levels {
            defaults::flowcontrol::priority_level(v);
        } else {
            defaults::flowcontrol::flow_schema(v);
        }
    }

    fn prepare_create(&self, v: &mut Value) {
        v.set(&["status"], Value::object());
        first_generation(v);
    }

    fn validate_create(&self, v: &Value) -> ErrorList {
        if self.levels {
            validation::flowcontrol::priority_level(v)
        } else {
            validation::flowcontrol::flow_schema(v)
        }
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        restore(new, old, &["status"]);
        bump_generation(new, old, &["spec"]);
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        keep_all_but_status(new, old);
        keep_all_meta(new, old);
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> ErrorList {
        validation::flowcontrol::status(new)
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        match subresource {
            "status" => &["metadata", "spec"],
            _ => &["status"],
        }
    }
}
