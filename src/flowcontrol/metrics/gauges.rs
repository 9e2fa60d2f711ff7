//! Gauges, and counters that the levels keep, set from the levels on each scrape ([`Gauges::set`]). Updating
//! them with every request would cost several atomic operations on shared cache lines.

use super::{SCHEMA, Series, name};
use crate::flowcontrol::queueset::QueueSet;
use crate::flowcontrol::read_write::ReadVsWrite;
use crate::flowcontrol::seats::{Demand, Limits};
use crate::flowcontrol::utilization::Utilization;
use crate::telemetry::timed::TimedFamily;
use crate::telemetry::{Telemetry, counters, gauges, int_gauges};
use prometheus::{GaugeVec, IntCounterVec, IntGaugeVec};
use std::time::Duration;

const LEVEL: [&str; 1] = ["priority_level"];

/// The values of one level at a scrape.
pub(crate) struct LevelReading<'a, T> {
    /// `metadata.name` of the PriorityLevelConfiguration.
    pub name: &'a str,
    /// Bounds of its limit.
    pub limits: Limits,
    /// Its seat demand: last period and smoothed.
    pub demand: &'a Demand,
    /// The target of the last adjustment.
    pub target: f64,
    /// Its queues, accounts and totals.
    pub set: &'a QueueSet<T>,
    /// Metrics of its flow schemas, by account.
    pub schemas: &'a [Series],
}

/// The gauges, and the counters that are kept in the levels.
pub(crate) struct Gauges {
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
    read_vs_write: TimedFamily,
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
    pub(crate) fn register(telemetry: &Telemetry) -> Self {
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
            read_vs_write: timed(
                "read_vs_write_current_requests",
                "Executing and waiting requests over time, by kind.",
                &["phase", "request_kind"],
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
    pub(crate) fn set_fair_fraction(&self, fraction: f64) {
        self.fair_fraction.with_label_values::<&str>(&[]).set(fraction);
    }

    /// Forgets the gauges of levels that no longer exist.
    pub(crate) fn reset(&self) {
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
        for family in [
            &self.seat_utilization,
            &self.request_utilization,
            &self.demand,
            &self.read_vs_write,
        ] {
            family.clear();
        }
    }

    /// Sets the utilization histograms of a level.
    pub(crate) fn set_utilization(&self, level: &str, utilization: &mut Utilization, now: Duration) {
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

    /// Sets the histograms of requests by kind and phase.
    pub(crate) fn set_read_vs_write(&self, requests: &ReadVsWrite, now: Duration) {
        requests.inspect(|phase, kind, histogram| {
            self.read_vs_write
                .show(&[("phase", phase), ("request_kind", kind)], histogram, now);
        });
    }

    /// Sets the gauges of a level.
    pub(crate) fn set<T>(&self, level: &LevelReading<'_, T>) {
        // Accounts appear with their first request, so there may be fewer of them than schemas.
        for (account, series) in level.set.accounts().iter().zip(level.schemas) {
            let labels = [level.name, &**series.schema()];
            let show = |family: &IntGaugeVec, value: u64| family.with_label_values(&labels).set(value as i64);
            show(&self.executing_requests, account.executing.into());
            show(&self.executing_seats, account.seats_in_use.into());
            show(&self.waiting_requests, account.waiting.into());
            show(&self.waiting_seats, account.seats_waiting);
            // The series appears with its first event, as upstream.
            if account.no_accommodation > 0 {
                let counter = self.no_accommodation.with_label_values(&labels);
                // A counter cannot be set. The account may start at 0 again after its level was deleted and recreated:
                // saturating keeps the counter monotonic.
                counter.inc_by(account.no_accommodation.saturating_sub(counter.get()));
            }
        }
        let totals = level.set.totals();
        let (dispatch, due) = totals.dispatched_at.unwrap_or_default();
        // In the order of `BY_LEVEL`.
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
