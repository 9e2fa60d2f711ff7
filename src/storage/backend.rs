//! A store as the composition root sees it, whichever engine it is: the embedded one or etcd.

use super::cacher::Counters;
use super::transform::Transform;
use super::{Revision, Storage};
use crate::apimachinery::value::{Str, Value};
use crate::telemetry::StorageMetrics;
use std::sync::Arc;

/// The selectable fields of an object beside its name and namespace.
pub type SelectableFields = Arc<dyn Fn(&Value) -> Vec<(Str, Str)> + Send + Sync>;

/// Makes an object as others have stored it the one that is served: converts it to the version kept here, and adds
/// defaults. True: it was of another version. The error says why it cannot be served.
pub type Revive = Arc<dyn Fn(&mut Value) -> Result<bool, String> + Send + Sync>;

/// What a resource's objects go through.
#[derive(Clone)]
pub struct Wiring {
    /// How they are stored; `None`: as they are.
    pub transform: Option<Arc<dyn Transform>>,
    /// Counts what is done.
    pub metrics: Arc<StorageMetrics>,
    /// For stores that others write to, too; `None`: objects are served as they are found.
    pub revive: Option<Revive>,
}

impl Default for Wiring {
    fn default() -> Self {
        Self {
            transform: None,
            metrics: StorageMetrics::unread(),
            revive: None,
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

/// What a watch cache says about itself to metrics.
#[derive(Clone, Debug)]
pub struct CacheFigures {
    /// Objects.
    pub objects: usize,
    /// Bytes of memory its objects take.
    pub objects_bytes: u64,
    /// Bytes of memory that history takes, as counted for its bound.
    pub history_bytes: u64,
    /// Events of history.
    pub events: usize,
    /// Events there is room for now.
    pub capacity: usize,
    /// Running watches.
    pub watchers: usize,
    /// The newest change.
    pub revision: u64,
    /// What it has done since the start.
    pub counters: Arc<Counters>,
}

/// What a backend says about itself to metrics.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// The newest known revision.
    pub revision: u64,
    /// The caches in service, by key prefix.
    pub caches: Vec<(String, CacheFigures)>,
    /// Bytes of the database, by the name of its place: `embedded`, or an etcd cluster.
    pub bytes: Vec<(String, u64)>,
}

/// A running store.
pub trait Backend: Send + Sync + 'static {
    /// The store of a resource; the same one for the same prefix. May be called at any time.
    fn resource(&self, config: ResourceConfig) -> Arc<dyn Storage> {
        self.resource_with(config, Wiring::default())
    }

    /// The same, with what its objects go through.
    fn resource_with(&self, config: ResourceConfig, wiring: Wiring) -> Arc<dyn Storage>;

    /// Stops serving a resource: its watches end, its reads and writes are refused. Its objects stay. May block for the
    /// writes that are under way.
    fn release(&self, prefix: &str);

    /// Whether the store works.
    ///
    /// # Errors
    /// Why it does not.
    fn health(&self) -> Result<(), String>;

    /// Whether it takes reads and writes.
    ///
    /// # Errors
    /// Why it does not.
    fn readiness(&self) -> Result<(), String> {
        self.health()
    }

    /// Whether every resource asked for so far has been read into memory.
    ///
    /// # Errors
    /// Which are not, and why.
    fn loaded(&self) -> Result<(), String> {
        Ok(())
    }

    /// Counters for metrics.
    fn figures(&self) -> Figures;

    /// The newest known revision.
    fn revision(&self) -> Revision;

    /// Ends all watches and closes the store; writes are refused from now on. Blocks; may be called more than once.
    fn shutdown(&self);
}
