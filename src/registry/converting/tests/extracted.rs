//! Selectable fields that are extracted from stored objects.

use super::*;
use crate::storage::Select;
use crate::tasks::compute;
use std::thread::ThreadId;

/// Requires a value of `spec.one`, which is not stored with the entry. Records the threads that extracted it.
#[derive(Clone)]
struct Unstored(&'static str, Arc<Mutex<Vec<ThreadId>>>);

impl Unstored {
    fn value(&self, e: &Entry) -> String {
        let fields = e.extracted.get_or_extract(7, || {
            self.1.lock().push(std::thread::current().id());
            vec![("spec.one".into(), e.decode().str_at(&["spec", "one"]).into())]
        });
        fields[0].1.to_string()
    }
}

impl Select for Unstored {
    fn matches(&self, e: &Entry) -> bool {
        self.value(e).starts_with(self.0)
    }

    fn extracts(&self, e: &Entry) -> bool {
        !e.extracted.has(7)
    }

    fn prepare(&self, e: &Entry) {
        self.value(e);
    }
}

/// A version without fields of its own, as those of definitions.
fn without_fields() -> Arc<KindVersions> {
    let mut kind = KindVersions {
        versions: versions(&Arc::default(), 0).versions.clone(),
        stored: 0,
        conversion: Arc::new(Renaming::default()),
    };
    kind.versions.iter_mut().for_each(|v| v.fields = None);
    Arc::new(kind)
}

#[tokio::test]
async fn large_objects_are_read_once_for_all_watches_and_off_the_reactor() {
    let stored = stored();
    let v1 = over(&stored, &without_fields(), 0);
    let telemetry = crate::telemetry::Telemetry::new();
    let pool = compute::ComputePool::start(compute::Config::default(), telemetry.compute.clone()).unwrap();
    let large = |value: &str| {
        let mut object = thing("g/v1", "a", value);
        object.set(&["spec", "size"], 5i64);
        object.set(&["metadata", "annotations", "large"], "m".repeat(100 << 10));
        object
    };
    let first = write(&v1, "a", &large("x")).await;
    assert!(
        v1.get("a", MinRevision::Any).await.unwrap().is_some(),
        "it gets its mark"
    );
    let threads = Arc::default();
    let mut watches = Vec::new();
    for value in ["x", "y", "z"].into_iter().cycle().take(30) {
        let predicate = Predicate(Some(Arc::new(Unstored(value, Arc::clone(&threads)))));
        let options = WatchOptions {
            predicate,
            ..WatchOptions::all()
        };
        watches.push(pool.within(pool.flow("reader"), v1.watch(options)).await.unwrap());
    }
    let draft = Draft::new(&large("y"), vec![]);
    let put = v1.put("a", Precondition::Unchanged(first.revision), draft, None);
    put.await.unwrap();
    for (i, watch) in watches.iter_mut().enumerate() {
        let expected = [EventType::Deleted, EventType::Added];
        match expected.get(i % 3) {
            Some(expected) => assert!(matches!(watch.next().await, Some(WatchItem::Change(t, _)) if t == *expected)),
            // Some polls, as the object is read on the pool.
            None => (0..10).for_each(|_| assert!(watch.next().now_or_never().is_none())),
        }
    }
    let threads = threads.lock().clone();
    let here = std::thread::current().id();
    assert_eq!(threads.len(), 2, "each state is read once");
    assert!(threads.iter().all(|t| *t != here), "not on the reactor");
    let text = String::from_utf8(telemetry.text()).unwrap();
    assert!(!text.contains("\ntorana_compute_jobs_total 0\n"), "but on the pool");
}

#[tokio::test]
async fn a_poll_converts_one_batch_even_if_nothing_is_selected() {
    let stored = stored();
    let conversion = Arc::new(Renaming::default());
    let v2 = over(&stored, &versions(&conversion, 0), 1);
    for i in 0..200 {
        let name = format!("n{i}");
        write(&stored.storage, &name, &thing("g/v1", &name, "x")).await;
    }
    let mut watch = v2
        .watch(WatchOptions {
            predicate: Predicate(Some(Arc::new(|e: &Entry| e.field("spec.two") == Some("y")))),
            initial: Some(MinRevision::Any),
            since: None,
            ..from_the_beginning()
        })
        .await
        .unwrap();
    let mut polls = 0;
    let mut converted = 0;
    while converted < 200 && polls < 100 {
        assert!(watch.next().now_or_never().is_none());
        let now: usize = calls(&conversion).iter().sum();
        assert!(now <= 128, "{now} objects in a poll");
        converted += now;
        polls += 1;
    }
    assert!(polls > 1, "{polls} polls");
    assert_eq!(converted, 200);
}
