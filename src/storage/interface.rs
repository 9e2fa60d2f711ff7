//! [`Storage`]: what the generic registry needs from the store of one resource, as upstream's
//! `storage.Interface` (`pkg/storage/interfaces.go`). Also the options, results and errors of its methods.

use super::budget::Budget;
use super::cached_encodings::CachedEncodings;
use super::encoding_cache::Cacheable;
use super::entry::{Draft, Entry};
use super::event_type::EventType;
use super::revision::Revision;
use super::select::Predicate;
use super::transform::TransformError;
use crate::apimachinery::value::Value;
use async_trait::async_trait;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

/// How fresh a read must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MinRevision {
    /// At least as new as every write acknowledged before the call (resourceVersion unset).
    Latest,
    /// Any cached state, however old (resourceVersion "0").
    Any,
    /// At least as new as this revision.
    AtLeast(Revision),
}

/// How a list's `resourceVersion` is matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionMatch {
    /// A state at least as new as [`MinRevision`] requires.
    NotOlderThan(MinRevision),
    /// The state exactly at this revision.
    Exact(Revision),
}

/// The position at which a paged list continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContinueToken {
    /// The revision all pages share; `None` continues at the latest state, after an expired token was
    /// renewed.
    pub revision: Option<Revision>,
    /// First key (below the resource's prefix) of the next page, inclusive.
    pub start: String,
}

/// Parameters of [`Storage::list`].
#[derive(Clone)]
pub struct ListOptions {
    /// Key prefix below the resource's: `""`, `"<namespace>/"`, or a whole key for a single object.
    pub prefix: String,
    /// True if `prefix` is the whole key of a single object.
    pub single: bool,
    /// Which state to read.
    pub version: VersionMatch,
    /// Label and field selectors.
    pub predicate: Predicate,
    /// Page size; 0 returns everything.
    pub limit: usize,
    /// Where to continue; `None` starts at the first key.
    pub token: Option<ContinueToken>,
}

impl ListOptions {
    /// Everything in `namespace` (all namespaces if empty), at the latest state.
    pub fn latest(namespace: &str) -> Self {
        Self {
            prefix: match namespace {
                "" => String::new(),
                namespace => format!("{namespace}/"),
            },
            single: false,
            version: VersionMatch::NotOlderThan(MinRevision::Latest),
            predicate: Predicate::default(),
            limit: 0,
            token: None,
        }
    }
}

/// Result of [`Storage::list`], in key order.
pub struct Listing {
    /// The objects of this page.
    pub entries: Vec<Arc<Entry>>,
    /// The `resourceVersion` of the list.
    pub revision: Revision,
    /// Where the next page starts; `None` on the last page.
    pub next: Option<ContinueToken>,
    /// Number of objects after this page; known only for lists without selectors.
    pub remaining: Option<usize>,
}

/// Parameters of [`Storage::watch`].
#[derive(Clone)]
pub struct WatchOptions {
    /// As [`ListOptions::prefix`].
    pub prefix: String,
    /// As [`ListOptions::single`].
    pub single: bool,
    /// Label and field selectors.
    pub predicate: Predicate,
    /// Send events after this revision; `None` starts at the present (after the initial state, if requested).
    pub since: Option<Revision>,
    /// Send the state as ADDED events first; it must be at least this fresh. `None` sends no initial state.
    pub initial: Option<MinRevision>,
    /// Whether the client accepts bookmarks.
    pub bookmarks: bool,
    /// When the reader will end the watch; a bookmark is sent shortly before.
    pub until: Option<Instant>,
}

impl WatchOptions {
    /// All changes from now on.
    pub fn all() -> Self {
        Self {
            prefix: String::new(),
            single: false,
            predicate: Predicate::default(),
            since: None,
            initial: None,
            bookmarks: false,
            until: None,
        }
    }

    /// Changes of one object from now on.
    pub fn one(key: &str) -> Self {
        Self {
            prefix: key.to_owned(),
            single: true,
            ..Self::all()
        }
    }
}

/// A committed change, shared by all watchers together with its encoded frames.
pub struct Event {
    /// The state after the change. For a deletion: the last state, at the deletion's revision.
    pub entry: Arc<Entry>,
    /// The state before the change; `None` for a creation.
    pub previous: Option<Arc<Entry>>,
    /// True for a deletion.
    pub deleted: bool,
    /// Cached encodings of the change for watchers.
    pub encodings: CachedEncodings,
}

/// An item delivered to a watcher.
#[derive(Clone)]
pub enum WatchItem {
    /// A change, with its type from this watcher's point of view.
    Change(EventType, Arc<Event>),
    /// An object of the initial state.
    Initial(Arc<Entry>),
    /// All changes up to `revision` have been sent.
    Bookmark {
        /// Where a new watch can continue without missing a change.
        revision: Revision,
        /// True for the bookmark that ends the initial state (`k8s.io/initial-events-end`).
        initial_end: bool,
    },
    /// The next change cannot be delivered. The last item of the watch.
    Failed(Error),
}

/// A running watch; dropping it ends it. [`next`](Watch::next) returns `None` once the store has ended the
/// watch, because the reader was too slow or the store shuts down.
#[async_trait]
pub trait Watch: Send {
    /// Polls for the next item.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<WatchItem>>;

    /// Waits for the next item.
    ///
    /// # Cancel safety
    /// Cancel safe: no item is lost.
    async fn next(&mut self) -> Option<WatchItem> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Returns an item that is already available, so that the caller can coalesce several into one socket
    /// write.
    fn try_next(&mut self) -> Option<WatchItem>;
}

/// The condition under which a write is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// The key does not exist.
    Absent,
    /// The key exists and this is the revision of its last write.
    Unchanged(Revision),
}

/// Why a storage operation failed. Callers treat each variant differently.
#[derive(Debug, Clone)]
pub enum Error {
    /// The precondition did not hold. Carries the current state, `None` if the key does not exist.
    Conflict(Option<Arc<Entry>>),
    /// The history before this revision has been discarded (410 Gone).
    Compacted(Revision),
    /// The requested revision was not reached within the freshness wait (504).
    TooNew {
        /// The revision to be reached, such as a client's `resourceVersion`.
        requested: Revision,
        /// Where the cache was when the wait ended.
        current: Revision,
    },
    /// Not yet, or no longer, serving; retry after this many seconds (429).
    NotReady(u32),
    /// Not serving because stored data could not be loaded, for the given reason; retry after this many
    /// seconds (429).
    LoadFailed(u32, String),
    /// The object exceeds the store's size limit; the message for the client.
    TooLarge(String),
    /// The store has failed and accepts no more writes.
    Failed(String),
    /// A stored value could not be decrypted (500 InternalError).
    Unreadable {
        /// The key that the value is stored under.
        key: Box<str>,
        /// Why it could not be decrypted.
        source: Arc<TransformError>,
    },
    /// An object could not be encrypted (500 InternalError).
    Unwritable(Arc<TransformError>),
    /// An object could not be converted to or from the stored version (500 without a reason).
    NotConverted(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict(_) => f.write_str("the key was changed by another write"),
            Self::Compacted(r) => write!(f, "revision {} has been compacted", r.0),
            Self::TooNew { requested, current } => {
                write!(f, "Too large resource version: {}, current: {}", requested.0, current.0)
            }
            Self::NotReady(_) => f.write_str("storage is (re)initializing"),
            Self::LoadFailed(_, why) => write!(f, "storage is (re)initializing: {why}"),
            Self::TooLarge(why) | Self::Failed(why) | Self::NotConverted(why) => f.write_str(why),
            Self::Unreadable { key, source } => write!(f, "unable to transform key {key:?}: {source}"),
            Self::Unwritable(source) => write!(f, "{source}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreadable { source, .. } | Self::Unwritable(source) => Some(&**source),
            _ => None,
        }
    }
}

impl Event {
    /// Creates the event for a change from `previous` to `entry`.
    pub fn new(entry: Arc<Entry>, previous: Option<Arc<Entry>>, deleted: bool) -> Self {
        Self {
            entry,
            previous,
            deleted,
            encodings: CachedEncodings::default(),
        }
    }

    /// The cost of [`seen_by`](Self::seen_by) in steps of some 20 ns.
    pub(crate) fn steps_to_see(&self, p: &Predicate) -> usize {
        p.steps(&self.entry) + self.previous.as_ref().map_or(0, |e| p.steps(e))
    }

    /// The event's type for a watcher with this predicate; `None` if the watcher must not see it.
    pub fn seen_by(&self, p: &Predicate) -> Option<EventType> {
        // Both states are compared: an object that stops matching must be reported as deleted, one that
        // starts to as added.
        let before = self.previous.as_ref().is_some_and(|e| p.matches(e));
        let after = !self.deleted && p.matches(&self.entry);
        match (before, after) {
            (false, true) => Some(EventType::Added),
            (true, true) => Some(EventType::Modified),
            (true, false) => Some(EventType::Deleted),
            (false, false) => None,
        }
    }

    /// The state that [`object`](Self::object) is made from.
    pub(crate) fn shown(&self, t: EventType) -> &Arc<Entry> {
        match &self.previous {
            Some(previous) if t == EventType::Deleted && !self.deleted => previous,
            _ => &self.entry,
        }
    }

    /// The object to send with an event of this type. If the object stopped matching, that is the previous
    /// state with the revision of the change, as upstream's cacher sends.
    pub fn object(&self, t: EventType) -> Arc<Entry> {
        match (t, self.deleted, &self.previous) {
            // Never the new state: it may hold what the selector hides from this watcher.
            (EventType::Deleted, false, Some(prev)) => Arc::new(prev.at_revision(self.entry.revision)),
            _ => self.entry.clone(),
        }
    }
}

impl Cacheable for Event {
    fn cached_size(&self) -> usize {
        self.entry.footprint() + size_of::<Self>()
    }
}

/// The store of one resource, created by a [`Backend`](super::Backend). All resources of a backend share one
/// sequence of revisions.
///
/// A read with [`MinRevision::Latest`] sees every write acknowledged before it started. A watch delivers
/// events in revision order without gaps; a reader that cannot keep up has its watch ended instead.
#[async_trait]
pub trait Storage: Send + Sync + 'static {
    /// Returns the object at `key`.
    ///
    /// # Errors
    /// [`Error::TooNew`], [`Error::NotReady`].
    async fn get(&self, key: &str, min: MinRevision) -> Result<Option<Arc<Entry>>, Error>;

    /// Lists objects in key order.
    ///
    /// # Errors
    /// [`Error::TooNew`], [`Error::Compacted`], [`Error::NotReady`].
    async fn list(&self, options: ListOptions) -> Result<Listing, Error>;

    /// Watches changes, in revision order.
    ///
    /// # Errors
    /// [`Error::TooNew`], [`Error::Compacted`], [`Error::NotReady`].
    async fn watch(&self, options: WatchOptions) -> Result<Box<dyn Watch>, Error>;

    /// Stores `draft` at `key` and returns once the write is durable. With `ttl_seconds` the object expires
    /// after that time.
    ///
    /// # Errors
    /// [`Error::Conflict`] if the precondition does not hold; [`Error::Failed`].
    ///
    /// # Cancel safety
    /// Not cancel safe: after the future is dropped, the write may or may not have happened.
    async fn put(
        &self,
        key: &str,
        when: Precondition,
        draft: Draft,
        ttl_seconds: Option<u64>,
    ) -> Result<Arc<Entry>, Error>;

    /// Deletes `key`. Once that is durable, returns the last state at the deletion's revision.
    ///
    /// # Errors
    /// [`Error::Conflict`] if the key is absent or was changed; [`Error::Failed`].
    ///
    /// # Cancel safety
    /// Not cancel safe: after the future is dropped, the deletion may or may not have happened.
    async fn delete(&self, key: &str, unchanged: Revision) -> Result<Arc<Entry>, Error>;

    /// The object as [`put`](Self::put) would return it, for a dry run; `None` if that is what was given.
    ///
    /// # Errors
    /// [`Error::NotConverted`], [`Error::NotReady`].
    async fn preview(&self, _object: &Value) -> Result<Option<Value>, Error> {
        Ok(None)
    }

    /// The newest committed revision of the backend.
    fn revision(&self) -> Revision;

    /// Revision of the newest change to this resource that this process has seen. A watcher that has reached
    /// it has seen every change acknowledged here. 0 if the backend does not track it.
    fn last_change(&self) -> Revision {
        Revision::default()
    }

    /// Revision of the newest change in a namespace that [`last_change`](Self::last_change) counts and that is later
    /// than `since`; `None` if there is none. It may be that of a later change elsewhere, if the backend does not know
    /// the keys of all of them.
    fn last_change_in(&self, _namespace: &str, since: Revision) -> Option<Revision> {
        Some(self.last_change()).filter(|last| *last > since)
    }

    /// Returns the revision of the object at `key` without waiting, from a state that includes every change
    /// this process has acknowledged. `None` if there is no such object or the cache lags behind.
    fn peek_revision(&self, _key: &str) -> Option<Revision> {
        None
    }

    /// Number of objects of the resource, for metrics and estimates.
    fn count(&self) -> usize;

    /// Size in bytes of the object at `key`, without waiting; 0 if it is absent or its size is unknown. Used
    /// to estimate request cost.
    fn peek_size(&self, _key: &str) -> usize {
        0
    }

    /// Memory of the objects in bytes, without scanning them; 0 if it is not known. Used to estimate request
    /// cost.
    fn resident_bytes(&self) -> u64 {
        0
    }

    /// Total size of the objects' JSON; `None` if not currently known. Scans all objects.
    fn encoded_bytes(&self) -> Option<u64> {
        None
    }

    /// The memory budget that accounts for cached encodings; `None` if the store caches none.
    fn budget(&self) -> Option<&Arc<Budget>>;
}
