//! The embedded storage engine: one SQLite file written by a single committer thread; reads are served from
//! memory.
//!
//! ```text
//! put/delete ─► queue ─► committer: check ─► transaction ─► snapshots ─► revision ─► replies ─► watchers
//! get/list/watch ─► cacher of the resource
//! ```
//! Entry points: [`Engine::open`], [`Engine::resource`], [`Engine::shutdown`]. The on-disk format is
//! described in `docs/storage.md`.

mod catalog;
mod committer;
mod disk;
mod error;
pub(crate) mod faults;
mod format;
mod handle;
mod load;
mod lock;
mod space;
mod stats;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_damage;
pub(crate) mod tool;
mod wal;

use super::backend::{Backend, BackendStats, ResourceHooks, Unavailable};
use super::cacher::history::Bounds;
use super::cacher::{Cacher, FRESHNESS_WAIT, Progress};
use super::transform::{Transform, TransformError};
use super::{Budget, Compaction, Entry, Error, Revision, Storage};
use bytes::Bytes;
use catalog::Catalog;
use committer::{Action, Command, Committer, LoadedState, Write};
use disk::Disk;
use handle::Handle;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};

pub(crate) use super::backend::ResourceConfig;
pub use error::OpenError;
pub(crate) use lock::DirectoryLock;
pub(crate) use stats::Stats;

use crate::sync::Mutex;

/// Capacity of the write queue in permits: a write takes one, plus one per 4 KiB of value.
// The writers' backpressure: the channel itself is unbounded, so that the committer can be sent releases and
// a shutdown at any time.
const QUEUE_PERMITS: usize = 16_384;

/// Configuration of an engine.
#[derive(Clone, Debug)]
pub struct Options {
    /// Minimum age up to which history is kept on disk, within `max_history`.
    pub history: Duration,
    /// Maximum number of writes in the history on disk.
    pub max_history: u64,
    /// Maximum number of events loaded into memory at start, so that watches can resume across a restart.
    pub max_replay: u64,
    /// How long a read waits for a future revision.
    pub freshness_wait: Duration,
    /// Bounds of each resource's event history in memory.
    pub ring: Bounds,
    /// Memory budget of the watch caches; may be shared with other backends.
    pub budget: Arc<Budget>,
    /// Maximum size of the database file. A write that would exceed it fails as if the disk were full.
    pub max_bytes: Option<u64>,
    /// Interval between rounds of comparing all caches with the disk.
    pub compare_every: Duration,
    /// Called by the committer's thread while it is idle after writes, such as to return free memory to the
    /// system.
    pub on_idle: Option<fn()>,
    /// Fault injection, for tests.
    pub faults: Option<Arc<dyn faults::Faults>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            history: Duration::from_secs(600),
            max_history: 500_000,
            max_replay: 10_000,
            freshness_wait: FRESHNESS_WAIT,
            ring: Bounds::default(),
            budget: Budget::unlimited(),
            max_bytes: None,
            compare_every: Duration::from_secs(300),
            on_idle: None,
            faults: None,
        }
    }
}

/// A running store. Closed by [`shutdown`](Engine::shutdown) or on drop.
pub struct Engine {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    path: PathBuf,
    lock: Mutex<Option<DirectoryLock>>,
}

/// State shared by the engine, its resources and its committer.
struct Shared {
    queue: mpsc::Sender<Command>,
    permits: Semaphore,
    progress: Arc<Progress>,
    compaction: Compaction,
    /// Why the store has failed; permanent.
    failed: OnceLock<String>,
    /// True while the disk is full; temporary, unlike `failed`.
    full: AtomicBool,
    counters: stats::Counters,
    ring: Bounds,
    budget: Arc<Budget>,
    catalog: Mutex<Catalog>,
}

/// Closes the write queue when the committer ends, even by a panic: a writer that waits for permits would wait for
/// ever.
struct ClosesQueue(Arc<Shared>);

impl Drop for ClosesQueue {
    fn drop(&mut self) {
        self.0.permits.close();
    }
}

pub(crate) struct ResourceStore {
    prefix: String,
    /// As in the [`ResourceConfig`].
    compressed: bool,
    cacher: Arc<Cacher>,
    released: AtomicBool,
    /// Conversion between objects and stored bytes; `None` stores them unchanged.
    transform: Option<Arc<dyn Transform>>,
    /// The error of loading stored values, if it failed; the resource is not served then.
    broken: Option<Error>,
}

// === impl Engine ===

impl Engine {
    /// Opens the store in `dir`, creating it if necessary, and loads it into memory. Blocks.
    ///
    /// # Errors
    /// [`OpenError`]: the store is in use, damaged, of another format version, or inaccessible.
    pub fn open(dir: &Path, options: Options) -> Result<Arc<Self>, OpenError> {
        Self::open_locked(dir, DirectoryLock::acquire(dir)?, options)
    }

    /// As [`open`](Self::open), in a directory that the caller has locked.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) fn open_locked(dir: &Path, lock: DirectoryLock, options: Options) -> Result<Arc<Self>, OpenError> {
        // The caller holds the directory lock: two processes checkpointing one write-ahead log lose commits.
        let mut disk = Disk::open(dir, options.max_bytes)?;
        let mut contents = disk.load(options.max_replay)?;
        // Only after loading, so that fault injection concerns running stores and never the start.
        disk.inject(options.faults.clone());
        let objects = contents.objects.len() as u64;
        let size = |(key, o): &(String, disk::Raw)| space::packed(key.len(), o.value.len());
        let packed = contents.objects.iter().map(size).sum();
        let catalog = Catalog::new(&mut contents);
        let revision = Revision(contents.revision);
        let (queue, commands) = mpsc::channel();
        let shared = Arc::new(Shared {
            queue,
            permits: Semaphore::new(QUEUE_PERMITS),
            progress: Arc::new(Progress::new(revision, options.freshness_wait)),
            compaction: Compaction::default(),
            failed: OnceLock::new(),
            full: AtomicBool::new(false),
            counters: stats::Counters::default(),
            ring: options.ring,
            budget: options.budget.clone(),
            catalog: Mutex::new(catalog),
        });
        let found = LoadedState {
            revision: contents.revision,
            objects,
            packed,
            marks: contents.marks.into(),
        };
        let committer = Committer::new(shared.clone(), commands, disk, options, found);
        let ended = ClosesQueue(shared.clone());
        let thread = std::thread::Builder::new()
            .name("committer".into())
            .spawn(move || {
                let _ended = ended;
                committer.run();
            })
            .map_err(|source| OpenError::Io {
                path: dir.to_path_buf(),
                source,
            })?;
        Ok(Arc::new(Self {
            shared,
            thread: Mutex::new(Some(thread)),
            path: dir.join("store.db"),
            lock: Mutex::new(Some(lock)),
        }))
    }

    /// Returns the store of a resource; repeated calls with one prefix return the same store. May be called
    /// at any time. The first call parses the stored objects on the caller's thread.
    pub fn resource(&self, config: ResourceConfig) -> Arc<dyn Storage> {
        self.resource_with(config, ResourceHooks::default())
    }

    /// As [`resource`](Self::resource), with hooks. `hooks.convert` is ignored: no other program writes to
    /// this store.
    pub fn resource_with(&self, config: ResourceConfig, hooks: ResourceHooks) -> Arc<dyn Storage> {
        let ResourceHooks { transform, metrics, .. } = hooks;
        // Parsing happens under the catalog's lock: a second caller with this prefix must get the same store,
        // and a release must not run in between.
        let resource = self.shared.catalog.lock().serve(&self.shared, &config, transform);
        if resource.broken.is_some() {
            metrics.decode_failed();
        }
        Arc::new(Handle {
            resource,
            shared: self.shared.clone(),
            metrics,
        })
    }

    /// Stops serving a resource: its watches end and its reads and writes are refused. The objects remain
    /// stored for the next [`resource`](Self::resource) with this prefix. Blocks until queued writes have
    /// been committed.
    pub fn release(&self, prefix: &str) {
        let resource = self.shared.catalog.lock().resources.get(prefix).cloned();
        let Some(resource) = resource else {
            return;
        };
        // Set before the command is queued: a write that is queued behind it would be committed to a resource
        // whose objects have been handed back.
        resource.released.store(true, Ordering::Release);
        let (done, wait) = mpsc::sync_channel(1);
        if self.shared.queue.send(Command::Release(resource, done)).is_ok() {
            // The channel closes on shutdown; then there is nothing left to release.
            let _ = wait.recv();
        }
    }

    /// Returns the newest committed revision.
    pub fn revision(&self) -> Revision {
        self.shared.progress.applied()
    }

    /// Reports whether the store accepts writes, apart from a full disk.
    ///
    /// # Errors
    /// The reason it does not; reads continue.
    pub fn health(&self) -> Result<(), Unavailable> {
        if let Some(why) = self.shared.failed.get() {
            return Err(Unavailable::Failed(why.clone()));
        }
        // A panic of the committer sets no `failed`, so the thread itself is asked.
        match &*self.thread.lock() {
            Some(thread) if !thread.is_finished() => Ok(()),
            Some(_) => Err(Unavailable::CommitterStopped),
            None => Err(Unavailable::Closed),
        }
    }

    /// Reports whether writes are accepted now; unlike [`health`](Self::health), false while the disk is
    /// full.
    ///
    /// # Errors
    /// The reason they are not; reads continue.
    pub fn readiness(&self) -> Result<(), Unavailable> {
        self.health()?;
        if self.shared.full.load(Ordering::Acquire) {
            return Err(Unavailable::DiskFull);
        }
        Ok(())
    }

    /// Reads the counters for metrics.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats {
            revision: self.revision().0,
            ..Stats::default()
        };
        for (prefix, resource) in &self.shared.catalog.lock().resources {
            stats.objects.push((prefix.clone(), resource.cacher.count()));
            stats.watchers.push((prefix.clone(), resource.cacher.watchers()));
            let counters = resource.cacher.counters();
            let comparisons = std::array::from_fn(|i| counters.comparisons[i].get());
            stats.comparisons.push((prefix.clone(), comparisons));
            stats.terminated_watchers += counters.terminated.get();
        }
        let wal = self.path.with_extension("db-wal");
        let size = |p: &Path| std::fs::metadata(p).map_or(0, |m| m.len());
        stats.db_bytes = size(&self.path) + size(&wal);
        self.shared.counters.read_into(&mut stats);
        stats
    }

    /// Commits queued writes, ends all watches, and closes the file. Reads of single objects and lists
    /// continue; writes are refused. Blocks; idempotent.
    pub fn shutdown(&self) {
        // Held to the end, so that a concurrent second call returns only after the file is closed, too. Not the
        // thread's lock: `health` takes that on a reactor, and joining takes as long as the disk does.
        let mut directory = self.lock.lock();
        let Some(thread) = self.thread.lock().take() else {
            return;
        };
        // Sending fails if the thread has ended already.
        let _ = self.shared.queue.send(Command::Shutdown);
        if thread.join().is_err() {
            tracing::error!("the committer thread has panicked");
        }
        // After the join: a commit in progress still delivers its events to the watchers.
        for resource in self.shared.catalog.lock().resources.values() {
            resource.cacher.close();
        }
        // Last: the next process may open the file as soon as the lock is gone.
        directory.take();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl Backend for Engine {
    fn resource_with(&self, config: ResourceConfig, hooks: ResourceHooks) -> Arc<dyn Storage> {
        Engine::resource_with(self, config, hooks)
    }

    fn release(&self, prefix: &str) {
        Engine::release(self, prefix);
    }

    fn health(&self) -> Result<(), Unavailable> {
        Engine::health(self)
    }

    fn readiness(&self) -> Result<(), Unavailable> {
        Engine::readiness(self)
    }

    fn stats(&self) -> BackendStats {
        let stats = self.stats();
        BackendStats {
            revision: stats.revision,
            caches: self
                .shared
                .catalog
                .lock()
                .resources
                .iter()
                .map(|(prefix, resource)| (prefix.clone(), resource.cacher.stats()))
                .collect(),
            bytes: vec![("embedded".to_owned(), stats.db_bytes)],
        }
    }

    fn revision(&self) -> Revision {
        Engine::revision(self)
    }

    fn shutdown(&self) {
        Engine::shutdown(self);
    }
}

// === impl Shared ===

impl Shared {
    fn trim_caches(&self) {
        // A copy of the list: trimming frees the events of a burst, while requests look resources up.
        let all: Vec<_> = self.catalog.lock().resources.values().cloned().collect();
        for resource in all {
            resource.cacher.trim();
        }
    }

    async fn write(&self, resource: &Arc<ResourceStore>, key: &str, action: Action) -> Result<Arc<Entry>, Error> {
        resource.check()?;
        if let Some(why) = self.failed.get() {
            return Err(Error::Failed(why.clone()));
        }
        let bytes = match &action {
            // A deletion is let through on a full disk; it is the way to make room.
            Action::Put { .. } if self.full.load(Ordering::Acquire) => return Err(Unavailable::DiskFull.into()),
            Action::Put { stored, .. } => stored.len(),
            Action::Delete { .. } => 0,
        };
        // Capped, so that one large value can never need more permits than exist. 16 384 permits of 4 KiB
        // bound the queued values to about 64 MiB.
        let permits = (1 + bytes / 4096).min(QUEUE_PERMITS / 4) as u32;
        let closed = |_| Error::NotReady(1);
        // Forgotten here and returned by the committer when it takes the write, also if this future is
        // dropped meanwhile.
        self.permits.acquire_many(permits).await.map_err(closed)?.forget();
        let (reply, answer) = oneshot::channel();
        let write = Write {
            resource: resource.clone(),
            key: key.into(),
            action,
            reply: Some(reply),
            permits,
        };
        if self.queue.send(Command::Write(write)).is_err() {
            return Err(Error::NotReady(1));
        }
        // A dropped sender says nothing about the transaction, which may have been committed before the
        // thread died.
        let gone = |_| Error::Failed("the store has stopped; the write may or may not have been made".into());
        answer.await.unwrap_or_else(|e| Err(gone(e)))
    }
}

// === impl ResourceStore ===

impl ResourceStore {
    fn is_released(&self) -> bool {
        self.released.load(Ordering::Acquire)
    }

    fn check(&self) -> Result<(), Error> {
        match &self.broken {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    /// Converts an object's bytes to the bytes to store.
    fn seal(&self, key: &str, object: Bytes) -> Result<Bytes, TransformError> {
        match &self.transform {
            None => Ok(object),
            Some(transform) => transform.seal(&format!("{}{key}", self.prefix), object),
        }
    }
}
