use super::*;
use crate::client::Informer;
use crate::controllers::events::Recorder;
use crate::controllers::loopback::Loopback;
use crate::controllers::namespaces::Namespace;
use crate::controllers::objects::Objects;
use crate::request::{Body, Handler, Request, Response};
use crate::storage::{
    Budget, Draft, Entry, ListOptions, Listing, Precondition, Storage, Watch, WatchOptions, interface::Error as Refused,
};
use crate::sync::Mutex;
use crate::tasks::{Backoff, WorkQueue};
use crate::telemetry::Telemetry;
use Standing::{Dangling, Invalid, Solid, Waiting};
use async_trait::async_trait;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;

fn object(finalizers: &[&str]) -> Tracked {
    let finalizers: Vec<Value> = finalizers.iter().map(|f| Value::from(*f)).collect();
    Tracked::from_value(
        &json!({"metadata": {"uid": "u", "finalizers": (finalizers)}}),
        Revision(1),
    )
}

#[test]
fn one_solid_owner_keeps_the_object() {
    let plain = object(&[]);
    assert_eq!(verdict(&[Solid, Solid], &plain, false), Verdict::Keep);
    assert_eq!(verdict(&[Solid, Dangling], &plain, true), Verdict::Release);
    assert_eq!(verdict(&[Waiting, Solid], &plain, true), Verdict::Release);
    assert_eq!(verdict(&[Invalid, Dangling], &plain, false), Verdict::Keep);
    assert_eq!(verdict(&[], &plain, false), Verdict::Keep);
}

#[test]
fn the_policy_follows_the_owners_and_the_finalizers() {
    let cases = [
        (vec![Dangling], object(&[]), true, "Background"),
        (vec![Waiting], object(&[]), false, "Background"),
        (vec![Waiting, Dangling], object(&[]), true, "Foreground"),
        (
            vec![Dangling],
            object(&["orphan", "foregroundDeletion"]),
            true,
            "Orphan",
        ),
        (vec![Dangling], object(&["foregroundDeletion"]), false, "Foreground"),
    ];
    for (standings, object, has_dependents, policy) in cases {
        assert_eq!(
            verdict(&standings, &object, has_dependents),
            Verdict::Delete(policy),
            "{standings:?}"
        );
    }
}

/// One object, under any key, which counts its reads.
struct One(Arc<Entry>, AtomicUsize);

#[async_trait]
impl Storage for One {
    async fn get(&self, _: &str, _: MinRevision) -> Result<Option<Arc<Entry>>, Refused> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Ok(Some(self.0.clone()))
    }

    async fn list(&self, _: ListOptions) -> Result<Listing, Refused> {
        Err(Refused::NotReady(1))
    }

    async fn watch(&self, _: WatchOptions) -> Result<Box<dyn Watch>, Refused> {
        Err(Refused::NotReady(1))
    }

    async fn put(&self, _: &str, _: Precondition, _: Draft, _: Option<u64>) -> Result<Arc<Entry>, Refused> {
        Err(Refused::NotReady(1))
    }

    async fn delete(&self, _: &str, _: Revision) -> Result<Arc<Entry>, Refused> {
        Err(Refused::NotReady(1))
    }

    fn revision(&self) -> Revision {
        Revision(1)
    }

    fn count(&self) -> usize {
        1
    }

    fn budget(&self) -> Option<&Arc<Budget>> {
        None
    }
}

/// Answers every request with 200 and no body.
struct Silent;

#[async_trait]
impl Handler for Silent {
    async fn handle(&self, _: Request) -> Response {
        Response::new(Body::empty())
    }
}

fn resource() -> Resource {
    Resource {
        group: "".into(),
        version: "v1".into(),
        plural: "configmaps".into(),
        kind: "ConfigMap".into(),
        namespaced: true,
    }
}

fn collector(storage: &Arc<One>, handler: &Arc<dyn Handler>) -> Collector {
    let storage: Arc<dyn Storage> = storage.clone();
    let api = Loopback::service_account(handler, "generic-garbage-collector");
    let backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(1));
    let queue = || WorkQueue::new(backoff, Telemetry::new().queue("q"));
    Collector {
        graph: Default::default(),
        objects: Arc::new(Objects::unread(resource(), storage.clone())),
        delete: queue(),
        orphan: queue(),
        namespaces: Informer::new(storage, Namespace::from_entry).0,
        events: Recorder::new(&api, "c"),
        api,
        served: Mutex::default(),
        remote_reads: Semaphore::new(1),
    }
}

fn reference(api_version: &str, kind: &str, uid: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "name": "o", "uid": uid})
}

/// An object with these references, which is examined.
fn dependent(references: Vec<Value>) -> Node<Arc<Resource>> {
    let object = json!({"metadata": {"uid": "d", "ownerReferences": (references)}});
    Node {
        resource: Arc::new(resource()),
        key: "x/d".into(),
        object: Arc::new(Tracked::from_value(&object, Revision(1))),
    }
}

fn one_owner() -> Arc<One> {
    let owner = json!({"metadata": {"name": "o", "namespace": "x", "uid": "u0"}});
    let owner = Draft::new(&owner, Vec::new()).into_entry("x/o", Revision(1));
    Arc::new(One(Arc::new(owner), AtomicUsize::new(0)))
}

#[test]
fn an_owner_is_read_once_for_all_references_and_the_task_yields() {
    const MANY: usize = 1000;
    let storage = one_owner();
    let handler: Arc<dyn Handler> = Arc::new(Silent);
    let collector = collector(&storage, &handler);
    let references = (0..MANY).map(|n| reference("v1", "ConfigMap", &format!("u{n}")));
    let node = dependent(references.collect());
    let mut work = Box::pin(collector.standings(&node));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut polls = 1;
    let standings = loop {
        match work.as_mut().poll(&mut context) {
            std::task::Poll::Ready(done) => break done.unwrap(),
            std::task::Poll::Pending => polls += 1,
        }
    };
    assert_eq!(standings[..2], [Solid, Dangling]);
    assert_eq!((standings.len(), storage.1.load(Ordering::Relaxed)), (MANY, 1));
    assert_eq!(polls, MANY / BATCH + 1);
}

/// Serves one kind of an aggregated API server, whose objects never come. Counts reads of discovery.
struct Aggregating(AtomicUsize);

#[async_trait]
impl Handler for Aggregating {
    async fn handle(&self, request: Request) -> Response {
        let is_discovery = matches!(request.uri().path(), "/api" | "/apis");
        if !is_discovery {
            return std::future::pending().await;
        }
        self.0.fetch_add(1, Ordering::Relaxed);
        let resource = json!({"resource": "remotes", "scope": "Namespaced", "verbs": ["get"],
            "responseKind": {"kind": "Remote"}});
        let document = json!({"items": [{"metadata": {"name": "far.io"},
            "versions": [{"version": "v1", "resources": [(resource)]}]}]});
        Response::new(Body::full(crate::apimachinery::codec::json::to_vec(&document)))
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_is_not_looked_for_again_at_once() {
    let served = Arc::new(Aggregating(AtomicUsize::new(0)));
    let handler: Arc<dyn Handler> = served.clone();
    let collector = collector(&one_owner(), &handler);
    for n in 0..10 {
        let node = dependent(vec![reference(&format!("g{n}.io/v1"), "Nothing", "u")]);
        let standings = collector.standings(&node).await;
        assert!(matches!(standings, Err(Error::UnknownKind(..))), "{standings:?}");
    }
    let reads = || served.0.load(Ordering::Relaxed);
    assert_eq!(reads(), 2, "each of its two documents once");
    tokio::time::advance(UNSERVED_FOR).await;
    let node = dependent(vec![reference("g0.io/v1", "Nothing", "u")]);
    assert!(collector.standings(&node).await.is_err());
    assert_eq!(reads(), 4);
}

#[tokio::test]
async fn a_worker_does_not_wait_for_an_api_server_that_others_wait_for() {
    let handler: Arc<dyn Handler> = Arc::new(Aggregating(AtomicUsize::new(0)));
    let collector = collector(&one_owner(), &handler);
    let node = dependent(vec![reference("far.io/v1", "Remote", "u")]);
    let mut first = Box::pin(collector.standings(&node));
    while collector.remote_reads.available_permits() > 0 {
        let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(first.as_mut().poll(cx))).await;
        assert!(polled.is_pending());
        tokio::task::yield_now().await;
    }
    let second = collector.standings(&node).await;
    assert!(matches!(second, Err(Error::Busy)), "{second:?}");
    drop(first);
    assert_eq!(collector.remote_reads.available_permits(), 1);
}

#[test]
fn logged_client_text_is_truncated() {
    assert_eq!(beginning("apps/v1"), "apps/v1");
    let long = beginning(&"aä".repeat(1000));
    assert!(long.len() <= 256 && long.starts_with("aä"), "{}", long.len());
}
