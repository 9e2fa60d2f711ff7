//! Opens the storage backends that the flags select: the embedded engine or etcd, with separate etcd clusters
//! for some resources.

use super::Error;
use super::error::Cause;
use crate::apimachinery::gvk::GroupResource;
use crate::cli::CompletedOptions;
use crate::cli::options::{EtcdOptions, StorageOptions};
use crate::extensions::custom_resources;
use crate::server::generic::GenericServer;
use crate::server::health::{Endpoints, HealthCheck};
use crate::storage::backend::{Backend, BackendStats, ConvertStored, ResourceHooks, Unavailable};
use crate::storage::embedded::{self, DirectoryLock, Engine};
use crate::storage::encryption::Encryption;
use crate::storage::etcd::{self, Access, Cluster};
use crate::storage::{Budget, ResourceConfig, Storage};
use crate::telemetry::Telemetry;
use crate::telemetry::encryption::EncryptionMetrics;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Poll interval while waiting for the stores to load.
const POLL: Duration = Duration::from_millis(20);
/// Interval at which the encryption configuration is reloaded; upstream's.
const RELOAD: Duration = Duration::from_secs(60);

/// The storage backends of a gateway.
pub(crate) struct Stores {
    main: Arc<dyn Backend>,
    /// `--etcd-servers-overrides`: one backend per distinct set of servers, with its resources.
    overrides: Vec<(Vec<GroupResource>, Arc<dyn Backend>)>,
    encryption: Option<Arc<Encryption>>,
    reload: bool,
    telemetry: Telemetry,
    /// Memory budget shared by the caches of all backends.
    budget: Arc<Budget>,
}

impl Stores {
    /// Makes the data directory and, if the embedded engine is to open its store there, keeps other processes
    /// out.
    ///
    /// # Errors
    /// A flag whose value cannot be used.
    pub(crate) fn lock(options: &CompletedOptions) -> Result<Option<DirectoryLock>, Error> {
        let storage = &options.storage;
        let dir = &storage.data_dir;
        std::fs::create_dir_all(dir)
            .map_err(|e| Error::flag("data-dir")(format!("cannot make {}: {e}", dir.display())))?;
        match storage.etcd {
            Some(_) => Ok(None),
            None => Ok(Some(DirectoryLock::acquire(dir).map_err(Error::flag("data-dir"))?)),
        }
    }

    /// Opens the backends, with what [`Self::lock`] returned.
    ///
    /// # Errors
    /// A flag whose value cannot be used.
    pub(crate) async fn open(
        options: &CompletedOptions,
        lock: Option<DirectoryLock>,
        telemetry: &Telemetry,
    ) -> Result<Arc<Self>, Error> {
        let storage = &options.storage;
        let encryption = match storage.encryption.clone() {
            None => None,
            Some(path) => {
                let metrics = EncryptionMetrics::register(telemetry);
                let load = move || Encryption::load_with_metrics(&path, metrics);
                let loaded = tokio::task::spawn_blocking(load).await;
                let loaded = loaded.map_err(Cause::from).and_then(|l| l.map_err(Cause::from));
                Some(Arc::new(loaded.map_err(Error::flag("encryption-provider-config"))?))
            }
        };
        let reload = storage.encryption_reload;
        let budget = Budget::with_watch_bounds(storage.cache_bytes(), storage.encodings_bytes, storage.watches);
        let Some(etcd) = &storage.etcd else {
            return Ok(Arc::new(Self {
                main: embedded(storage, lock, &budget, options.compute.on_idle)?,
                overrides: Vec::new(),
                encryption,
                reload,
                telemetry: telemetry.clone(),
                budget,
            }));
        };
        let within = options.generic.storage_initialization_timeout;
        let main = connect(etcd, &etcd.servers, "etcd-servers", (0, within), &budget).await?;
        let mut overrides: Vec<(Vec<GroupResource>, Arc<dyn Backend>)> = Vec::new();
        let mut sets: Vec<&[String]> = Vec::new();
        for (resource, servers) in &etcd.overrides {
            // One client per set of servers, not per resource: each has its own connections and health
            // checks.
            match sets.iter().position(|known| *known == servers.as_slice()) {
                Some(at) => overrides[at].0.push(resource.clone()),
                None => {
                    // Index 0 is the main cluster.
                    let at = (sets.len() + 1, within);
                    let other = connect(etcd, servers, "etcd-servers-overrides", at, &budget).await?;
                    overrides.push((vec![resource.clone()], other));
                    sets.push(servers);
                }
            }
        }
        Ok(Arc::new(Self {
            main,
            overrides,
            encryption,
            reload,
            telemetry: telemetry.clone(),
            budget,
        }))
    }

    fn all(&self) -> impl Iterator<Item = &Arc<dyn Backend>> {
        [&self.main].into_iter().chain(self.overrides.iter().map(|(_, b)| b))
    }

    /// The store of a resource. `convert` converts objects written by other programs to the storage version.
    pub(crate) fn resource(
        &self,
        resource: &GroupResource,
        config: ResourceConfig,
        convert: ConvertStored,
    ) -> Arc<dyn Storage> {
        let (group, plural) = (&resource.group, &resource.resource);
        let hooks = ResourceHooks {
            transform: self.encryption.as_ref().map(|e| e.transform(group, plural)),
            metrics: Arc::new(self.telemetry.storage(group, plural)),
            convert: Some(convert),
        };
        self.backend(resource).resource_with(config, hooks)
    }

    /// The store of records that are not API objects: neither encrypted nor converted.
    pub(crate) fn internal(&self, config: ResourceConfig) -> Arc<dyn Storage> {
        self.main.resource(config)
    }

    fn backend(&self, resource: &GroupResource) -> &Arc<dyn Backend> {
        let other = self.overrides.iter().find(|(here, _)| here.contains(resource));
        other.map_or(&self.main, |(_, b)| b)
    }

    /// Waits until all stores requested so far are in memory (upstream's `storage-readiness`). A timeout is
    /// only logged.
    pub(crate) async fn loaded(&self, within: Duration) {
        let until = Instant::now() + within;
        for backend in self.all() {
            // Polled: backends load on their own, and this happens only at the start.
            while let Err(what) = backend.loaded() {
                // One deadline for all backends together.
                if Instant::now() >= until {
                    tracing::error!(%what, "some resources were not loaded in time; requests for them wait or fail");
                    break;
                }
                tokio::time::sleep(POLL).await;
            }
        }
    }

    /// The memory budget of the caches.
    pub(crate) fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Number of backends: the main one and those for overrides.
    pub(crate) fn count(&self) -> usize {
        self.all().count()
    }

    /// Health of the backend with this index.
    ///
    /// # Errors
    /// The reason.
    pub(crate) fn health(&self, index: usize) -> Result<(), Unavailable> {
        self.all().nth(index).map_or(Ok(()), |store| store.health())
    }

    /// Adds the health and readiness checks, under upstream's names.
    pub(crate) fn add_checks(&self, server: &mut GenericServer) {
        for (i, store) in self.all().enumerate() {
            let (health, readiness) = match i {
                0 => ("etcd".to_owned(), "etcd-readiness".to_owned()),
                n => (
                    format!("etcd-override-{}", n - 1),
                    format!("etcd-override-readiness-{}", n - 1),
                ),
            };
            let backend = store.clone();
            let check = move || backend.health();
            // `/readyz` has one store check, with a name of its own (golden health/endpoints,
            // readyz-verbose-exclude-etcd).
            server.add_health_check(HealthCheck::new(health, Endpoints::HEALTHZ_LIVEZ, check));
            let backend = store.clone();
            let check = move || backend.readiness();
            server.add_health_check(HealthCheck::new(readiness, Endpoints::READYZ, check));
        }
        let Some(encryption) = &self.encryption else { return };
        if encryption.has_plugins() {
            let plugins = encryption.clone();
            let check = move || plugins.health();
            server.add_health_check(HealthCheck::new("kms-providers", Endpoints::HEALTHZ_READYZ, check));
        }
        if self.reload {
            let encryption = encryption.clone();
            let hook = "start-encryption-provider-config-automatic-reload";
            server.add_post_start_hook(hook, move |cx| async move {
                let stop = cx.tasks.stop_signal().clone();
                cx.tasks.spawn("encryption configuration", async move {
                    // Biased towards stopping, because following a file never ends on its own.
                    tokio::select! {
                        biased;
                        () = stop.wait() => {}
                        () = follow(encryption) => {}
                    }
                });
                Ok(())
            });
        }
    }

    /// Statistics of all backends together.
    pub(crate) fn stats(&self) -> BackendStats {
        let mut sum = BackendStats::default();
        for stats in self.all().map(|b| b.stats()) {
            // Each cluster counts its own, of which only the largest can be shown.
            sum.revision = sum.revision.max(stats.revision);
            sum.caches.extend(stats.caches);
            sum.bytes.extend(stats.bytes);
        }
        sum
    }

    /// Ends watches and closes the backends. Blocks.
    pub(crate) fn shutdown(&self) {
        self.all().for_each(|b| b.shutdown());
    }
}

impl custom_resources::Storages for Stores {
    fn open(&self, resource: &GroupResource) -> Arc<dyn Storage> {
        let config = ResourceConfig {
            prefix: custom_resources::prefix(resource),
            fields: None,
            compressed: false,
        };
        // Custom resources are converted where they are served.
        self.resource(resource, config, Arc::new(|_| Ok(false)))
    }

    fn close(&self, resource: &GroupResource) {
        self.backend(resource).release(&custom_resources::prefix(resource));
    }
}

/// Reloads the encryption configuration periodically.
async fn follow(encryption: Arc<Encryption>) {
    loop {
        tokio::time::sleep(RELOAD).await;
        let again = encryption.clone();
        match tokio::task::spawn_blocking(move || again.reload()).await {
            Ok(Ok(false)) => {}
            Ok(Ok(true)) => tracing::info!("encryption configuration reloaded"),
            Ok(Err(error)) => tracing::error!(%error, "invalid encryption configuration; keeping the previous one"),
            Err(e) => tracing::error!("reading the encryption configuration: {e}"),
        }
    }
}

fn embedded(
    storage: &StorageOptions,
    lock: Option<DirectoryLock>,
    budget: &Arc<Budget>,
    on_idle: Option<fn()>,
) -> Result<Arc<dyn Backend>, Error> {
    let settings = embedded::Options {
        // Zero disables compaction, as upstream.
        history: match storage.compaction_interval {
            Duration::ZERO => Duration::MAX,
            interval => interval,
        },
        budget: budget.clone(),
        on_idle,
        ..embedded::Options::default()
    };
    let opened = match lock {
        Some(lock) => Engine::open_locked(&storage.data_dir, lock, settings),
        None => Engine::open(&storage.data_dir, settings),
    };
    Ok(opened.map_err(Error::flag("data-dir"))?)
}

/// The connection parameters of an etcd cluster, from the flags.
///
/// # Errors
/// A flag whose value cannot be used.
pub(crate) fn access(etcd: &EtcdOptions, servers: &[String]) -> Result<Access, Error> {
    let read = |flag, path: &Path| std::fs::read(path).map_err(Error::unreadable(flag, path));
    let identity = match &etcd.identity {
        None => None,
        Some((certificate, key)) => Some((read("etcd-certfile", certificate)?, read("etcd-keyfile", key)?)),
    };
    let user = match &etcd.user_file {
        None => None,
        Some(path) => {
            let text = String::from_utf8_lossy(&read("etcd-user-file", path)?).into_owned();
            let line = text.lines().next().unwrap_or_default();
            let malformed = || Error::file("etcd-user-file", path)("the first line is not name:password");
            // At the first colon, as etcdctl: a password may contain more.
            let (name, password) = line.split_once(':').ok_or_else(malformed)?;
            Some((name.to_owned(), password.to_owned()))
        }
    };
    Ok(Access {
        servers: servers.to_vec(),
        ca: etcd.ca.as_deref().map(|p| read("etcd-cafile", p)).transpose()?,
        identity,
        user,
    })
}

async fn connect(
    options: &EtcdOptions,
    servers: &[String],
    flag: &'static str,
    (index, within): (usize, Duration),
    budget: &Arc<Budget>,
) -> Result<Arc<dyn Backend>, Error> {
    let access = access(options, servers)?;
    let settings = etcd::Options {
        name: format!("etcd-{index}"),
        connect_timeout: within,
        prefix: options.prefix.clone(),
        media: options.media,
        compaction_interval: options.compaction_interval,
        lease_reuse: options.lease_reuse,
        health_timeout: options.health_timeout,
        ready_timeout: options.ready_timeout,
        measure_every: options.measure_every,
        budget: budget.clone(),
        ..etcd::Options::default()
    };
    let cluster = Cluster::connect(&access, settings).await;
    Ok(cluster.map_err(Error::flag(flag))?)
}
