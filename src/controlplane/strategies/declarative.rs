//! Strategies as data, for kinds that differ only in defaults, validation and generation handling.
//!
//! Start at [`DeclarativeStrategy`]; constants for single kinds extend [`BASE`] or [`WITH_SPEC_AND_STATUS`].
//! Kinds that need state or async steps implement `Strategy` themselves.

use super::common::{bump_generation, first_generation, keep_all_but_status};
use super::disabled_fields::drop_disabled;
use crate::apimachinery::field::ErrorList;
use crate::apimachinery::object::restore;
use crate::apimachinery::value::Value;
use crate::registry::strategy::{Rules, Strategy};

/// A strategy assembled from functions and constants. Start from [`BASE`] and override what the kind needs.
#[derive(Clone, Copy)]
pub(crate) struct DeclarativeStrategy {
    /// Applies defaults to a decoded object.
    pub default: fn(&mut Value),
    /// Prepares a create, after generation and status have been set.
    pub prepare_create: fn(&mut Value),
    /// Prepares an update, after the status has been restored and before the generation is compared.
    pub prepare_update: fn(&mut Value, &Value),
    /// Prepares a status update, after everything but the status has been restored.
    pub prepare_status_update: fn(&mut Value, &Value),
    /// Validates a new object.
    pub validate: fn(&Value) -> ErrorList,
    /// Validates an update; `None` validates the new object as on create.
    pub validate_update: Option<fn(&Value, &Value) -> ErrorList>,
    /// Validates a status update.
    pub validate_status: fn(&Value, &Value) -> ErrorList,
    /// Warnings of a create or update.
    pub warn: fn(&Value, Option<&Value>) -> Vec<String>,
    /// Warnings of a status update.
    pub warn_status: fn(&Value) -> Vec<String>,
    /// Top-level members whose change increments the generation; empty if the kind has no generation.
    pub generation: &'static [&'static str],
    /// The path of the spec of its pods; empty if the kind has no pod template.
    pub pod_spec: &'static [&'static str],
    /// Makes the status of a new object; `None` if the kind has no status.
    pub status: Option<fn() -> Value>,
    /// Metadata members that a status update cannot change.
    pub status_preserved_metadata: &'static [&'static str],
    /// Paths excluded from field ownership in status updates.
    pub status_reset_fields: &'static [&'static str],
    /// The constants of the kind.
    pub rules: Rules,
}

fn no_errors(_: &Value) -> ErrorList {
    ErrorList::new()
}

fn no_changes(_: &Value, _: &Value) -> ErrorList {
    ErrorList::new()
}

/// The base of all kinds: no defaults, no validation, no generation, no status.
pub(crate) const BASE: DeclarativeStrategy = DeclarativeStrategy {
    default: |_| {},
    prepare_create: |_| {},
    prepare_update: |_, _| {},
    prepare_status_update: |_, _| {},
    validate: no_errors,
    validate_update: None,
    validate_status: no_changes,
    warn: |_, _| Vec::new(),
    warn_status: |_| Vec::new(),
    generation: &[],
    pod_spec: &[],
    status: None,
    status_preserved_metadata: &[],
    status_reset_fields: &["spec"],
    rules: Rules::DEFAULT,
};

/// The base of kinds with a spec, a generation and a status.
pub(crate) const WITH_SPEC_AND_STATUS: DeclarativeStrategy = DeclarativeStrategy {
    generation: &["spec"],
    status: Some(Value::object),
    ..BASE
};

impl Strategy for DeclarativeStrategy {
    fn rules(&self) -> Rules {
        self.rules
    }

    fn default(&self, object: &mut Value) {
        (self.default)(object);
    }

    fn prepare_create(&self, object: &mut Value) {
        drop_disabled(object, self.pod_spec);
        if !self.generation.is_empty() {
            first_generation(object);
        }
        if let Some(status) = self.status {
            object.set(&["status"], status());
        }
        // Last, so that a kind can complete the initial status.
        (self.prepare_create)(object);
    }

    fn validate_create(&self, object: &Value) -> ErrorList {
        (self.validate)(object)
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        // Before the specs are compared for the generation.
        drop_disabled(new, self.pod_spec);
        if self.status.is_some() {
            restore(new, old, &["status"]);
        }
        // Before the generation: what a kind restores or drops must not count as a change.
        (self.prepare_update)(new, old);
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
        for key in self.status_preserved_metadata {
            restore(new, old, &["metadata", key]);
        }
        (self.prepare_status_update)(new, old);
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> ErrorList {
        (self.validate_status)(new, old)
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        (self.warn)(new, old)
    }

    fn subresource_warnings(&self, subresource: &str, new: &Value, _old: &Value) -> Vec<String> {
        match subresource {
            "status" => (self.warn_status)(new),
            _ => Vec::new(),
        }
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        match (subresource, self.status) {
            ("status", _) => self.status_reset_fields,
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
    fn status_is_cleared_on_create_and_kept_on_update() {
        let mut v = json!({"metadata": {}, "spec": {}, "status": {"x": 1}});
        WITH_SPEC_AND_STATUS.prepare_create(&mut v);
        assert_eq!(v, json!({"metadata": {"generation": 1}, "spec": {}, "status": {}}));
        let mut new = json!({"metadata": {"generation": 1}, "spec": {"a": 1}, "status": {"x": 1}});
        WITH_SPEC_AND_STATUS.prepare_update(&mut new, &v);
        assert_eq!(
            new,
            json!({"metadata": {"generation": 2}, "spec": {"a": 1}, "status": {}})
        );
    }
}
