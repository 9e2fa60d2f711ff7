//! [`ReadVsWrite`]: how many requests of each kind waited and executed over time, in all levels together.

use super::max_in_flight::RequestClass;
use crate::sync::{Mutex, MutexGuard};
use crate::telemetry::timed::TimedHistogram;
use std::time::Duration;

/// Upstream's buckets. They are made for fractions of a limit; with priority and fairness that limit is 1, so
/// every count above 1 falls into the last bucket.
const REQUESTS: &[f64] = &[
    0.0, 0.001, 0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0,
];

/// The phase of a request, a label of the metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// In a queue.
    Waiting,
    /// It has seats.
    Executing,
}

/// Counts requests by kind and phase.
pub(crate) struct ReadVsWrite(Mutex<[Requests; 4]>);

struct Requests {
    count: u32,
    over_time: TimedHistogram,
}

impl ReadVsWrite {
    pub(crate) fn new(now: Duration) -> Self {
        let none = || Requests {
            count: 0,
            over_time: TimedHistogram::new(REQUESTS, now),
        };
        Self(Mutex::new([none(), none(), none(), none()]))
    }

    /// A request enters a phase.
    pub(super) fn enter(&self, now: Duration, class: RequestClass, phase: Phase) {
        let requests = &mut self.lock()[index(class, phase)];
        requests.count += 1;
        requests.over_time.set(now, f64::from(requests.count));
    }

    /// A waiting request executes.
    pub(super) fn dispatched(&self, now: Duration, class: RequestClass) {
        // Two critical sections: a scrape in between misses one request, which a statistic over time can bear.
        self.leave(now, class, Phase::Waiting);
        self.enter(now, class, Phase::Executing);
    }

    /// A request leaves a phase.
    pub(super) fn leave(&self, now: Duration, class: RequestClass, phase: Phase) {
        let requests = &mut self.lock()[index(class, phase)];
        // Every `leave` follows an `enter` of the same phase: permits call both.
        requests.count -= 1;
        requests.over_time.set(now, f64::from(requests.count));
    }

    /// Shows each histogram with its values of the labels `phase` and `request_kind`.
    pub(super) fn inspect(&self, mut look: impl FnMut(&'static str, &'static str, &mut TimedHistogram)) {
        let mut all = self.lock();
        for (phase, phase_name) in [(Phase::Executing, "executing"), (Phase::Waiting, "waiting")] {
            for (class, kind) in [
                (RequestClass::Mutating, "mutating"),
                (RequestClass::ReadOnly, "readOnly"),
            ] {
                look(phase_name, kind, &mut all[index(class, phase)].over_time);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, [Requests; 4]> {
        self.0.lock()
    }
}

fn index(class: RequestClass, phase: Phase) -> usize {
    usize::from(class == RequestClass::Mutating) * 2 + usize::from(phase == Phase::Executing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flowcontrol::metrics::Gauges;
    use crate::telemetry::Telemetry;

    #[test]
    fn each_kind_and_phase_has_its_own_time() {
        let at = Duration::from_nanos;
        let requests = ReadVsWrite::new(at(0));
        requests.enter(at(10), RequestClass::ReadOnly, Phase::Waiting);
        requests.leave(at(30), RequestClass::ReadOnly, Phase::Waiting);
        requests.enter(at(30), RequestClass::ReadOnly, Phase::Executing);
        requests.enter(at(60), RequestClass::Mutating, Phase::Executing);
        let telemetry = Telemetry::new();
        Gauges::register(&telemetry).set_read_vs_write(&requests, at(100));
        let text = String::from_utf8(telemetry.text()).unwrap();
        for (phase, kind, busy) in [
            ("waiting", "readOnly", 20),
            ("executing", "readOnly", 70),
            ("executing", "mutating", 40),
            ("waiting", "mutating", 0),
        ] {
            let family = "apiserver_flowcontrol_read_vs_write_current_requests";
            let line = format!("{family}_sum{{phase=\"{phase}\",request_kind=\"{kind}\"}} {busy}\n");
            assert!(text.contains(&line), "{line} in {text}");
        }
    }
}
