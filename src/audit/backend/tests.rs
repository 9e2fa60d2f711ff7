use super::webhook::{Post, Webhook};
use super::*;
use crate::apimachinery::codec::json;
use crate::audit::event::{ObjectRef, Subject};
use crate::audit::policy::Stage;
use crate::audit::{Audit, Policy};
use crate::client::FetchError;
use crate::sync::Mutex;
use async_trait::async_trait;
use bytes::Bytes;
use std::collections::BTreeMap;
use time::OffsetDateTime;
use tokio::time::Instant;

fn event(id: &str) -> Event {
    Event {
        subject: Arc::new(Subject {
            audit_id: id.into(),
            uri: "/".into(),
            info: Arc::default(),
            user: None,
            source_ips: Vec::new(),
            user_agent: String::new(),
            received: OffsetDateTime::UNIX_EPOCH,
        }),
        level: AuditLevel::Request,
        stage: Stage::ResponseComplete,
        impersonated: None,
        object: Some(ObjectRef::default()),
        status: None,
        request_object: Some(Bytes::from(format!("\"{}\"", "x".repeat(1000)))),
        response_object: None,
        at: OffsetDateTime::UNIX_EPOCH,
        annotations: BTreeMap::new(),
    }
}

fn metrics() -> (AuditMetrics, prometheus::Registry) {
    let registry = prometheus::Registry::new();
    (AuditMetrics::new(&registry), registry)
}

fn counted(registry: &prometheus::Registry, name: &str) -> f64 {
    let families = registry.gather();
    let family = families.iter().find(|f| f.name() == name);
    family.map_or(0.0, |f| {
        f.get_metric().iter().map(|m| m.get_counter().get_value()).sum()
    })
}

/// Records the size of each list, and fails as often as configured.
#[derive(Clone, Default)]
struct Fake(Arc<Mutex<(u32, Vec<usize>)>>);

#[async_trait]
impl Post for Fake {
    async fn post(&self, json: Vec<u8>) -> Result<(), FetchError> {
        let mut state = self.0.lock();
        if state.0 > 0 {
            state.0 -= 1;
            return Err(FetchError {
                what: "503".into(),
                transient: true,
                retry_after: None,
            });
        }
        let list = json::decode(&json).unwrap();
        assert_eq!(list.str_at(&["kind"]), "EventList");
        state.1.push(list.get("items").items().len());
        Ok(())
    }
}

impl Fake {
    fn failing(times: u32) -> Self {
        Self(Arc::new(Mutex::new((times, Vec::new()))))
    }

    fn sizes(&self) -> Vec<usize> {
        self.0.lock().1.clone()
    }
}

fn audit(fake: &Fake, mode: Mode, truncation: Option<Truncation>) -> (Audit, prometheus::Registry) {
    let (metrics, registry) = metrics();
    let tasks = TaskGroup::new("audit");
    let sink = Webhook::to(Box::new(fake.clone()), Duration::from_secs(10), metrics.clone());
    let backend = Backend::start(Arc::new(sink), mode, truncation, metrics.clone(), &tasks);
    (Audit::new(Policy::default(), vec![backend], metrics, tasks), registry)
}

fn batching() -> Batching {
    Batching {
        buffer: 5,
        max_size: 2,
        max_wait: Duration::from_secs(30),
        throttle: None,
    }
}

#[tokio::test(start_paused = true)]
async fn full_batches_are_written_and_the_rest_at_shutdown() {
    let fake = Fake::default();
    let (audit, _) = audit(&fake, Mode::Batch(batching()), None);
    for n in 0..5 {
        assert!(audit.submit(event(&n.to_string())).is_empty(), "batch mode never waits");
    }
    audit.shut_down(Instant::now() + Duration::from_secs(10)).await;
    assert_eq!(fake.sizes(), [2, 2, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_partial_batch_is_written_after_max_wait() {
    let fake = Fake::default();
    let (audit, _) = audit(&fake, Mode::Batch(batching()), None);
    let _ = audit.submit(event("a"));
    tokio::time::sleep(Duration::from_secs(29)).await;
    assert!(fake.sizes().is_empty());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(fake.sizes(), [1]);
}

#[tokio::test(start_paused = true)]
async fn a_full_buffer_drops_and_counts() {
    let fake = Fake::default();
    let (audit, registry) = audit(&fake, Mode::Batch(batching()), None);
    for n in 0..8 {
        let _ = audit.submit(event(&n.to_string()));
    }
    assert_eq!(counted(&registry, "apiserver_audit_error_total"), 3.0);
    assert_eq!(counted(&registry, "apiserver_audit_event_total"), 8.0);
}

#[test]
fn the_objects_of_queued_events_are_limited() {
    let (queue, mut waiting) = batch::Queue::new(1000);
    let mut large = event("a");
    large.request_object = Some(Bytes::from(vec![b'x'; 1 << 20]));
    let large = Arc::new(large);
    assert!((0..300).all(|_| queue.add(large.clone())));
    let queued: Vec<_> = std::iter::from_fn(|| waiting.try_recv().ok()).collect();
    let whole = queued.iter().filter(|w| w.event.request_object.is_some()).count();
    assert_eq!((queued.len(), whole), (300, 255));
    drop(queued);
    assert!(queue.add(large));
    assert!(waiting.try_recv().is_ok_and(|w| w.event.request_object.is_some()));
}

#[tokio::test(start_paused = true)]
async fn transient_errors_are_retried_with_backoff() {
    let fake = Fake::failing(4);
    let (audit, registry) = audit(&fake, Mode::Blocking, None);
    let start = Instant::now();
    assert!(audit.submit(event("a")).wait().await);
    let took = start.elapsed().as_secs();
    assert!((81..=98).contains(&took), "10 + 15 + 22.5 + 33.75 and jitter: {took}");
    assert_eq!(counted(&registry, "apiserver_audit_error_total"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn only_blocking_strict_reports_failed_writes() {
    for (mode, good) in [(Mode::Blocking, true), (Mode::BlockingStrict, false)] {
        let (audit, registry) = audit(&Fake::failing(9), mode, None);
        assert_eq!(audit.submit(event("a")).wait().await, good);
        assert_eq!(counted(&registry, "apiserver_audit_error_total"), 1.0);
    }
}

#[tokio::test(start_paused = true)]
async fn large_events_lose_their_objects_and_larger_ones_are_dropped() {
    for (max_event, sizes, dropped) in [(500, vec![1], 0.0), (50, vec![], 1.0)] {
        let fake = Fake::default();
        let limit = Truncation {
            max_event,
            max_batch: 10_000,
        };
        let (audit, registry) = audit(&fake, Mode::Blocking, Some(limit));
        audit.submit(event("a")).wait().await;
        assert_eq!(fake.sizes(), sizes);
        assert_eq!(counted(&registry, "apiserver_audit_error_total"), dropped);
    }
}

#[tokio::test]
async fn a_log_has_one_line_per_event() {
    use super::log::{Format, Log, Target};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    let (metrics, _) = metrics();
    let target = Target::File(path.clone(), super::rotate::Rotation::default());
    let log = Log::open(&target, Format::Json, metrics.clone()).unwrap();
    let tasks = TaskGroup::new("audit");
    let backend = Backend::start(Arc::new(log), Mode::BlockingStrict, None, metrics.clone(), &tasks);
    let audit = Audit::new(Policy::default(), vec![backend], metrics, tasks);
    for n in 0..3 {
        assert!(audit.submit(event(&n.to_string())).wait().await);
    }
    let text = std::fs::read_to_string(&path).unwrap();
    let ids: Vec<String> = text
        .lines()
        .map(|l| json::decode(l.as_bytes()).unwrap().str_at(&["auditID"]).to_owned())
        .collect();
    assert_eq!(ids, ["0", "1", "2"]);
}
