//! The metrics of priority and fairness, under upstream's names. Counters and histograms are updated as requests pass;
//! gauges are read from the levels on each scrape ([`Gauges::set`]).

use super::queueset::QueueSet;
use super::seats::{Demand, Limits};
use super::utilization::Utilization;
use crate::telemetry::timed::TimedFamily;
use crate::telemetry::{Telemetry, counters, gauges, histograms, int_gauges};
use prometheus::{GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const SECONDS: &[f64] = &[0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0];
const LENGTHS: &[f64] = &[0.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0];
const SEATS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 100.0];
const WATCHES: &[f64] = &[0.0, 1.0, 10.0, 100.0, 1_000.0, 10_000.0];
const SCHEMA: [&str; 2] = ["priority_level", "flow_schema"];
const LEVEL: [&str; 1] = ["priority_level"];

/// The families that requests update.
pub struct Families {
    dispatched: IntCounterVec,
    rejected: IntCounterVec,
    waited: HistogramVec,
    executed: HistogramVec,
    queue_length: HistogramVec,
    seats: HistogramVec,
    watches: HistogramVec,
}

fn name(last: &str) -> String {
    format!("apiserver_flowcontrol_{last}")
}

impl Families {
    /// Registers the families.
    pub fn register(telemetry: &Telemetry) -> Arc<Self> {
        let r = telemetry.registry();
        let histogram = |last, help, more: &[&str], buckets| {
            let labels = [&SCHEMA[..], more].concat();
            histograms(r, &name(last), help, &labels, buckets)
        };
        Arc::new(Self {
            dispatched: telemetry.dispatched.clone(),
            rejected: counters(
                r,
                &name("rejected_requests_total"),
                "Requests that were rejected, by reason.",
                &[SCHEMA[0], SCHEMA[1], "reason"],
            ),
            waited: histogram(
                "request_wait_duration_seconds",
                "Time that requests spent in their queue, by whether they were executed.",
                &["execute"],
                SECONDS,
            ),
            executed: histogram(
                "request_execution_seconds",
                "Time that requests executed; of watches, the time of their initialization.",
                &["type"],
                SECONDS,
            ),
            queue_length: histogram(
                "request_queue_length_after_enqueue",
                "Length of the queue that a request joined, including the request.",
                &[],
                LENGTHS,
            ),
            seats: histogram(
                "work_estimated_seats",
                "Seats that requests were estimated to occupy.",
                &[],
                SEATS,
            ),
            watches: histogram("watch_count_samples", "Watches interested in a write.", &[], WATCHES),
        })
    }
}

/// The metrics of one flow schema in one level. A series appears when it is first used, as upstream.
pub struct Series {
    families: Arc<Families>,
    level: Arc<str>,
    schema: Arc<str>,
    dispatched: OnceLock<IntCounter>,
    waited: OnceLock<Histogram>,
    executed: OnceLock<Histogram>,
    queue_length: OnceLock<Histogram>,
    seats: OnceLock<Histogram>,
}

impl Series {
    /// Without any values.
    pub fn new(families: &Arc<Families>, level: &Arc<str>, schema: &str) -> Self {
        Self {
            families: families.clone(),
            level: level.clone(),
            schema: schema.into(),
            dispatched: OnceLock::new(),
            waited: OnceLock::new(),
            executed: OnceLock::new(),
            queue_length: OnceLock::new(),
            seats: OnceLock::new(),
        }
    }

    /// Name of the flow schema.
    pub fn schema(&self) -> &Arc<str> {
        &self.schema
    }

    fn labels(&self) -> [&str; 2] {
        [&self.level, &self.schema]
    }

    fn with(&self, label: &'static str) -> [&str; 3] {
        [&self.level, &self.schema, label]
    }

    /// A request was let through.
    pub fn dispatched(&self) {
        // The family was made with its labels in this order.
        let of = || {
            self.families
                .dispatched
                .with_label_values(&[&*self.schema, &*self.level])
        };
        self.dispatched.get_or_init(of).inc();
    }

    /// A request was rejected.
    pub fn rejected(&self, reason: &'static str) {
        self.families.rejected.with_label_values(&self.with(reason)).inc();
    }

    /// A request waited, and then was executed or gave up.
    pub fn waited(&self, time: Duration, executed: bool) {
        let seconds = time.as_secs_f64();
        if !executed {
            let given_up = self.families.waited.with_label_values(&self.with("false"));
            return given_up.observe(seconds);
        }
        let of = || self.families.waited.with_label_values(&self.with("true"));
        self.waited.get_or_init(of).observe(seconds);
    }

    /// A request was executed.
    pub fn executed(&self, time: Duration, watch: bool) {
        let seconds = time.as_secs_f64();
        if watch {
            let watches = self.families.executed.with_label_values(&self.with("watch"));
            return watches.observe(seconds);
        }
        let of = || self.families.executed.with_label_values(&self.with("regular"));
        self.executed.get_or_init(of).observe(seconds);
    }

    /// A request joined a queue.
    pub fn queue_length(&self, length: u32) {
        let of = || self.families.queue_length.with_label_values(&self.labels());
        self.queue_length.get_or_init(of).observe(f64::from(length));
    }

    /// A request was estimated.
    pub fn seats(&self, seats: u32) {
        let of = || self.families.seats.with_label_values(&self.labels());
        self.seats.get_or_init(of).observe(f64::from(seats));
    }

    /// A write had that many interested watches.
    pub fn watches(&self, watches: u32) {
        let samples = self.families.watches.with_label_values(&self.labels());
        samples.observe(f64::from(watches));
    }
}

/// What the gauges show of a level.
pub struct LevelReading<'a, T> {
    /// Its name.
    pub name: &'a str,
    /// Bounds of its limit.
    pub limits: Limits,
    /// Its demand.
    pub demand: &'a Demand,
    /// The target of the last adjustment.
    pub target: f64,
    /// Its queues.
    pub set: &'a QueueSet<T>,
    /// Its schemas, by account.
    pub schemas: &'a [Series],
}

/// The gauges, and the counters that are kept in the levels.
pub struct Gauges {
    executing_requests: IntGaugeVec,
    executing_seats: IntGaugeVec,
    waiting_requests: IntGaugeVec,
    waiting_seats: IntGaugeVec,
    no_accommodation: IntCounterVec,
    by_level: [GaugeVec; 12],
    bounds: [GaugeVec; 2],
    fair_fraction: GaugeVec,
    seat_utilization: TimedFamily,
    request_utilization: TimedFamily,
    demand: TimedFamily,
}

const BY_LEVEL: [(&str, &str); 12] = [
    ("nominal_limit_seats", "Seats of a level by its shares."),
    ("lower_limit_seats", "Seats that a level keeps for itself."),
    ("upper_limit_seats", "Seats that a level has at most."),
    ("current_limit_seats", "Seats that a level has now."),
    ("demand_seats_high_watermark", "Highest seat demand of the last period."),
    ("demand_seats_average", "Average seat demand of the last period."),
    (
        "demand_seats_stdev",
        "Standard deviation of the seat demand of the last period.",
    ),
    ("demand_seats_smoothed", "Smoothed seat demand."),
    ("target_seats", "Target of the seat allocation."),
    ("current_r", "Progress meter of fair queuing, in seat-seconds."),
    ("dispatch_r", "Progress meter at the last dispatch."),
    ("latest_s", "Reading at which the last dispatched request was due."),
];

impl Gauges {
    /// Registers the families.
    pub fn register(telemetry: &Telemetry) -> Self {
        let r = telemetry.registry();
        let timed = |last, help, labels: &[&str]| TimedFamily::register(r, &name(last), help, labels);
        let bound = |last, help| gauges(r, &name(last), help, &["priority_level", "bound"]);
        Self {
            seat_utilization: timed(
                "priority_level_seat_utilization",
                "Occupied seats as a fraction of the level's, over time.",
                &["phase", "priority_level"],
            ),
            request_utilization: timed(
                "priority_level_request_utilization",
                "Executing and waiting requests as a fraction of their limits, over time.",
                &["phase", "priority_level"],
            ),
            demand: timed(
                "demand_seats",
                "Seat demand as a fraction of the level's seats, over time.",
                &["priority_level"],
            ),
            executing_requests: int_gauges(r, &name("current_executing_requests"), "Executing requests.", &SCHEMA),
            executing_seats: int_gauges(r, &name("current_executing_seats"), "Occupied seats.", &SCHEMA),
            waiting_requests: int_gauges(r, &name("current_inqueue_requests"), "Requests in queues.", &SCHEMA),
            waiting_seats: int_gauges(
                r,
                &name("current_inqueue_seats"),
                "Seats that the requests in queues wait for.",
                &SCHEMA,
            ),
            no_accommodation: counters(
                r,
                &name("request_dispatch_no_accommodation_total"),
                "How often the request that was due needed more seats than were free.",
                &SCHEMA,
            ),
            by_level: BY_LEVEL.map(|(last, help)| gauges(r, &name(last), help, &LEVEL)),
            bounds: [
                bound(
                    "next_s_bounds",
                    "Bounds over the queues of the reading at which the next request is due.",
                ),
                bound(
                    "next_discounted_s_bounds",
                    "The same less the estimated work in progress.",
                ),
            ],
            fair_fraction: gauges(
                r,
                &name("seat_fair_frac"),
                "The fraction of its target that each level gets, within its bounds.",
                &[],
            ),
        }
    }

    /// Sets the fraction of the last adjustment.
    pub fn set_fair_fraction(&self, fraction: f64) {
        self.fair_fraction.with_label_values::<&str>(&[]).set(fraction);
    }

    /// Forgets the gauges of levels that no longer exist.
    pub fn reset(&self) {
        for family in [
            &self.executing_requests,
            &self.executing_seats,
            &self.waiting_requests,
            &self.waiting_seats,
        ] {
            family.reset();
        }
        for family in &self.by_level {
            family.reset();
        }
        for family in [&self.seat_utilization, &self.request_utilization, &self.demand] {
            family.clear();
        }
    }

    /// Shows how much of a level was in use.
    pub fn set_utilization(&self, level: &str, utilization: &mut Utilization, now: Duration) {
        let level = ("priority_level", level);
        let phase = |phase| [("phase", phase), level];
        self.seat_utilization
            .show(&phase("executing"), &mut utilization.seats, now);
        self.request_utilization
            .show(&phase("executing"), &mut utilization.executing, now);
        self.request_utilization
            .show(&phase("waiting"), &mut utilization.waiting, now);
        self.demand.show(&[level], &mut utilization.demand, now);
    }

    /// Shows a level.
    pub fn set<T>(&self, level: &LevelReading<'_, T>) {
        for (account, series) in level.set.accounts().iter().zip(level.schemas) {
            let labels = [level.name, &**series.schema()];
            let show = |family: &IntGaugeVec, value: u64| family.with_label_values(&labels).set(value as i64);
            show(&self.executing_requests, account.executing.into());
            show(&self.executing_seats, account.seats_in_use.into());
            show(&self.waiting_requests, account.waiting.into());
            show(&self.waiting_seats, account.seats_waiting);
            if account.no_accommodation > 0 {
                let counter = self.no_accommodation.with_label_values(&labels);
                counter.inc_by(account.no_accommodation.saturating_sub(counter.get()));
            }
        }
        let totals = level.set.totals();
        let (dispatch, due) = totals.dispatched_at.unwrap_or_default();
        let values = [
            f64::from(level.limits.nominal),
            f64::from(level.limits.lower),
            f64::from(level.limits.upper),
            f64::from(level.set.limit()),
            level.demand.last.max,
            level.demand.last.average,
            level.demand.last.deviation,
            level.demand.smoothed,
            level.target,
            totals.r.as_f64(),
            dispatch.as_f64(),
            due.as_f64(),
        ];
        for (family, value) in self.by_level.iter().zip(values) {
            family.with_label_values(&[level.name]).set(value);
        }
        for (family, (min, max)) in self.bounds.iter().zip(level.set.due_bounds().into_iter().flatten()) {
            family.with_label_values(&[level.name, "min"]).set(min.as_f64());
            family.with_label_values(&[level.name, "max"]).set(max.as_f64());
        }
    }
}
