//! events.k8s.io/v1, converted to and from the stored core/v1 Events.

use super::core;
use crate::controlplane::resource_builder::GroupVersionBuilder;
use crate::controlplane::strategies::events::{CoreEvent, NewEvent};
use crate::controlplane::versions::EVENTS;
use crate::registry::resource::Resource;
use std::sync::Arc;

const V1: GroupVersionBuilder = GroupVersionBuilder {
    group: "events.k8s.io",
    version: "v1",
};

/// The resources of the group.
pub(crate) fn rows(event_ttl_seconds: u64) -> Vec<Resource> {
    let hub = core::events(event_ttl_seconds);
    let strategy = Arc::new(NewEvent(CoreEvent {
        ttl_seconds: event_ttl_seconds,
    }));
    vec![
        V1.kind("events", "Event")
            .converted_from(&hub, &EVENTS, strategy, |_| ())
            .build(),
    ]
}
