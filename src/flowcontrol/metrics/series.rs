//! [`Series`]: the metrics of one flow schema in one level. [`Families`] registers the families;
//! [`Level`](crate::flowcontrol::level::Level) decides when each event is counted.

use super::Families;
use prometheus::local::{LocalHistogram, LocalIntCounter};
use prometheus::{HistogramVec, IntCounterVec};
use std::cell::OnceCell;
use std::sync::Arc;
use std::time::Duration;

/// The metrics of one flow schema in one level. A series appears when it is first used, as upstream.
///
/// The level's lock guards it, so the usual updates count in plain memory instead of the shared series, which
/// need several atomic operations each. [`flush`](Self::flush) adds them to the shared series.
pub(crate) struct Series {
    families: Arc<Families>,
    level: Arc<str>,
    schema: Arc<str>,
    dispatched: OnceCell<LocalIntCounter>,
    waited: OnceCell<LocalHistogram>,
    executed: OnceCell<LocalHistogram>,
    queue_length: OnceCell<LocalHistogram>,
    seats: OnceCell<LocalHistogram>,
}

impl Series {
    pub(crate) fn new(families: &Arc<Families>, level: &Arc<str>, schema: &str) -> Self {
        Self {
            families: families.clone(),
            level: level.clone(),
            schema: schema.into(),
            dispatched: OnceCell::new(),
            waited: OnceCell::new(),
            executed: OnceCell::new(),
            queue_length: OnceCell::new(),
            seats: OnceCell::new(),
        }
    }

    /// Name of the flow schema.
    pub(crate) fn schema(&self) -> &Arc<str> {
        &self.schema
    }

    fn labels(&self) -> [&str; 2] {
        [&self.level, &self.schema]
    }

    fn with(&self, label: &'static str) -> [&str; 3] {
        [&self.level, &self.schema, label]
    }

    /// A request was let through.
    pub(crate) fn dispatched(&self) {
        let family: &IntCounterVec = &self.families.dispatched;
        // The family was made with its labels in this order.
        let of = || family.with_label_values(&[&*self.schema, &*self.level]).local();
        self.dispatched.get_or_init(of).inc();
    }

    /// A request was rejected.
    pub(crate) fn rejected(&self, reason: &'static str) {
        // Not cached: rejections are rare, and the reasons would need a cell each.
        self.families.rejected.with_label_values(&self.with(reason)).inc();
    }

    /// A request waited, and then was executed or gave up.
    pub(crate) fn waited(&self, time: Duration, executed: bool) {
        let seconds = time.as_secs_f64();
        if executed {
            observe(&self.waited, &self.families.waited, &self.with("true"), seconds);
        } else {
            let given_up = self.families.waited.with_label_values(&self.with("false"));
            given_up.observe(seconds);
        }
    }

    /// A request was executed.
    pub(crate) fn executed(&self, time: Duration, watch: bool) {
        let seconds = time.as_secs_f64();
        if watch {
            let watches = self.families.executed.with_label_values(&self.with("watch"));
            watches.observe(seconds);
        } else {
            observe(&self.executed, &self.families.executed, &self.with("regular"), seconds);
        }
    }

    /// A request joined a queue.
    pub(crate) fn queue_length(&self, length: u32) {
        let family = &self.families.queue_length;
        observe(&self.queue_length, family, &self.labels(), f64::from(length));
    }

    /// A request was estimated.
    pub(crate) fn seats(&self, seats: u32) {
        observe(&self.seats, &self.families.seats, &self.labels(), f64::from(seats));
    }

    /// A write had that many interested watches.
    pub(crate) fn watches(&self, watches: u32) {
        let samples = self.families.watches.with_label_values(&self.labels());
        samples.observe(f64::from(watches));
    }

    /// Adds the local counts to the shared series, before a scrape reads them.
    pub(crate) fn flush(&self) {
        if let Some(counter) = self.dispatched.get() {
            counter.flush();
        }
        for histogram in [&self.waited, &self.executed, &self.queue_length, &self.seats] {
            if let Some(histogram) = histogram.get() {
                histogram.flush();
            }
        }
    }
}

impl Drop for Series {
    /// The counts of a level outlive it.
    fn drop(&mut self) {
        self.flush();
    }
}

fn observe(cell: &OnceCell<LocalHistogram>, family: &HistogramVec, labels: &[&str], value: f64) {
    cell.get_or_init(|| family.with_label_values(labels).local())
        .observe(value);
}
