//! Keeps the classification of requests true to the stored FlowSchemas and PriorityLevelConfigurations.

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

/// What follows the stored objects.
pub struct Flows {
    /// Classifies requests.
    pub schemas: Arc<FlowSchemas>,
    /// Fire when all stored schemas and levels are known.
    pub synced: [Signal; 2],
    /// Feed the rest.
    pub consumer: Consumer,
}

/// What must run for it.
pub struct Consumer {
    feeds: [InformerHandle<Value>; 2],
    dangling: Dangling,
}

/// Follows them; nothing happens before the consumer runs.
pub fn follow(plane: &ControlPlane, telemetry: &Telemetry) -> Flows {
    let flows = Arc::new(FlowSchemas::new().counting(telemetry.dispatched.clone()));
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
    Flows {
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
    /// Starts it in `tasks`; it ends with the group.
    pub fn start(self, tasks: &TaskGroup) {
        let [schemas, levels] = self.feeds;
        tasks.spawn_until_stopped("flow schemas", schemas.run());
        tasks.spawn_until_stopped("priority levels", levels.run());
        tasks.spawn_until_stopped("flow schema conditions", self.dangling.run());
    }
}
