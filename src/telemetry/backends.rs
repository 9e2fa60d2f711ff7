//! Metrics of the aggregation layer. Families prefixed `torana_` have no counterpart upstream.

use super::{counter, counters, gauges, int_gauges};
use prometheus::{GaugeVec, IntCounter, IntCounterVec, IntGaugeVec, Registry};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use crate::sync::Mutex;

/// Deleted APIServices whose merges of `/openapi/v2` are still exported, so that a scrape sees the last one.
const MAX_DELETED: usize = 64;

/// Aggregated documents, requests to backends, and connections to their addresses.
pub struct BackendMetrics {
    /// `aggregator_discovery_aggregation_count_total`: number of times the aggregated discovery document was
    /// built.
    pub aggregations: IntCounter,
    openapi_v2_regenerations: IntCounterVec,
    openapi_v2_regeneration_seconds: GaugeVec,
    /// Deleted APIServices that still have series of merges, the oldest first.
    deleted: Mutex<VecDeque<String>>,
    requests: IntGaugeVec,
    rejected: IntCounterVec,
    known: Mutex<BTreeSet<String>>,
    connections: IntGaugeVec,
    in_flight: IntGaugeVec,
    waiting: IntGaugeVec,
    ejected: IntGaugeVec,
}

/// Statistics of one backend.
#[derive(Clone, Copy, Debug, Default)]
pub struct BackendReading {
    /// Requests in flight, without watches.
    pub requests: usize,
    /// Watches in flight; they have a limit of their own.
    pub watches: usize,
    /// Requests and watches rejected because of a limit, since the process started.
    pub rejected: u64,
}

/// Statistics of one address.
#[derive(Clone, Copy, Debug, Default)]
pub struct EndpointReading {
    /// Connections, including those being established.
    pub connections: usize,
    /// Requests and watches in flight.
    pub in_flight: usize,
    /// Requests waiting for a connection.
    pub waiting: usize,
    /// True while the address is ejected because of failures.
    pub ejected: bool,
}

impl BackendMetrics {
    pub(super) fn new(r: &Registry) -> Self {
        Self {
            aggregations: counter(
                r,
                "aggregator_discovery_aggregation_count_total",
                "Number of times the aggregated discovery document was built.",
            ),
            openapi_v2_regenerations: counters(
                r,
                "aggregator_openapi_v2_regeneration_count",
                "Number of times /openapi/v2 was merged, by the APIService that changed and the reason.",
                &["apiservice", "reason"],
            ),
            openapi_v2_regeneration_seconds: gauges(
                r,
                "aggregator_openapi_v2_regeneration_duration",
                "Seconds the last merge of /openapi/v2 took, by reason.",
                &["reason"],
            ),
            deleted: Mutex::default(),
            requests: int_gauges(
                r,
                "torana_backend_requests",
                "Requests and watches in flight to the backend of an APIService.",
                &["apiservice", "kind"],
            ),
            rejected: counters(
                r,
                "torana_backend_turned_away_total",
                "Requests and watches rejected with 429 or 503 because the backend of an APIService was at its limit.",
                &["apiservice"],
            ),
            known: Mutex::default(),
            connections: int_gauges(
                r,
                "torana_backend_endpoint_connections",
                "Connections to an address, including those being established.",
                &["endpoint"],
            ),
            in_flight: int_gauges(
                r,
                "torana_backend_endpoint_requests",
                "Requests and watches in flight to an address.",
                &["endpoint"],
            ),
            waiting: int_gauges(
                r,
                "torana_backend_endpoint_waiting",
                "Requests that wait for a connection to an address.",
                &["endpoint"],
            ),
            ejected: int_gauges(
                r,
                "torana_backend_endpoint_ejected",
                "1 for addresses that are temporarily ejected because of failures.",
                &["endpoint"],
            ),
        }
    }

    /// Records that `/openapi/v2` was merged because of a change to this APIService.
    pub fn merged_openapi_v2(&self, apiservice: &str, reason: &str, took: Duration) {
        self.openapi_v2_regenerations
            .with_label_values(&[apiservice, reason])
            .inc();
        self.openapi_v2_regeneration_seconds
            .with_label_values(&[reason])
            .set(took.as_secs_f64());
        let mut deleted = self.deleted.lock();
        // Also if it is deleted again: it becomes the latest.
        deleted.retain(|name| name != apiservice);
        if reason == "delete" {
            deleted.push_back(apiservice.to_owned());
        }
        // Names are objects' names, so their number has no other limit.
        if deleted.len() > MAX_DELETED
            && let Some(oldest) = deleted.pop_front()
        {
            for reason in ["add", "update", "delete"] {
                // Fails for reasons that it was never merged for.
                let _ = self
                    .openapi_v2_regenerations
                    .remove_label_values(&[oldest.as_str(), reason]);
            }
        }
    }

    /// Sets the statistics of all backends, by APIService; series of other backends are removed.
    pub fn set_backends<'a>(&self, all: impl Iterator<Item = (&'a str, BackendReading)>) {
        // Called before each scrape; series of backends that are gone disappear with the reset.
        self.requests.reset();
        let mut known = self.known.lock();
        let before = std::mem::take(&mut *known);
        for (name, r) in all {
            known.insert(name.to_owned());
            let gauge = |kind: &str, n: usize| self.requests.with_label_values(&[name, kind]).set(n as i64);
            gauge("request", r.requests);
            gauge("watch", r.watches);
            let counter = self.rejected.with_label_values(&[name]);
            // The counter catches up with the total kept elsewhere; it never decreases.
            counter.inc_by(r.rejected.saturating_sub(counter.get()));
        }
        // A counter that stayed would be exported for ever, for a backend that no longer exists.
        for gone in before.difference(&known) {
            // Cannot fail: the series was created when the backend was first set.
            let _ = self.rejected.remove_label_values(&[gone.as_str()]);
        }
    }

    /// Sets the statistics of all addresses; those shared by several backends are summed.
    pub fn set_endpoints<'a>(&self, all: impl Iterator<Item = (&'a str, EndpointReading)>) {
        // Addresses come and go with Pods, and a gauge that nobody sets would keep its last value.
        for family in [&self.connections, &self.in_flight, &self.waiting, &self.ejected] {
            family.reset();
        }
        for (endpoint, r) in all {
            // Added, because several backends may share an address.
            let add = |family: &IntGaugeVec, n: usize| family.with_label_values(&[endpoint]).add(n as i64);
            add(&self.connections, r.connections);
            add(&self.in_flight, r.in_flight);
            add(&self.waiting, r.waiting);
            add(&self.ejected, usize::from(r.ejected));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Telemetry;

    #[test]
    fn deleted_backends_lose_the_series_of_their_merges() {
        let t = Telemetry::new();
        for i in 0..=MAX_DELETED {
            for reason in ["add", "delete"] {
                t.backends
                    .merged_openapi_v2(&format!("v1.g{i}"), reason, Duration::ZERO);
            }
        }
        t.backends.merged_openapi_v2("v1.g1", "add", Duration::ZERO);
        t.backends.merged_openapi_v2("v1.last", "delete", Duration::ZERO);
        let text = String::from_utf8(t.text()).unwrap();
        let is_there = |name: &str| text.contains(&format!("regeneration_count{{apiservice=\"{name}\""));
        assert!(!is_there("v1.g0") && is_there("v1.g1") && is_there("v1.g2") && is_there("v1.last"));
    }

    #[test]
    fn removed_backends_lose_their_series() {
        let t = Telemetry::new();
        let reading = |rejected| BackendReading {
            requests: 2,
            watches: 1,
            rejected,
        };
        let text = || String::from_utf8(t.text()).unwrap();
        t.backends
            .set_backends([("v1.a", reading(3)), ("v1.b", reading(1))].into_iter());
        t.backends.set_backends([("v1.a", reading(5))].into_iter());
        let endpoint = EndpointReading {
            connections: 1,
            ..EndpointReading::default()
        };
        t.backends
            .set_endpoints([("h:1", endpoint), ("h:1", endpoint)].into_iter());
        for line in [
            "torana_backend_requests{apiservice=\"v1.a\",kind=\"watch\"} 1",
            "torana_backend_turned_away_total{apiservice=\"v1.a\"} 5",
            "torana_backend_endpoint_connections{endpoint=\"h:1\"} 2",
        ] {
            assert!(text().contains(line), "{line} in {}", text());
        }
        assert!(!text().contains("v1.b"), "{}", text());
    }
}
