//! The `Storage` trait: what the generic registry needs of a store, per resource, as upstream's `storage.Interface`.

use super::budget::Budget;
use super::entry::{Draft, Entry};
use super::forms::Forms;
use async_trait::async_trait;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

/// The number of a write: grows by one with every committed change of the whole store, survives restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

/// How fresh a read must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MinRevision {
    /// At least everything acknowledged before the call (resourceVersion unset).
    Latest,
    /// Whatever is at hand (resourceVersion "0").
    Any,
    /// Not older than this.
    AtLeast(Revision),
}

/// How `resourceVersion` of a list is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionMatch {
    /// The state at least as new as [`MinRevision`] says.
    NotOlderThan(MinRevision),
    /// The state right after this revision.
    Exact(Revision),
}

/// Where a paged list goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContinueToken {
    /// The pinned revision; `None`: go on at the latest state (an expired token was renewed).
    pub revision: Option<Revision>,
    /// First key (below the resource's prefix) of the next page, inclusive.
    pub start: String,
}

/// Says whether an entry is selected. Any function of an entry does.
pub trait Select: Send + Sync {
    /// True where the entry is selected.
    fn matches(&self, entry: &Entry) -> bool;

    /// The one value that a selectable field of selected entries has, where the selector says so: an index may then
    /// stand for looking at all.
    fn requires(&self, field: &str) -> Option<&str> {
        let _ = field;
        None
    }
}

impl<F: Fn(&Entry) -> bool + Send + Sync> Select for F {
    fn matches(&self, entry: &Entry) -> bool {
        self(entry)
    }
}

/// A shared selector.
pub type Test = Arc<dyn Select>;

/// The test of a selector over an entry. `None`: everything matches.
#[derive(Clone, Default)]
pub struct Predicate(pub Option<Test>);

/// What a list asks for.
#[derive(Clone)]
pub struct ListOptions {
    /// Key prefix below the resource's: `""`, `"<namespace>/"`, or a whole key for a single object.
    pub prefix: String,
    /// True where `prefix` is a whole key.
    pub single: bool,
    /// Which state.
    pub version: VersionMatch,
    /// Selectors.
    pub predicate: Predicate,
    /// Most objects to return; 0: all.
    pub limit: usize,
    /// Where to go on.
    pub token: Option<ContinueToken>,
}

impl ListOptions {
    /// Everything in `namespace` (or, with `""`, in all) as it is now.
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

/// What a list returns: entries in key order.
pub struct Listing {
    /// The objects.
    pub entries: Vec<Arc<Entry>>,
    /// The list's resourceVersion.
    pub revision: Revision,
    /// Where the next page starts; `None`: this was the last.
    pub next: Option<ContinueToken>,
    /// Objects after this page; only known without selectors.
    pub remaining: Option<usize>,
}

/// What a watch asks for.
#[derive(Clone)]
pub struct WatchOptions {
    /// As for lists.
    pub prefix: String,
    /// As for lists.
    pub single: bool,
    /// Selectors.
    pub predicate: Predicate,
    /// Events after this revision; `None`: from now on (after the initial state, where that is asked for).
    pub since: Option<Revision>,
    /// Send ADDED for the present state first; it must be at least this fresh.
    pub initial: Option<MinRevision>,
    /// Bookmarks are welcome.
    pub bookmarks: bool,
    /// When the watch will be ended by its reader; a bookmark comes shortly before.
    pub until: Option<Instant>,
}

/// What happened to an object, from one watcher's point of view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// It is there now, or matches now.
    Added,
    /// It changed.
    Modified,
    /// It is gone, or no longer matches.
    Deleted,
}

/// A committed change. Shared by all watchers; so are its frames, which are kept in its forms.
pub struct Event {
    /// The state after the change; for a deletion the last state, with the deletion's revision.
    pub entry: Arc<Entry>,
    /// The state before, `None` for a creation.
    pub previous: Option<Arc<Entry>>,
    /// True for a deletion.
    pub deleted: bool,
    /// What was made of it for watchers.
    pub forms: Forms,
}

/// What a watcher receives.
#[derive(Clone)]
pub enum WatchItem {
    /// A change, and what it means to this watcher.
    Change(EventType, Arc<Event>),
    /// An object of the initial state.
    Initial(Arc<Entry>),
    /// Everything up to here was sent. `initial_end`: and this closes the initial state.
    Bookmark {
        /// The revision reached.
        revision: Revision,
        /// Closes the initial state.
        initial_end: bool,
    },
}

/// A running watch; ends when dropped. `None` from [`next`](Watch::next): the store ended it (reader too slow, shutdown).
#[async_trait]
pub trait Watch: Send {
    /// The next item; the task is woken where there is none yet.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<WatchItem>>;

    /// The next item.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost.
    async fn next(&mut self) -> Option<WatchItem> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// An item that is there already, so that a writer can put several into one write.
    fn try_next(&mut self) -> Option<WatchItem>;
}

/// What must hold for a write to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// The key does not exist.
    Absent,
    /// The key's last write is this one.
    Unchanged(Revision),
}

/// Why a store refused. A variant is a decision somebody makes.
#[derive(Debug, Clone)]
pub enum Error {
    /// The precondition did not hold; the state that stood there.
    Conflict(Option<Arc<Entry>>),
    /// History before this revision is no longer kept (410).
    Compacted(Revision),
    /// The revision has not been reached within the wait; the one that was (504).
    TooNew {
        /// Asked for.
        asked: Revision,
        /// Reached.
        current: Revision,
    },
    /// Not yet, or no longer, serving: retry after so many seconds (429).
    NotReady(u32),
    /// Not serving, as what is stored could not be read, for this reason: retry after so many seconds (429).
    Unread(u32, String),
    /// The object is larger than the store takes; its text.
    TooLarge(String),
    /// The store has failed and takes no more writes.
    Failed(String),
    /// Stored bytes cannot be read, or objects not be encrypted (500 InternalError).
    Unreadable(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict(_) => f.write_str("the key was changed by another write"),
            Self::Compacted(r) => write!(f, "revision {} has been compacted", r.0),
            Self::TooNew { asked, current } => {
                write!(f, "Too large resource version: {}, current: {}", asked.0, current.0)
            }
            Self::NotReady(_) => f.write_str("storage is (re)initializing"),
            Self::Unread(_, why) => write!(f, "storage is (re)initializing: {why}"),
            Self::TooLarge(why) | Self::Failed(why) | Self::Unreadable(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Error {}

impl Predicate {
    /// True where the entry is selected.
    pub fn matches(&self, e: &Entry) -> bool {
        self.0.as_ref().is_none_or(|f| f.matches(e))
    }

    /// As [`Select::requires`].
    pub fn requires(&self, field: &str) -> Option<&str> {
        self.0.as_ref().and_then(|f| f.requires(field))
    }

    /// True where nothing is left out.
    pub fn is_everything(&self) -> bool {
        self.0.is_none()
    }
}

impl Event {
    /// A change from `previous` to `entry`.
    pub fn new(entry: Arc<Entry>, previous: Option<Arc<Entry>>, deleted: bool) -> Self {
        Self {
            entry,
            previous,
            deleted,
            forms: Forms::default(),
        }
    }

    /// What the change is to a watcher with this predicate; `None`: nothing.
    pub fn seen_by(&self, p: &Predicate) -> Option<EventType> {
        let before = self.previous.as_ref().is_some_and(|e| p.matches(e));
        let after = !self.deleted && p.matches(&self.entry);
        match (before, after) {
            (false, true) => Some(EventType::Added),
            (true, true) => Some(EventType::Modified),
            (true, false) => Some(EventType::Deleted),
            (false, false) => None,
        }
    }

    /// The object a watcher reads with an event of this type: for "no longer matches" the state before, at the
    /// revision of the change.
    pub fn object(&self, t: EventType) -> Arc<Entry> {
        match (t, self.deleted, &self.previous) {
            (EventType::Deleted, false, Some(prev)) => Arc::new(prev.at_revision(self.entry.revision)),
            _ => self.entry.clone(),
        }
    }
}

/// A resource's store. One per resource, made by a backend; revisions are shared by all resources of the backend.
///
/// Reads are consistent: what was acknowledged before a read with [`MinRevision::Latest`] is seen by it.
/// Watch order is revision order; no event is skipped: a reader that cannot keep up is ended instead.
#[async_trait]
pub trait Storage: Send + Sync + 'static {
    /// The object at `key`.
    ///
    /// # Errors
    /// [`Error::TooNew`], [`Error::NotReady`].
    async fn get(&self, key: &str, min: MinRevision) -> Result<Option<Arc<Entry>>, Error>;

    /// Objects in key order.
    ///
    /// # Errors
    /// [`Error::TooNew`], [`Error::Compacted`], [`Error::NotReady`].
    async fn list(&self, options: ListOptions) -> Result<Listing, Error>;

    /// Changes in revision order.
    ///
    /// # Errors
    /// [`Error::TooNew`], [`Error::Compacted`], [`Error::NotReady`].
    async fn watch(&self, options: WatchOptions) -> Result<Box<dyn Watch>, Error>;

    /// Stores `draft` at `key`; returns when it is durable. `ttl_seconds`: the object goes by itself after that time.
    ///
    /// # Errors
    /// [`Error::Conflict`] where the precondition does not hold, [`Error::Failed`].
    ///
    /// # Cancel safety
    /// A dropped future may or may not have written.
    async fn put(
        &self,
        key: &str,
        when: Precondition,
        draft: Draft,
        ttl_seconds: Option<u64>,
    ) -> Result<Arc<Entry>, Error>;

    /// Removes `key`; returns, when that is durable, the last state at the deletion's revision.
    ///
    /// # Errors
    /// [`Error::Conflict`] where the key is gone or was changed, [`Error::Failed`].
    ///
    /// # Cancel safety
    /// A dropped future may or may not have written.
    async fn delete(&self, key: &str, unchanged: Revision) -> Result<Arc<Entry>, Error>;

    /// The newest committed revision of the backend.
    fn revision(&self) -> Revision;

    /// The revision of this resource's newest change that this process knows of: who follows the resource and has seen
    /// that much has seen everything that was acknowledged here. 0 where the backend keeps no such number.
    fn changed(&self) -> Revision {
        Revision::default()
    }

    /// The revision of the object at `key`, without waiting, in a state that has every change acknowledged by this process.
    /// `None`: there is no such object, or what is at hand is behind.
    fn at_hand(&self, _key: &str) -> Option<Revision> {
        None
    }

    /// Number of objects.
    fn count(&self) -> usize;

    /// Bytes of the object at `key`, without waiting; 0 where there is none, or its size is not known. For estimating costs.
    fn peek_size(&self, _key: &str) -> usize {
        0
    }

    /// Bytes of its objects' JSON; `None`: it cannot tell now. Looks at each object.
    fn encoded_bytes(&self) -> Option<u64> {
        None
    }

    /// Where second encodings of its objects are counted; `None`: none are kept.
    fn budget(&self) -> Option<&Arc<Budget>>;
}
