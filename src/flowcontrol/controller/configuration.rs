//! The set of levels and the seats of each: from the stored objects ([`digest`](FlowController::digest)) and
//! from demand ([`rebalance`](FlowController::rebalance)).

use super::FlowController;
use super::spec::LevelSpec;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::Value;
use crate::flowcontrol::classify::{FlowSchema, IndexedSchema, uid};
use crate::flowcontrol::level::Level;
use crate::flowcontrol::seats::{self, Demand, LevelDemand, Limits};
use http::HeaderValue;
use std::collections::HashMap;
use std::sync::Arc;

/// A level with its configuration state.
pub(in crate::flowcontrol) struct ManagedLevel {
    pub level: Arc<Level>,
    spec: LevelSpec,
    pub(super) limits: Limits,
    pub(super) demand: Demand,
    pub(super) target: f64,
    pub(super) current: u32,
    /// The object was deleted while the level had requests; the level is removed when they are done.
    pub quiescing: bool,
}

impl ManagedLevel {
    /// Whether nothing is lost with it: no request is in it, and none can enter it any more. A request that has read
    /// the schemas before they changed holds the level by them, and each request by its permit.
    fn is_disused(&self) -> bool {
        Arc::strong_count(&self.level) == 1 && self.level.is_idle()
    }
}

/// Removes the deleted levels that no request is in or can enter.
fn remove_disused(levels: &mut Vec<ManagedLevel>) {
    levels.retain(|m| !m.quiescing || !m.is_disused());
}

impl FlowController {
    /// Applies all FlowSchemas and PriorityLevelConfigurations. Unusable levels and schemas without a usable
    /// level are ignored. Missing mandatory objects are added, with empty UIDs.
    pub fn digest<'a>(
        &self,
        schemas: impl IntoIterator<Item = &'a Value>,
        levels: impl IntoIterator<Item = &'a Value>,
    ) {
        let index = |object: &Value| Arc::new(IndexedSchema::of(object.clone()));
        self.digest_indexed(schemas.into_iter().map(index).collect(), levels);
    }

    /// Like [`digest`](Self::digest), without reading the rules of the schemas: they may have megabytes, and the
    /// controller's task and scrapes wait for the lock that this takes.
    pub(crate) fn digest_indexed<'a>(
        &self,
        mut schemas: Vec<Arc<IndexedSchema>>,
        levels: impl IntoIterator<Item = &'a Value>,
    ) {
        // Filtered first, so that an unusable `catch-all` object is replaced by the mandatory one.
        let mut levels: Vec<&Value> = levels.into_iter().filter(|l| LevelSpec::parse(l).is_some()).collect();
        add_missing(&mut levels, &self.mandatory_levels, |level| level.name());
        let mandatory = self.mandatory_schemas.iter().cloned();
        add_missing(&mut schemas, mandatory, |schema| schema.object.name());
        // Two concurrent changes must not interleave the levels of one with the schemas of the other.
        let _turn = self.changes.lock();
        let mut managed = self.lock();
        let mut before: HashMap<Arc<str>, ManagedLevel> =
            managed.drain(..).map(|m| (m.level.name().clone(), m)).collect();
        let mut uids: HashMap<&str, (Arc<Level>, HeaderValue)> = HashMap::new();
        for object in levels {
            let Some(spec) = LevelSpec::parse(object) else { continue };
            // A kept level keeps its queues, so its requests survive a change of the configuration.
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
        // As upstream, a deleted level keeps its seats while it drains; otherwise its requests would wait forever.
        let gone = before.into_values().map(|m| ManagedLevel { quiescing: true, ..m });
        let (idle, busy): (Vec<_>, Vec<_>) = gone.partition(|m| m.level.is_idle());
        managed.extend(busy);
        self.divide(&mut managed);
        // A request that has read the previous schemas may still enter an idle level. Without the level here nobody
        // would serve it when its seats become free. It is removed below, or by `rebalance` once no request can enter it.
        managed.extend(idle);
        // Only the levels are changed under their lock: there may be tens of thousands of schemas.
        drop(managed);
        let of = |schema: &Arc<IndexedSchema>| {
            let name = schema.object.str_at(&["spec", "priorityLevelConfiguration", "name"]);
            let (level, uid) = uids.get(name)?;
            Some(FlowSchema::parse(schema, level.clone(), uid.clone()))
        };
        let mut parsed: Vec<FlowSchema> = schemas.iter().filter_map(of).collect();
        parsed.sort_by(|a, b| a.order().cmp(&b.order()));
        // After the levels, so that a request finds its level configured.
        let replaced = self.schemas.swap(Arc::new(parsed));
        // Until then the schemas hold the levels.
        drop(replaced);
        remove_disused(&mut self.lock());
    }

    fn new_level(&self, name: &str, spec: LevelSpec) -> ManagedLevel {
        ManagedLevel {
            level: Arc::new(Level::new(name.into(), &self.shared, spec.queuing)),
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
            // A new level. Existing ones keep their current limit until the adjustment below.
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
        remove_disused(&mut levels);
        self.adjust(&mut levels);
    }

    fn adjust(&self, levels: &mut [ManagedLevel]) {
        for m in levels.iter_mut() {
            // A change of the configuration ends the period early, as upstream's `updateBorrowingLocked`.
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
}

/// Adds the mandatory objects whose names are missing.
fn add_missing<T>(objects: &mut Vec<T>, mandatory: impl IntoIterator<Item = T>, name: fn(&T) -> &str) {
    for object in mandatory {
        if !objects.iter().any(|o| name(o) == name(&object)) {
            objects.push(object);
        }
    }
}
