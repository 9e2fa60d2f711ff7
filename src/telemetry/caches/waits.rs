//! A histogram whose values are counted elsewhere: caches keep their own buckets, which are exported at a
//! scrape.

use prometheus::core::{Collector, Desc};
use prometheus::proto::{Bucket, Histogram, LabelPair, Metric, MetricFamily, MetricType};
use std::collections::HashMap;
use std::sync::Arc;

use crate::sync::Mutex;

const NAME: &str = "apiserver_watch_cache_read_wait_seconds";
const HELP: &str = "Seconds that reads waited for a watch cache to reach a revision, by resource.";

/// Histogram of the waits of one resource.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wait {
    /// Upper bounds in seconds with cumulative counts.
    pub buckets: Vec<(f64, u64)>,
    pub count: u64,
    /// Total duration, in seconds.
    pub seconds: f64,
}

/// The collector. Clones share the same values.
#[derive(Clone)]
pub(super) struct Waits {
    desc: Vec<Desc>,
    now: Arc<Mutex<Vec<([String; 2], Wait)>>>,
}

impl Default for Waits {
    fn default() -> Self {
        let labels = ["group", "resource"].map(str::to_owned).to_vec();
        let desc = Desc::new(NAME.to_owned(), HELP.to_owned(), labels, HashMap::new());
        Self {
            // A `Result`. Invalid literals would leave the family out instead of ending the process.
            desc: desc.into_iter().collect(),
            now: Arc::default(),
        }
    }
}

impl Waits {
    /// Sets the values by group and plural. Resources without any wait have no series, as upstream.
    pub(crate) fn set(&self, mut now: Vec<([String; 2], Wait)>) {
        now.retain(|(_, wait)| wait.count > 0);
        *self.now.lock() = now;
    }
}

fn label(name: &str, value: &str) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.to_owned());
    pair.set_value(value.to_owned());
    pair
}

fn metric([group, resource]: &[String; 2], wait: &Wait) -> Metric {
    let bucket = |&(bound, count): &(f64, u64)| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(bound);
        bucket.set_cumulative_count(count);
        bucket
    };
    let mut histogram = Histogram::default();
    histogram.set_sample_count(wait.count);
    histogram.set_sample_sum(wait.seconds);
    histogram.set_bucket(wait.buckets.iter().map(bucket).collect());
    let mut metric = Metric::default();
    metric.set_label(vec![label("group", group), label("resource", resource)]);
    metric.set_histogram(histogram);
    metric
}

impl Collector for Waits {
    fn desc(&self) -> Vec<&Desc> {
        self.desc.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let now = self.now.lock();
        if now.is_empty() {
            return Vec::new();
        }
        let mut family = MetricFamily::default();
        family.set_name(NAME.to_owned());
        family.set_help(HELP.to_owned());
        family.set_field_type(MetricType::HISTOGRAM);
        family.set_metric(now.iter().map(|(of, wait)| metric(of, wait)).collect());
        vec![family]
    }
}
