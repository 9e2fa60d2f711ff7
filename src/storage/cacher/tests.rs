//! Properties of the cacher, independent of the backend that feeds it.

mod bounds;
mod cost;
mod stalled;
mod watchers;

use super::watch::CacheWatch;
use super::*;
use crate::storage::interface::{VersionMatch, WatchItem};
use crate::storage::{Draft, Error, EventType, ListOptions, MinRevision, Predicate, Watch, WatchOptions};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

/// Feeds a cacher the way a backend does.
struct Feed {
    cacher: Arc<Cacher>,
    progress: Arc<Progress>,
    revision: u64,
}

impl Feed {
    fn new(bounds: Bounds) -> Self {
        Self::within(bounds, Budget::unlimited())
    }

    fn within(bounds: Bounds, budget: Arc<Budget>) -> Self {
        let progress = Arc::new(Progress::new(Revision(1), Duration::from_millis(50)));
        let initial = Initial {
            state: Snapshot::new(vec![], Revision(1)),
            base: Revision(1),
            events: vec![],
        };
        let cacher = Arc::new(Cacher::new(
            progress.clone(),
            initial,
            CacherConfig::new(bounds, budget),
        ));
        Self {
            cacher,
            progress,
            revision: 1,
        }
    }

    fn event(&mut self, previous: Option<Arc<Entry>>, key: &str, deleted: bool) -> Arc<Event> {
        self.revision += 1;
        let draft = Draft::new(&crate::json!({"metadata": {"name": "x"}}), vec![]);
        Arc::new(Event::new(
            Arc::new(draft.into_entry(key, Revision(self.revision))),
            previous,
            deleted,
        ))
    }

    fn publish(&self, events: &[Arc<Event>]) {
        self.publish_at(events, Instant::now());
    }

    /// Publishes with this time for the watchers.
    fn publish_at(&self, events: &[Arc<Event>], now: Instant) {
        self.cacher.apply(events);
        self.progress.set_applied(Revision(self.revision));
        self.cacher.dispatch_at(events, now);
        self.progress.set_dispatched(Revision(self.revision));
    }

    fn put(&mut self, key: &str) -> Arc<Event> {
        let event = self.event(self.cacher.peek(key), key, false);
        self.publish(std::slice::from_ref(&event));
        event
    }

    /// Writes an object that holds `value`.
    fn put_value(&mut self, key: &str, value: &str) {
        self.revision += 1;
        let draft = Draft::new(&crate::json!({"metadata": {"name": "x"}, "data": {"k": value}}), vec![]);
        let entry = Arc::new(draft.into_entry(key, Revision(self.revision)));
        self.publish(&[Arc::new(Event::new(entry, self.cacher.peek(key), false))]);
    }

    fn delete(&mut self, key: &str) {
        let event = self.event(self.cacher.peek(key), key, true);
        self.publish(&[event]);
    }

    fn watch(&self, options: WatchOptions) -> CacheWatch {
        let watch = self.cacher.subscribe(options, None).expect("serving");
        watch.expect("watched")
    }
}

/// A ring that keeps only two events.
fn two_events() -> Bounds {
    Bounds {
        min_events: 2,
        min_bytes: usize::MAX,
        max_events: 2,
        max_bytes: usize::MAX,
        window: Duration::ZERO,
        ..Bounds::default()
    }
}

fn exactly(revision: u64) -> ListOptions {
    ListOptions {
        prefix: String::new(),
        single: false,
        version: VersionMatch::Exact(Revision(revision)),
        predicate: Predicate(None),
        limit: 0,
        token: None,
    }
}

#[tokio::test]
async fn paged_list_continues_after_its_events_are_discarded() {
    let mut feed = Feed::new(two_events());
    for i in 0..6 {
        feed.put(&format!("ns/{i}"));
    }
    let version = VersionMatch::NotOlderThan(MinRevision::Latest);
    let first = ListOptions {
        limit: 4,
        version,
        ..exactly(0)
    };
    let page = feed.cacher.list(first.clone()).await.expect("listed");
    for i in 0..6 {
        feed.delete(&format!("ns/{i}"));
    }
    let page = feed
        .cacher
        .list(ListOptions {
            token: page.next,
            ..first
        })
        .await
        .expect("listed");
    assert_eq!((page.entries.len(), page.revision), (2, Revision(7)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Any revision in the ring can be listed as it was, and replaying a watch from it leads to the current
    /// state.
    #[test]
    fn every_revision_in_the_ring_can_be_listed_and_replayed(writes in proptest::collection::vec((0u8..12, any::<bool>()), 1..600)) {
        let mut feed = Feed::new(Bounds::default());
        let mut states = vec![BTreeMap::<String, u64>::new(); 2];
        for chunk in writes.chunks(7) {
            let mut batch = Vec::new();
            let mut live = BTreeMap::<String, Arc<Entry>>::new();
            let state = feed.cacher.snapshot();
            live.extend(state.scan("", Bound::Unbounded).map(|e| (e.key.to_string(), e.clone())));
            for (key, delete) in chunk {
                let key = format!("ns/{key}");
                let previous = live.get(&key).cloned();
                let deleted = *delete && previous.is_some();
                let event = feed.event(previous, &key, deleted);
                if deleted { live.remove(&key) } else { live.insert(key, event.entry.clone()) };
                states.push(live.iter().map(|(k, e)| (k.clone(), e.revision.0)).collect());
                batch.push(event);
            }
            feed.publish(&batch);
        }
        let last = states.len() - 1;
        for r in (1..=last).step_by(1 + last / 20) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
            let list = runtime.block_on(feed.cacher.list(exactly(r as u64))).expect("kept");
            let found: BTreeMap<_, _> = list.entries.iter().map(|e| (e.key.to_string(), e.revision.0)).collect();
            prop_assert_eq!(&found, &states[r]);
            let mut replayed = found;
            let mut w = feed.watch(WatchOptions { since: Some(Revision(r as u64)), ..WatchOptions::all() });
            while let Some(WatchItem::Change(kind, e)) = w.try_next() {
                match kind {
                    EventType::Deleted => replayed.remove(&*e.entry.key),
                    _ => replayed.insert(e.entry.key.to_string(), e.entry.revision.0),
                };
            }
            prop_assert_eq!(&replayed, &states[last]);
        }
    }
}

/// Selects the objects of one node and counts how often it is evaluated.
struct OnNode(&'static str, Arc<std::sync::atomic::AtomicUsize>);

impl crate::storage::Select for OnNode {
    fn matches(&self, e: &Entry) -> bool {
        self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        e.field("spec.nodeName").unwrap_or("") == self.0
    }

    fn requires(&self, field: &str) -> Option<&str> {
        (field == "spec.nodeName").then_some(self.0)
    }
}

fn on_node(key: &str, node: &str, revision: u64) -> Arc<Entry> {
    let fields = vec![("spec.nodeName".into(), node.into())];
    Arc::new(Draft::new(&crate::json!({"metadata": {}}), fields).into_entry(key, Revision(revision)))
}

#[tokio::test]
async fn node_name_index_serves_lists_and_watches() {
    let entries: Vec<_> = (0..1000)
        .map(|i| on_node(&format!("ns{}/{i:03}", i % 2), ["", "a", "b", "c"][i % 4], 1))
        .collect();
    let progress = Arc::new(Progress::new(Revision(1), Duration::ZERO));
    let initial = Initial {
        state: Snapshot::new(entries.clone(), Revision(1)),
        base: Revision(1),
        events: vec![],
    };
    let cacher = Arc::new(Cacher::new(
        progress.clone(),
        initial,
        CacherConfig::new(Bounds::default(), Budget::unlimited()),
    ));
    let requested = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let predicate = |node| Predicate(Some(Arc::new(OnNode(node, requested.clone()))));
    let list = async |node, prefix: &str| {
        let options = ListOptions {
            prefix: prefix.into(),
            version: VersionMatch::NotOlderThan(MinRevision::Any),
            predicate: predicate(node),
            ..exactly(0)
        };
        cacher.list(options).await.expect("listed").entries.len()
    };
    assert_eq!(
        (list("a", "").await, list("a", "ns1/").await, list("a", "ns0/").await),
        (250, 250, 0)
    );
    assert_eq!(requested.swap(0, std::sync::atomic::Ordering::Relaxed), 500);
    assert_eq!((list("nowhere", "").await, list("", "").await), (0, 250));
    assert_eq!(
        requested.swap(0, std::sync::atomic::Ordering::Relaxed),
        1000,
        "an empty value needs a full scan"
    );
    let watching = |node| WatchOptions {
        predicate: predicate(node),
        ..WatchOptions::all()
    };
    let mut a = cacher.watch(watching("a")).await.expect("watched");
    let mut b = cacher.watch(watching("b")).await.expect("watched");
    let _others = [
        cacher.watch(watching("c")).await.expect("watched"),
        cacher.watch(watching("d")).await.expect("watched"),
    ];
    assert_eq!(cacher.watchers(), 4);
    let change = |now: Arc<Entry>, previous: Option<Arc<Entry>>, deleted| {
        let events = [Arc::new(Event::new(now, previous, deleted))];
        cacher.apply(&events);
        progress.set_applied(events[0].entry.revision);
        cacher.dispatch(&events);
        progress.set_dispatched(events[0].entry.revision);
    };
    requested.store(0, std::sync::atomic::Ordering::Relaxed);
    let was = cacher.peek("ns1/001").expect("on a");
    change(on_node("ns1/001", "b", 2), Some(was), false);
    assert!(
        requested.load(std::sync::atomic::Ordering::Relaxed) <= 4,
        "only the watchers of a and b are evaluated"
    );
    let kind = |item| match item {
        Some(WatchItem::Change(kind, _)) => Some(kind),
        _ => None,
    };
    let next = (kind(a.try_next()), kind(b.try_next()));
    assert_eq!(next, (Some(EventType::Deleted), Some(EventType::Added)));
    assert_eq!((list("a", "").await, list("b", "").await), (249, 251));
    let past = ListOptions {
        predicate: predicate("a"),
        ..exactly(1)
    };
    assert_eq!(
        cacher.list(past).await.expect("listed").entries.len(),
        250,
        "past states are indexed too"
    );
    let was = cacher.peek("ns1/001").expect("on b");
    change(Arc::new(was.at_revision(Revision(3))), Some(was), true);
    assert_eq!((list("b", "").await, cacher.count()), (250, 999));
    let state = cacher.snapshot();
    let all = state.scan("", std::ops::Bound::Unbounded);
    assert_eq!(state.bytes(), all.map(|e| e.footprint()).sum::<usize>());
    drop((a, b));
    assert_eq!(cacher.watchers(), 2);
}

#[tokio::test]
async fn lists_and_waits_are_counted() {
    let mut feed = Feed::new(Bounds::default());
    feed.put("ns/a");
    feed.put("ns/b");
    let list = ListOptions::latest("");
    assert_eq!(feed.cacher.list(list.clone()).await.expect("served").entries.len(), 2);
    let future = ListOptions {
        version: VersionMatch::NotOlderThan(MinRevision::AtLeast(Revision(99))),
        ..list
    };
    assert!(matches!(feed.cacher.list(future).await, Err(Error::TooNew { .. })));
    let done = feed.cacher.counters();
    assert_eq!(
        (done.lists[0].get(), done.fetched[0].get(), done.returned.get()),
        (1, 2, 2)
    );
    assert_eq!(
        (done.received.get(), done.loads.get(), done.consistent[0].get()),
        (2, 1, 1)
    );
    assert_eq!(done.waits.read().count, 1);
}

#[tokio::test]
async fn remaining_item_count_is_computed_once_per_list() {
    let mut feed = Feed::new(Bounds::default());
    for i in 0..30 {
        feed.put(&format!("a/{i:02}"));
        feed.put(&format!("b/{i:02}"));
    }
    for (prefix, all) in [("", 60), ("b/", 30)] {
        let mut options = ListOptions {
            prefix: prefix.to_owned(),
            limit: 7,
            ..ListOptions::latest("")
        };
        let mut seen = 0;
        loop {
            let page = feed.cacher.list(options.clone()).await.expect("a page");
            seen += page.entries.len();
            assert_eq!(page.remaining.unwrap_or(0), all - seen, "after {seen} below {prefix:?}");
            // Writes in between do not change the pinned state.
            feed.put(&format!("b/new-{seen}-{all}"));
            let Some(next) = page.next else { break };
            let counted = feed.cacher.history.lock().counted(page.revision, prefix, &next.start);
            assert_eq!(counted, page.remaining, "the next page reuses the count");
            let first = feed.cacher.history.lock().counted(page.revision, prefix, "");
            assert_eq!(first, Some(all), "and so does the first page when requested again");
            options.token = Some(next);
        }
        assert_eq!(seen, all);
        // The second round reads the current state.
        for key in feed
            .cacher
            .snapshot()
            .scan("b/new", Bound::Unbounded)
            .map(|e| e.key.clone())
            .collect::<Vec<_>>()
        {
            feed.delete(&key);
        }
    }
}
