//! Metrics of events sent to watchers: `apiserver_watch_events_total` and `apiserver_init_events_total`.

use super::counters;
use prometheus::{IntCounter, IntCounterVec, Registry};

pub(super) struct WatchFamilies {
    sent: IntCounterVec,
    initial: IntCounterVec,
}

impl WatchFamilies {
    pub(super) fn new(r: &Registry) -> Self {
        Self {
            sent: counters(
                r,
                "apiserver_watch_events_total",
                "Events sent to watching clients.",
                &["group", "resource", "version"],
            ),
            // Without the version, as upstream's: its cacher counts them, which serves all versions.
            initial: counters(
                r,
                "apiserver_init_events_total",
                "Objects of the initial state handed to watches.",
                &["group", "resource"],
            ),
        }
    }

    pub(super) fn of(&self, group: &str, version: &str, resource: &str) -> WatchMetrics {
        WatchMetrics {
            // Looked up once per watch, since every event counts here.
            sent: self.sent.with_label_values(&[group, resource, version]),
            initial: self.initial.with_label_values(&[group, resource]),
        }
    }
}

/// Counters of watches of one resource.
#[derive(Clone)]
pub struct WatchMetrics {
    /// Events sent after the initial state.
    pub sent: IntCounter,
    /// Objects sent as initial state.
    pub initial: IntCounter,
}
