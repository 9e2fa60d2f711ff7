//! [`Backend`]: a store as the composition root sees it, independent of the engine (embedded or etcd). It
//! creates the per-resource [`Storage`] handles and exposes health, statistics and shutdown.

use super::cacher::CacheStats;
use super::transform::Transform;
use super::{Error, Revision, Storage, Undecodable};
use crate::apimachinery::value::{Str, Value};
use crate::telemetry::StorageMetrics;
use std::sync::Arc;

/// Extracts an object's selectable fields other than `metadata.name` and `metadata.namespace`.
pub(crate) type SelectableFields = Arc<dyn Fn(&Value) -> Vec<(Str, Str)> + Send + Sync>;

/// Converts an object written by another program (an etcd that other API servers share) to the storage
/// version, and applies defaults. Returns true if the object was in another version; the error says why it
/// cannot be served.
pub(crate) type ConvertStored = Arc<dyn Fn(&mut Value) -> Result<bool, Undecodable> + Send + Sync>;

/// Per-resource hooks between the store and its objects.
#[derive(Clone)]
pub struct ResourceHooks {
    /// Encodes objects for storage, for instance by encrypting them; `None` stores them as plain JSON.
    pub transform: Option<Arc<dyn Transform>>,
    /// Storage metrics of the resource.
    pub metrics: Arc<StorageMetrics>,
    /// Applied to objects as they are read from a store that other programs write to; `None` serves them as
    /// stored.
    pub convert: Option<ConvertStored>,
}

impl Default for ResourceHooks {
    fn default() -> Self {
        Self {
            transform: None,
            metrics: StorageMetrics::unregistered(),
            convert: None,
        }
    }
}

/// Identifies a resource within the store.
#[derive(Clone)]
pub struct ResourceConfig {
    /// The full key prefix with its trailing slash: `/registry/configmaps/`. No prefix may be a prefix of
    /// another.
    pub prefix: String,
    /// Extracts the selectable fields. `None` if the resource has none: loading then needs no decoding for
    /// them.
    pub fields: Option<SelectableFields>,
    /// Keeps large objects compressed in memory, for resources whose objects are numerous and rarely read.
    pub compressed: bool,
}

/// Statistics of a backend.
#[derive(Clone, Debug, Default)]
pub struct BackendStats {
    /// The newest known revision of the store.
    pub revision: u64,
    /// Watch caches in service, by key prefix.
    pub caches: Vec<(String, CacheStats)>,
    /// Database size in bytes, by location: `embedded`, or the name of an etcd cluster (`etcd-0`).
    pub bytes: Vec<(String, u64)>,
}

/// Why a store is not healthy, or not ready.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// A write to the disk has failed. Permanent: the state of the disk is unknown.
    #[error("{0}")]
    Failed(String),
    /// The thread that commits writes has ended.
    #[error("the committer has stopped")]
    CommitterStopped,
    /// The store was shut down.
    #[error("the store is closed")]
    Closed,
    /// The disk is full. Reads and deletions continue.
    #[error("the store's disk is full: only reads and deletions are accepted until there is space")]
    DiskFull,
    /// etcd has raised its alarm NOSPACE.
    #[error("etcd is out of space (alarm NOSPACE): writes are refused")]
    OutOfSpace,
    /// etcd has not been reached yet.
    #[error("etcd client connection not yet established")]
    NotConnected,
    /// etcd does not answer in time.
    #[error("error getting data from etcd: context deadline exceeded")]
    TimedOut,
    /// etcd answers with an error.
    #[error("error getting data from etcd: {0}")]
    Refused(String),
    /// The server is shutting down.
    #[error("server is shutting down")]
    ShuttingDown,
    /// These resources have not been read yet.
    #[error("{}", .0.join(", "))]
    Loading(Vec<String>),
}

impl From<Unavailable> for Error {
    fn from(why: Unavailable) -> Self {
        Self::Failed(why.to_string())
    }
}

/// A running store of objects: the embedded engine or an etcd cluster.
pub trait Backend: Send + Sync + 'static {
    /// Returns the store of a resource; repeated calls with one prefix return the same store. May be called
    /// at any time.
    fn resource(&self, config: ResourceConfig) -> Arc<dyn Storage> {
        self.resource_with(config, ResourceHooks::default())
    }

    /// As [`resource`](Self::resource), with hooks for transformation, metrics and conversion.
    fn resource_with(&self, config: ResourceConfig, hooks: ResourceHooks) -> Arc<dyn Storage>;

    /// Stops serving a resource: its watches end and its reads and writes are refused. The stored objects
    /// remain. May block until writes in progress have finished.
    fn release(&self, prefix: &str);

    /// Reports whether the store works at all.
    ///
    /// # Errors
    /// The reason it does not.
    fn health(&self) -> Result<(), Unavailable>;

    /// Reports whether the store currently accepts reads and writes.
    ///
    /// # Errors
    /// The reason it does not.
    fn readiness(&self) -> Result<(), Unavailable> {
        self.health()
    }

    /// Reports whether the watch caches of all resources requested so far have been filled.
    ///
    /// # Errors
    /// [`Unavailable::Loading`]: the resources that are not loaded, and why.
    fn loaded(&self) -> Result<(), Unavailable> {
        Ok(())
    }

    /// Reads the statistics for metrics.
    fn stats(&self) -> BackendStats;

    /// Returns the newest known revision.
    fn revision(&self) -> Revision;

    /// Ends all watches and closes the store; later writes are refused. Blocks; idempotent.
    fn shutdown(&self);
}
