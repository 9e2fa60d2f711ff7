//! Informers over a storage of the same process: keep the parsed objects of one resource in memory, fed by a
//! watch, and notify subscribers of changes.
//!
//! Entry point: [`Informer::new`]; the handle it returns must be run. Each object is parsed once per change;
//! a snapshot costs one pointer. When the watch ends, the informer lists again and reports the differences.

use crate::storage::interface::WatchItem;
use crate::storage::{Entry, Error, MinRevision, Predicate, Revision, Storage, WatchOptions};
use crate::sync::Mutex;
use crate::tasks::{Signal, YieldCounter};
use arc_swap::ArcSwap;
use imbl::OrdMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// How long a request waits for an informer that lags, in authorization and for definitions of custom resources. Well
/// below clients' usual timeouts, so that they see the error instead of a dropped connection, and longer than
/// reading a definition of megabytes takes on a busy machine. Admission waits longer, as upstream's plugins do
/// (`crate::admission::CATCH_UP_TIMEOUT`).
pub(crate) const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay before a watch is opened again.
const RETRY: Duration = Duration::from_millis(500);
/// Objects from this size (in bytes) on are parsed on the blocking pool, since that may take milliseconds.
const LARGE: usize = 16 * 1024;
/// Objects from this number on are compared with a list on the blocking pool.
const MANY: usize = 1024;
/// Changes that are processed before the task yields.
const BATCH: u32 = 16;

/// A change of one object, identified by its storage key.
pub(crate) struct Change<'a, T> {
    /// `<namespace>/<name>` or `<name>`.
    pub key: &'a str,
    /// The object before the change; `None` if it was created.
    pub old: Option<&'a Arc<T>>,
    /// The object after the change; `None` if it was deleted.
    pub new: Option<&'a Arc<T>>,
}

type Subscriber<T> = Arc<dyn Fn(&Change<'_, T>) + Send + Sync>;
type Items<T> = OrdMap<Arc<str>, Arc<T>>;

/// Read access to the objects. Clones share them.
pub(crate) struct Informer<T>(Arc<Inner<T>>);

struct Inner<T> {
    items: ArcSwap<Items<T>>,
    subscribers: Mutex<Arc<Vec<Subscriber<T>>>>,
    synced: Signal,
    /// Revision up to which everything is applied and subscribers were notified; 0 until the initial list is
    /// applied.
    applied_revision: AtomicU64,
    moved: Notify,
}

/// Keeps the informer up to date while [`run`](Self::run) is driven.
pub(crate) struct InformerHandle<T> {
    informer: Informer<T>,
    storage: Arc<dyn Storage>,
    parse: fn(&Entry) -> T,
    /// Whether subscribers may need milliseconds for a small object.
    is_expensive: fn(&T) -> bool,
    /// Whether subscribers would wait now.
    is_busy: Option<Box<dyn Fn() -> bool + Send + Sync>>,
}

impl<T> Clone for Informer<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Send + Sync + 'static> Informer<T> {
    /// Creates an informer of all objects in `storage`. It stays empty until its handle runs.
    pub(crate) fn new(storage: Arc<dyn Storage>, parse: fn(&Entry) -> T) -> (Self, InformerHandle<T>) {
        let informer = Self(Arc::new(Inner {
            items: ArcSwap::from_pointee(OrdMap::new()),
            subscribers: Mutex::default(),
            synced: Signal::new("informer synced"),
            applied_revision: AtomicU64::new(0),
            moved: Notify::new(),
        }));
        let handle = InformerHandle {
            informer: informer.clone(),
            storage,
            parse,
            is_expensive: |_| false,
            is_busy: None,
        };
        (informer, handle)
    }

    /// The object under a key.
    pub(crate) fn get(&self, key: &str) -> Option<Arc<T>> {
        self.0.items.load().get(key).cloned()
    }

    /// All current objects, in key order.
    pub(crate) fn snapshot(&self) -> Arc<OrdMap<Arc<str>, Arc<T>>> {
        self.0.items.load_full()
    }

    /// Fires when the initial list is applied.
    pub(crate) fn synced(&self) -> &Signal {
        &self.0.synced
    }

    /// Whether every change up to `revision` is in the snapshot and subscribers were notified of it.
    pub(crate) fn has_reached(&self, revision: Revision) -> bool {
        self.0.applied_revision.load(Ordering::Acquire) >= revision.0
    }

    /// Waits until [`has_reached`](Self::has_reached). Never completes if nothing drives the handle.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn reach(&self, revision: Revision) {
        loop {
            let moved = self.0.moved.notified();
            tokio::pin!(moved);
            // Register before checking, so that a notification in between is not lost.
            moved.as_mut().enable();
            if self.has_reached(revision) {
                return;
            }
            moved.await;
        }
    }

    /// Whether everything that `storage` has acknowledged so far is applied. `storage`
    /// is the one this informer follows.
    pub(crate) fn is_current(&self, storage: &dyn Storage) -> bool {
        // A storage without changes is at revision 0, which counts as reached even before the list: hence
        // `synced`.
        self.0.synced.fired() && self.has_reached(storage.last_change())
    }

    /// Like [`is_current`](Self::is_current), but only of changes in one namespace.
    pub(crate) fn is_current_in(&self, storage: &dyn Storage, namespace: &str) -> bool {
        self.0.synced.fired() && self.missing_in(storage, namespace).is_none()
    }

    /// Waits until everything acknowledged at the time of the call is applied.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn catch_up(&self, storage: &dyn Storage) {
        self.0.synced.wait().await;
        self.reach(storage.last_change()).await;
    }

    /// Like [`catch_up`](Self::catch_up), but waits only for changes in one namespace, and for those before them.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn catch_up_in(&self, storage: &dyn Storage, namespace: &str) {
        self.0.synced.wait().await;
        if let Some(last) = self.missing_in(storage, namespace) {
            self.reach(last).await;
        }
    }

    /// The newest change in a namespace that is not known to be applied.
    fn missing_in(&self, storage: &dyn Storage, namespace: &str) -> Option<Revision> {
        // While the objects are listed again, this stays where the last watch had come to, so that what was missed
        // since counts as missing until the list is complete.
        let applied = Revision(self.0.applied_revision.load(Ordering::Acquire));
        storage.last_change_in(namespace, applied)
    }

    fn advance_to(&self, revision: Revision) {
        // Pairs with the load in `has_reached`: whoever sees the revision sees the snapshot, and what
        // subscribers did.
        self.0.applied_revision.fetch_max(revision.0, Ordering::Release);
        self.0.moved.notify_waiters();
    }

    /// Calls `f` for each change, once the snapshot contains it. `f` runs in the informer's task (for large
    /// objects on the blocking pool, one change at a time) and must not block; typically it adds keys to a
    /// work queue. Earlier changes are not reported; the snapshot after the call contains them. May be called
    /// from `f`.
    pub(crate) fn subscribe(&self, f: impl Fn(&Change<'_, T>) + Send + Sync + 'static) {
        Arc::make_mut(&mut self.0.subscribers.lock()).push(Arc::new(f));
    }

    /// Removes the objects that a complete list does not contain: they were deleted while the watch was
    /// interrupted.
    fn remove_others(&self, listed: &BTreeSet<Box<str>>) {
        for key in self.snapshot().keys().filter(|key| !listed.contains(&***key)) {
            self.apply(key, None);
        }
    }

    fn apply(&self, key: &str, new: Option<Arc<T>>) {
        // A persistent map: the clone shares structure with the snapshots that readers hold.
        let mut items = Items::clone(&self.0.items.load());
        // Loaded and stored without compare-and-swap: only the handle calls this, for one change at a time.
        let old = match &new {
            Some(n) => items.insert(key.into(), n.clone()),
            None => items.remove(key),
        };
        // Before the notifications: a subscriber that queues the key must find the new object.
        self.0.items.store(Arc::new(items));
        // Cloned out, because a subscriber may subscribe another.
        let subscribers = self.0.subscribers.lock().clone();
        for s in subscribers.iter() {
            s(&Change {
                key,
                old: old.as_ref(),
                new: new.as_ref(),
            });
        }
    }
}

impl<T: Send + Sync + 'static> InformerHandle<T> {
    /// Notifies subscribers on the blocking pool of objects for which `is_expensive` holds, however small they are.
    pub(crate) fn blocking_if(self, is_expensive: fn(&T) -> bool) -> Self {
        Self { is_expensive, ..self }
    }

    /// Notifies subscribers on the blocking pool while `is_busy` holds: they share a lock with those of another informer,
    /// which may hold it for a large object of its own.
    pub(crate) fn blocking_while(self, is_busy: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self {
            is_busy: Some(Box::new(is_busy)),
            ..self
        }
    }

    /// Keeps the informer up to date until the future is dropped.
    ///
    /// # Cancel safety
    /// Cancel safe. The informer keeps its last state.
    pub(crate) async fn run(self) {
        loop {
            if let Err(e) = self.follow().await {
                tracing::debug!("informer watch failed: {e}");
            }
            // Also after a watch that ended without an error, so that a store which ends each at once is not
            // flooded.
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Parses one object, applies the change and notifies subscribers; on the blocking pool if the object is
    /// large or expensive.
    async fn process(&self, entry: &Arc<Entry>, bytes: usize, deleted: bool) {
        let (informer, parse, entry) = (self.informer.clone(), self.parse, entry.clone());
        let parsed = move |entry: &Entry| (!deleted).then(|| Arc::new(parse(entry)));
        if bytes >= LARGE {
            return blocking(move || informer.apply(&entry.key, parsed(&entry))).await;
        }
        // In place: parsing a small object is cheap, only its subscribers may not be.
        let new = parsed(&entry);
        let is_busy = self.is_busy.as_ref().is_some_and(|is_busy| is_busy());
        if is_busy || new.as_deref().is_some_and(self.is_expensive) {
            return blocking(move || informer.apply(&entry.key, new)).await;
        }
        informer.apply(&entry.key, new);
    }

    async fn follow(&self) -> Result<(), Error> {
        let mut watch = self
            .storage
            .watch(WatchOptions {
                prefix: String::new(),
                single: false,
                predicate: Predicate::default(),
                since: None,
                // An informer must not begin with a state older than what the store has acknowledged.
                initial: Some(MinRevision::Latest),
                bookmarks: true,
                until: None,
            })
            .await?;
        // Keys of the initial list; `None` once it is complete. A tree, which never moves all keys at once, as a hash
        // table that grows does.
        let mut seen: Option<BTreeSet<Box<str>>> = Some(BTreeSet::new());
        let mut yields = YieldCounter::of(BATCH);
        while let Some(item) = watch.next().await {
            yields.step().await;
            match item {
                WatchItem::Initial(entry) => {
                    self.process(&entry, entry.json.len(), false).await;
                    if let Some(seen) = &mut seen {
                        seen.insert(entry.key.clone());
                    }
                }
                WatchItem::Change(_, event) => {
                    // Created while the list is sent: not in the list, but not gone either.
                    if let (Some(seen), false) = (&mut seen, event.deleted) {
                        seen.insert(event.entry.key.clone());
                    }
                    // Subscribers also process the previous object, so its size counts too.
                    let before = event.previous.as_ref().map_or(0, |e| e.json.len());
                    self.process(&event.entry, event.entry.json.len().max(before), event.deleted)
                        .await;
                    // Until the initial list is complete, a revision says nothing about objects that are not
                    // listed yet.
                    if seen.is_none() {
                        self.informer.advance_to(event.entry.revision);
                    }
                }
                WatchItem::Bookmark {
                    initial_end: true,
                    revision,
                } => {
                    let seen = seen.take().unwrap_or_default();
                    let (informer, known) = (self.informer.clone(), self.informer.snapshot());
                    // The deleted objects may be large, too.
                    if known.len() >= MANY || !known.keys().all(|key| seen.contains(&**key)) {
                        blocking(move || informer.remove_others(&seen)).await;
                    }
                    self.informer.0.synced.fire();
                    self.informer.advance_to(revision);
                }
                WatchItem::Bookmark { revision, .. } if seen.is_none() => self.informer.advance_to(revision),
                WatchItem::Bookmark { .. } => {}
                WatchItem::Failed(why) => return Err(why),
            }
        }
        Ok(())
    }
}

/// Runs `work` on the blocking pool. A panic is resumed here.
async fn blocking(work: impl FnOnce() + Send + 'static) {
    // Any other error is a cancellation, because the runtime shuts down.
    if let Err(e) = tokio::task::spawn_blocking(work).await
        && let Ok(panic) = e.try_into_panic()
    {
        std::panic::resume_unwind(panic);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controlplane::reviews::NoStorage;
    use crate::storage::embedded::{Engine, Options, ResourceConfig};
    use crate::storage::{Draft, Precondition};
    use std::sync::atomic::{AtomicBool, AtomicUsize};
    use std::task::Poll;

    fn things() -> ResourceConfig {
        ResourceConfig {
            prefix: "/registry/things/".into(),
            fields: None,
            compressed: false,
        }
    }

    #[test]
    fn a_subscriber_may_subscribe_another() {
        let informer: Informer<u8> = Informer(Arc::new(Inner {
            items: ArcSwap::default(),
            subscribers: Mutex::default(),
            synced: Signal::new("informer synced"),
            applied_revision: AtomicU64::new(0),
            moved: Notify::new(),
        }));
        let calls = Arc::new(AtomicUsize::new(0));
        let (count, shared) = (calls.clone(), informer.clone());
        informer.subscribe(move |_| {
            let count = count.clone();
            shared.subscribe(move |_| {
                count.fetch_add(1, Ordering::Relaxed);
            });
        });
        informer.apply("a", Some(Arc::new(1)));
        assert_eq!(calls.load(Ordering::Relaxed), 0, "not of the change under way");
        informer.apply("a", None);
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn changes_missed_between_watches_delay_reads_of_their_namespace() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(dir.path(), Options::default()).unwrap();
        let storage = engine.resource(things());
        let draft = Draft::new(&crate::json!({"metadata": {"name": "x"}}), Vec::new());
        let stored = storage.put("a/x", Precondition::Absent, draft, None).await.unwrap();
        let (informer, handle) = Informer::new(storage.clone(), |_: &Entry| 0u8);
        tokio::select! {
            biased;
            () = informer.catch_up(&*storage) => {}
            ended = handle.follow() => unreachable!("{ended:?}"),
        }
        assert!(informer.get("a/x").is_some());
        storage.delete("a/x", stored.revision).await.unwrap();
        let current = || ["a", "b"].map(|namespace| informer.is_current_in(&*storage, namespace));
        assert_eq!(current(), [false, true]);
        tokio::select! {
            biased;
            () = informer.catch_up_in(&*storage, "a") => {}
            ended = handle.follow() => unreachable!("{ended:?}"),
        }
        assert!(informer.get("a/x").is_none());
        assert_eq!(current(), [true, true]);
        engine.shutdown();
    }

    #[tokio::test]
    async fn a_long_list_is_processed_a_few_objects_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(dir.path(), Options::default()).unwrap();
        let storage = engine.resource(things());
        let puts = (0..3 * BATCH).map(|n| {
            let (storage, name) = (storage.clone(), format!("x{n}"));
            let draft = Draft::new(&crate::json!({"metadata": {"name": (name.as_str())}}), Vec::new());
            async move { storage.put(&name, Precondition::Absent, draft, None).await.map(drop) }
        });
        futures_util::future::try_join_all(puts).await.unwrap();
        let (informer, handle) = Informer::new(storage, |_: &Entry| 0u8);
        let mut following = Box::pin(handle.follow());
        let mut known = 0;
        while !informer.synced().fired() {
            let polled = std::future::poll_fn(|cx| Poll::Ready(following.as_mut().poll(cx))).await;
            assert!(polled.is_pending());
            let before = std::mem::replace(&mut known, informer.snapshot().len());
            assert!(
                known - before <= BATCH as usize,
                "{} objects in one poll",
                known - before
            );
            tokio::task::yield_now().await;
        }
        assert_eq!(known, 3 * BATCH as usize);
        drop(following);
        engine.shutdown();
    }

    #[tokio::test]
    async fn a_change_is_reported_on_another_thread_while_a_subscriber_is_busy() {
        let (informer, handle) = Informer::new(Arc::new(NoStorage), |_: &Entry| 0u8);
        let here = || std::thread::current().id();
        let reported = Arc::new(Mutex::new(here()));
        let noted = reported.clone();
        informer.subscribe(move |_| *noted.lock() = std::thread::current().id());
        let busy = Arc::new(AtomicBool::new(false));
        let asked = busy.clone();
        let handle = handle.blocking_while(move || asked.load(Ordering::Relaxed));
        let object = crate::json!({"metadata": {"name": "a"}});
        let entry = Arc::new(Draft::new(&object, Vec::new()).into_entry("a", Revision(1)));
        for (deleted, is_busy) in [(false, true), (false, false), (true, true)] {
            busy.store(is_busy, Ordering::Relaxed);
            handle.process(&entry, 1, deleted).await;
            assert_eq!(*reported.lock() != here(), is_busy);
        }
    }
}
