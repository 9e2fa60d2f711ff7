//! Decisions after acknowledged writes, with feeds that run by themselves and with feeds that are held.

use super::*;
use crate::apimachinery::Value;
use crate::authz::{Attributes, Authorizer, Decision, Verdict};
use crate::json;
use crate::request::{RequestInfo, UserInfo};
use crate::storage::embedded::{Engine, Options, ResourceConfig};
use crate::storage::{Draft, MinRevision, Precondition, Revision};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use http::Method;
use std::time::Duration;

const CLUSTER: &str = "";

fn sources(engine: &Engine) -> Sources {
    let storage = |plural: &str| -> Arc<dyn Storage> {
        engine.resource(ResourceConfig {
            prefix: format!("/registry/{plural}/"),
            fields: None,
            compressed: false,
        })
    };
    Sources {
        cluster_roles: storage("clusterroles"),
        cluster_role_bindings: storage("clusterrolebindings"),
        roles: storage("roles"),
        role_bindings: storage("rolebindings"),
    }
}

async fn put(storage: &Arc<dyn Storage>, key: &str, object: Value) -> Revision {
    let draft = Draft::new(&object, Vec::new());
    let stored = storage.put(key, Precondition::Absent, draft, None).await;
    stored.expect("the key is free").revision
}

/// A role that may read pods.
fn role(name: &str) -> Value {
    json!({"metadata": {"name": name}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]})
}

/// Binds the ClusterRole `r` to the user `u`.
fn binding(namespace: &str, name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": namespace}, "roleRef": {"kind": "ClusterRole", "name": "r"},
        "subjects": [{"kind": "User", "name": "u"}]})
}

/// The user `u` reads pods in a namespace, or in all.
fn request(namespace: &str) -> (UserInfo, RequestInfo) {
    let path = match namespace {
        CLUSTER => "/api/v1/pods".to_owned(),
        namespace => format!("/api/v1/namespaces/{namespace}/pods/x"),
    };
    let info = RequestInfo::resolve(&Method::GET, &path.parse().expect("a path"));
    (UserInfo::system("u", &[]), info.expect("a request"))
}

/// Feeds that read only while somebody waits in [`until`](Self::until).
struct HeldFeeds(Vec<BoxFuture<'static, ()>>);

impl HeldFeeds {
    /// Holds the feeds once they have read the initial lists.
    async fn new(feeds: Feeds) -> Self {
        let roles = feeds.roles.into_iter().map(|feed| feed.run().boxed());
        let bindings = feeds.bindings.into_iter().map(|feed| feed.run().boxed());
        let mut held = Self(roles.chain(bindings).collect());
        for synced in &feeds.synced {
            held.until(synced.wait()).await;
        }
        held
    }

    async fn until<T>(&mut self, done: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            done = done => done,
            _ = join_all(&mut self.0) => unreachable!("feeds do not end"),
        }
    }
}

struct Scene {
    rbac: Arc<Rbac>,
    sources: Sources,
    feeds: HeldFeeds,
    engine: Arc<Engine>,
    _dir: tempfile::TempDir,
}

impl Scene {
    /// Only the ClusterRole `r` exists, and is read.
    async fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let engine = Engine::open(dir.path(), Options::default()).expect("a new store");
        let sources = sources(&engine);
        put(&sources.cluster_roles, "r", role("r")).await;
        let rbac = Rbac::new();
        let feeds = HeldFeeds::new(rbac.follow(&sources)).await;
        Self {
            rbac,
            sources,
            feeds,
            engine,
            _dir: dir,
        }
    }

    /// The decision on a request in a namespace, if it is made at once.
    fn at_once(&self, namespace: &str) -> Option<Decision> {
        let (user, info) = request(namespace);
        let attributes = Attributes::of(&user, &info);
        let decided = self.rbac.authorize(&attributes).now_or_never().map(|v| v.decision);
        let synchronously = self.rbac.authorize_sync(&attributes).map(|v| v.decision);
        assert_eq!(decided, synchronously);
        decided
    }

    /// The decision on a request in a namespace, while the feeds read.
    async fn decide(&mut self, namespace: &str) -> Verdict {
        let (user, info) = request(namespace);
        let attributes = Attributes::of(&user, &info);
        self.feeds.until(self.rbac.authorize(&attributes)).await
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.engine.shutdown();
    }
}

const NO_OPINION: Option<Decision> = Some(Decision::NoOpinion);

#[tokio::test]
async fn a_pending_change_in_a_namespace_delays_decisions_there_only() {
    let mut scene = Scene::new().await;
    let decisions = |scene: &Scene| ["a", "b", CLUSTER].map(|namespace| scene.at_once(namespace));
    assert_eq!(decisions(&scene), [NO_OPINION; 3]);
    put(&scene.sources.role_bindings, "a/x", binding("a", "x")).await;
    assert_eq!(decisions(&scene), [None, NO_OPINION, NO_OPINION]);
    assert_eq!(scene.decide("a").await.decision, Decision::Allow);
    let allowed = Some(Decision::Allow);
    assert_eq!(decisions(&scene), [allowed, NO_OPINION, NO_OPINION]);
    put(&scene.sources.roles, "a/other", role("other")).await;
    assert_eq!(decisions(&scene), [None, NO_OPINION, NO_OPINION]);
    scene.decide("a").await;
    assert_eq!(decisions(&scene), [allowed, NO_OPINION, NO_OPINION]);
}

#[tokio::test]
async fn a_pending_change_of_the_cluster_delays_all_decisions() {
    let mut scene = Scene::new().await;
    let decisions = |scene: &Scene| ["a", CLUSTER].map(|namespace| scene.at_once(namespace));
    put(&scene.sources.cluster_roles, "other", role("other")).await;
    assert_eq!(decisions(&scene), [None; 2]);
    scene.decide("a").await;
    assert_eq!(decisions(&scene), [NO_OPINION; 2]);
    put(&scene.sources.cluster_role_bindings, "x", binding("", "x")).await;
    assert_eq!(decisions(&scene), [None; 2]);
    assert_eq!(scene.decide("a").await.decision, Decision::Allow);
    assert_eq!(decisions(&scene), [Some(Decision::Allow); 2]);
}

#[tokio::test]
async fn a_decision_includes_every_pending_change_of_its_namespace() {
    let mut scene = Scene::new().await;
    let bindings = scene.sources.role_bindings.clone();
    for (namespace, key) in [("a", "a/x"), ("b", "b/x"), ("a", "a/y"), ("c", "c/x")] {
        put(&bindings, key, binding(namespace, &key[2..])).await;
    }
    for namespace in ["b", "a", "c"] {
        assert_eq!(scene.decide(namespace).await.decision, Decision::Allow);
    }
    let stored = put(&bindings, "b/y", binding("b", "y")).await;
    bindings.delete("b/y", stored).await.unwrap();
    put(&bindings, "a/z", binding("a", "z")).await;
    assert_eq!(scene.at_once("b"), None, "the deletion is pending");
    assert_eq!(
        scene.decide("b").await.decision,
        Decision::Allow,
        "by the first binding"
    );
    let first = scene.sources.role_bindings.get("b/x", MinRevision::Latest).await;
    let first = first.unwrap().unwrap();
    bindings.delete("b/x", first.revision).await.unwrap();
    put(&bindings, "a/w", binding("a", "w")).await;
    let verdict = scene.decide("b").await;
    assert_eq!((verdict.decision, verdict.error), (Decision::NoOpinion, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_apply_to_the_next_decision() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), Options::default()).unwrap();
    let sources = sources(&engine);
    let rbac = Rbac::new();
    let tasks = TaskGroup::new("test");
    rbac.follow(&sources).start(&tasks);
    put(&sources.cluster_roles, "r", role("r")).await;
    let (user, info) = request("n");
    let attributes = Attributes::of(&user, &info);
    for _ in 0..50 {
        let stored = put(&sources.role_bindings, "n/b", binding("n", "b")).await;
        let v = rbac.authorize(&attributes).await;
        assert_eq!(v.decision, Decision::Allow, "{v:?}");
        sources.role_bindings.delete("n/b", stored).await.unwrap();
        let v = rbac.authorize(&attributes).await;
        assert_eq!((v.decision, v.error), (Decision::NoOpinion, None));
    }
    tasks
        .shutdown(tokio::time::Instant::now() + Duration::from_secs(5))
        .await
        .unwrap();
    engine.shutdown();
}
