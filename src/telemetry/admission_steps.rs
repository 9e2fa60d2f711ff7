//! [`AdmissionStepMetrics`]: how long all plugins of a phase took, as the histogram
//! `apiserver_admission_step_admission_duration_seconds` and as the summary of the same name with `_summary`.

use super::derived::label;
use super::{Latencies, VALID, histograms};
use prometheus::core::{Collector, Desc};
use prometheus::proto::{Metric, MetricFamily, MetricType, Quantile, Summary};
use prometheus::{HistogramVec, Registry};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const NAME: &str = "apiserver_admission_step_admission_duration_seconds";
const LABELS: [&str; 3] = ["operation", "rejected", "type"];
const OPERATIONS: [&str; 4] = ["CONNECT", "CREATE", "DELETE", "UPDATE"];
const REJECTED: [&str; 2] = ["false", "true"];
const PHASES: [&str; 2] = ["admit", "validate"];
/// Upstream's quantiles; [`Latencies`] has these percentiles.
const QUANTILES: [f64; 3] = [0.5, 0.9, 0.99];

/// The metrics of admission phases.
#[derive(Clone)]
pub struct AdmissionStepMetrics {
    histogram: HistogramVec,
    // A fixed array instead of a map, since all combinations of labels are known.
    summary: Arc<[Series; OPERATIONS.len() * REJECTED.len() * PHASES.len()]>,
}

#[derive(Default)]
struct Series {
    recent: Latencies,
    observed: AtomicU64,
    // An integer, because there is no atomic addition of floats; it suffices for 584 years.
    nanos: AtomicU64,
}

/// Collects the summary: the `prometheus` crate has no summaries.
struct FamilyCollector {
    desc: Desc,
    metrics: AdmissionStepMetrics,
}

fn index(operation: &str, rejected: bool, phase: &str) -> Option<usize> {
    // Anything else has no place in the summary; the histogram counts it nevertheless.
    let operation = OPERATIONS.iter().position(|o| *o == operation)?;
    let phase = PHASES.iter().position(|p| *p == phase)?;
    Some((operation * REJECTED.len() + usize::from(rejected)) * PHASES.len() + phase)
}

impl AdmissionStepMetrics {
    pub(super) fn new(r: &Registry) -> Self {
        let help = "Seconds all admission plugins took, by operation, outcome and phase.";
        let metrics = Self {
            histogram: histograms(r, NAME, help, &LABELS, &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5]),
            summary: Arc::new(std::array::from_fn(|_| Series::default())),
        };
        let labels = LABELS.map(str::to_owned).to_vec();
        let desc = Desc::new(format!("{NAME}_summary"), help.to_owned(), labels, Default::default()).expect(VALID);
        let shown = FamilyCollector {
            desc,
            metrics: metrics.clone(),
        };
        r.register(Box::new(shown)).expect(VALID);
        metrics
    }

    /// Records a phase of a write: `admit` or `validate`.
    pub fn observe(&self, operation: &str, rejected: bool, phase: &str, took: Duration) {
        let labels = [operation, REJECTED[usize::from(rejected)], phase];
        self.histogram.with_label_values(&labels).observe(took.as_secs_f64());
        if let Some(series) = index(operation, rejected, phase).map(|i| &self.summary[i]) {
            series.recent.count(took);
            series.observed.fetch_add(1, Ordering::Relaxed);
            // Relaxed: a scrape may see the count and not yet the sum, which no consumer can tell from a later
            // scrape.
            let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            series.nanos.fetch_add(nanos, Ordering::Relaxed);
        }
    }
}

impl Series {
    /// `None` without observations.
    fn read(&self) -> Option<Summary> {
        let quantiles = QUANTILES.iter().zip(self.recent.percentiles()?).map(|(q, value)| {
            let mut quantile = Quantile::default();
            quantile.set_quantile(*q);
            quantile.set_value(value.as_secs_f64());
            quantile
        });
        let mut summary = Summary::default();
        summary.set_quantile(quantiles.collect());
        summary.set_sample_count(self.observed.load(Ordering::Relaxed));
        summary.set_sample_sum(Duration::from_nanos(self.nanos.load(Ordering::Relaxed)).as_secs_f64());
        Some(summary)
    }
}

impl Collector for FamilyCollector {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut shown = Vec::new();
        for operation in OPERATIONS {
            for (i, rejected) in REJECTED.into_iter().enumerate() {
                for phase in PHASES {
                    // The second of `REJECTED` is "true".
                    let series = index(operation, i == 1, phase).map(|i| &self.metrics.summary[i]);
                    // A combination that never occurred has no series, as upstream.
                    let Some(summary) = series.and_then(Series::read) else {
                        continue;
                    };
                    let values = [operation, rejected, phase];
                    let labels = LABELS.iter().zip(values).map(|(name, value)| label(name, value));
                    let mut metric = Metric::from_label(labels.collect());
                    metric.set_summary(summary);
                    shown.push(metric);
                }
            }
        }
        let mut family = MetricFamily::default();
        family.set_name(self.desc.fq_name.clone());
        family.set_help(self.desc.help.clone());
        family.set_field_type(MetricType::SUMMARY);
        family.set_metric(shown);
        vec![family]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Telemetry;

    #[test]
    fn the_summary_has_a_series_for_each_combination_that_was_observed() {
        let telemetry = Telemetry::new();
        for _ in 0..4 {
            telemetry
                .admission_step
                .observe("UPDATE", true, "validate", Duration::from_millis(250));
        }
        let text = String::from_utf8(telemetry.text()).unwrap();
        let labels = "operation=\"UPDATE\",rejected=\"true\",type=\"validate\"";
        for line in [
            format!("# TYPE {NAME}_summary summary"),
            format!("{NAME}_summary_sum{{{labels}}} 1"),
            format!("{NAME}_summary_count{{{labels}}} 4"),
            format!("{NAME}_bucket{{{labels},le=\"0.5\"}} 4"),
        ] {
            assert!(text.lines().any(|l| l == line), "{line}: {text}");
        }
        let quantile = |l: &&str| l.starts_with(&format!("{NAME}_summary{{{labels},quantile="));
        assert_eq!(text.lines().filter(quantile).count(), 3);
        assert_eq!(text.matches("_summary_count").count(), 1);
    }
}
