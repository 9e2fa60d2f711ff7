//! Events: core/v1 checks little, and they go by themselves.

use crate::apimachinery::field::ErrorList;
use crate::apimachinery::value::Value;
use crate::controlplane::validation;
use crate::registry::strategy::{GarbageCollection, NameRule, Strategy};

/// Behaviour of core/v1 events.
pub struct Event {
    /// Seconds an event lives (`--event-ttl`).
    pub ttl_seconds: u64,
}

impl Strategy for Event {
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
