//! Metrics of backends and their addresses, collected on scrape so that requests pay nothing. Entry point:
//! [`publish`].

use super::backend_stats::StatsRegistry;
use super::transports::Transports;
use crate::endpoints::discovery::AggregatedDiscovery;
use crate::telemetry::Telemetry;
use crate::telemetry::backends::{BackendReading, EndpointReading};
use std::sync::Arc;

/// Registers the collector, which holds only weak references to what it reads.
pub(crate) fn publish(
    telemetry: &Telemetry,
    backend_stats: &Arc<StatsRegistry>,
    transports: &Arc<Transports>,
    discovery: &Arc<AggregatedDiscovery>,
) {
    let (backend_stats, transports) = (Arc::downgrade(backend_stats), Arc::downgrade(transports));
    let discovery = discovery.clone();
    let families = telemetry.backends.clone();
    telemetry.before_scrape(move || {
        // Gone during shutdown.
        let (Some(backend_stats), Some(transports)) = (backend_stats.upgrade(), transports.upgrade()) else {
            return;
        };
        let aggregations = &families.aggregations;
        // A counter can only grow, so the difference to the last scrape is added.
        aggregations.inc_by(discovery.times_rendered().saturating_sub(aggregations.get()));
        let all = backend_stats.all();
        families.set_backends(all.iter().map(|(name, stats)| {
            let f = stats.snapshot();
            let reading = BackendReading {
                requests: f.in_flight,
                watches: f.watching,
                rejected: f.rejected,
            };
            (name.as_str(), reading)
        }));
        let endpoints: Vec<_> = transports.all().iter().flat_map(|t| t.endpoints()).collect();
        families.set_endpoints(endpoints.iter().map(|e| {
            let reading = EndpointReading {
                connections: e.connections,
                in_flight: e.under_way,
                waiting: e.waiting,
                ejected: e.ejected_for.is_some(),
            };
            (e.address.as_str(), reading)
        }));
    });
}
