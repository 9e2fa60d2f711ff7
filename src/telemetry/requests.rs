//! Metrics of the request path ([`RequestMetrics`]). A request finds its series with one hash over borrowed
//! labels in a snapshot; only a new combination of labels takes a lock. Names that are not served are counted
//! as `other` (`known`), so that the number of series is bounded by what is served and not by the names
//! clients invent.

mod known;

use super::derived::Derived;
use super::{counters, histograms, int_gauges};
use arc_swap::ArcSwap;
use known::{OTHER, Origin, ServedNames};
use prometheus::core::{Collector as _, MetricVec, MetricVecBuilder};
use prometheus::proto::LabelPair;
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Registry};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use crate::sync::Mutex;

/// Buckets of `apiserver_request_duration_seconds`, as upstream's.
pub(super) const DURATION: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];

/// Buckets of `apiserver_request_sli_duration_seconds`, as upstream's; a subset of [`DURATION`].
const SLI: [f64; 21] = [
    0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
];

const LABELS: [&str; 8] = [
    "verb",
    "dry_run",
    "group",
    "version",
    "resource",
    "subresource",
    "scope",
    "component",
];

/// The labels that most families have.
fn labels_without_dry_run() -> Vec<&'static str> {
    LABELS.into_iter().filter(|l| *l != "dry_run").collect()
}

/// Maximum number of series per resource; further label combinations share one series.
const MAX_SERIES: usize = 256;

/// Labels of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Labels<'a> {
    /// `GET`, `LIST`, `WATCH`, `POST`, `PUT`, `PATCH`, `APPLY`, `DELETE`, `DELETECOLLECTION`, `CONNECT`,
    /// `other`.
    pub verb: &'static str,
    /// `All` for dry runs, else empty.
    pub dry_run: &'static str,
    /// API group; empty for core and for non-resource requests.
    pub group: &'a str,
    /// API version; empty for non-resource requests.
    pub version: &'a str,
    /// Plural name of the resource.
    pub resource: &'a str,
    /// Subresource, or the path of a non-resource request.
    pub subresource: &'a str,
    /// `resource`, `namespace`, `cluster` or empty.
    pub scope: &'static str,
    /// `apiserver`, `aggregator` or empty.
    pub component: &'static str,
}

/// The request families and a cache of their series.
pub struct RequestMetrics {
    total: IntCounterVec,
    duration: HistogramVec,
    sizes: HistogramVec,
    // These three are counted rarely enough for a lookup by label values at each use.
    longrunning: IntGaugeVec,
    terminations: IntCounterVec,
    aborts: IntCounterVec,
    late: LateResults,
    hasher: RandomState,
    // By the hash of the labels, so that a lookup with borrowed labels needs no owned key; a `Vec`, because hashes
    // may collide.
    known: ArcSwap<HashMap<u64, Vec<Arc<Series>>>>,
    names: ServedNames,
    /// Number of series per group, version and resource. Its lock serializes additions.
    adding: Mutex<HashMap<[String; 3], usize>>,
}

/// The series of one label combination and status code.
pub struct Series {
    key: OwnedLabels,
    code: u16,
    /// `apiserver_request_total`.
    pub total: IntCounter,
    /// `apiserver_request_duration_seconds`.
    pub duration: Histogram,
    /// `apiserver_response_sizes`, for GET and LIST only.
    pub size: Option<Histogram>,
}

/// `apiserver_request_post_timeout_total`: writes that finished after their request had timed out or its
/// client had disconnected.
#[derive(Clone)]
pub struct LateResults {
    ok: IntCounter,
    error: IntCounter,
}

impl LateResults {
    fn new(r: &Registry) -> Self {
        let family = counters(
            r,
            "apiserver_request_post_timeout_total",
            "Writes that finished after their request had timed out or its client had disconnected, by result.",
            &["source", "status"],
        );
        // Of upstream's sources, only this one occurs here.
        let of = |status| family.with_label_values(&["rest-handler", status]);
        Self {
            ok: of("ok"),
            error: of("error"),
        }
    }

    /// Counts a late result; `is_ok` if the write succeeded.
    pub fn count(&self, is_ok: bool) {
        if is_ok { &self.ok } else { &self.error }.inc();
    }
}

#[derive(PartialEq, Eq)]
struct OwnedLabels {
    verb: &'static str,
    dry_run: &'static str,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    scope: &'static str,
    component: &'static str,
}

impl RequestMetrics {
    pub(super) fn new(r: &Registry) -> Self {
        // Upstream's label sets differ by family: only the first two tell dry runs apart.
        let fewer = labels_without_dry_run();
        let with_code = |l: &[&'static str]| -> Vec<&'static str> { l.iter().copied().chain(["code"]).collect() };
        // As upstream's: from a kilobyte, by powers of ten.
        let sizes: Vec<f64> = (0..7).map(|i| 1000.0 * 10f64.powi(i)).collect();
        Self {
            total: counters(r, "apiserver_request_total", "Answered requests.", &with_code(&LABELS)),
            duration: histograms(
                r,
                "apiserver_request_duration_seconds",
                "Seconds from a request's arrival to the end of its answer.",
                &LABELS,
                &DURATION,
            ),
            sizes: histograms(
                r,
                "apiserver_response_sizes",
                "Bytes of the answers to GET and LIST.",
                &fewer,
                &sizes,
            ),
            longrunning: int_gauges(
                r,
                "apiserver_longrunning_requests",
                "Long-running requests being served.",
                &fewer,
            ),
            terminations: counters(
                r,
                "apiserver_request_terminations_total",
                "Requests the server ended in self-defence.",
                &with_code(&fewer),
            ),
            aborts: counters(
                r,
                "apiserver_request_aborts_total",
                "Requests whose response was aborted.",
                &["verb", "group", "version", "resource", "subresource", "scope"],
            ),
            late: LateResults::new(r),
            hasher: RandomState::new(),
            known: ArcSwap::default(),
            names: ServedNames::default(),
            adding: Mutex::default(),
        }
    }

    /// Registers `apiserver_request_sli_duration_seconds`: the duration without time spent waiting for
    /// others. Requests wait neither in queues nor for webhooks here, so it equals the duration; watches are
    /// excluded.
    pub(super) fn derive(&self, r: &Registry) {
        let relabel: fn(&[LabelPair]) -> Option<Vec<LabelPair>> = |labels| {
            let is_watch = labels.iter().any(|l| l.name() == "verb" && l.value() == "WATCH");
            (!is_watch).then(|| labels.iter().filter(|l| l.name() != "dry_run").cloned().collect())
        };
        Derived::register(
            r,
            "apiserver_request_sli_duration_seconds",
            "Seconds from a request's arrival to the end of its response, excluding waits in queues and for webhooks.",
            &labels_without_dry_run(),
            &SLI,
            vec![(self.duration.clone(), relabel)],
        );
    }

    /// Registers the resources that this process serves in a group version, with their subresources, as label
    /// values.
    pub fn serve<'a>(
        &self,
        group: &str,
        version: &str,
        resources: impl Iterator<Item = (&'a str, Vec<&'a str>)> + Clone,
    ) {
        self.names.add(Origin::InProcess, group, version, resources);
    }

    /// This process no longer serves the group version.
    pub fn stop_serving(&self, group: &str, version: &str) {
        self.names.remove(Origin::InProcess, group, version);
    }

    /// Registers the group version of an APIService as label values, or removes it.
    pub fn set_registered(&self, group: &str, version: &str, registered: bool) {
        match registered {
            true => self.names.add(Origin::ApiService, group, version, std::iter::empty()),
            false => self.names.remove(Origin::ApiService, group, version),
        }
    }

    /// Removes the series of group versions that are no longer served. Takes time in proportion to all
    /// series, so it is done when they are collected.
    pub(super) fn purge(&self) {
        let gone = self.names.take_gone();
        if gone.is_empty() {
            return;
        }
        let is_gone = |group: &str, version: &str| gone.contains(&(Box::from(group), Box::from(version)));
        {
            let mut adding = self.adding.lock();
            // Under the lock of additions, or a series added meanwhile would be lost with the old snapshot.
            adding.retain(|[group, version, _], _| !is_gone(group, version));
            let mut known = HashMap::clone(&self.known.load());
            known.retain(|_, all| {
                all.retain(|series| !is_gone(&series.key.group, &series.key.version));
                !all.is_empty()
            });
            self.known.store(Arc::new(known));
        }
        // After the snapshot: a request that still holds a removed series counts into nothing, which is harmless.
        remove_series(&self.total, is_gone);
        remove_series(&self.duration, is_gone);
        remove_series(&self.sizes, is_gone);
        remove_series(&self.longrunning, is_gone);
        remove_series(&self.terminations, is_gone);
        remove_series(&self.aborts, is_gone);
    }

    /// Returns the series for a response.
    pub fn series(&self, labels: &Labels<'_>, code: u16) -> Arc<Series> {
        if let Some(series) = self.find(&self.known.load(), labels, code) {
            return series;
        }
        // Clients choose paths, so only one that a handler answered becomes a label value.
        if labels.resource.is_empty() && code < 400 {
            self.names.add_path(labels.subresource);
        }
        let labels = self.names.normalize(labels);
        self.add(&labels, code)
    }

    fn find(&self, known: &HashMap<u64, Vec<Arc<Series>>>, labels: &Labels<'_>, code: u16) -> Option<Arc<Series>> {
        // A keyed hash: clients choose some of the labels and must not be able to make them collide.
        let hash = self.hasher.hash_one((labels, code));
        // Compared as well, because two combinations may have one hash.
        let found = known.get(&hash)?.iter().find(|s| s.code == code && s.key.is(labels))?;
        Some(found.clone())
    }

    /// Returns or creates the series of labels that have been folded.
    fn add(&self, labels: &Labels<'_>, code: u16) -> Arc<Series> {
        let mut adding = self.adding.lock();
        let known = self.known.load_full();
        if let Some(series) = self.find(&known, labels, code) {
            return series;
        }
        // A limit of its own for each resource: a client that varies one cannot use up the series of the others.
        let key = [labels.group, labels.version, labels.resource].map(str::to_owned);
        let count = adding.entry(key).or_default();
        // Beyond the limit all further combinations share one series; code 0 stands for all codes.
        let (labels, code) = match *count {
            MAX_SERIES => (labels.overflow(), 0),
            _ => (*labels, code),
        };
        if let Some(series) = self.find(&known, &labels, code) {
            return series;
        }
        // Stays at the limit when the shared series is added: the `match` above compares with exactly that.
        *count = (*count + 1).min(MAX_SERIES);
        let series = Arc::new(self.make(&labels, code));
        // Copy on write: new series are rare, and readers stay lock-free.
        let mut map = HashMap::clone(&known);
        map.entry(self.hasher.hash_one((&labels, code)))
            .or_default()
            .push(series.clone());
        self.known.store(Arc::new(map));
        series
    }

    fn make(&self, l: &Labels<'_>, code: u16) -> Series {
        let code_text = match code {
            0 => OTHER.to_owned(),
            code => code.to_string(),
        };
        let all = l.values();
        let mut with_code = all.to_vec();
        with_code.push(&code_text);
        Series {
            key: OwnedLabels {
                verb: l.verb,
                dry_run: l.dry_run,
                group: l.group.to_owned(),
                version: l.version.to_owned(),
                resource: l.resource.to_owned(),
                subresource: l.subresource.to_owned(),
                scope: l.scope,
                component: l.component,
            },
            code,
            total: self.total.with_label_values(&with_code),
            duration: self.duration.with_label_values(&all),
            size: matches!(l.verb, "GET" | "LIST").then(|| self.sizes.with_label_values(&l.values_without_dry_run())),
        }
    }

    /// Returns the gauge of long-running requests with these labels.
    pub fn longrunning(&self, l: &Labels<'_>) -> prometheus::IntGauge {
        self.longrunning
            .with_label_values(&self.names.normalize(l).values_without_dry_run())
    }

    /// Counts a request that the server ended early: overload, timeout or unavailable backend.
    pub fn terminated(&self, l: &Labels<'_>, code: u16) {
        let code = code.to_string();
        let normalized = self.names.normalize(l);
        let mut values = normalized.values_without_dry_run().to_vec();
        values.push(&code);
        self.terminations.with_label_values(&values).inc();
    }

    /// Returns the counters of writes that finish after their request.
    pub fn late(&self) -> LateResults {
        self.late.clone()
    }

    /// Counts a response that was aborted.
    pub fn aborted(&self, l: &Labels<'_>) {
        let l = self.names.normalize(l);
        self.aborts
            .with_label_values(&[l.verb, l.group, l.version, l.resource, l.subresource, l.scope])
            .inc();
    }
}

/// Removes the series of some group versions from a family.
fn remove_series<B: MetricVecBuilder>(family: &MetricVec<B>, is_gone: impl Fn(&str, &str) -> bool) {
    for collected in family.collect() {
        for metric in collected.get_metric() {
            let labels: HashMap<&str, &str> = metric.get_label().iter().map(|l| (l.name(), l.value())).collect();
            let of = |name| labels.get(name).copied().unwrap_or_default();
            if is_gone(of("group"), of("version")) {
                // It cannot be absent, but if it were, nothing would be left to do.
                let _ = family.remove(&labels);
            }
        }
    }
}

impl<'a> Labels<'a> {
    /// In the order of [`LABELS`].
    fn values(&self) -> [&'a str; 8] {
        [
            self.verb,
            self.dry_run,
            self.group,
            self.version,
            self.resource,
            self.subresource,
            self.scope,
            self.component,
        ]
    }

    /// In the order of [`labels_without_dry_run`].
    fn values_without_dry_run(&self) -> [&'a str; 7] {
        let [verb, _, rest @ ..] = self.values();
        let [group, version, resource, subresource, scope, component] = rest;
        [verb, group, version, resource, subresource, scope, component]
    }

    /// The labels of the shared series of a resource that has too many of its own.
    fn overflow(&self) -> Self {
        Self {
            verb: OTHER,
            group: self.group,
            version: self.version,
            resource: self.resource,
            component: self.component,
            ..Labels::default()
        }
    }
}

impl OwnedLabels {
    fn is(&self, l: &Labels<'_>) -> bool {
        self.verb == l.verb
            && self.dry_run == l.dry_run
            && self.group == l.group
            && self.version == l.version
            && self.resource == l.resource
            && self.subresource == l.subresource
            && self.scope == l.scope
            && self.component == l.component
    }
}

#[cfg(test)]
mod tests;
