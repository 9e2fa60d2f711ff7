//! Metrics of backends and their addresses, collected on scrape so that requests pay nothing. Entry point: [`publish`].

use super::ledger::Ledger;
use super::transports::Transports;
use crate::endpoints::discovery::AggregatedDiscovery;
use crate::telemetry::Telemetry;
use crate::telemetry::backends::{BackendReading, EndpointReading};
use std::sync::Arc;

/// Registers the collector, which holds only weak references to what it reads.
pub fn publish(
    telemetry: &Telemetry,
    ledger: &Arc<Ledger>,
    transports: &Arc<Transports>,
    discovery: &Arc<AggregatedDiscovery>,
) {
    let (ledger, transports) = (Arc::downgrade(ledger), Arc::downgrade(transports));
    let discovery = discovery.clone();
    let families = telemetry.backends.clone();
    telemetry.before_scrape(move || {
        let (Some(ledger), Some(transports)) = (ledger.upgrade(), transports.upgrade()) else {
            return;
        };
        let aggregations = &families.aggregations;
        aggregations.inc_by(discovery.times_rendered().saturating_sub(aggregations.get()));
        let accounts = ledger.all();
        families.set_backends(accounts.iter().map(|(name, account)| {
            let f = account.figures();
            let reading = BackendReading {
                requests: f.in_flight,
                watches: f.watching,
                rejected: f.turned_away,
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
