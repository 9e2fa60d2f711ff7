//! The embedded engine: one durable SQLite file behind one committer thread; reads come from memory alone.
//!
//! ```text
//! put/delete ─► bounded queue ─► committer: decide ─► transaction ─► snapshots ─► revision ─► answers ─► watchers
//! get/list/watch ─► cacher of the resource
//! ```
//! Entry points: [`Engine::open`], [`Engine::resource`], [`Engine::shutdown`]. On-disk format: `docs/storage.md`.

mod catalog;
mod committer;
mod disk;
mod error;
pub mod faults;
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
pub mod tool;
mod upkeep;
mod wal;

use super::backend::{Backend, Figures, Wiring};
use super::cacher::history::Bounds;
use super::cacher::{Cacher, FRESHNESS_WAIT, Progress};
use super::transform::Transform;
use super::{Budget, Entry, Error, Revision, Storage};
use bytes::Bytes;
use catalog::Catalog;
use committer::{Action, Command, Committer, Found, Write};
use disk::Disk;
use handle::Handle;
use lock::DirectoryLock;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};

pub use super::backend::{ResourceConfig, SelectableFields};
pub use error::OpenError;
pub use stats::{COMMIT_BUCKETS, Stats};

/// The bound of the write queue: one for each write and one for each 4 KiB of it.
const QUEUE_PERMITS: usize = 16_384;

/// How an engine keeps its history.
#[derive(Clone, Debug)]
pub struct Options {
    /// History on disk is kept at least this long, within `max_history`.
    pub history: Duration,
    /// Most writes of history kept on disk.
    pub max_history: u64,
    /// Most events read back into memory at start, for watches that go on over a restart.
    pub max_replay: u64,
    /// How long a read waits for a revision that is yet to come.
    pub freshness_wait: Duration,
    /// Bounds of the event ring of each resource.
    pub ring: Bounds,
    /// What the caches may take of memory, together with others that have the same.
    pub budget: Arc<Budget>,
    /// The database file may not grow beyond this; a write that would need more finds the disk full.
    pub max_bytes: Option<u64>,
    /// Time between comparisons of a resource's cache with the disk.
    pub compare_every: Duration,
    /// A disk that fails on purpose, for tests.
    pub faults: Option<Arc<dyn faults::Faults>>,
}

/// What is said while the disk is full.
const FULL: &str = "the store's disk is full: only reads and deletions are taken until there is space";

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
            faults: None,
        }
    }
}

/// A running store. Closed by [`shutdown`](Engine::shutdown), or when dropped.
pub struct Engine {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    path: PathBuf,
    lock: Mutex<Option<DirectoryLock>>,
}

/// What the engine, its resources and its committer have in common.
struct Shared {
    queue: mpsc::Sender<Command>,
    permits: Semaphore,
    progress: Arc<Progress>,
    failed: OnceLock<String>,
    /// The disk is full; this passes.
    full: AtomicBool,
    counters: stats::Counters,
    ring: Bounds,
    budget: Arc<Budget>,
    catalog: Mutex<Catalog>,
}

/// The store of one resource.
pub(crate) struct ResourceStore {
    prefix: String,
    cacher: Arc<Cacher>,
    released: AtomicBool,
    /// How its bytes are kept; `None`: as they are.
    transform: Option<Arc<dyn Transform>>,
    /// Why its bytes could not be read, where that is so: nothing of it is served.
    broken: Option<String>,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl Engine ===

impl Engine {
    /// Opens the store in `dir`, making it where there is none, and reads it into memory. Blocks.
    ///
    /// # Errors
    /// [`OpenError`]: in use, damaged, of another version, or not accessible.
    pub fn open(dir: &Path, options: Options) -> Result<Arc<Self>, OpenError> {
        let lock = DirectoryLock::acquire(dir)?;
        let mut disk = Disk::open(dir, options.max_bytes)?;
        let mut contents = disk.load(options.max_replay)?;
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
            failed: OnceLock::new(),
            full: AtomicBool::new(false),
            counters: stats::Counters::default(),
            ring: options.ring,
            budget: options.budget.clone(),
            catalog: Mutex::new(catalog),
        });
        let found = Found {
            revision: contents.revision,
            objects,
            packed,
            marks: contents.marks.into(),
        };
        let committer = Committer::new(shared.clone(), commands, disk, options, found);
        let thread = std::thread::Builder::new()
            .name("committer".into())
            .spawn(|| committer.run())
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

    /// The store of a resource; the same one for the same prefix. May be called at any time; the objects the store
    /// holds under the prefix are parsed by the caller's thread.
    pub fn resource(&self, config: ResourceConfig) -> Arc<dyn Storage> {
        self.resource_with(config, Wiring::default())
    }

    /// The same, with what its objects go through. They are served as they were written here: nobody else writes.
    pub fn resource_with(&self, config: ResourceConfig, wiring: Wiring) -> Arc<dyn Storage> {
        let Wiring { transform, metrics, .. } = wiring;
        let resource = lock(&self.shared.catalog).serve(&self.shared, &config, transform);
        if resource.broken.is_some() {
            metrics.could_not_decode();
        }
        Arc::new(Handle {
            resource,
            shared: self.shared.clone(),
            metrics,
        })
    }

    /// Stops serving a resource: its watches end, its reads and writes are refused. Its objects stay in the store for
    /// the next [`resource`](Self::resource) with this prefix. Blocks for the writes that are under way.
    pub fn release(&self, prefix: &str) {
        let resource = lock(&self.shared.catalog).resources.get(prefix).cloned();
        let Some(resource) = resource else {
            return;
        };
        resource.released.store(true, Ordering::Release);
        let (done, wait) = mpsc::sync_channel(1);
        if self.shared.queue.send(Command::Release(resource, done)).is_ok() {
            // An error is a shutdown, after which there is nothing left to release.
            let _ = wait.recv();
        }
    }

    /// The newest committed revision.
    pub fn revision(&self) -> Revision {
        self.shared.progress.applied()
    }

    /// Whether writes are taken.
    ///
    /// # Errors
    /// Why they are not; reads go on.
    pub fn health(&self) -> Result<(), String> {
        if let Some(why) = self.shared.failed.get() {
            return Err(why.clone());
        }
        match &*lock(&self.thread) {
            Some(thread) if !thread.is_finished() => Ok(()),
            Some(_) => Err("the committer has stopped".into()),
            None => Err("the store is closed".into()),
        }
    }

    /// Whether writes would be taken now: not where the disk is full, which passes.
    ///
    /// # Errors
    /// Why they are not; reads go on.
    pub fn readiness(&self) -> Result<(), String> {
        self.health()?;
        if self.shared.full.load(Ordering::Acquire) {
            return Err(FULL.into());
        }
        Ok(())
    }

    /// Counters for metrics.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats {
            revision: self.revision().0,
            ..Stats::default()
        };
        for (prefix, resource) in &lock(&self.shared.catalog).resources {
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

    /// Commits what is queued, ends all watches, and closes the file. Blocks; may be called more than once. Reads of
    /// objects go on, writes are refused.
    pub fn shutdown(&self) {
        let mut thread = lock(&self.thread);
        let Some(thread) = thread.take() else {
            return;
        };
        // It fails where the thread is gone already.
        let _ = self.shared.queue.send(Command::Shutdown);
        if thread.join().is_err() {
            tracing::error!("the committer thread has panicked");
        }
        for resource in lock(&self.shared.catalog).resources.values() {
            resource.cacher.close();
        }
        lock(&self.lock).take();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl Backend for Engine {
    fn resource_with(&self, config: ResourceConfig, wiring: Wiring) -> Arc<dyn Storage> {
        Engine::resource_with(self, config, wiring)
    }

    fn release(&self, prefix: &str) {
        Engine::release(self, prefix);
    }

    fn health(&self) -> Result<(), String> {
        Engine::health(self)
    }

    fn readiness(&self) -> Result<(), String> {
        Engine::readiness(self)
    }

    fn figures(&self) -> Figures {
        let stats = self.stats();
        Figures {
            revision: stats.revision,
            caches: lock(&self.shared.catalog)
                .resources
                .iter()
                .map(|(prefix, resource)| (prefix.clone(), resource.cacher.figures()))
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
        for resource in lock(&self.catalog).resources.values() {
            resource.cacher.trim();
        }
    }

    async fn write(&self, resource: &Arc<ResourceStore>, key: &str, action: Action) -> Result<Arc<Entry>, Error> {
        resource.check()?;
        if let Some(why) = self.failed.get() {
            return Err(Error::Failed(why.clone()));
        }
        let bytes = match &action {
            Action::Put { .. } if self.full.load(Ordering::Acquire) => return Err(Error::Failed(FULL.into())),
            Action::Put { stored, .. } => stored.len(),
            Action::Delete { .. } => 0,
        };
        let permits = (1 + bytes / 4096).min(QUEUE_PERMITS / 4) as u32;
        let closed = |_| Error::NotReady(1);
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
            Some(why) => Err(Error::Unreadable(why.clone())),
        }
    }

    /// What is written for an object's bytes.
    fn seal(&self, key: &str, object: Bytes) -> Result<Bytes, String> {
        match &self.transform {
            None => Ok(object),
            Some(transform) => transform.seal(&format!("{}{key}", self.prefix), object),
        }
    }
}
