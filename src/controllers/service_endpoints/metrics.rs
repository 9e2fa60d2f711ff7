//! [`SliceMetrics`]: metrics of the loop that writes EndpointSlices (`endpointslice/metrics`).

use super::slices::Counts;
use super::workloads::Service;
use super::writes::Writes;
use crate::apimachinery::value::Str;
use crate::sync::Mutex;
use crate::telemetry::{EndpointSliceMetrics, Telemetry};
use std::collections::BTreeMap;

/// The contribution of a Service to the gauges.
struct Contribution {
    counts: Counts,
    /// Empty if it is unset.
    distribution: Str,
}

/// The metrics of a gateway. The gauges are those of the present term.
pub(crate) struct SliceMetrics {
    families: EndpointSliceMetrics,
    /// A tree, which never moves all Services at once, as a hash table that grows does.
    services: Mutex<BTreeMap<Str, Contribution>>,
}

impl SliceMetrics {
    /// Registers the families, once per gateway.
    pub(crate) fn new(telemetry: &Telemetry) -> Self {
        Self {
            families: EndpointSliceMetrics::new(telemetry.registry()),
            services: Mutex::default(),
        }
    }

    /// A Service is about to get these slices.
    pub(super) fn planned(&self, key: &str, service: &Service, writes: &Writes) {
        let (families, counts) = (&self.families, writes.counts);
        families.added.observe(counts.added as f64);
        families.removed.observe(counts.removed as f64);
        let changed = writes.create.len() + writes.update.len() + writes.delete.len();
        let distribution = service.traffic_distribution();
        // The annotation takes precedence over the distribution, which then does not count.
        let labels = match service.has_topology_mode() {
            true => ["Auto", ""],
            false => ["Disabled", distribution],
        };
        families.changed.with_label_values(&labels).observe(changed as f64);
        let known = Contribution {
            counts,
            distribution: distribution.into(),
        };
        self.replace(key, Some(known));
    }

    /// A slice was created, updated or deleted.
    pub(super) fn changed(&self, operation: &str) {
        self.families.changes.with_label_values(&[operation]).inc();
    }

    pub(super) fn synced(&self, failed: bool) {
        let result = if failed { "error" } else { "success" };
        self.families.syncs.with_label_values(&[result]).inc();
    }

    /// The Service is gone, or its slices come from elsewhere.
    pub(super) fn forget(&self, key: &str) {
        self.replace(key, None);
    }

    /// A new term begins: it looks at every Service again.
    pub(super) fn reset(&self) {
        // Subtracted instead of set to zero: the gauges are not reset under a concurrent update.
        let all = std::mem::take(&mut *self.services.lock());
        all.values().for_each(|known| self.add(known, -1));
    }

    fn replace(&self, key: &str, new: Option<Contribution>) {
        let mut services = self.services.lock();
        // Added before the old contribution is subtracted, so a scrape in between never shows a negative gauge.
        if let Some(new) = &new {
            self.add(new, 1);
        }
        let old = match new {
            Some(new) => services.insert(key.into(), new),
            None => services.remove(key),
        };
        if let Some(old) = old {
            self.add(&old, -1);
        }
    }

    fn add(&self, of: &Contribution, sign: i64) {
        let (families, counts) = (&self.families, of.counts);
        for (gauge, value) in [
            (&families.desired, counts.desired),
            (&families.slices, counts.slices),
            // A Service without endpoints has an empty slice.
            (&families.desired_slices, counts.desired_slices.max(1)),
        ] {
            gauge.add(sign * i64::try_from(value).unwrap_or(i64::MAX));
        }
        if !of.distribution.is_empty() {
            families.distributions.with_label_values(&[&*of.distribution]).add(sign);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn the_gauges_are_the_sums_of_the_services_that_exist() {
        let metrics = SliceMetrics::new(&Telemetry::new());
        let service = Service::from_value(json!({"spec": {"trafficDistribution": "PreferClose"}}));
        let writes = |endpoints: usize, slices: usize| {
            let mut writes = Writes::default();
            writes.counts.want(endpoints);
            writes.counts.slices = slices;
            writes
        };
        let gauges = || {
            let f = &metrics.families;
            let close = f.distributions.with_label_values(&["PreferClose"]);
            [&f.desired, &f.slices, &f.desired_slices, &close].map(|gauge| gauge.get())
        };
        metrics.planned("x/a", &service, &writes(101, 3));
        metrics.planned("x/b", &service, &writes(0, 1));
        assert_eq!(gauges(), [101, 4, 3, 2]);
        metrics.planned("x/a", &service, &writes(50, 1));
        assert_eq!(gauges(), [50, 2, 2, 2]);
        metrics.forget("x/b");
        assert_eq!(gauges(), [50, 1, 1, 1]);
        metrics.reset();
        assert_eq!(gauges(), [0; 4]);
    }
}
