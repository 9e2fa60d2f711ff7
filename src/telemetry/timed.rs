//! [`TimedHistogram`]: how long a value was in which range, as upstream's timing histograms: each nanosecond
//! counts as one observation. [`TimedFamily`] exports them under one name.

use super::VALID;
use super::derived::label;
use prometheus::core::{Collector, Desc};
use prometheus::proto::{Bucket, Histogram, Metric, MetricFamily, MetricType};
use std::sync::Arc;
use std::time::Duration;

use crate::sync::Mutex;

/// A value that changes in steps. It has no clock: callers pass the time.
#[derive(Clone, Debug)]
pub(crate) struct TimedHistogram {
    bounds: &'static [f64],
    /// Nanoseconds in each bucket, with one for larger values at the end.
    nanos: Vec<u64>,
    sum: f64,
    value: f64,
    bucket: usize,
    /// When `value` was last accounted for, in nanoseconds of the caller's clock.
    since: u64,
}

fn nanos(at: Duration) -> u64 {
    at.as_nanos() as u64
}

impl TimedHistogram {
    /// A histogram of a value that is zero from `now` on. `bounds` are the upper bounds of the buckets, ascending.
    pub(crate) fn new(bounds: &'static [f64], now: Duration) -> Self {
        Self {
            bounds,
            nanos: vec![0; bounds.len() + 1],
            sum: 0.0,
            value: 0.0,
            bucket: 0,
            since: nanos(now),
        }
    }

    /// Changes the value. `now` must come from the same clock as for [`new`](Self::new).
    pub(crate) fn set(&mut self, now: Duration, value: f64) {
        // Its time is added when it changes.
        if value != self.value {
            self.settle(now);
            self.value = value;
            // Most values are in one of the first buckets.
            let within = self.bounds.iter().position(|bound| value <= *bound);
            self.bucket = within.unwrap_or(self.bounds.len());
        }
    }

    /// Adds the time that the value has had so far.
    fn settle(&mut self, now: Duration) {
        let now = nanos(now);
        // Saturating, because times of concurrent callers may arrive slightly out of order.
        let passed = now.saturating_sub(self.since);
        self.since = self.since.max(now);
        self.nanos[self.bucket] += passed;
        // Each nanosecond counts as one observation of the value.
        self.sum += self.value * passed as f64;
    }

    /// The histogram up to now.
    fn read(&mut self, now: Duration) -> Histogram {
        self.settle(now);
        let mut total = 0;
        let buckets = self.bounds.iter().zip(&self.nanos).map(|(bound, nanos)| {
            total += nanos;
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(*bound);
            bucket.set_cumulative_count(total);
            bucket
        });
        let mut histogram = Histogram::default();
        histogram.set_bucket(buckets.collect());
        // With the last bucket, which has no bound and therefore no entry above.
        histogram.set_sample_count(self.nanos.iter().sum());
        histogram.set_sample_sum(self.sum);
        histogram
    }
}

/// A family of timed histograms, filled before each scrape.
#[derive(Clone)]
pub(crate) struct TimedFamily(Arc<Inner>);

struct Inner {
    desc: Desc,
    // Filled before a scrape and not during it: whoever owns the histograms holds locks of its own.
    shown: Mutex<Vec<Metric>>,
}

struct FamilyCollector(Arc<Inner>);

impl TimedFamily {
    pub(crate) fn register(r: &prometheus::Registry, name: &str, help: &str, labels: &[&str]) -> Self {
        let labels = labels.iter().map(|l| (*l).to_owned()).collect();
        let desc = Desc::new(name.to_owned(), help.to_owned(), labels, Default::default()).expect(VALID);
        let inner = Arc::new(Inner {
            desc,
            shown: Mutex::default(),
        });
        r.register(Box::new(FamilyCollector(inner.clone()))).expect(VALID);
        Self(inner)
    }

    /// Removes the exported histograms, before a scrape sets them anew.
    pub(crate) fn clear(&self) {
        self.shown().clear();
    }

    /// Shows a histogram. `labels` are sorted by name.
    pub(crate) fn show(&self, labels: &[(&str, &str)], histogram: &mut TimedHistogram, now: Duration) {
        let labels = labels.iter().map(|(name, value)| label(name, value)).collect();
        let mut metric = Metric::from_label(labels);
        metric.set_histogram(histogram.read(now));
        self.shown().push(metric);
    }

    fn shown(&self) -> crate::sync::MutexGuard<'_, Vec<Metric>> {
        self.0.shown.lock()
    }
}

impl Collector for FamilyCollector {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.0.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut family = MetricFamily::default();
        family.set_name(self.0.desc.fq_name.clone());
        family.set_help(self.0.desc.help.clone());
        family.set_field_type(MetricType::HISTOGRAM);
        // Copied and kept: a second scrape may collect before the next update.
        let shown = self.0.shown.lock();
        family.set_metric(shown.clone());
        vec![family]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_nanosecond_is_an_observation() {
        let r = prometheus::Registry::new();
        let family = TimedFamily::register(&r, "used", "How much is used.", &["of"]);
        let mut used = TimedHistogram::new(&[0.0, 0.5, 1.0], Duration::ZERO);
        let at = Duration::from_nanos;
        used.set(at(10), 0.5);
        used.set(at(40), 2.0);
        family.show(&[("of", "x")], &mut used, at(45));
        let text = super::super::render(&r);
        let text = String::from_utf8(text).unwrap();
        for line in [
            "used_bucket{of=\"x\",le=\"0\"} 10",
            "used_bucket{of=\"x\",le=\"0.5\"} 40",
            "used_bucket{of=\"x\",le=\"1\"} 40",
            "used_bucket{of=\"x\",le=\"+Inf\"} 45",
            "used_sum{of=\"x\"} 25",
            "used_count{of=\"x\"} 45",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
