//! Keeps the classification of requests true to the stored FlowSchemas and PriorityLevelConfigurations.

use crate::apimachinery::Value;
use crate::client::{Informer, InformerHandle};
use crate::controlplane::ControlPlane;
use crate::flowcontrol::FlowSchemas;
use crate::tasks::Signal;
use std::sync::Arc;

const GROUP: &str = "flowcontrol.apiserver.k8s.io";

/// The schemas, the informers that feed them (to be driven by one task each), and when those have seen everything.
pub fn follow(plane: &ControlPlane) -> (Arc<FlowSchemas>, [InformerHandle<Value>; 2], [Signal; 2]) {
    let flows = Arc::new(FlowSchemas::new());
    let informer = |plural| {
        let storage = plane.store(GROUP, plural).storage().clone();
        Informer::new(storage, crate::storage::Entry::decode)
    };
    let (schemas, feed_schemas) = informer("flowschemas");
    let (levels, feed_levels) = informer("prioritylevelconfigurations");
    for trigger in [&schemas, &levels] {
        let (flows, schemas, levels) = (flows.clone(), schemas.clone(), levels.clone());
        trigger.subscribe(move |_| {
            let (s, l) = (schemas.snapshot(), levels.snapshot());
            flows.replace(s.values().map(|v| &**v), l.values().map(|v| &**v));
        });
    }
    let synced = [&schemas, &levels].map(|i| i.synced().clone());
    (flows, [feed_schemas, feed_levels], synced)
}
