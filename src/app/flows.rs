//! Priority and fairness of the gateway: the controller follows the stored FlowSchemas and
//! PriorityLevelConfigurations, reads object counts and sizes for its estimates, and serves the debug dumps.

mod dangling;
mod stored;

use crate::apimachinery::Value;
use crate::apimachinery::codec::json::projection::Mask;
use crate::cli::options::GenericOptions;
use crate::client::{Informer, InformerHandle};
use crate::controlplane::ControlPlane;
use crate::controlplane::bootstrap::flowcontrol;
use crate::flowcontrol::dump::{self, Dump};
use crate::flowcontrol::{FlowController, IndexedSchema, Mandatory};
use crate::registry::StoreLookup;
use crate::request::info::first_value;
use crate::request::{Authorized, Request, Response, UnprotectedHandler};
use crate::server::generic::GenericServer;
use crate::server::respond;
use crate::storage::Entry;
use crate::sync::Mutex;
use crate::tasks::{Signal, TaskGroup, compute};
use crate::telemetry::Telemetry;
use async_trait::async_trait;
use dangling::Dangling;
use http::StatusCode;
use std::sync::{Arc, LazyLock};
use stored::Stored;
use tokio::sync::Notify;

const GROUP: &str = "flowcontrol.apiserver.k8s.io";

/// The controller, and the informers that configure it.
pub(crate) struct FlowControl {
    controller: Arc<FlowController>,
    /// Fire when all stored schemas and levels have been read.
    pub synced: [Signal; 2],
    consumer: Consumer,
}

/// The informers and the writer of the `Dangling` conditions.
struct Consumer {
    schemas: InformerHandle<IndexedSchema>,
    levels: InformerHandle<Value>,
    dangling: Dangling,
}

/// Sets up the controller. Nothing is read before the consumer is started. `None` if priority and fairness is
/// disabled.
pub(crate) fn follow(
    plane: &ControlPlane,
    options: &GenericOptions,
    lookup: &StoreLookup,
    telemetry: &Telemetry,
) -> Option<FlowControl> {
    if !options.priority_and_fairness {
        return None;
    }
    // With priority and fairness, only the sum of the two flags counts (upstream's `ServerConcurrencyLimit`).
    let seats = options.max_requests_in_flight + options.max_mutating_requests_in_flight;
    let [mandatory_schemas, mandatory_levels] = flowcontrol::mandatory();
    let mandatory = Mandatory {
        schemas: mandatory_schemas,
        levels: mandatory_levels,
    };
    let seats = u32::try_from(seats).unwrap_or(u32::MAX);
    let controller = FlowController::new(seats, mandatory, Stored(lookup.clone()), telemetry);
    let storage = |plural| plane.store(GROUP, plural).storage().clone();
    let (schemas, feed_schemas) = Informer::new(storage("flowschemas"), read_schema);
    let (levels, feed_levels) = Informer::new(storage("prioritylevelconfigurations"), read_level);
    let changed = digest_changes(&controller, &schemas, &levels);
    Some(FlowControl {
        synced: [schemas.synced().clone(), levels.synced().clone()],
        consumer: Consumer {
            // A change of a small object, too, digests all, of which there may be thousands, and waits for its turn.
            schemas: feed_schemas.blocking_while(|| true),
            levels: feed_levels.blocking_while(|| true),
            dangling: Dangling {
                store: plane.store(GROUP, "flowschemas").clone(),
                schemas,
                levels,
                changed,
            },
        },
        controller,
    })
}

/// Makes changes of stored objects take effect. The result is notified after each.
fn digest_changes(
    controller: &Arc<FlowController>,
    schemas: &Informer<IndexedSchema>,
    levels: &Informer<Value>,
) -> Arc<Notify> {
    let changed = Arc::new(Notify::new());
    let digest = {
        let (controller, schemas, levels) = (controller.clone(), schemas.clone(), levels.clone());
        let changed = changed.clone();
        // What is read last has to be digested last. Both informers report on the blocking pool.
        let in_turn = Mutex::new(());
        move || {
            let _turn = in_turn.lock();
            // Both, whichever has changed: a schema is only usable together with its level.
            let (s, l) = (schemas.snapshot(), levels.snapshot());
            controller.digest_indexed(s.values().cloned().collect(), l.values().map(|v| &**v));
            changed.notify_one();
        }
    };
    let digest = Arc::new(digest);
    let of_schemas = digest.clone();
    schemas.subscribe(move |_| of_schemas());
    levels.subscribe(move |_| digest());
    changed
}

/// Reads what the controller and the writer of conditions need. The memory of a tree is several times that of its
/// encoding, and labels or managed fields may have megabytes, too.
fn read_schema(entry: &Entry) -> IndexedSchema {
    static PARTS: LazyLock<Mask> = LazyLock::new(|| Mask::of(&["metadata.{name,uid}", "spec", "status.conditions"]));
    IndexedSchema::of(entry.decode_parts(&PARTS))
}

/// As [`read_schema`], of a priority level.
fn read_level(entry: &Entry) -> Value {
    static PARTS: LazyLock<Mask> = LazyLock::new(|| Mask::of(&["metadata.{name,uid}", "spec"]));
    entry.decode_parts(&PARTS)
}

impl FlowControl {
    /// Adds the hooks that start the consumer and the controller, and serves the debug dumps. Returns the
    /// controller, for the filter chain.
    pub(crate) fn install(self, server: &mut GenericServer) -> Arc<FlowController> {
        let (consumer, controller) = (self.consumer, self.controller.clone());
        server.add_post_start_hook("priority-and-fairness-config-consumer", move |cx| async move {
            consumer.start(&cx.tasks);
            Ok(())
        });
        server.add_post_start_hook("priority-and-fairness-filter", move |cx| async move {
            cx.tasks
                .spawn_until_stopped("seats of priority levels", controller.run());
            Ok(())
        });
        serve_dumps(server, &self.controller);
        self.controller
    }
}

impl Consumer {
    /// Runs the consumer in `tasks`, until the group stops.
    fn start(self, tasks: &TaskGroup) {
        tasks.spawn_until_stopped("flow schemas", self.schemas.run());
        tasks.spawn_until_stopped("priority levels", self.levels.run());
        tasks.spawn_until_stopped("flow schema conditions", self.dangling.run());
    }
}

fn serve_dumps(server: &GenericServer, controller: &Arc<FlowController>) {
    for name in ["dump_priority_levels", "dump_queues", "dump_requests"] {
        let handler = DumpHandler {
            controller: controller.clone(),
            name,
        };
        let path = format!("{}{name}", dump::PATH);
        server.mux().unlisted_handle(path, Arc::new(handler));
    }
}

struct DumpHandler {
    controller: Arc<FlowController>,
    name: &'static str,
}

#[async_trait]
impl UnprotectedHandler for DumpHandler {
    async fn serve(self: Arc<Self>, req: Request, _: Authorized) -> Response {
        /// Estimated memory of a dump of some thousand requests.
        const MEMORY: usize = 4 << 20;
        let query = req.uri().query().unwrap_or("");
        let details = first_value(query, "includeRequestDetails").is_some_and(|value| !value.is_empty());
        let dump = match self.name {
            "dump_priority_levels" => Dump::Levels,
            "dump_queues" => Dump::Queues,
            _ => Dump::Requests(details),
        };
        // Formatting thousands of requests would block a reactor.
        match compute::offload(MEMORY, async move { self.controller.dump(dump) }).await {
            Ok(text) => respond::bytes(StatusCode::OK, respond::TEXT, text),
            Err(_) => respond::error_text(StatusCode::SERVICE_UNAVAILABLE, "the compute pool is full"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use crate::storage::{Draft, Revision};

    #[test]
    fn only_what_is_read_of_an_object_is_kept() {
        let object = json!({
            "metadata": {"name": "a", "uid": "u", "labels": {"a": "b"}, "managedFields": [{"manager": "m"}]},
            "spec": {"matchingPrecedence": 1, "rules": [{"subjects": []}]},
            "status": {"conditions": [{"type": "Dangling"}], "other": 1}
        });
        let entry = Draft::new(&object, Vec::new()).into_entry("a", Revision(1));
        let mut kept = json!({
            "metadata": {"name": "a", "uid": "u"},
            "spec": {"matchingPrecedence": 1},
            "status": {"conditions": [{"type": "Dangling"}]}
        });
        assert_eq!(read_schema(&entry).object, kept);
        kept.unset(&["status"]);
        kept.set(&["spec", "rules"], object.at(&["spec", "rules"]).clone());
        assert_eq!(read_level(&entry), kept);
    }
}
