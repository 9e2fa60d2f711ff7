//! Detects requests that block a runtime thread.
//!
//! While one future is polled, all other connections of its thread wait. Anything that may take longer
//! belongs on the compute pool. A poll of more than 10 ms is a defect: it is counted, and logged with the
//! request and its caller. In a debug build, where the tests run, a poll that uses half a second of CPU time
//! panics, which fails the test.

use crate::request::RequestInfo;
#[cfg(debug_assertions)]
use crate::tasks::compute::thread_cpu_time;
use crate::telemetry::Telemetry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Polls longer than this are reported.
const STALL: Duration = Duration::from_millis(10);
/// CPU time of a single poll at which a debug build panics. Debug builds are about twenty times slower than
/// release builds.
#[cfg(debug_assertions)]
const UNACCEPTABLE: Duration = Duration::from_millis(500);
/// Minimum time between two log lines; the counter includes all stalls.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Reports polls that took too long.
#[derive(Clone)]
pub(crate) struct StallDetector(Arc<Inner>);

struct Inner {
    telemetry: Telemetry,
    since: Instant,
    /// No stall is logged before this time, in milliseconds after `since`.
    silent_until: AtomicU64,
}

#[derive(Clone, Copy)]
pub(crate) struct PollStart {
    at: Instant,
    /// CPU time, unlike wall time, does not include other processes, so a test does not fail because the
    /// machine is busy.
    #[cfg(debug_assertions)]
    cpu: Duration,
}

impl StallDetector {
    /// A detector that counts in `telemetry`.
    pub(crate) fn new(telemetry: Telemetry) -> Self {
        Self(Arc::new(Inner {
            telemetry,
            since: Instant::now(),
            silent_until: AtomicU64::new(0),
        }))
    }

    /// Called before a poll.
    pub(crate) fn begin(&self) -> PollStart {
        PollStart {
            at: Instant::now(),
            #[cfg(debug_assertions)]
            cpu: thread_cpu_time(),
        }
    }

    /// Called after a poll. `what` returns the request and its caller.
    pub(crate) fn end<'a>(&self, start: PollStart, what: impl FnOnce() -> (&'a RequestInfo, &'a str)) {
        let took = start.at.elapsed();
        if took > STALL {
            let (info, caller) = what();
            self.report(took, info, caller);
            #[cfg(debug_assertions)]
            {
                let used = thread_cpu_time().saturating_sub(start.cpu);
                let what = (&info.verb, &info.path);
                assert!(
                    used < UNACCEPTABLE,
                    "{what:?} of {caller:?} used {used:?} of CPU time in one poll"
                );
            }
        }
    }

    #[cold]
    fn report(&self, took: Duration, info: &RequestInfo, caller: &str) {
        let inner = &self.0;
        inner.telemetry.compute.stalled("request", took.as_secs_f64());
        let now = inner.since.elapsed().as_millis() as u64;
        // Not a compare-and-swap: two threads may both log, which does no harm.
        let silent_until = inner.silent_until.load(Ordering::Relaxed);
        if now < silent_until {
            return;
        }
        let next = now + LOG_INTERVAL.as_millis() as u64;
        inner.silent_until.store(next, Ordering::Relaxed);
        tracing::warn!(
            milliseconds = took.as_millis() as u64,
            verb = &*info.verb,
            group = &*info.api_group,
            resource = &*info.resource,
            subresource = &*info.subresource,
            // Clients choose the path, which must not flood the log.
            path = %info.path.chars().take(128).collect::<String>(),
            user = caller,
            "a request blocked a runtime thread for too long",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stalls(telemetry: &Telemetry) -> bool {
        let text = String::from_utf8(telemetry.text()).unwrap();
        text.contains("torana_reactor_stalls_total{kind=\"request\"} 1\n")
    }

    #[test]
    fn a_long_poll_is_counted() {
        let telemetry = Telemetry::new();
        let detector = StallDetector::new(telemetry.clone());
        let info = RequestInfo::default();
        let mut short = detector.begin();
        // In the future, because this thread may be suspended before the end, for longer than a stall.
        short.at += Duration::from_secs(3600);
        detector.end(short, || (&info, "somebody"));
        assert!(!stalls(&telemetry), "a short poll is not counted");
        let mut long_ago = detector.begin();
        long_ago.at = long_ago.at.checked_sub(STALL * 2).unwrap();
        detector.end(long_ago, || (&info, "somebody"));
        assert!(stalls(&telemetry));
    }
}
