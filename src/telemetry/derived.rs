//! [`Derived`]: histogram families computed at a scrape from other families, under other names and labels, so
//! that a request pays for one observation only.

use super::VALID;
use prometheus::core::{Collector, Desc};
use prometheus::proto::{Bucket, Histogram, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{HistogramVec, Registry};
use std::collections::BTreeMap;

/// Maps the labels of a source series to those of the derived one; `None` drops the series. Series mapped to
/// equal labels are summed.
type Relabel = fn(&[LabelPair]) -> Option<Vec<LabelPair>>;

/// A histogram family derived from others. Its buckets must be a subset of each source's.
pub(super) struct Derived {
    desc: Desc,
    buckets: &'static [f64],
    sources: Vec<(HistogramVec, Relabel)>,
}

impl Derived {
    /// Registers a family with these `labels` and `buckets`, derived from `sources`.
    pub(super) fn register(
        r: &Registry,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: &'static [f64],
        sources: Vec<(HistogramVec, Relabel)>,
    ) {
        let labels = labels.iter().map(|l| (*l).to_owned()).collect();
        let desc = Desc::new(name.to_owned(), help.to_owned(), labels, Default::default()).expect(VALID);
        let family = Self { desc, buckets, sources };
        r.register(Box::new(family)).expect(VALID);
    }
}

impl Collector for Derived {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut sums: BTreeMap<Vec<(String, String)>, (Vec<LabelPair>, Sum)> = BTreeMap::new();
        for (source, relabel) in &self.sources {
            for series in source.collect().iter().flat_map(MetricFamily::get_metric) {
                let Some(labels) = relabel(series.get_label()) else {
                    continue;
                };
                // `LabelPair` has no order, so its strings are the key; the map also sorts the output.
                let key = labels.iter().map(|l| (l.name().to_owned(), l.value().to_owned()));
                let (_, sum) = sums
                    .entry(key.collect())
                    .or_insert_with(|| (labels, Sum::of(self.buckets.len())));
                sum.add(series.get_histogram(), self.buckets);
            }
        }
        let series = sums.into_values().map(|(labels, sum)| {
            let mut metric = Metric::from_label(labels);
            metric.set_histogram(sum.histogram(self.buckets));
            metric
        });
        let mut family = MetricFamily::default();
        family.set_name(self.desc.fq_name.clone());
        family.set_help(self.desc.help.clone());
        family.set_field_type(MetricType::HISTOGRAM);
        family.set_metric(series.collect());
        vec![family]
    }
}

struct Sum {
    /// Cumulative counts per bucket.
    counts: Vec<u64>,
    count: u64,
    sum: f64,
}

impl Sum {
    fn of(buckets: usize) -> Self {
        Self {
            counts: vec![0; buckets],
            count: 0,
            sum: 0.0,
        }
    }

    fn add(&mut self, h: &Histogram, buckets: &[f64]) {
        // Both lists are sorted, and every bound of ours exists in theirs.
        let mut theirs = h.get_bucket().iter();
        for (count, bound) in self.counts.iter_mut().zip(buckets) {
            // Goes on behind the last match, so both lists are read once.
            let same = theirs.find(|b| b.upper_bound() >= *bound);
            // Without such a bound only infinity is above, which counts every sample.
            *count += same.map_or(h.get_sample_count(), Bucket::cumulative_count);
        }
        self.count += h.get_sample_count();
        self.sum += h.get_sample_sum();
    }

    fn histogram(self, buckets: &[f64]) -> Histogram {
        let all = buckets.iter().zip(self.counts).map(|(bound, count)| {
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(*bound);
            bucket.set_cumulative_count(count);
            bucket
        });
        let mut h = Histogram::default();
        h.set_bucket(all.collect());
        h.set_sample_count(self.count);
        h.set_sample_sum(self.sum);
        h
    }
}

/// Creates a label pair.
pub(super) fn label(name: &str, value: &str) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.to_owned());
    pair.set_value(value.to_owned());
    pair
}

#[cfg(test)]
mod tests {
    use crate::telemetry::Telemetry;
    use crate::telemetry::requests::Labels;

    #[test]
    fn one_observation_appears_in_all_derived_families() {
        let t = Telemetry::new();
        t.requests.serve("", "", [("pods", Vec::new())].into_iter());
        let observe = |verb, dry_run, seconds| {
            let labels = Labels {
                verb,
                dry_run,
                resource: "pods",
                ..Labels::default()
            };
            t.requests.series(&labels, 200).duration.observe(seconds);
        };
        observe("POST", "", 0.01);
        observe("POST", "", 0.3);
        observe("POST", "All", 100.0);
        observe("WATCH", "", 0.01);
        let authentication = |result| t.authentication_duration.with_label_values(&[result]);
        authentication("success").observe(0.000_2);
        authentication("success").observe(0.000_5);
        authentication("failure").observe(0.003);
        t.authorization_duration.with_label_values(&["allowed"]).observe(20.0);

        let text = String::from_utf8(t.text()).unwrap();
        let pods = "component=\"\",group=\"\",resource=\"pods\",scope=\"\",subresource=\"\"";
        let post = format!("{{{pods},verb=\"POST\",version=\"\"");
        for line in [
            // Dry runs are merged; watches are excluded.
            format!("apiserver_request_sli_duration_seconds_bucket{post},le=\"0.05\"}} 1"),
            format!("apiserver_request_sli_duration_seconds_bucket{post},le=\"0.4\"}} 2"),
            format!("apiserver_request_sli_duration_seconds_bucket{post},le=\"60\"}} 2"),
            format!("apiserver_request_sli_duration_seconds_bucket{post},le=\"+Inf\"}} 3"),
            format!("apiserver_request_sli_duration_seconds_count{post}}} 3"),
            "authentication_duration_seconds_bucket{result=\"success\",le=\"0.001\"} 2".to_owned(),
            "authentication_duration_seconds_count{result=\"failure\"} 1".to_owned(),
            "authorization_duration_seconds_bucket{result=\"allowed\",le=\"16.384\"} 0".to_owned(),
            "apiserver_request_filter_duration_seconds_bucket{filter=\"authentication\",le=\"0.0001\"} 0".to_owned(),
            "apiserver_request_filter_duration_seconds_bucket{filter=\"authentication\",le=\"0.0003\"} 1".to_owned(),
            "apiserver_request_filter_duration_seconds_bucket{filter=\"authentication\",le=\"0.001\"} 2".to_owned(),
            "apiserver_request_filter_duration_seconds_count{filter=\"authentication\"} 3".to_owned(),
            "apiserver_request_filter_duration_seconds_bucket{filter=\"authorization\",le=\"30\"} 1".to_owned(),
        ] {
            assert!(text.contains(&line), "{line} in {text}");
        }
        let shortest = format!("apiserver_request_sli_duration_seconds_bucket{post},le=\"0.005\"");
        assert!(!text.contains(&shortest), "its buckets are upstream's");
        assert!(!text.contains("le=\"0.0001\",result"), "{text}");
        let sli = text.lines().filter(|l| l.starts_with("apiserver_request_sli_"));
        assert!(sli.clone().count() > 0 && sli.into_iter().all(|l| !l.contains("WATCH")));
    }
}
