//! The read operations of [`Cacher`]: get, list with paging, and the start of a watch. Each first waits until the
//! state has reached the revision that the caller demands, then reads an immutable snapshot without a lock.

use super::backlog::Backlog;
use super::hub::Subscriber;
use super::scope::Scope;
use super::watch::CacheWatch;
use super::{Cacher, QUEUE, Snapshot};
use crate::storage::interface::VersionMatch;
use crate::storage::{ContinueToken, Entry, Error, ListOptions, Listing, MinRevision, Revision, Watch, WatchOptions};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

impl Cacher {
    fn check_serving(&self) -> Result<(), Error> {
        if self.stopped.load(Ordering::Acquire) {
            Err(Error::NotReady(1))
        } else {
            Ok(())
        }
    }

    async fn wait_fresh(&self, min: MinRevision) -> Result<(), Error> {
        self.check_serving()?;
        match min {
            MinRevision::Latest | MinRevision::Any => Ok(()),
            MinRevision::AtLeast(revision) => self.wait_for(revision).await,
        }
    }

    /// Waits until a revision has been applied, and records the wait.
    ///
    /// # Errors
    /// [`Error::TooNew`] if it is not reached in time.
    ///
    /// # Cancel safety
    /// Cancel safe; a dropped wait is not recorded.
    pub async fn wait_for(&self, revision: Revision) -> Result<(), Error> {
        // Not observed: only actual waits belong into the histogram.
        if self.progress.applied() >= revision {
            return Ok(());
        }
        let since = Instant::now();
        let reached = self.progress.wait_for(revision).await;
        self.counters.waits.observe(since.elapsed());
        reached
    }

    /// As [`Storage::get`](crate::storage::Storage::get).
    ///
    /// # Errors
    /// The same as there.
    pub async fn get(&self, key: &str, min: MinRevision) -> Result<Option<Arc<Entry>>, Error> {
        self.wait_fresh(min).await?;
        Ok(self.peek(key))
    }

    /// Returns the current state and the revision up to which it is current. The revision is read before the
    /// snapshot, so that the snapshot includes everything it covers.
    fn current(&self) -> (Arc<Snapshot>, Revision) {
        let reached = self.progress.applied();
        let state = self.snapshot();
        let revision = reached.max(state.revision);
        (state, revision)
    }

    /// Returns the state to list, its revision, and whether it is the current state.
    async fn state(&self, options: &ListOptions) -> Result<(Arc<Snapshot>, Revision, bool), Error> {
        let exact = match (&options.token, options.version) {
            (Some(ContinueToken { revision, .. }), _) => *revision,
            (None, VersionMatch::Exact(revision)) => Some(revision),
            (None, VersionMatch::NotOlderThan(min)) => {
                self.wait_fresh(min).await?;
                None
            }
        };
        let Some(revision) = exact else {
            // Again after the wait, during which the cache may have been stopped.
            self.check_serving()?;
            let (state, revision) = self.current();
            return Ok((state, revision, true));
        };
        self.wait_fresh(MinRevision::AtLeast(revision)).await?;
        // The rewind is prepared under the lock and run without it: undoing events takes time.
        let rewind = {
            let history = self.history.lock();
            // Under the history's lock, so that the snapshot and the ring are of the same revision.
            let current = self.snapshot();
            // No change of this resource between the two revisions: the current state is that of the
            // requested one.
            if current.revision <= revision {
                return Ok((current, revision, true));
            }
            history.rewind(revision, Snapshot::clone(&current))?
        };
        Ok((Arc::new(rewind.run()), revision, false))
    }

    /// As [`Storage::list`](crate::storage::Storage::list).
    ///
    /// # Errors
    /// The same as there.
    pub async fn list(&self, options: ListOptions) -> Result<Listing, Error> {
        let (state, revision, is_current) = self.state(&options).await?;
        if options.token.is_none() && options.version == VersionMatch::NotOlderThan(MinRevision::Latest) {
            self.counters.consistent[0].add(1);
        }
        let matches = |e: &Arc<Entry>| options.predicate.matches(e);
        if options.single {
            return Ok(Listing {
                entries: state
                    .get(&options.prefix)
                    .filter(|e| matches(e))
                    .cloned()
                    .into_iter()
                    .collect(),
                revision,
                next: None,
                remaining: None,
            });
        }
        // Upstream's cache ignores the limit for resourceVersion "0".
        let any = matches!(options.version, VersionMatch::NotOlderThan(MinRevision::Any));
        let limit = if any || options.limit == 0 {
            usize::MAX
        } else {
            options.limit
        };
        let everything = options.predicate.is_everything();
        let from = match &options.token {
            Some(token) => Bound::Included(token.start.as_str()),
            None => Bound::Unbounded,
        };
        let mut entries = Vec::new();
        // One allocation of the right size for the common full list, which may return 100 000 entries.
        if everything && options.prefix.is_empty() && options.token.is_none() {
            entries.reserve_exact(state.len().min(limit));
        }
        // The iterator goes on after the page, to look for one more object and to count the rest.
        let mut scan = state.candidates(&options.predicate, &options.prefix, from);
        let mut fetched = 0;
        while entries.len() < limit
            && let Some(e) = scan.next()
        {
            fetched += 1;
            if matches(e) {
                entries.push(e.clone());
            }
        }
        let index = usize::from(Snapshot::is_indexed(&options.predicate));
        self.counters.lists[index].add(1);
        self.counters.fetched[index].add(fetched);
        self.counters.returned.add(entries.len() as u64);
        // Only looks for one more object; how many there are is known or counted once, see `continued`.
        let more = limit != usize::MAX && scan.next().is_some();
        let mut listing = Listing {
            entries,
            revision,
            next: None,
            remaining: None,
        };
        if more {
            self.continued(&mut listing, &options, (&state, is_current), || 1 + scan.count());
        }
        Ok(listing)
    }

    /// Sets where the page after this one starts, and how many objects are left; `count` counts them. Keeps the
    /// state for that page.
    fn continued(
        &self,
        listing: &mut Listing,
        options: &ListOptions,
        (state, is_current): (&Snapshot, bool),
        count: impl FnOnce() -> usize,
    ) {
        let (revision, served) = (listing.revision, listing.entries.len());
        // A selector makes counting as expensive as the list; upstream leaves the count out then, too.
        if options.predicate.is_everything() {
            let known = match &options.token {
                None if options.prefix.is_empty() => Some(state.len()),
                token => {
                    let start = token.as_ref().map_or("", |t| &*t.start);
                    self.history.lock().counted(revision, &options.prefix, start)
                }
            };
            // Counted once per paged list: counting for every page would make paging through n objects
            // quadratic.
            let left = known.map_or_else(count, |from_here| from_here.saturating_sub(served));
            listing.remaining = Some(left);
        }
        listing.next = listing.entries.last().map(|last| ContinueToken {
            revision: Some(revision),
            // The NUL makes it the smallest key after the last one, as in upstream's continue tokens.
            start: format!("{}\0", last.key),
        });
        // States from a rewind come from a pin, or from the ring, which still holds them.
        if is_current {
            // The next page will request this revision, possibly after the ring has discarded it.
            let pinned = state.at(revision);
            let displaced = self.history.lock().pin(Instant::now(), pinned);
            // Without the lock: it may be the last to hold many objects.
            drop(displaced);
        }
        // After the pin, which holds the counts.
        if let (Some(next), Some(remaining)) = (&listing.next, listing.remaining) {
            let mut history = self.history.lock();
            if options.token.is_none() {
                history.note_count(revision, &options.prefix, "", served + remaining);
            }
            history.note_count(revision, &options.prefix, &next.start, remaining);
        }
    }

    /// As [`Storage::watch`](crate::storage::Storage::watch).
    ///
    /// # Errors
    /// The same as there.
    pub async fn watch(self: &Arc<Self>, options: WatchOptions) -> Result<Box<dyn Watch>, Error> {
        // A watch without initial events need not wait: events up to its start are replayed or queued.
        self.wait_fresh(options.initial.unwrap_or(MinRevision::Any)).await?;
        let watch = self.subscribe(options, None)?;
        Ok(Box::new(watch.ok_or(Error::NotReady(1))?))
    }

    /// Starts a watch with the current state as its initial state, which the caller has confirmed with the
    /// store to be current at the later revision `also`. `None` if the state is no longer that of `seen`.
    ///
    /// # Errors
    /// [`Error::NotReady`] if the cache is stopped.
    pub fn watch_confirmed(
        self: &Arc<Self>,
        options: WatchOptions,
        seen: Revision,
        also: Revision,
    ) -> Result<Option<Box<dyn Watch>>, Error> {
        self.check_serving()?;
        let watch = self.subscribe(options, Some((seen, also)))?;
        Ok(watch.map(|w| Box::new(w) as Box<dyn Watch>))
    }

    pub(super) fn subscribe(
        self: &Arc<Self>,
        options: WatchOptions,
        known: Option<(Revision, Revision)>,
    ) -> Result<Option<CacheWatch>, Error> {
        let scope = Scope::new(&options.prefix, options.single, options.predicate, &self.selectors);
        // While the history is locked nothing is applied, so that snapshot, replay and first live event are
        // contiguous.
        let history = self.history.lock();
        let (state, mut revision) = self.current();
        let mut seen = state.revision;
        if let Some((was, also)) = known {
            if was != seen {
                return Ok(None);
            }
            // Changes between the two revisions, if any, cancel out: the caller found the same keys at the
            // same revisions.
            (seen, revision) = (seen.max(also), revision.max(also));
        }
        let discarded_at = history.discarded_bytes();
        let (begin, after, start) = match (options.initial, options.since) {
            (Some(_), _) => (Backlog::state(Snapshot::clone(&state), discarded_at), seen, revision),
            // Upstream: resourceVersion "0" without initial events starts at the cache's current state.
            (None, None | Some(Revision(0))) => (Backlog::Over, seen, revision),
            (None, Some(since)) => {
                // Only the error matters: whether the ring still covers `since`. Reading happens lazily, page
                // by page.
                history.after(since, 0)?;
                // The queue takes over where the replay ends; a future `since` skips the live events before
                // it.
                (Backlog::replay(since, seen, discarded_at), since.max(seen), since)
            }
        };
        let subscriber = Arc::new(Subscriber::new(scope, after, QUEUE));
        let has_state = matches!(begin, Backlog::State(_));
        // Before the hub knows the watcher, so a sweep never finds it without its backlog.
        *subscriber.start.lock() = begin;
        // Still under the history's lock: an event applied after `seen` is dispatched after this, and not
        // lost.
        let id = {
            let mut hub = self.hub.lock();
            hub.add(subscriber.clone()).ok_or(Error::NotReady(1))?
        };
        drop(history);
        let (bookmarks, until) = (options.bookmarks, options.until);
        Ok(Some(CacheWatch::new(
            self.clone(),
            subscriber,
            id,
            has_state,
            start,
            bookmarks,
            until,
        )))
    }

    pub(super) fn unsubscribe(&self, id: u64, subscriber: &Subscriber) {
        self.hub.lock().remove(id, subscriber);
    }
}
