//! A resource's storage whose writes are counted. Reads and watches pass through untouched.

use crate::storage::{
    Budget, Draft, Entry, Error, ListOptions, Listing, MinRevision, Precondition, Revision, Storage, Watch,
    WatchOptions,
};
use crate::telemetry::{StorageMetrics, Write};
use async_trait::async_trait;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The storage and its series.
pub struct Measured {
    inner: Arc<dyn Storage>,
    metrics: StorageMetrics,
    /// The newest revision written here: whoever is told of a write is told after this says so.
    wrote: AtomicU64,
}

impl Measured {
    /// Counts what passes under `metrics`.
    pub fn new(inner: Arc<dyn Storage>, metrics: StorageMetrics) -> Self {
        Self {
            inner,
            metrics,
            wrote: AtomicU64::new(0),
        }
    }
}

impl Measured {
    fn wrote(&self, outcome: &Result<Arc<Entry>, Error>) {
        if let Ok(entry) = outcome {
            self.wrote.fetch_max(entry.revision.0, Ordering::Release);
        }
    }
}

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

// Reads hand out the inner future as it is: the hot paths pay one call, no allocation.
#[async_trait]
impl Storage for Measured {
    fn get<'s, 'k, 'f>(&'s self, key: &'k str, min: MinRevision) -> Answer<'f, Option<Arc<Entry>>>
    where
        's: 'f,
        'k: 'f,
        Self: 'f,
    {
        self.inner.get(key, min)
    }

    fn list<'s, 'f>(&'s self, options: ListOptions) -> Answer<'f, Listing>
    where
        's: 'f,
        Self: 'f,
    {
        self.inner.list(options)
    }

    fn watch<'s, 'f>(&'s self, options: WatchOptions) -> Answer<'f, Box<dyn Watch>>
    where
        's: 'f,
        Self: 'f,
    {
        self.inner.watch(options)
    }

    async fn put(
        &self,
        key: &str,
        when: Precondition,
        draft: Draft,
        ttl_seconds: Option<u64>,
    ) -> Result<Arc<Entry>, Error> {
        let what = match when {
            Precondition::Absent => Write::Create,
            Precondition::Unchanged(_) => Write::Update,
        };
        let since = Instant::now();
        let outcome = self.inner.put(key, when, draft, ttl_seconds).await;
        self.metrics.wrote(what, since.elapsed());
        self.wrote(&outcome);
        outcome
    }

    async fn delete(&self, key: &str, unchanged: Revision) -> Result<Arc<Entry>, Error> {
        let since = Instant::now();
        let outcome = self.inner.delete(key, unchanged).await;
        self.metrics.wrote(Write::Delete, since.elapsed());
        self.wrote(&outcome);
        outcome
    }

    fn revision(&self) -> Revision {
        self.inner.revision()
    }

    fn changed(&self) -> Revision {
        let wrote = Revision(self.wrote.load(Ordering::Acquire));
        self.inner.changed().max(wrote)
    }

    fn count(&self) -> usize {
        self.inner.count()
    }

    fn budget(&self) -> Option<&Arc<Budget>> {
        self.inner.budget()
    }
}
