//! The watch cache of one resource: an immutable snapshot for reads, a ring of events for watches and exact reads, and
//! the fan-out to watchers. It knows no backend: whoever owns it calls, in revision order and from one place,
//! [`Cacher::apply`] (then [`Progress::set_applied`]) and [`Cacher::dispatch`] (then [`Progress::set_dispatched`]).
//!
//! Locks: reads of the present state take none. `history` before `hub`; neither is held across an await.

pub mod counters;
mod digest;
pub mod history;
mod hub;
mod progress;
mod snapshot;
#[cfg(test)]
mod tests;
mod watch;

use super::backend::CacheFigures;
use super::budget::{Budget, Share};
use super::interface::VersionMatch;
use super::{ContinueToken, Entry, Error, Event, ListOptions, Listing, MinRevision, Revision, Watch, WatchOptions};
use arc_swap::ArcSwap;
use history::{Bounds, History};
use hub::{Hub, Subscriber, lock};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use watch::{CacheWatch, Stage};

pub use counters::{Comparison, Counters};
pub use digest::Digest;
pub use progress::{FRESHNESS_WAIT, Progress};
pub use snapshot::Snapshot;

/// Changes a watcher may be behind before its patience runs.
const QUEUE: usize = 100;

/// What a cacher begins with.
pub struct Initial {
    /// The state.
    pub state: Snapshot,
    /// Events after this revision are in `events`.
    pub base: Revision,
    /// What led to the state, oldest first.
    pub events: Vec<Arc<Event>>,
}

/// What a cacher keeps to, and where it says so.
pub struct Setting {
    /// Of its ring.
    pub bounds: Bounds,
    /// What it takes is counted here.
    pub budget: Arc<Budget>,
    /// What it does is counted here.
    pub counters: Arc<Counters>,
}

impl Setting {
    /// With counters of its own.
    pub fn new(bounds: Bounds, budget: Arc<Budget>) -> Self {
        Self {
            bounds,
            budget,
            counters: Arc::default(),
        }
    }
}

/// The watch cache of one resource.
pub struct Cacher {
    progress: Arc<Progress>,
    share: Share,
    counters: Arc<Counters>,
    snapshot: ArcSwap<Snapshot>,
    history: Mutex<History>,
    hub: Mutex<Hub>,
    stopped: AtomicBool,
}

impl Cacher {
    /// Serves from `initial` on.
    pub fn new(progress: Arc<Progress>, initial: Initial, setting: Setting) -> Self {
        let history = History::new(setting.bounds, initial.base, initial.events, Instant::now());
        let share = Share::new(setting.budget);
        share.set(initial.state.bytes(), history.bytes());
        setting.counters.loads.add(1);
        Self {
            progress,
            share,
            counters: setting.counters,
            snapshot: ArcSwap::from_pointee(initial.state),
            history: Mutex::new(history),
            hub: Mutex::default(),
            stopped: AtomicBool::new(false),
        }
    }

    /// The present state.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// The entry at `key` in the present state.
    pub fn peek(&self, key: &str) -> Option<Arc<Entry>> {
        self.snapshot.load().get(key).cloned()
    }

    /// The revision of the newest applied change. Changes are applied before anybody is told of them.
    pub fn changed(&self) -> Revision {
        self.snapshot.load().revision
    }

    /// Number of objects.
    pub fn count(&self) -> usize {
        self.snapshot.load().len()
    }

    /// Number of running watches.
    pub fn watchers(&self) -> usize {
        lock(&self.hub).len()
    }

    /// What it holds, for metrics.
    pub fn figures(&self) -> CacheFigures {
        let state = self.snapshot();
        let (events, history_bytes, capacity) = lock(&self.history).figures();
        CacheFigures {
            objects: state.len(),
            objects_bytes: state.bytes() as u64,
            history_bytes: history_bytes as u64,
            events,
            capacity,
            watchers: self.watchers(),
            revision: state.revision.0,
            counters: self.counters.clone(),
        }
    }

    /// What it has done so far.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    // === the backend's side ===

    /// Makes committed changes visible to reads.
    pub fn apply(&self, events: &[Arc<Event>]) {
        let now = Instant::now();
        let mut history = lock(&self.history);
        let mut state = Snapshot::clone(&self.snapshot.load());
        for event in events {
            state.apply(event);
            history.push(now, event.clone(), &state);
        }
        self.counters.received.add(events.len() as u64);
        self.settle(&mut history, now, &state);
        self.snapshot.store(Arc::new(state));
    }

    /// Lets go of history that is out of bounds, and says what is taken now.
    fn settle(&self, history: &mut History, now: Instant, state: &Snapshot) {
        let room = history.capacity();
        history.trim(now, self.share.history_limit());
        match history.capacity() {
            more if more > room => self.counters.grown.add(1),
            less if less < room => self.counters.shrunk.add(1),
            _ => {}
        }
        self.share.set(state.bytes(), history.bytes());
    }

    /// Hands applied changes to the watchers they concern.
    pub fn dispatch(&self, events: &[Arc<Event>]) {
        let sleepers = {
            let mut hub = lock(&self.hub);
            if hub.is_empty() {
                return;
            }
            self.counters.dispatched.add(events.len() as u64);
            let before = hub.terminated;
            let sleepers = hub.dispatch(events, Instant::now());
            self.counters.terminated.add(hub.terminated - before);
            sleepers
        };
        hub::wake(sleepers);
    }

    /// Lets go of history that has grown too old; for quiet times, since [`apply`](Self::apply) does it too.
    pub fn trim(&self) {
        let mut history = lock(&self.history);
        let state = self.snapshot();
        self.settle(&mut history, Instant::now(), &state);
    }

    /// Ends all watches and takes no new ones; reads go on.
    pub fn close(&self) {
        lock(&self.hub).close();
    }

    /// Ends all watches and refuses reads from now on.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.close();
    }

    // === the reader's side ===

    fn check_serving(&self) -> Result<(), Error> {
        if self.stopped.load(Ordering::Acquire) {
            Err(Error::NotReady(1))
        } else {
            Ok(())
        }
    }

    async fn fresh(&self, min: MinRevision) -> Result<(), Error> {
        self.check_serving()?;
        match min {
            MinRevision::Latest | MinRevision::Any => Ok(()),
            MinRevision::AtLeast(revision) => self.reach(revision).await,
        }
    }

    /// Waits until a revision is applied.
    ///
    /// # Errors
    /// [`Error::TooNew`] after the patience.
    pub async fn reach(&self, revision: Revision) -> Result<(), Error> {
        if self.progress.applied() >= revision {
            return Ok(());
        }
        let since = Instant::now();
        let reached = self.progress.wait_for(revision).await;
        self.counters.waits.observe(since.elapsed());
        reached
    }

    /// As [`Storage::get`](super::Storage::get).
    ///
    /// # Errors
    /// As there.
    pub async fn get(&self, key: &str, min: MinRevision) -> Result<Option<Arc<Entry>>, Error> {
        self.fresh(min).await?;
        Ok(self.peek(key))
    }

    /// The present state and the revision it stands for. The revision is read first: whatever it covers is then in the
    /// snapshot.
    fn present(&self) -> (Arc<Snapshot>, Revision) {
        let reached = self.progress.applied();
        let state = self.snapshot();
        let revision = reached.max(state.revision);
        (state, revision)
    }

    async fn state(&self, options: &ListOptions) -> Result<(Arc<Snapshot>, Revision, bool), Error> {
        let exact = match (&options.token, options.version) {
            (Some(ContinueToken { revision, .. }), _) => *revision,
            (None, VersionMatch::Exact(revision)) => Some(revision),
            (None, VersionMatch::NotOlderThan(min)) => {
                self.fresh(min).await?;
                None
            }
        };
        let Some(revision) = exact else {
            self.check_serving()?;
            let (state, revision) = self.present();
            return Ok((state, revision, true));
        };
        self.fresh(MinRevision::AtLeast(revision)).await?;
        let way = {
            let history = lock(&self.history);
            let current = self.snapshot();
            if current.revision <= revision {
                return Ok((current, revision, true));
            }
            history.rewind(revision, Snapshot::clone(&current))?
        };
        Ok((Arc::new(way.run()), revision, false))
    }

    /// As [`Storage::list`](super::Storage::list).
    ///
    /// # Errors
    /// As there.
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
        // Upstream's cache takes no limit where any version will do.
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
        if everything && options.prefix.is_empty() && options.token.is_none() {
            entries.reserve_exact(state.len().min(limit));
        }
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
        let way = usize::from(Snapshot::is_indexed(&options.predicate));
        self.counters.lists[way].add(1);
        self.counters.fetched[way].add(fetched);
        self.counters.returned.add(entries.len() as u64);
        let more = if limit == usize::MAX {
            0
        } else {
            scan.next().map_or(0, |_| 1)
        };
        let mut listing = Listing {
            entries,
            revision,
            next: None,
            remaining: None,
        };
        if more > 0 {
            if everything {
                let known = match &options.token {
                    None if options.prefix.is_empty() => Some(state.len()),
                    token => {
                        let start = token.as_ref().map_or("", |t| &*t.start);
                        lock(&self.history).counted(revision, &options.prefix, start)
                    }
                };
                listing.remaining = Some(match known {
                    Some(from_here) => from_here.saturating_sub(listing.entries.len()),
                    None => more + scan.count(),
                });
            }
            listing.next = listing.entries.last().map(|last| ContinueToken {
                revision: Some(revision),
                start: format!("{}\0", last.key),
            });
            if is_current {
                // The next page will ask for this revision, perhaps after the ring has forgotten it.
                let pinned = state.at(revision);
                lock(&self.history).pin(Instant::now(), pinned);
            }
            if let (Some(next), Some(remaining)) = (&listing.next, listing.remaining) {
                let mut history = lock(&self.history);
                if options.token.is_none() {
                    history.note_count(revision, &options.prefix, "", listing.entries.len() + remaining);
                }
                history.note_count(revision, &options.prefix, &next.start, remaining);
            }
        }
        Ok(listing)
    }

    /// As [`Storage::watch`](super::Storage::watch).
    ///
    /// # Errors
    /// As there.
    pub async fn watch(self: &Arc<Self>, options: WatchOptions) -> Result<Box<dyn Watch>, Error> {
        self.fresh(options.initial.unwrap_or(MinRevision::Any)).await?;
        let watch = self.subscribe(options, None)?;
        Ok(Box::new(watch.ok_or(Error::NotReady(1))?))
    }

    /// A watch that begins with the present state, which the caller knows, by other ways than progress, to be also that
    /// of the later revision `also`. `None`: the state is no longer that of `seen`.
    ///
    /// # Errors
    /// [`Error::NotReady`].
    pub fn watch_known(
        self: &Arc<Self>,
        options: WatchOptions,
        seen: Revision,
        also: Revision,
    ) -> Result<Option<Box<dyn Watch>>, Error> {
        self.check_serving()?;
        let watch = self.subscribe(options, Some((seen, also)))?;
        Ok(watch.map(|w| Box::new(w) as Box<dyn Watch>))
    }

    fn subscribe(
        self: &Arc<Self>,
        options: WatchOptions,
        known: Option<(Revision, Revision)>,
    ) -> Result<Option<CacheWatch>, Error> {
        // With the history held nothing is applied, so the snapshot, the replay and the first live event fit together.
        let history = lock(&self.history);
        let (state, mut revision) = self.present();
        let mut seen = state.revision;
        if let Some((was, also)) = known {
            if was != seen {
                return Ok(None);
            }
            // What comes between the two, if anything, makes up for itself.
            (seen, revision) = (seen.max(also), revision.max(also));
        }
        let (stage, after, start) = match (options.initial, options.since) {
            (Some(_), _) => {
                let state = Snapshot::clone(&state);
                (Stage::Initial { state, cursor: None }, seen, revision)
            }
            // Upstream's resourceVersion "0" without initial events: from the cache's state on.
            (None, None | Some(Revision(0))) => (Stage::Live, seen, revision),
            (None, Some(since)) => (Stage::Replay(history.after(since)?.into_iter()), since.max(seen), since),
        };
        let (single, predicate) = (options.single, options.predicate);
        let subscriber = Arc::new(Subscriber::new(&options.prefix, single, predicate, after, QUEUE));
        let id = {
            let mut hub = lock(&self.hub);
            hub.add(subscriber.clone()).ok_or(Error::NotReady(1))?
        };
        drop(history);
        let (bookmarks, until) = (options.bookmarks, options.until);
        Ok(Some(CacheWatch::new(
            self.clone(),
            subscriber,
            id,
            stage,
            start,
            bookmarks,
            until,
        )))
    }

    fn unsubscribe(&self, id: u64, subscriber: &Subscriber) {
        lock(&self.hub).remove(id, subscriber);
    }
}
