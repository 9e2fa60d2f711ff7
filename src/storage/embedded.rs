//! The embedded engine: one durable SQLite file behind one committer thread; reads come from memory alone.
//!
//! ```text
//! put/delete ─► bounded queue ─► committer: decide ─► transaction ─► snapshots ─► revision ─► answers ─► watchers
//! get/list/watch ─► cacher of the resource
//! ```
//! Entry points: [`Engine::open`], [`Engine::resource`], [`Engine::shutdown`]. On-disk format: `docs/storage.md`.

mod committer;
mod disk;
mod load;
mod lock;
mod stats;
#[cfg(test)]
mod tests;

use super::cacher::history::Bounds;
use super::cacher::{Cacher, FRESHNESS_WAIT, Initial, Progress, Snapshot};
use super::{
    Draft, Entry, Error, Event, ListOptions, Listing, MinRevision, Precondition, Revision, Storage, Watch, WatchOptions,
};
use crate::apimachinery::value::{Str, Value};
use async_trait::async_trait;
use bytes::Bytes;
use committer::{Action, Command, Committer, Write};
use disk::{Disk, Raw, RawEvent};
use lock::DirectoryLock;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};

pub use stats::{COMMIT_BUCKETS, Stats};

/// The bound of the write queue: one for each write and one for each 4 KiB of it.
const QUEUE_PERMITS: usize = 16_384;

/// The selectable fields of an object beside its name and namespace.
pub type SelectableFields = Arc<dyn Fn(&Value) -> Vec<(Str, Str)> + Send + Sync>;

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
    /// The database file may not grow beyond this; a write that would need more fails the store.
    pub max_bytes: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            history: Duration::from_secs(600),
            max_history: 500_000,
            max_replay: 10_000,
            freshness_wait: FRESHNESS_WAIT,
            ring: Bounds::default(),
            max_bytes: None,
        }
    }
}

/// One resource of the store.
#[derive(Clone)]
pub struct ResourceConfig {
    /// The whole key prefix with its last slash: `/registry/configmaps/`. No prefix may begin with another.
    pub prefix: String,
    /// Its selectable fields; `None` where there are none, which makes starting faster.
    pub fields: Option<SelectableFields>,
}

/// Why a store could not be opened.
#[derive(Debug)]
pub enum OpenError {
    /// Another process has it.
    Locked {
        /// The store's directory.
        dir: PathBuf,
        /// The process, where it is known.
        holder: Option<u32>,
    },
    /// A file could not be opened or made.
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not what was written.
    Damaged {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The file was written by another version of the format.
    Version {
        /// Which file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The format this program knows.
        known: i64,
    },
    /// The database refused for another reason.
    Sqlite {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: rusqlite::Error,
    },
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
    counters: stats::Counters,
    ring: Bounds,
    catalog: Mutex<Catalog>,
}

/// Which resources are served, and what is in the store beside them.
struct Catalog {
    resources: BTreeMap<String, Arc<ResourceStore>>,
    unserved: BTreeMap<String, Raw>,
    history: BTreeMap<String, Vec<RawEvent>>,
    /// Where `history` begins.
    base: Revision,
    /// Where it begins for resources that were released.
    released: BTreeMap<String, Revision>,
}

/// The store of one resource.
pub(crate) struct ResourceStore {
    prefix: String,
    cacher: Arc<Cacher>,
    released: AtomicBool,
}

/// A resource as the registry sees it.
struct Handle {
    resource: Arc<ResourceStore>,
    shared: Arc<Shared>,
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
        let contents = disk.load(options.max_replay)?;
        let revision = Revision(contents.revision);
        let objects = contents.objects.len() as u64;
        let mut history: BTreeMap<String, Vec<RawEvent>> = BTreeMap::new();
        for (key, event) in contents.events {
            history.entry(key).or_default().push(event);
        }
        let catalog = Catalog {
            resources: BTreeMap::new(),
            unserved: contents.objects.into_iter().collect(),
            history,
            base: Revision(contents.base),
            released: BTreeMap::new(),
        };
        let (queue, commands) = mpsc::channel();
        let shared = Arc::new(Shared {
            queue,
            permits: Semaphore::new(QUEUE_PERMITS),
            progress: Arc::new(Progress::new(revision, options.freshness_wait)),
            failed: OnceLock::new(),
            counters: stats::Counters::default(),
            ring: options.ring,
            catalog: Mutex::new(catalog),
        });
        let mut committer = Committer::new(shared.clone(), commands, disk, options);
        (committer.revision, committer.objects) = (contents.revision, objects);
        committer.marks = contents.marks.into();
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
        let mut catalog = lock(&self.shared.catalog);
        let resource = match catalog.resources.get(&config.prefix) {
            Some(resource) => resource.clone(),
            None => {
                let resource = self.shared.load(&mut catalog, &config);
                catalog.resources.insert(config.prefix, resource.clone());
                resource
            }
        };
        Arc::new(Handle {
            resource,
            shared: self.shared.clone(),
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

    /// Counters for metrics.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats {
            revision: self.revision().0,
            ..Stats::default()
        };
        for (prefix, resource) in &lock(&self.shared.catalog).resources {
            stats.objects.push((prefix.clone(), resource.cacher.count()));
            stats.watchers.push((prefix.clone(), resource.cacher.watchers()));
            stats.terminated_watchers += resource.cacher.terminated();
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
            resource.cacher.end_watches();
        }
        lock(&self.lock).take();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shutdown();
    }
}

// === impl Shared ===

/// Takes the range of keys with a prefix out of a map.
fn take_prefix<V>(map: &mut BTreeMap<String, V>, prefix: &str) -> BTreeMap<String, V> {
    let mut taken = map.split_off(prefix);
    let rest = taken.keys().find(|k| !k.starts_with(prefix)).cloned();
    if let Some(rest) = rest {
        map.append(&mut taken.split_off(&rest));
    }
    taken
}

impl Shared {
    fn load(&self, catalog: &mut Catalog, config: &ResourceConfig) -> Arc<ResourceStore> {
        let prefix = &config.prefix;
        let fields = config.fields.as_ref();
        let mut entries: HashMap<(String, u64), Arc<Entry>> = HashMap::new();
        let mut expiring = Vec::new();
        let mut objects = Vec::new();
        let history = take_prefix(&mut catalog.history, prefix);
        for (key, raw) in take_prefix(&mut catalog.unserved, prefix) {
            let own = &key[prefix.len()..];
            let entry = Arc::new(load::entry(own, raw.revision, &raw.value, fields));
            expiring.extend(raw.expires.map(|at| (at, entry.key.clone(), entry.revision)));
            objects.push(entry.clone());
            if history.contains_key(&key) {
                entries.insert((key, raw.revision), entry);
            }
        }
        let mut events = Vec::new();
        for (key, writes) in history {
            let own = key[prefix.len()..].to_owned();
            let mut entry = |revision: u64, value: &Bytes| -> Arc<Entry> {
                let made = entries.entry((key.clone(), revision));
                made.or_insert_with(|| Arc::new(load::entry(&own, revision, value, fields)))
                    .clone()
            };
            for write in writes {
                let previous = write.previous.as_ref().map(|(revision, value)| entry(*revision, value));
                let after = match (&write.value, &previous) {
                    (Some(value), _) => entry(write.revision, value),
                    (None, Some(previous)) => Arc::new(previous.at_revision(Revision(write.revision))),
                    // A deletion always has a state before it.
                    (None, None) => continue,
                };
                let frames = [const { OnceLock::new() }; 3];
                let deleted = write.value.is_none();
                events.push(Arc::new(Event {
                    entry: after,
                    previous,
                    deleted,
                    frames,
                }));
            }
        }
        events.sort_by_key(|e| e.entry.revision);
        let newest = |e: &Arc<Event>| e.entry.revision;
        let revision = objects
            .iter()
            .map(|e| e.revision)
            .chain(events.last().map(newest))
            .max();
        let initial = Initial {
            state: Snapshot::new(objects, revision.unwrap_or_default()),
            base: catalog.released.get(prefix).copied().unwrap_or(catalog.base),
            events,
        };
        let resource = Arc::new(ResourceStore {
            prefix: prefix.clone(),
            cacher: Arc::new(Cacher::new(self.progress.clone(), initial, self.ring)),
            released: AtomicBool::new(false),
        });
        if !expiring.is_empty() {
            // It fails after a shutdown, when nothing expires any more.
            let _ = self.queue.send(Command::Expire(resource.clone(), expiring));
        }
        resource
    }

    /// Puts the objects of a released resource back among those nobody serves. Its history goes.
    fn give_back(&self, resource: &Arc<ResourceStore>, expires: &HashMap<Box<str>, i64>) {
        let mut catalog = lock(&self.catalog);
        for e in resource.cacher.snapshot().scan("", std::ops::Bound::Unbounded) {
            let raw = Raw {
                revision: e.revision.0,
                value: e.unversioned().into(),
                expires: expires.get(&e.key).copied(),
            };
            catalog.unserved.insert(format!("{}{}", resource.prefix, e.key), raw);
        }
        catalog.resources.remove(&resource.prefix);
        catalog
            .released
            .insert(resource.prefix.clone(), self.progress.applied());
    }

    fn trim_caches(&self) {
        for resource in lock(&self.catalog).resources.values() {
            resource.cacher.trim();
        }
    }

    async fn write(&self, resource: &Arc<ResourceStore>, key: &str, action: Action) -> Result<Arc<Entry>, Error> {
        if let Some(why) = self.failed.get() {
            return Err(Error::Failed(why.clone()));
        }
        let bytes = match &action {
            Action::Put { draft, .. } => draft.json.len(),
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
}

// === impl Handle ===

#[async_trait]
impl Storage for Handle {
    async fn get(&self, key: &str, min: MinRevision) -> Result<Option<Arc<Entry>>, Error> {
        self.resource.cacher.get(key, min).await
    }

    async fn list(&self, options: ListOptions) -> Result<Listing, Error> {
        self.resource.cacher.list(options).await
    }

    async fn watch(&self, options: WatchOptions) -> Result<Box<dyn Watch>, Error> {
        self.resource.cacher.watch(options).await
    }

    async fn put(
        &self,
        key: &str,
        when: Precondition,
        draft: Draft,
        ttl_seconds: Option<u64>,
    ) -> Result<Arc<Entry>, Error> {
        let action = Action::Put {
            when,
            draft,
            ttl: ttl_seconds,
        };
        self.shared.write(&self.resource, key, action).await
    }

    async fn delete(&self, key: &str, unchanged: Revision) -> Result<Arc<Entry>, Error> {
        self.shared
            .write(&self.resource, key, Action::Delete { unchanged })
            .await
    }

    fn revision(&self) -> Revision {
        self.shared.progress.applied()
    }

    fn count(&self) -> usize {
        self.resource.cacher.count()
    }
}

// === impl OpenError ===

impl OpenError {
    fn damaged(path: &Path, why: impl Into<String>) -> Self {
        Self::Damaged {
            path: path.to_path_buf(),
            why: why.into(),
        }
    }

    fn sqlite(path: &Path, source: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
        match source.sqlite_error_code() {
            Some(DatabaseCorrupt | NotADatabase) => Self::damaged(path, source.to_string()),
            // A value of another type than was written, or bytes that are no text.
            None => Self::damaged(path, source.to_string()),
            Some(_) => Self::Sqlite {
                path: path.to_path_buf(),
                source,
            },
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Locked { dir, holder: Some(pid) } => {
                write!(f, "the store in {} is in use by process {pid}", dir.display())
            }
            Self::Locked { dir, holder: None } => {
                write!(f, "the store in {} is in use by another process", dir.display())
            }
            Self::Io { path, source } => write!(f, "cannot open {}: {source}", path.display()),
            Self::Damaged { path, why } => write!(
                f,
                "the store {} is damaged and was not opened: {why}; restore it from a backup",
                path.display()
            ),
            Self::Version { path, found, known } => write!(
                f,
                "the store {} has format {found}, this program knows format {known}",
                path.display()
            ),
            Self::Sqlite { path, source } => write!(f, "cannot open {}: {source}", path.display()),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Sqlite { source, .. } => Some(source),
            _ => None,
        }
    }
}
