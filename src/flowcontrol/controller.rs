//! [`FlowController`]: classifies a request, estimates its work, and gives it a place in its level
//! ([`enter`](FlowController::enter)); takes the configuration ([`digest`](FlowController::digest)), and moves seats
//! between levels ([`run`](FlowController::run)) (upstream's `apf_controller.go`).
//!
//! Requests read a snapshot of the classified schemas. The lock over the levels is taken by changes of the
//! configuration, adjustments, dumps and scrapes only.

mod spec;

use super::classify::{FlowSchema, classify, flow_hash, uid};
use super::clock::Clock;
use super::housekeeping::Housekeeping;
use super::level::{Level, Permit, TooMany};
use super::metrics::{Families, Gauges, LevelReading};
use super::seats::{self, Demand, LevelDemand, Limits};
use super::utilization::Utilization;
use super::watch_tracker::{Registered, WatchTracker};
use super::work_estimate::{ObjectCounts, Surroundings, estimate, is_write};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::Value;
use crate::request::{RequestInfo, UserInfo};
use crate::telemetry::Telemetry;
use arc_swap::ArcSwap;
use http::HeaderValue;
use spec::LevelSpec;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// The objects that apply even if nobody has created them.
#[derive(Clone, Debug, Default)]
pub struct Mandatory {
    /// The FlowSchemas `exempt` and `catch-all`.
    pub schemas: Vec<Value>,
    /// The PriorityLevelConfigurations of the same names.
    pub levels: Vec<Value>,
}

/// Priority and fairness.
pub struct FlowController {
    server_limit: u32,
    mandatory: Mandatory,
    objects: Box<dyn ObjectCounts>,
    clock: Clock,
    housekeeping: Arc<Housekeeping>,
    families: Arc<Families>,
    gauges: Gauges,
    watches: WatchTracker,
    schemas: ArcSwap<Vec<FlowSchema>>,
    levels: Mutex<Vec<ManagedLevel>>,
}

/// A level with what is needed to configure it.
pub(super) struct ManagedLevel {
    pub level: Arc<Level>,
    spec: LevelSpec,
    limits: Limits,
    demand: Demand,
    target: f64,
    current: u32,
    /// The object was deleted while the level had requests; it goes when they are done.
    pub quiescing: bool,
}

/// The result of [`FlowController::enter`].
pub struct Entered {
    /// UID of the flow schema.
    pub schema_uid: HeaderValue,
    /// UID of the priority level.
    pub level_uid: HeaderValue,
    /// Hash of the flow, for sharing resources other than seats.
    pub flow: u64,
    /// The place of the request.
    pub admission: Result<Permit, TooMany>,
}

impl FlowController {
    /// A controller of `server_limit` seats that knows the mandatory objects only.
    pub fn new(
        server_limit: u32,
        mandatory: Mandatory,
        objects: impl ObjectCounts + 'static,
        telemetry: &Telemetry,
    ) -> Arc<Self> {
        let controller = Arc::new(Self {
            server_limit,
            mandatory,
            objects: Box::new(objects),
            clock: Clock::start(),
            housekeeping: Arc::default(),
            families: Families::register(telemetry),
            gauges: Gauges::register(telemetry),
            watches: WatchTracker::default(),
            schemas: ArcSwap::default(),
            levels: Mutex::default(),
        });
        controller.digest([], []);
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
        let flow = flow_hash(&schema.name, distinguisher);
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
            schema_uid: schema.uid.clone(),
            level_uid: schema.level_uid.clone(),
            flow,
            admission: schema.level.start(work, flow, schema.account, user, info),
        }
    }

    /// Counts an open watch until the result is dropped.
    pub fn register_watch(&self, info: &RequestInfo, query: &str) -> Option<Registered> {
        self.watches.register(info, query)
    }

    /// Takes all FlowSchemas and PriorityLevelConfigurations. Levels that cannot be used are ignored, and schemas whose
    /// level does not exist, too. Missing mandatory objects are imagined, with empty UIDs.
    pub fn digest<'a>(
        &self,
        schemas: impl IntoIterator<Item = &'a Value>,
        levels: impl IntoIterator<Item = &'a Value>,
    ) {
        let mut levels: Vec<&Value> = levels.into_iter().filter(|l| LevelSpec::parse(l).is_some()).collect();
        add_missing(&mut levels, &self.mandatory.levels);
        let mut managed = self.lock();
        let mut before: HashMap<Arc<str>, ManagedLevel> =
            managed.drain(..).map(|m| (m.level.name().clone(), m)).collect();
        let mut uids: HashMap<&str, (Arc<Level>, HeaderValue)> = HashMap::new();
        for object in levels {
            let Some(spec) = LevelSpec::parse(object) else { continue };
            let kept = before.remove(object.name());
            let level = match kept {
                Some(kept) => ManagedLevel {
                    spec,
                    quiescing: false,
                    ..kept
                },
                None => self.new_level(object.name(), spec),
            };
            uids.insert(object.name(), (level.level.clone(), uid(object)));
            managed.push(level);
        }
        let busy = before.into_values().filter(|m| !m.level.is_idle());
        managed.extend(busy.map(|m| ManagedLevel { quiescing: true, ..m }));
        self.divide(&mut managed);
        let mut objects: Vec<&Value> = schemas.into_iter().collect();
        add_missing(&mut objects, &self.mandatory.schemas);
        let of = |object: &&Value| {
            let name = object.str_at(&["spec", "priorityLevelConfiguration", "name"]);
            let (level, uid) = uids.get(name)?;
            Some(FlowSchema::parse(object, level.clone(), uid.clone()))
        };
        let mut parsed: Vec<FlowSchema> = objects.iter().filter_map(of).collect();
        parsed.sort_by(|a, b| a.order().cmp(&b.order()));
        // After the levels, so that a request finds its level configured.
        self.schemas.store(Arc::new(parsed));
    }

    fn new_level(&self, name: &str, spec: LevelSpec) -> ManagedLevel {
        let (housekeeping, families) = (self.housekeeping.clone(), self.families.clone());
        let level = Level::new(
            name.into(),
            self.clock,
            housekeeping,
            families,
            spec.queuing,
            self.server_limit / 10,
        );
        ManagedLevel {
            level: Arc::new(level),
            spec,
            limits: Limits::default(),
            demand: Demand::default(),
            target: 0.0,
            current: 0,
            quiescing: false,
        }
    }

    /// Divides the server's seats by shares, after a change of the configuration.
    fn divide(&self, levels: &mut [ManagedLevel]) {
        let shares: Vec<_> = levels.iter().map(|m| m.spec.shares).collect();
        for (m, limits) in levels.iter_mut().zip(seats::limits(self.server_limit, &shares)) {
            if m.limits == Limits::default() {
                m.current = limits.initial();
            }
            m.limits = limits;
        }
        self.adjust(levels);
    }

    /// Moves seats between levels by their demand. Call once per [`seats::PERIOD`].
    pub fn rebalance(&self) {
        let mut levels = self.lock();
        levels.retain(|m| !m.quiescing || !m.level.is_idle());
        self.adjust(&mut levels);
    }

    fn adjust(&self, levels: &mut [ManagedLevel]) {
        for m in levels.iter_mut() {
            m.demand.update(m.level.reset_demand());
        }
        let input: Vec<_> = levels
            .iter()
            .map(|m| LevelDemand {
                limits: m.limits,
                demand: m.demand,
                current: m.current,
                exempt: m.spec.shares.exempt,
            })
            .collect();
        let balance = seats::rebalance(&input);
        self.gauges.set_fair_fraction(balance.fair_fraction);
        for (m, (current, target)) in levels.iter_mut().zip(balance.levels) {
            (m.current, m.target) = (current, target);
            let max_seats = m.spec.hand_size.map(|hand| m.limits.max_seats(hand));
            m.level.configure(m.spec.queuing, current, max_seats);
        }
    }

    /// Adjusts the limits periodically, and serves levels whose seats become free by themselves. Never ends.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn run(self: Arc<Self>) {
        let mut balance_at = self.clock.now() + seats::PERIOD;
        loop {
            self.housekeeping.looking();
            let next = self.lock().iter().filter_map(|m| m.level.next_event()).min();
            let wake_at = next.map_or(balance_at, |at| at.min(balance_at));
            self.housekeeping.sleeping_until(wake_at);
            // Both lead to the same checks, so the order does not matter.
            tokio::select! {
                () = tokio::time::sleep_until(self.clock.instant(wake_at)) => {}
                () = self.housekeeping.needed_sooner() => {}
            }
            let now = self.clock.now();
            if now >= balance_at {
                self.rebalance();
                balance_at = now + seats::PERIOD;
            }
            let levels: Vec<Arc<Level>> = self.lock().iter().map(|m| m.level.clone()).collect();
            let due = |level: &&Arc<Level>| level.next_event().is_some_and(|at| at <= now);
            levels.iter().filter(due).for_each(|level| level.advance());
        }
    }

    /// The levels, by name.
    pub(super) fn inspect<R>(&self, look: impl FnOnce(&mut [ManagedLevel]) -> R) -> R {
        let mut levels = self.lock();
        levels.sort_by(|a, b| a.level.name().cmp(b.level.name()));
        look(&mut levels)
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The distinguisher of a request in a dump.
    pub(super) fn distinguisher(&self, schema: &str, user: &UserInfo, info: &RequestInfo) -> String {
        let schemas = self.schemas.load();
        let found = schemas.iter().find(|s| &*s.name == schema);
        found.map_or("", |s| s.distinguisher(user, info)).to_owned()
    }

    fn show(&self) {
        self.gauges.reset();
        for m in self.lock().iter() {
            m.level.inspect(|set, schemas| {
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
        self.levels.lock().expect("no code panics while holding this lock")
    }
}

fn add_missing<'a>(objects: &mut Vec<&'a Value>, mandatory: &'a [Value]) {
    for object in mandatory {
        if !objects.iter().any(|o| o.name() == object.name()) {
            objects.push(object);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
