//! Follows the stored FlowSchemas and PriorityLevelConfigurations and updates the classifier of requests.

mod dangling;

use crate::apimachinery::Value;
use crate::client::{Informer, InformerHandle};
use crate::controlplane::ControlPlane;
use crate::flowcontrol::FlowSchemas;
use crate::tasks::{Signal, TaskGroup};
use crate::telemetry::Telemetry;
use dangling::Dangling;
use std::sync::Arc;
use tokio::sync::Notify;

const GROUP: &str = "flowcontrol.apiserver.k8s.io";

/// The classifier, and the informers that update it.
pub struct FlowControlConfig {
    /// Classifies requests.
    pub schemas: Arc<FlowSchemas>,
    /// Fire when all stored schemas and levels have been read.
    pub synced: [Signal; 2],
    /// Must be started for updates to arrive.
    pub consumer: Consumer,
}

/// The informers, and the writer of the `Dangling` conditions.
pub struct Consumer {
    feeds: [InformerHandle<Value>; 2],
    dangling: Dangling,
}

/// Sets up the informers. Nothing is read before the consumer is started.
pub fn follow(plane: &ControlPlane, telemetry: &Telemetry) -> FlowControlConfig {
    let flows = Arc::new(FlowSchemas::new().with_counter(telemetry.dispatched.clone()));
    let informer = |plural| {
        let storage = plane.store(GROUP, plural).storage().clone();
        Informer::new(storage, crate::storage::Entry::decode)
    };
    let (schemas, feed_schemas) = informer("flowschemas");
    let (levels, feed_levels) = informer("prioritylevelconfigurations");
    let changed = Arc::new(Notify::new());
    for trigger in [&schemas, &levels] {
        let (flows, schemas, levels) = (flows.clone(), schemas.clone(), levels.clone());
        let changed = changed.clone();
        trigger.subscribe(move |_| {
            let (s, l) = (schemas.snapshot(), levels.snapshot());
            flows.replace(s.values().map(|v| &**v), l.values().map(|v| &**v));
            changed.notify_one();
        });
    }
    FlowControlConfig {
        schemas: flows,
        synced: [&schemas, &levels].map(|i| i.synced().clone()),
        consumer: Consumer {
            feeds: [feed_schemas, feed_levels],
            dangling: Dangling {
                store: plane.store(GROUP, "flowschemas").clone(),
                schemas,
                levels,
                changed,
            },
        },
    }
}

impl Consumer {
    /// Runs the consumer in `tasks`, until the group stops.
    pub fn start(self, tasks: &TaskGroup) {
        let [schemas, levels] = self.feeds;
        tasks.spawn_until_stopped("flow schemas", schemas.run());
        tasks.spawn_until_stopped("priority levels", levels.run());
        tasks.spawn_until_stopped("flow schema conditions", self.dangling.run());
    }
}
