//! Strategies of events. core/v1 validates little; events.k8s.io/v1 allows few changes. Both expire after a TTL.

use crate::apimachinery::field::ErrorList;
use crate::apimachinery::value::Value;
use crate::controlplane::validation;
use crate::registry::strategy::{GarbageCollection, NameRule, Strategy};

/// Strategy of events written through core/v1.
pub struct CoreEvent {
    /// Lifetime of an event in seconds (`--event-ttl`).
    pub ttl_seconds: u64,
}

impl Strategy for CoreEvent {
    fn name_rule(&self) -> NameRule {
        NameRule::PathSegment
    }

    fn validate_create(&self, object: &Value) -> ErrorList {
        validation::events::core_event(object)
    }

    fn garbage_collection(&self) -> GarbageCollection {
        GarbageCollection::Unsupported
    }

    fn ttl_seconds(&self, _object: &Value) -> Option<u64> {
        Some(self.ttl_seconds)
    }
}

/// Strategy of events written through events.k8s.io/v1. The object is already converted to core/v1.
pub struct NewEvent(pub CoreEvent);

impl Strategy for NewEvent {
    fn validate_create(&self, object: &Value) -> ErrorList {
        validation::events::new_event(object)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> ErrorList {
        validation::events::new_event_update(new, old)
    }

    fn garbage_collection(&self) -> GarbageCollection {
        self.0.garbage_collection()
    }

    fn ttl_seconds(&self, object: &Value) -> Option<u64> {
        self.0.ttl_seconds(object)
    }
}
