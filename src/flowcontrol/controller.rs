//! [`FlowController`]: classifies a request, estimates its work, and gives it a place in its level
//! ([`enter`](FlowController::enter)); takes the configuration ([`digest`](FlowController::digest)), and
//! moves seats between levels ([`run`](FlowController::run)) (upstream's `apf_controller.go`).
//!
//! Requests read a snapshot of the classified schemas. The lock over the levels is taken by changes of the
//! configuration, adjustments, dumps and scrapes only.

mod configuration;
mod spec;

use super::classify::{FlowSchema, IndexedSchema, Uids, classify};
use super::clock::Clock;
use super::level::{Level, Permit, Shared, TooMany};
use super::metrics::{Gauges, LevelReading, Series};
use super::seats;
use super::utilization::Utilization;
use super::watch_tracker::{Registered, WatchTracker};
use super::work_estimate::{ObjectCounts, Surroundings, estimate, is_write};
use crate::apimachinery::value::Value;
use crate::request::{RequestInfo, UserInfo};
use crate::sync::{Mutex, MutexGuard};
use crate::tasks::off_thread;
use crate::telemetry::Telemetry;
use arc_swap::ArcSwap;
use configuration::ManagedLevel;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

/// Levels whose limits are adjusted within some 100 µs.
const FEW_LEVELS: usize = 64;

/// The objects that apply even if they are not stored (upstream's `pkg/apis/flowcontrol/bootstrap`).
#[derive(Clone, Debug, Default)]
pub struct Mandatory {
    /// The FlowSchemas `exempt` and `catch-all`.
    pub schemas: Vec<Value>,
    /// The PriorityLevelConfigurations of the same names.
    pub levels: Vec<Value>,
}

/// Priority and fairness: the classified schemas, the levels with their seats, and their metrics.
pub struct FlowController {
    server_limit: u32,
    mandatory_schemas: Vec<Arc<IndexedSchema>>,
    mandatory_levels: Vec<Value>,
    objects: Box<dyn ObjectCounts>,
    shared: Arc<Shared>,
    gauges: Gauges,
    watches: WatchTracker,
    schemas: ArcSwap<Vec<FlowSchema>>,
    /// Keys the hashes of flows. Upstream's SHA-256 has no key, so a caller who may choose a name (of a namespace, of a
    /// service account) can search for one that is dealt the queues of somebody else's flow, and fill them.
    flow_key: RandomState,
    levels: Mutex<Vec<ManagedLevel>>,
    /// Held by a change of the configuration, which takes the lock of the levels for a part of its time only.
    changes: Mutex<()>,
}

/// The result of [`FlowController::enter`].
pub struct Entered {
    /// The UIDs of the flow schema and the priority level.
    pub uids: Arc<Uids>,
    /// Hash of the flow, for sharing resources other than seats.
    pub flow: u64,
    /// The place of the request.
    pub admission: Result<Permit, TooMany>,
}

impl FlowController {
    /// A controller of `server_limit` seats with the mandatory objects only, until [`digest`](Self::digest).
    pub fn new(
        server_limit: u32,
        mandatory: Mandatory,
        objects: impl ObjectCounts + 'static,
        telemetry: &Telemetry,
    ) -> Arc<Self> {
        let index = |object| Arc::new(IndexedSchema::of(object));
        let controller = Arc::new(Self {
            server_limit,
            mandatory_schemas: mandatory.schemas.into_iter().map(index).collect(),
            mandatory_levels: mandatory.levels,
            objects: Box::new(objects),
            shared: Shared::new(server_limit, telemetry),
            gauges: Gauges::register(telemetry),
            watches: WatchTracker::default(),
            schemas: ArcSwap::default(),
            flow_key: RandomState::new(),
            levels: Mutex::default(),
            changes: Mutex::default(),
        });
        // Requests may arrive before the first list of the objects: the catch-all schema must exist by then.
        controller.digest([], []);
        // A strong reference in the callback would keep the controller alive as long as the registry.
        let weak = Arc::downgrade(&controller);
        telemetry.before_scrape(move || {
            if let Some(controller) = weak.upgrade() {
                controller.show();
            }
        });
        controller
    }

    /// Gives a request a place. `query` is its raw query string.
    pub fn enter(&self, user: &Arc<UserInfo>, info: &Arc<RequestInfo>, query: &str) -> Entered {
        let schemas = self.schemas.load();
        let schema = classify(&schemas, user, info);
        // Exempt requests have no flows to keep apart in queues, but they compute, too.
        let distinguisher = match schema.level.is_exempt() {
            true => &user.name,
            false => schema.distinguisher(user, info),
        };
        let flow = self.flow_key.hash_one((&*schema.name, distinguisher));
        // Counting watches takes the tracker's lock, which reads need not contend for.
        let writes = is_write(info);
        let watches = if writes { self.watches.interested(info) } else { 0 };
        let around = Surroundings {
            objects: &*self.objects,
            watches,
            max_seats: schema.level.max_seats(),
            consistent_reads_from_cache: true,
        };
        let work = estimate(info, query, &around);
        if watches > 0 {
            schema.level.note_watches(schema.account, watches);
        }
        Entered {
            uids: schema.uids.clone(),
            flow,
            admission: schema.level.start(work, flow, schema.account, user, info),
        }
    }

    /// Counts an open watch until the result is dropped.
    pub fn register_watch(&self, info: &RequestInfo, query: &str) -> Option<Registered> {
        self.watches.register(info, query)
    }

    /// Adjusts the limits periodically, and serves levels whose seats become free by themselves. Never ends.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn run(self: Arc<Self>) {
        let mut balance_at = self.shared.clock.now() + seats::PERIOD;
        loop {
            // Before the levels are read: an event that appears after its level was read must cause a notification.
            self.shared.housekeeping.looking();
            let next = self.lock().iter().filter_map(|m| m.level.next_event()).min();
            let wake_at = next.map_or(balance_at, |at| at.min(balance_at));
            self.shared.housekeeping.sleeping_until(wake_at);
            // Both lead to the same checks, so the order does not matter.
            tokio::select! {
                () = tokio::time::sleep_until(self.shared.clock.instant(wake_at)) => {}
                () = self.shared.housekeeping.needed_sooner() => {}
            }
            let now = self.shared.clock.now();
            if now >= balance_at {
                self.clone().rebalance_in_time().await;
                balance_at = now + seats::PERIOD;
            }
            // Cloned, so that waking requests does not happen under the lock over the levels.
            let levels: Vec<Arc<Level>> = self.lock().iter().map(|m| m.level.clone()).collect();
            let due = |level: &&Arc<Level>| level.next_event().is_some_and(|at| at <= now);
            levels.iter().filter(due).for_each(|level| level.advance());
        }
    }

    /// Adjusts the limits, off the reactor if there are many levels.
    async fn rebalance_in_time(self: Arc<Self>) {
        let levels = self.lock().len();
        if levels <= FEW_LEVELS {
            self.rebalance();
        } else {
            off_thread(0, move || self.rebalance()).await;
        }
    }

    /// The levels, by name.
    pub(super) fn inspect<R>(&self, look: impl FnOnce(&mut [ManagedLevel]) -> R) -> R {
        let mut levels = self.lock();
        // In place: the order of the levels has no meaning, and an almost sorted list is cheap to sort.
        levels.sort_by(|a, b| a.level.name().cmp(b.level.name()));
        look(&mut levels)
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// The distinguisher of a request in a dump.
    pub(super) fn distinguisher(&self, schema: &str, user: &UserInfo, info: &RequestInfo) -> String {
        let schemas = self.schemas.load();
        let found = schemas.iter().find(|s| &*s.name == schema);
        // The schema may have been deleted since the request was classified.
        found.map_or("", |s| s.distinguisher(user, info)).to_owned()
    }

    fn show(&self) {
        // Deleted levels and schemas must not leave their last values in the exposition.
        self.gauges.reset();
        let requests = &self.shared.by_kind;
        self.gauges.set_read_vs_write(requests, self.shared.clock.now());
        for m in self.lock().iter() {
            m.level.inspect(|set, schemas| {
                // Before the registry gathers: local counts are invisible until they are flushed.
                schemas.iter().for_each(Series::flush);
                self.gauges.set(&LevelReading {
                    name: m.level.name(),
                    limits: m.limits,
                    demand: &m.demand,
                    target: m.target,
                    set,
                    schemas,
                });
            });
            let show =
                |utilization: &mut Utilization, now| self.gauges.set_utilization(m.level.name(), utilization, now);
            m.level.inspect_utilization(show);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ManagedLevel>> {
        self.levels.lock()
    }
}

#[cfg(test)]
pub(crate) mod tests;
