//! A fresh store per test, and helpers that keep the assertions short.

use crate::etcd_process::Etcd;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};
use torana::json;
use torana::testing::storage::Bounds;
use torana::testing::storage::Encryption;
use torana::testing::storage::ResourceConfig;
use torana::testing::storage::ResourceHooks;
use torana::testing::storage::embedded::{Engine, Options};
use torana::testing::storage::etcd::{self, Access, Cluster};
use torana::testing::storage::{
    Draft, Entry, Error, EventType, ListOptions, MinRevision, Precondition, Predicate, Revision, Storage, VersionMatch,
    Watch, WatchItem, WatchOptions,
};

/// The backend and its configuration.
#[derive(Clone, Copy)]
pub(crate) enum BackendKind {
    Embedded,
    /// The embedded engine with encryption at rest.
    Encrypted,
    /// etcd; reads of the latest state are verified with etcd.
    Etcd,
    /// etcd; reads of the latest state wait for the cache, as with etcd versions whose progress notifications
    /// are reliable.
    EtcdProgress,
}

/// A backend with an empty store, on which several resources can be opened.
pub(crate) struct Backend {
    pub engine: Arc<dyn torana::testing::storage::Backend>,
    encryption: Option<Encryption>,
    _dir: Option<tempfile::TempDir>,
    _etcd: Option<Etcd>,
}

const ENCRYPTION: &str = "
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: ['*.*']
  providers:
  - aesgcm: {keys: [{name: a, secret: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=}]}
";

impl Backend {
    pub(crate) fn embedded() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            ring: ring(),
            ..options()
        };
        let engine = Engine::open(dir.path(), options).unwrap();
        Self {
            engine,
            encryption: None,
            _dir: Some(dir),
            _etcd: None,
        }
    }

    pub(crate) fn encrypted() -> Self {
        let plain = Self::embedded();
        let file = plain._dir.as_ref().unwrap().path().join("encryption.yaml");
        std::fs::write(&file, ENCRYPTION).unwrap();
        Self {
            encryption: Some(Encryption::load(&file).unwrap()),
            ..plain
        }
    }

    pub(crate) async fn etcd(trust_progress: Option<bool>) -> Self {
        let etcd = Etcd::start(1);
        let engine = cluster_with(&etcd, trust_progress, ring()).await;
        Self {
            engine,
            encryption: None,
            _dir: None,
            _etcd: Some(etcd),
        }
    }

    /// Opens the resources of the suite, and waits until their caches are filled. A write made before then need not
    /// be in the cache when it is acknowledged, and the history of a cache begins with it.
    async fn loaded(self) -> Self {
        for name in ["configmaps", "events", "secrets"] {
            self.resource(name);
        }
        until_loaded(&*self.engine).await;
        self
    }

    pub(crate) fn resource(&self, name: &str) -> Arc<dyn Storage> {
        match &self.encryption {
            None => self.engine.resource(config(name)),
            Some(e) => {
                let hooks = ResourceHooks {
                    transform: Some(e.transform("", name)),
                    ..ResourceHooks::default()
                };
                self.engine.resource_with(config(name), hooks)
            }
        }
    }
}

/// Waits until the caches of all resources opened so far are filled.
pub(crate) async fn until_loaded(engine: &dyn torana::testing::storage::Backend) {
    let until = Instant::now() + PATIENCE;
    while let Err(why) = engine.loaded() {
        assert!(Instant::now() < until, "{why}");
        tokio::task::yield_now().await;
    }
}

/// A new gateway's view of a cluster.
pub(crate) async fn cluster(etcd: &Etcd) -> Arc<Cluster> {
    cluster_with(etcd, None, Bounds::default()).await
}

async fn cluster_with(etcd: &Etcd, trust_progress: Option<bool>, ring: Bounds) -> Arc<Cluster> {
    let access = Access {
        servers: etcd.servers(),
        ..Access::default()
    };
    let options = etcd::Options {
        freshness_wait: FRESHNESS_WAIT,
        ring,
        trust_progress,
        ..etcd::Options::default()
    };
    Cluster::connect(&access, options).await.unwrap()
}

/// Long enough for anything on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// How long a read of a future revision waits. Less than in production, because tests wait for it to end, and
/// more than a commit takes on a busy machine, because others wait for one.
const FRESHNESS_WAIT: Duration = Duration::from_secs(2);

/// The number of events that a resource's history holds in a [`Backend`].
pub(crate) const RING: usize = 1000;

fn ring() -> Bounds {
    Bounds {
        max_events: RING,
        ..Bounds::default()
    }
}

/// Production options, except that a read of a future revision gives up sooner.
pub(crate) fn options() -> Options {
    Options {
        freshness_wait: FRESHNESS_WAIT,
        ..Options::default()
    }
}

pub(crate) fn config(name: &str) -> ResourceConfig {
    ResourceConfig {
        prefix: format!("/registry/{name}/"),
        fields: None,
        compressed: false,
    }
}

/// Runs a test body on a current-thread runtime.
pub(crate) fn run<F: Future<Output = ()>>(kind: BackendKind, claim: fn(Backend) -> F) {
    if matches!(kind, BackendKind::Etcd | BackendKind::EtcdProgress) && !crate::etcd_process::is_there() {
        return;
    }
    block_on(async {
        let backend = match kind {
            BackendKind::Embedded => Backend::embedded(),
            BackendKind::Encrypted => Backend::encrypted(),
            BackendKind::Etcd => Backend::etcd(None).await.loaded().await,
            BackendKind::EtcdProgress => Backend::etcd(Some(true)).await.loaded().await,
        };
        claim(backend).await;
    });
}

pub(crate) fn block_on<F: Future>(f: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(f)
}

/// A ConfigMap with one datum and one label, both with this value.
pub(crate) fn draft(value: &str) -> Draft {
    Draft::new(
        &json!({"kind": "ConfigMap", "metadata": {"labels": {"v": value}}, "data": {"v": value}}),
        vec![],
    )
}

pub(crate) fn value(e: &Entry) -> String {
    e.decode().str_at(&["data", "v"]).to_owned()
}

pub(crate) async fn create(s: &Arc<dyn Storage>, key: &str, value: &str) -> Arc<Entry> {
    s.put(key, Precondition::Absent, draft(value), None).await.unwrap()
}

pub(crate) async fn update(s: &Arc<dyn Storage>, old: &Entry, value: &str) -> Arc<Entry> {
    let when = Precondition::Unchanged(old.revision);
    s.put(&old.key, when, draft(value), None).await.unwrap()
}

pub(crate) fn latest() -> VersionMatch {
    VersionMatch::NotOlderThan(MinRevision::Latest)
}

pub(crate) fn everything() -> ListOptions {
    ListOptions {
        prefix: String::new(),
        single: false,
        version: latest(),
        predicate: Predicate(None),
        limit: 0,
        token: None,
    }
}

pub(crate) fn from_now() -> WatchOptions {
    WatchOptions::all()
}

pub(crate) fn labelled(value: &'static str) -> Predicate {
    Predicate(Some(Arc::new(move |e: &Entry| e.label("v") == Some(value))))
}

pub(crate) fn keys(entries: &[Arc<Entry>]) -> Vec<&str> {
    entries.iter().map(|e| &*e.key).collect()
}

/// The next item of a watch as text: `ADDED ns/a@3`, `INITIAL ns/a@3`, `BOOKMARK@3`, `END@3`.
pub(crate) async fn next(w: &mut Box<dyn Watch>) -> String {
    describe(w.next().await)
}

pub(crate) fn describe(item: Option<WatchItem>) -> String {
    match item {
        None => "ended".into(),
        Some(WatchItem::Failed(why)) => format!("FAILED {why}"),
        Some(WatchItem::Initial(e)) => format!("INITIAL {}@{}", e.key, e.revision.0),
        Some(WatchItem::Bookmark {
            revision,
            initial_end: false,
        }) => format!("BOOKMARK@{}", revision.0),
        Some(WatchItem::Bookmark {
            revision,
            initial_end: true,
        }) => format!("END@{}", revision.0),
        Some(WatchItem::Change(kind, event)) => {
            let kind = match kind {
                EventType::Added => "ADDED",
                EventType::Modified => "MODIFIED",
                EventType::Deleted => "DELETED",
            };
            let e = event.object(match kind {
                "ADDED" => EventType::Added,
                "MODIFIED" => EventType::Modified,
                _ => EventType::Deleted,
            });
            let rv = e.decode().str_at(&["metadata", "resourceVersion"]).to_owned();
            assert_eq!(rv, e.revision.0.to_string(), "the object carries the event's revision");
            format!("{kind} {}@{}", e.key, e.revision.0)
        }
    }
}

pub(crate) fn conflict(r: Result<Arc<Entry>, Error>) -> Option<Revision> {
    match r {
        Err(Error::Conflict(there)) => there.map(|e| e.revision),
        other => panic!("not a conflict: {other:?}"),
    }
}
