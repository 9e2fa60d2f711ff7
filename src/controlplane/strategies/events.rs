//! Strategies of events. core/v1 validates little; events.k8s.io/v1 allows few changes. Both expire after a
//! TTL.

use crate::apimachinery::field::ErrorList;
use crate::apimachinery::value::Value;
use crate::controlplane::validation;
use crate::registry::strategy::{GarbageCollection, NameRule, Rules, Strategy};

/// Strategy of events written through core/v1.
pub(crate) struct CoreEvent {
    /// Lifetime of an event in seconds (`--event-ttl`).
    pub ttl_seconds: u64,
}

impl Strategy for CoreEvent {
    fn rules(&self) -> Rules {
        Rules {
            names: NameRule::PathSegment,
            garbage_collection: GarbageCollection::Unsupported,
            ttl_seconds: Some(self.ttl_seconds),
            ..Rules::DEFAULT
        }
    }

    fn validate_create(&self, object: &Value) -> ErrorList {
        validation::events::core_event(object)
    }
}

/// Strategy of events written through events.k8s.io/v1. The object is already converted to core/v1.
pub(crate) struct NewEvent(pub CoreEvent);

impl Strategy for NewEvent {
    fn rules(&self) -> Rules {
        Rules {
            names: NameRule::Subdomain,
            ..self.0.rules()
        }
    }

    fn validate_create(&self, object: &Value) -> ErrorList {
        validation::events::new_event(object)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> ErrorList {
        validation::events::new_event_update(new, old)
    }
}
