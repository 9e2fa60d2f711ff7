//! The etcd v3 backend, for several gateways on one cluster. Keys and values are those of kube-apiserver
//! v1.36, so that either can serve what the other has written. Each resource has one watch, which feeds the
//! same cache that the embedded engine uses.
//!
//! ```text
//! put/delete ─► transaction comparing the revision ─► durable ─► own cache caught up ─► reply
//! get/list/watch ─► handle: cache or etcd        feed: pages, then one watch ─► cacher of the resource
//! ```
//! Entry points: [`Cluster::connect`], [`Backend::resource_with`]. `handle.rs` decides which reads go to
//! etcd.

mod client;
mod connect;
mod direct;
mod error;
pub(crate) mod examine;
mod feed;
mod handle;
mod lease;
mod maintenance;
mod progress;
mod resource;
#[cfg(test)]
mod tests;
pub(crate) mod tool;
mod values;

use super::backend::{Backend, BackendStats, ResourceConfig, ResourceHooks, Unavailable};
use super::cacher::FRESHNESS_WAIT;
use super::cacher::history::Bounds;
use super::transform::Plain;
use super::{Budget, Compaction, Revision, Storage};
use crate::sync::Mutex;
use crate::tasks::{Signal, TaskGroup};
use client::Members;
use handle::Handle;
use lease::Leases;
use maintenance::Probe;
use progress::Waiters;
use resource::{Decoder, Resource, Shared, State};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

pub use client::Access;
pub use error::ConnectError;
pub(crate) use values::MediaType;

/// Root of every [`ResourceConfig::prefix`]; replaced by [`Options::prefix`].
const ROOT: &str = "/registry";

/// Configuration of a cluster.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the cluster in metrics: `etcd-0`.
    pub name: String,
    /// `--etcd-prefix`, without a trailing slash.
    pub prefix: String,
    /// `--storage-media-type`
    pub media: MediaType,
    /// `--etcd-compaction-interval`; zero disables compaction.
    pub compaction_interval: Duration,
    /// `--lease-reuse-duration-seconds`
    pub lease_reuse: Duration,
    /// `--etcd-healthcheck-timeout`
    pub health_timeout: Duration,
    /// `--etcd-readycheck-timeout`
    pub ready_timeout: Duration,
    /// `--etcd-db-metric-poll-interval`; zero disables the metric.
    pub measure_every: Duration,
    /// How long to wait for the first response; problems are logged meanwhile.
    pub connect_timeout: Duration,
    /// How long a read waits for a future revision.
    pub freshness_wait: Duration,
    /// Bounds of each resource's event history.
    pub ring: Bounds,
    /// Memory budget of the watch caches; may be shared with other backends.
    pub budget: Arc<Budget>,
    /// Whether progress requests are reliable; `None` decides by the members' versions, as upstream does.
    pub trust_progress: Option<bool>,
    /// Time after which a progress request without a sufficient response is repeated; upstream's 100 ms.
    pub progress_retry: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: "etcd-0".to_owned(),
            prefix: ROOT.to_owned(),
            media: MediaType::default(),
            compaction_interval: Duration::from_secs(300),
            lease_reuse: Duration::from_secs(60),
            health_timeout: Duration::from_secs(2),
            ready_timeout: Duration::from_secs(2),
            measure_every: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(60),
            freshness_wait: FRESHNESS_WAIT,
            ring: Bounds::default(),
            budget: Budget::unlimited(),
            trust_progress: None,
            progress_retry: progress::RETRY,
        }
    }
}

/// A store on one etcd cluster. Requires a tokio runtime while it exists.
pub struct Cluster {
    shared: Arc<Shared>,
    prefix: String,
    resources: Mutex<BTreeMap<String, Arc<Resource>>>,
    probe: Arc<Probe>,
    tasks: TaskGroup,
    stop: Signal,
    closed: AtomicBool,
    /// Number of resources created so far.
    made: AtomicUsize,
    name: String,
    measured: bool,
}

impl Cluster {
    /// Connects and starts background maintenance.
    ///
    /// # Errors
    /// [`ConnectError`]: an address is invalid, or no member answers in time.
    ///
    /// # Cancel safety
    /// Cancel safe: background tasks start only after the last await.
    pub async fn connect(access: &Access, options: Options) -> Result<Arc<Self>, ConnectError> {
        // Caught here, so that a wrong address or certificate fails the start instead of every later request.
        let members = Members::new(access)?;
        let prefix = format!("/{}", options.prefix.trim_matches('/'));
        let health = format!("{prefix}/health");
        connect::reach(&members, &health, options.connect_timeout).await?;
        let shared = Arc::new(Shared {
            members,
            leases: Leases::new(options.lease_reuse),
            media: options.media,
            freshness_wait: options.freshness_wait,
            ring: options.ring,
            budget: options.budget,
            progress_reliable: AtomicBool::new(options.trust_progress.unwrap_or(false)),
            decide_by_version: options.trust_progress.is_none(),
            progress_retry: options.progress_retry,
            compaction: Compaction::default(),
            no_space: AtomicBool::new(false),
        });
        let probe = Arc::new(Probe::default());
        // The cluster has answered just now; the first probe runs only later.
        probe.health.set(Ok(()));
        probe.readiness.set(Ok(()));
        // Before the first request: whether progress can be trusted decides how reads are served.
        maintenance::check_versions_and_alarms(&shared).await;
        let cluster = Self {
            shared,
            prefix,
            resources: Mutex::default(),
            probe,
            tasks: TaskGroup::new("etcd"),
            stop: Signal::new("etcd closed"),
            closed: AtomicBool::new(false),
            made: AtomicUsize::new(0),
            name: options.name,
            measured: !options.measure_every.is_zero(),
        };
        let upkeep = || (cluster.shared.clone(), cluster.probe.clone());
        let (shared, found) = upkeep();
        let key = health.clone();
        cluster.spawn("etcd health", async move {
            maintenance::probe(&shared, &found.health, &key, options.health_timeout).await;
        });
        let (shared, found) = upkeep();
        cluster.spawn("etcd readiness", async move {
            maintenance::probe(&shared, &found.readiness, &health, options.ready_timeout).await;
        });
        cluster.spawn(
            "etcd alarms",
            maintenance::check_versions_and_alarms_periodically(cluster.shared.clone()),
        );
        if !options.measure_every.is_zero() {
            let (shared, found) = upkeep();
            cluster.spawn("etcd size", maintenance::measure(shared, found, options.measure_every));
        }
        if !options.compaction_interval.is_zero() {
            let shared = cluster.shared.clone();
            cluster.spawn(
                "etcd compaction",
                maintenance::compact(shared, options.compaction_interval),
            );
        }
        Ok(Arc::new(cluster))
    }

    fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(name, async move {
            // The stop signal first: the task never ends on its own.
            tokio::select! {
                biased;
                () = stop.wait() => {}
                () = task => {}
            }
        });
    }

    /// Returns the store of a resource; repeated calls with one prefix return the same store. Its objects are
    /// loaded in the background.
    fn serve(&self, config: ResourceConfig, hooks: ResourceHooks) -> Arc<dyn Storage> {
        // Clusters with different roots can share one etcd.
        let prefix = match config.prefix.strip_prefix(ROOT) {
            Some(rest) => format!("{}{rest}", self.prefix),
            None => config.prefix.clone(),
        };
        let mut resources = self.resources.lock();
        // The cache is keyed by the configured prefix, under which the caller knows it.
        if let Some(served) = resources.get(&config.prefix) {
            return Arc::new(Handle(served.clone()));
        }
        let resource = Arc::new(Resource {
            sequence: self.made.fetch_add(1, Ordering::Relaxed),
            decoder: Arc::new(Decoder {
                prefix,
                fields: config.fields,
                compressed: config.compressed,
                transform: hooks.transform.unwrap_or_else(Plain::shared),
                metrics: hooks.metrics.clone(),
                convert: hooks.convert,
                media: self.shared.media,
            }),
            metrics: hooks.metrics,
            last_write: AtomicU64::new(0),
            written: Notify::new(),
            overdue: AtomicBool::new(false),
            state: watch::Sender::new(State::Loading(Instant::now(), None)),
            stop: Signal::new("resource released"),
            waiters: Waiters::default(),
            reload_wanted: Notify::new(),
            lagging: Notify::new(),
            shared: self.shared.clone(),
            counters: Arc::default(),
        });
        // Holding the map's lock: `shutdown` sets `closed` first and then stops what is in the map, so a feed
        // is either not started or stopped.
        // After shutdown no feed may start; the resource answers that it is not ready.
        if self.closed.load(Ordering::Acquire) {
            resource.state.send_replace(State::Stopped);
        } else {
            self.tasks.spawn(config.prefix.clone(), feed::run(resource.clone()));
        }
        resources.insert(config.prefix, resource.clone());
        Arc::new(Handle(resource))
    }
}

impl Backend for Cluster {
    fn resource_with(&self, config: ResourceConfig, hooks: ResourceHooks) -> Arc<dyn Storage> {
        self.serve(config, hooks)
    }

    fn release(&self, prefix: &str) {
        if let Some(resource) = self.resources.lock().remove(prefix) {
            resource.stop.fire();
        }
    }

    fn health(&self) -> Result<(), Unavailable> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Unavailable::ShuttingDown);
        }
        self.probe.health.get()
    }

    fn readiness(&self) -> Result<(), Unavailable> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Unavailable::ShuttingDown);
        }
        self.probe.readiness.get()?;
        if self.shared.no_space.load(Ordering::Acquire) {
            return Err(Unavailable::OutOfSpace);
        }
        Ok(())
    }

    fn loaded(&self) -> Result<(), Unavailable> {
        let resources = self.resources.lock();
        // A stopped resource does not count: it must not keep the server from becoming ready.
        let unread = resources.iter().filter_map(|(prefix, r)| match &*r.state.borrow() {
            State::Loading(_, Some(why)) => Some(format!("{prefix}: {why}")),
            State::Loading(_, None) => Some(prefix.clone()),
            _ => None,
        });
        let unread: Vec<String> = unread.collect();
        match unread.is_empty() {
            true => Ok(()),
            false => Err(Unavailable::Loading(unread)),
        }
    }

    fn stats(&self) -> BackendStats {
        let mut stats = BackendStats {
            revision: self.revision().0,
            bytes: match self.measured {
                true => vec![(self.name.clone(), self.probe.size.load(Ordering::Acquire))],
                false => Vec::new(),
            },
            ..BackendStats::default()
        };
        for (prefix, resource) in &*self.resources.lock() {
            let Some(serving) = resource.ready() else { continue };
            stats.caches.push((prefix.clone(), serving.cacher.stats()));
        }
        stats
    }

    fn revision(&self) -> Revision {
        self.shared.members.seen()
    }

    fn shutdown(&self) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.stop.fire();
        for resource in self.resources.lock().values() {
            resource.stop.fire();
            // The feed would close it, too, but its task may not run any more once the runtime shuts down.
            if let State::Ready(serving) = &*resource.state.borrow() {
                serving.cacher.close();
            }
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.shutdown();
    }
}
