//! Number and size of stored objects by resource; -1 if unknown, as upstream.

use super::{Telemetry, int_gauges};
use prometheus::IntGaugeVec;

/// Handles of the families.
pub(crate) struct Objects {
    old: IntGaugeVec,
    count: IntGaugeVec,
    bytes: IntGaugeVec,
}

impl Objects {
    /// Registers the families. Call once per gateway.
    pub(crate) fn register(telemetry: &Telemetry) -> Self {
        let (r, resource) = (telemetry.registry(), ["group", "resource"]);
        Self {
            // Deprecated upstream in favour of `count`, but still exported.
            old: telemetry.storage_objects.clone(),
            count: int_gauges(
                r,
                "apiserver_resource_objects",
                "Stored objects, by resource; -1: not known.",
                &resource,
            ),
            bytes: int_gauges(
                r,
                "apiserver_resource_size_estimate_bytes",
                "Bytes of the stored objects, by resource, before encryption; -1: not known.",
                &resource,
            ),
        }
    }

    /// Sets the metrics of a resource. `found`: number of objects and their bytes; `None` if they are
    /// currently unknown.
    pub(crate) fn set(&self, [group, resource]: [&str; 2], found: Option<(usize, u64)>) {
        let (count, bytes) = found.map_or((-1, -1), |(count, bytes)| (count as i64, bytes as i64));
        let name = match group {
            "" => resource.to_owned(),
            // The string form of upstream's `GroupResource`.
            group => format!("{resource}.{group}"),
        };
        self.old.with_label_values(&[&*name]).set(count);
        self.count.with_label_values(&[group, resource]).set(count);
        self.bytes.with_label_values(&[group, resource]).set(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_object_counts_are_minus_one() {
        let telemetry = Telemetry::new();
        let objects = Objects::register(&telemetry);
        objects.set(["apps", "deployments"], Some((3, 700)));
        objects.set(["", "pods"], None);
        let text = String::from_utf8(telemetry.text()).expect("text");
        for line in [
            "apiserver_storage_objects{resource=\"deployments.apps\"} 3",
            "apiserver_resource_objects{group=\"apps\",resource=\"deployments\"} 3",
            "apiserver_resource_size_estimate_bytes{group=\"apps\",resource=\"deployments\"} 700",
            "apiserver_storage_objects{resource=\"pods\"} -1",
            "apiserver_resource_size_estimate_bytes{group=\"\",resource=\"pods\"} -1",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
