//! The store's figures under upstream's names, read when the metrics are scraped.

use crate::controlplane::ControlPlane;
use crate::registry::resource::Backing;
use crate::storage::embedded::Engine;
use crate::telemetry::Telemetry;
use std::collections::HashMap;
use std::sync::Arc;

/// Publishes object counts and the size of the store.
pub fn publish(telemetry: &Telemetry, engine: &Arc<Engine>, plane: &ControlPlane) {
    let groups = plane.groups.iter().chain([&plane.apiregistration]);
    let names: HashMap<String, String> = groups
        .flat_map(|g| &g.resources)
        .filter_map(|(row, _)| match &row.backing {
            Backing::Stored { prefix } => Some((prefix.clone(), row.group_resource().to_string())),
            Backing::Converted { .. } | Backing::Computed(_) | Backing::Answered(_) => None,
        })
        .collect();
    let (objects, size) = (telemetry.storage_objects.clone(), telemetry.storage_size_bytes.clone());
    let engine = Arc::downgrade(engine);
    telemetry.before_scrape(move || {
        let Some(engine) = engine.upgrade() else { return };
        let stats = engine.stats();
        for (prefix, count) in &stats.objects {
            let name = names.get(prefix).unwrap_or(prefix);
            objects.with_label_values(&[name]).set(*count as i64);
        }
        size.with_label_values(&["embedded"]).set(stats.db_bytes as i64);
    });
}
