//! Behaviour as data: kinds that differ only in their defaults, checks and in what counts as a change of generation.

use super::common::{bump_generation, first_generation, keep_all_but_status};
use crate::apimachinery::field::ErrorList;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::restore;
use crate::registry::strategy::{GarbageCollection, NameRule, Strategy};

/// What a kind does. [`PLAIN`] does nothing; kinds say what they do beside that.
#[derive(Clone, Copy)]
pub struct Described {
    /// Fills in defaults.
    pub default: fn(&mut Value),
    /// Preparation of a create beside generation and status.
    pub create: fn(&mut Value),
    /// Preparation of an update beside generation and status.
    pub update: fn(&mut Value, &Value),
    /// Preparation of a status update beside keeping the rest.
    pub update_status: fn(&mut Value, &Value),
    /// Errors of a new object.
    pub validate: fn(&Value) -> ErrorList,
    /// Errors of an update; `None`: those of a new object.
    pub validate_update: Option<fn(&Value, &Value) -> ErrorList>,
    /// Errors of a status update.
    pub validate_status: fn(&Value, &Value) -> ErrorList,
    /// Warnings.
    pub warn: fn(&Value, Option<&Value>) -> Vec<String>,
    /// Warnings of a status update.
    pub warn_status: fn(&Value) -> Vec<String>,
    /// Members whose change is a new generation; none: the kind has no generation.
    pub generation: &'static [&'static str],
    /// The status of a new object; `None`: the kind has no status.
    pub status: Option<fn() -> Value>,
    /// Members of the metadata that a status write keeps.
    pub status_keeps: &'static [&'static str],
    /// Paths a status write never owns.
    pub status_resets: &'static [&'static str],
    /// How names are checked.
    pub names: NameRule,
    /// Whether any qualified name is a finalizer.
    pub any_finalizers: bool,
    /// What happens to dependents of a deleted object.
    pub dependents: GarbageCollection,
    /// Annotations that stand for fields of upstream's internal object.
    pub wire_annotations: &'static [&'static str],
    /// What a delete that does not say what becomes of dependents is told.
    pub unsaid_propagation: Option<&'static str>,
}

fn no_errors(_: &Value) -> ErrorList {
    ErrorList::new()
}

fn no_changes(_: &Value, _: &Value) -> ErrorList {
    ErrorList::new()
}

/// A kind that stores what it is given.
pub const PLAIN: Described = Described {
    default: |_| {},
    create: |_| {},
    update: |_, _| {},
    update_status: |_, _| {},
    validate: no_errors,
    validate_update: None,
    validate_status: no_changes,
    warn: |_, _| Vec::new(),
    warn_status: |_| Vec::new(),
    generation: &[],
    status: None,
    status_keeps: &[],
    status_resets: &["spec"],
    names: NameRule::Subdomain,
    any_finalizers: false,
    dependents: GarbageCollection::Background,
    unsaid_propagation: None,
    wire_annotations: &[],
};

/// A kind with a spec, a generation and a status.
pub const WORKLOAD: Described = Described {
    generation: &["spec"],
    status: Some(Value::object),
    ..PLAIN
};

impl Strategy for Described {
    fn name_rule(&self) -> NameRule {
        self.names
    }

    fn any_finalizers(&self) -> bool {
        self.any_finalizers
    }

    fn default(&self, object: &mut Value) {
        (self.default)(object);
    }

    fn prepare_create(&self, object: &mut Value) {
        if !self.generation.is_empty() {
            first_generation(object);
        }
        if let Some(status) = self.status {
            object.set(&["status"], status());
        }
        (self.create)(object);
    }

    fn validate_create(&self, object: &Value) -> ErrorList {
        (self.validate)(object)
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        if self.status.is_some() {
            restore(new, old, &["status"]);
        }
        (self.update)(new, old);
        if !self.generation.is_empty() {
            bump_generation(new, old, self.generation);
        }
    }

    fn validate_update(&self, new: &Value, old: &Value) -> ErrorList {
        match self.validate_update {
            Some(check) => check(new, old),
            None => (self.validate)(new),
        }
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        keep_all_but_status(new, old);
        for key in self.status_keeps {
            restore(new, old, &["metadata", key]);
        }
        (self.update_status)(new, old);
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> ErrorList {
        (self.validate_status)(new, old)
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        (self.warn)(new, old)
    }

    fn part_warnings(&self, subresource: &str, new: &Value, _old: &Value) -> Vec<String> {
        match subresource {
            "status" => (self.warn_status)(new),
            _ => Vec::new(),
        }
    }

    fn garbage_collection(&self) -> GarbageCollection {
        self.dependents
    }

    fn unsaid_propagation(&self) -> Option<&'static str> {
        self.unsaid_propagation
    }

    fn wire_annotations(&self) -> &'static [&'static str] {
        self.wire_annotations
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        match (subresource, self.status) {
            ("status", _) => self.status_resets,
            (_, Some(_)) => &["status"],
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn a_status_is_cleared_on_create_and_kept_on_update() {
        let mut v = json!({"metadata": {}, "spec": {}, "status": {"x": 1}});
        WORKLOAD.prepare_create(&mut v);
        assert_eq!(v, json!({"metadata": {"generation": 1}, "spec": {}, "status": {}}));
        let mut new = json!({"metadata": {"generation": 1}, "spec": {"a": 1}, "status": {"x": 1}});
        WORKLOAD.prepare_update(&mut new, &v);
        assert_eq!(
            new,
            json!({"metadata": {"generation": 2}, "spec": {"a": 1}, "status": {}})
        );
    }
}
