//! [`Handle`]: the [`Storage`] of one resource on etcd. It decides which reads the cache answers, as upstream
//! does in `pkg/storage/cacher/delegator.go`:
//!
//! | requested state | all members report progress reliably | some do not |
//! |---|---|---|
//! | any | cache, with the writes of this process | the same |
//! | at least N | cache, once it has reached N | cache if it has reached N, else etcd |
//! | latest | cache, once it has reached etcd's current revision; etcd if that takes too long | etcd |
//! | exactly N | cache, if it has reached N and its history covers it; else etcd | the same |
//!
//! Writes are acknowledged before their events arrive: whoever must see the writes of this process waits for the
//! event, usually a fraction of a millisecond, instead of every writer.
//!
//! A get of the latest state always reads from etcd. Responses from etcd reuse the cache's entry of an object
//! at the same revision, so only new state is transferred and decoded.

use super::direct;
use super::progress::Waiter;
use super::resource::{OWN_WRITE, Resource, Serving};
use crate::storage::{
    Budget, ContinueToken, Draft, Entry, Error, ListOptions, Listing, MinRevision, Precondition, Revision, Storage,
    VersionMatch, Watch, WatchOptions,
};
use async_trait::async_trait;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// Polling interval while waiting for a future revision.
const POLL: Duration = Duration::from_millis(20);

/// The store of a resource as the registry uses it.
pub(super) struct Handle(pub Arc<Resource>);

impl Handle {
    fn is_trusted(&self) -> bool {
        self.0.shared.progress_reliable.load(Ordering::Acquire)
    }

    /// Waits until etcd has reached a revision.
    async fn await_revision(&self, requested: Revision) -> Result<(), Error> {
        // etcd offers no way to wait for a revision, so it is polled.
        let give_up = Instant::now() + self.0.shared.freshness_wait;
        loop {
            let current = self.0.current().await?;
            if current >= requested {
                return Ok(());
            }
            if Instant::now() + POLL > give_up {
                return Err(Error::TooNew { requested, current });
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits until the cache shows what this process has written, unless the events are overdue.
    async fn with_own_writes(&self, serving: &Serving) {
        let wrote = self.0.last_write();
        if serving.progress.applied() < wrote {
            // Boxed, because it is rare and its state would be part of every read's.
            Box::pin(self.0.own_event(serving, wrote, OWN_WRITE)).await;
        }
    }

    /// Whether a revision is one that this process has written, and its event has come within the time after
    /// which progress would be requested.
    async fn has_own_event(&self, serving: &Serving, revision: Revision) -> bool {
        let retry = self.0.shared.progress_retry;
        revision <= self.0.last_write() && Box::pin(self.0.own_event(serving, revision, retry)).await
    }

    async fn get_from_etcd(&self, key: &str, min: MinRevision) -> Result<Option<Arc<Entry>>, Error> {
        // The answer to the read carries etcd's revision, so the usual case needs no second call.
        let (entry, reached) = self.0.read(key, None).await?;
        match min {
            MinRevision::AtLeast(requested) if reached < requested => {
                self.await_revision(requested).await?;
                Ok(self.0.read(key, None).await?.0)
            }
            _ => Ok(entry),
        }
    }

    /// Waits until the cache has reached a revision of etcd, requesting progress.
    async fn catch_up(&self, serving: &Serving, waiter: Waiter<'_>, revision: Revision) -> Result<(), Error> {
        if serving.progress.applied() >= revision {
            return Ok(());
        }
        // Registered before waiting, so that the feed requests progress.
        waiter.wants(revision);
        let there = serving.cacher.wait_for(revision).await;
        if there.is_err() {
            // The watch may hang; the feed reopens it if it has heard nothing for long.
            self.0.lagging.notify_one();
        }
        there
    }

    /// Waits until the cache has reached etcd's current revision. The cache usually misses only revisions
    /// that a response has named already, so progress is requested while the current revision is read.
    ///
    /// # Errors
    /// The outer ones are those of the read.
    async fn catch_up_with_etcd(&self, serving: &Serving) -> Result<Result<(), Error>, Error> {
        // The events of this process's writes come without a request.
        self.with_own_writes(serving).await;
        // Registered at once with the newest revision known: the progress response travels while the read
        // below does.
        let waiter = self.0.waiters.register(self.0.shared.members.seen());
        let current = self.0.current().await?;
        Ok(self.catch_up(serving, waiter, current).await)
    }

    /// Starts a watch whose initial state is etcd's current one, without relying on progress requests:
    /// compares keys and revisions until the cache holds that state.
    async fn watch_verified(&self, serving: &Serving, options: &WatchOptions) -> Result<Box<dyn Watch>, Error> {
        let (prefix, single) = (&options.prefix, options.single);
        // Keys and revisions only; comparing them decides without transferring a value.
        let (revision, pairs) = direct::keys(&self.0, prefix, single).await?;
        let give_up = Instant::now() + self.0.shared.freshness_wait;
        loop {
            let state = serving.cacher.snapshot();
            let reached = serving.progress.applied() >= revision;
            if reached || direct::same(&state, prefix, single, &pairs) {
                if reached {
                    return serving.cacher.watch(options.clone()).await;
                }
                let seen = state.revision;
                if let Some(watch) = serving.cacher.watch_confirmed(options.clone(), seen, revision)? {
                    return Ok(watch);
                }
                // The cache has changed in between; compare again.
                continue;
            }
            if Instant::now() + POLL > give_up {
                let current = serving.progress.applied();
                return Err(Error::TooNew {
                    requested: revision,
                    current,
                });
            }
            tokio::time::sleep(POLL / 4).await;
        }
    }

    async fn exact(&self, revision: Revision, options: &ListOptions) -> Result<Listing, Error> {
        if let Some(serving) = self.0.ready()
            && serving.progress.applied() >= revision
        {
            match serving.cacher.list(options.clone()).await {
                // Older than the ring, but etcd keeps history for minutes.
                Err(Error::Compacted(_)) => {}
                answer => return answer,
            }
        } else {
            self.await_revision(revision).await?;
        }
        direct::list(&self.0, options, Some(revision)).await
    }

    /// A list from the cache once its watch has brought `revision`, or else from etcd.
    async fn at_least(&self, serving: &Serving, revision: Revision, options: ListOptions) -> Result<Listing, Error> {
        // A future revision must fail here: etcd's own answer to it has another form.
        if self.0.shared.members.seen() < revision {
            self.await_revision(revision).await?;
        }
        // Progress is requested only if the event of a write of this process does not come.
        if self.has_own_event(serving, revision).await {
            return serving.cacher.list(options).await;
        }
        if self.is_trusted() {
            let waiter = self.0.waiters.register(revision);
            if self.catch_up(serving, waiter, revision).await.is_ok() {
                return serving.cacher.list(options).await;
            }
        }
        // The newest state is at least as new as requested.
        direct::list(&self.0, &options, None).await
    }

    async fn latest(&self, mut options: ListOptions) -> Result<Listing, Error> {
        if self.is_trusted() {
            let serving = self.0.serving().await?;
            if self.catch_up_with_etcd(&serving).await?.is_ok() {
                // A token without a revision continues at this state.
                options.version = VersionMatch::NotOlderThan(MinRevision::Latest);
                return serving.cacher.list(options).await;
            }
            // A lagging cache costs latency, never consistency: etcd answers instead.
            let answer = direct::list(&self.0, &options, None).await;
            self.0.counters.consistent[if answer.is_ok() { 1 } else { 2 }].add(1);
            return answer;
        }
        direct::list(&self.0, &options, None).await
    }
}

#[async_trait]
impl Storage for Handle {
    async fn get(&self, key: &str, min: MinRevision) -> Result<Option<Arc<Entry>>, Error> {
        if self.0.is_stopped() {
            return Err(Error::NotReady(1));
        }
        match (min, self.0.ready()) {
            (MinRevision::Any, Some(serving)) => {
                self.with_own_writes(&serving).await;
                Ok(serving.cacher.peek(key))
            }
            (MinRevision::AtLeast(revision), Some(serving))
                if serving.progress.applied() >= revision || self.has_own_event(&serving, revision).await =>
            {
                Ok(serving.cacher.peek(key))
            }
            // Boxed, because the state of a call is kilobytes, which answers from the cache would move
            // around.
            _ => Box::pin(self.get_from_etcd(key, min)).await,
        }
    }

    async fn list(&self, options: ListOptions) -> Result<Listing, Error> {
        if self.0.is_stopped() {
            return Err(Error::NotReady(1));
        }
        self.0.shared.compaction.check(&options)?;
        let exact = match (&options.token, options.version) {
            (Some(ContinueToken { revision, .. }), _) => *revision,
            (None, VersionMatch::Exact(revision)) => Some(revision),
            (None, VersionMatch::NotOlderThan(_)) => None,
        };
        if let Some(revision) = exact {
            return Box::pin(self.exact(revision, &options)).await;
        }
        // While the cache loads, etcd answers lists that are cheap for it; upstream's rule.
        if options.limit > 0 && options.predicate.is_everything() && self.0.ready().is_none() {
            return Box::pin(direct::list(&self.0, &options, None)).await;
        }
        // Boxed as in `get`.
        match options.version {
            VersionMatch::NotOlderThan(MinRevision::Any) => {
                let serving = self.0.serving().await?;
                self.with_own_writes(&serving).await;
                serving.cacher.list(options).await
            }
            VersionMatch::NotOlderThan(MinRevision::AtLeast(revision)) => {
                let serving = self.0.serving().await?;
                if serving.progress.applied() >= revision {
                    return serving.cacher.list(options).await;
                }
                Box::pin(self.at_least(&serving, revision, options)).await
            }
            _ => Box::pin(self.latest(options)).await,
        }
    }

    async fn watch(&self, mut options: WatchOptions) -> Result<Box<dyn Watch>, Error> {
        let serving = self.0.serving().await?;
        match options.initial {
            None if options.since.is_none() => {
                // A watch without a revision starts now; the cache may be ahead of the last read's answer by
                // the time it returns.
                options.since = Some(self.0.current().await?.max(serving.progress.applied()));
            }
            None => {}
            Some(MinRevision::Any) => self.with_own_writes(&serving).await,
            Some(min) => {
                let requested = match min {
                    MinRevision::AtLeast(revision) => revision,
                    // The latest state: no cached revision suffices without asking etcd.
                    _ => Revision(u64::MAX),
                };
                if serving.progress.applied() < requested {
                    if let MinRevision::AtLeast(revision) = min {
                        self.await_revision(revision).await?;
                    }
                    // The caching layer need not wait again: freshness has been established here.
                    options.initial = Some(MinRevision::Any);
                    if !self.is_trusted() {
                        return self.watch_verified(&serving, &options).await;
                    }
                    self.catch_up_with_etcd(&serving).await??;
                }
                options.initial = Some(MinRevision::Any);
            }
        }
        serving.cacher.watch(options).await
    }

    async fn put(
        &self,
        key: &str,
        when: Precondition,
        draft: Draft,
        ttl_seconds: Option<u64>,
    ) -> Result<Arc<Entry>, Error> {
        if self.0.is_stopped() {
            return Err(Error::NotReady(1));
        }
        self.0.put(key, when, draft, ttl_seconds).await
    }

    async fn delete(&self, key: &str, unchanged: Revision) -> Result<Arc<Entry>, Error> {
        if self.0.is_stopped() {
            return Err(Error::NotReady(1));
        }
        self.0.delete(key, unchanged).await
    }

    fn revision(&self) -> Revision {
        self.0.shared.members.seen()
    }

    fn last_change(&self) -> Revision {
        // A write of our own counts before its event arrives, so that a cached list is known to be old.
        let wrote = self.0.last_write();
        self.0.ready().map_or(wrote, |s| s.cacher.last_change().max(wrote))
    }

    fn last_change_in(&self, namespace: &str, since: Revision) -> Option<Revision> {
        let wrote = self.0.last_write();
        match self.0.ready() {
            Some(s) if s.cacher.last_change() >= wrote => s.cacher.last_change_in(namespace, since),
            // The namespace of a write is known once its event has arrived.
            _ => Some(self.last_change()).filter(|last| *last > since),
        }
    }

    fn peek_size(&self, key: &str) -> usize {
        let serving = self.0.ready();
        serving
            .and_then(|serving| serving.cacher.peek(key))
            .map_or(0, |e| e.json.len())
    }

    fn peek_revision(&self, key: &str) -> Option<Revision> {
        let serving = self.0.ready()?;
        // After a write, the cache may not have its event yet.
        let wrote = self.0.last_write();
        let current = serving.progress.applied() >= wrote;
        current.then(|| serving.cacher.peek(key))?.map(|entry| entry.revision)
    }

    fn count(&self) -> usize {
        self.0.ready().map_or(0, |s| s.cacher.count())
    }

    fn resident_bytes(&self) -> u64 {
        self.0.ready().map_or(0, |s| s.cacher.snapshot().bytes() as u64)
    }

    fn encoded_bytes(&self) -> Option<u64> {
        let state = self.0.ready()?.cacher.snapshot();
        Some(state.scan("", Bound::Unbounded).map(|e| e.json.len() as u64).sum())
    }

    fn budget(&self) -> Option<&Arc<Budget>> {
        Some(&self.0.shared.budget)
    }
}
