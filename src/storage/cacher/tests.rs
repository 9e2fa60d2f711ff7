//! What the cacher promises whichever backend feeds it.

use super::*;
use crate::storage::interface::WatchItem;
use crate::storage::{Budget, Draft, EventType, Predicate};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

/// Feeds a cacher as a backend does.
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
        let cacher = Arc::new(Cacher::new(progress.clone(), initial, Setting::new(bounds, budget)));
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
        self.cacher.apply(events);
        self.progress.set_applied(Revision(self.revision));
        self.cacher.dispatch(events);
        self.progress.set_dispatched(Revision(self.revision));
    }

    fn put(&mut self, key: &str) -> Arc<Event> {
        let event = self.event(self.cacher.peek(key), key, false);
        self.publish(std::slice::from_ref(&event));
        event
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

fn watching() -> WatchOptions {
    WatchOptions {
        prefix: String::new(),
        single: false,
        predicate: Predicate(None),
        since: None,
        initial: None,
        bookmarks: false,
        until: None,
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
async fn a_ring_out_of_bounds_forgets_and_says_from_where_to_start() {
    let bounds = Bounds {
        min_events: 5,
        max_events: 10,
        max_bytes: usize::MAX,
        window: Duration::from_secs(3600),
    };
    let mut feed = Feed::new(bounds);
    for i in 0..20 {
        feed.put(&format!("ns/{}", i % 4));
    }
    let since = |r| WatchOptions {
        since: Some(Revision(r)),
        ..watching()
    };
    // Revisions 2 to 21 were written, the last ten are kept.
    assert!(matches!(
        feed.cacher.watch(since(10)).await.err(),
        Some(Error::Compacted(Revision(11)))
    ));
    let mut w = feed.watch(since(11));
    assert!(matches!(w.try_next(), Some(WatchItem::Change(EventType::Modified, e)) if e.entry.revision.0 == 12));
    assert!(matches!(
        feed.cacher.list(exactly(10)).await.err(),
        Some(Error::Compacted(Revision(11)))
    ));
    assert_eq!(feed.cacher.list(exactly(11)).await.expect("kept").entries.len(), 4);
}

#[test]
fn a_ring_keeps_the_window_and_a_minimum() {
    let bounds = Bounds {
        min_events: 5,
        max_events: 1000,
        max_bytes: usize::MAX,
        window: Duration::from_secs(75),
    };
    let mut feed = Feed::new(Bounds::default());
    let start = Instant::now();
    let mut history = History::new(bounds, Revision(1), vec![], start);
    let state = Snapshot::new(vec![], Revision(1));
    for i in 0..20 {
        let event = feed.put("ns/a");
        history.push(start + Duration::from_secs(10 * i), event, &state);
    }
    history.trim(start + Duration::from_secs(200), usize::MAX);
    let kept = |h: &History, since| h.after(Revision(since)).map(|e| e.len()).ok();
    // At 200 s those of 130 s and later are young enough: 13 to 19, revisions 15 to 21.
    assert_eq!((kept(&history, 13), kept(&history, 14)), (None, Some(7)));
    history.trim(start + Duration::from_secs(9000), usize::MAX);
    assert_eq!((kept(&history, 15), kept(&history, 16)), (None, Some(5)));
}

#[tokio::test]
async fn a_paged_list_goes_on_after_the_ring_has_forgotten() {
    let bounds = Bounds {
        min_events: 2,
        max_events: 2,
        max_bytes: usize::MAX,
        window: Duration::ZERO,
    };
    let mut feed = Feed::new(bounds);
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

#[tokio::test]
async fn a_stalled_watcher_is_ended_and_what_was_queued_has_no_gap() {
    let mut feed = Feed::new(Bounds::default());
    let mut w = feed.watch(watching());
    for _ in 0..hub::HARD_LIMIT + 10 {
        feed.put("ns/a");
    }
    let mut expected = 2;
    while let Some(item) = w.next().await {
        assert!(matches!(item, WatchItem::Change(_, e) if e.entry.revision.0 == expected));
        expected += 1;
    }
    assert_eq!(expected as usize, 2 + hub::HARD_LIMIT);
    assert_eq!(feed.cacher.counters().terminated.get(), 1);
    assert!(w.next().await.is_none(), "an ended watch stays ended");
}

#[test]
fn a_full_queue_is_forgiven_if_it_is_read_within_the_patience() {
    let mut feed = Feed::new(Bounds::default());
    let subscriber = Arc::new(Subscriber::new("", false, Predicate(None), Revision(0), 2));
    let mut hub = Hub::default();
    hub.add(subscriber.clone());
    let start = Instant::now();
    let mut offer = |hub: &mut Hub, after: Duration| {
        let event = feed.put("ns/a");
        hub.dispatch(&[event], start + after);
        hub.terminated
    };
    let (soon, late) = (hub::PATIENCE / 2, hub::PATIENCE * 2);
    for _ in 0..3 {
        assert_eq!(offer(&mut hub, Duration::ZERO), 0);
    }
    assert_eq!(offer(&mut hub, soon), 0);
    subscriber.take(&mut Default::default());
    assert_eq!(offer(&mut hub, late), 0, "it was read in time");
    assert_eq!(offer(&mut hub, late), 0);
    assert_eq!(offer(&mut hub, late), 0, "full again, but only now");
    assert_eq!(offer(&mut hub, late + late), 1);
}

#[tokio::test]
async fn a_bookmark_comes_shortly_before_the_end_if_there_is_something_to_tell() {
    let mut feed = Feed::new(Bounds::default());
    let until = Some(Instant::now() + Duration::from_millis(2020));
    let options = WatchOptions {
        prefix: "quiet/".into(),
        bookmarks: true,
        until,
        ..watching()
    };
    let mut idle = feed.watch(WatchOptions {
        prefix: "idle/".into(),
        since: Some(Revision(99)),
        ..options.clone()
    });
    let mut w = feed.watch(options);
    feed.put("ns/a");
    match w.next().await {
        Some(WatchItem::Bookmark {
            revision,
            initial_end: false,
        }) => assert_eq!(revision, Revision(2)),
        _ => panic!("a bookmark"),
    }
    assert!(idle.try_next().is_none(), "its start is not reached");
}

#[tokio::test]
async fn a_dropped_watch_is_forgotten() {
    let feed = Feed::new(Bounds::default());
    let scopes = [("", false), ("ns/", false), ("ns/a", true), ("ns", false)];
    let all: Vec<_> = scopes
        .map(|(prefix, single)| {
            feed.watch(WatchOptions {
                prefix: prefix.into(),
                single,
                ..watching()
            })
        })
        .into();
    assert_eq!(feed.cacher.watchers(), 4);
    drop(all);
    assert_eq!(feed.cacher.watchers(), 0);
}

#[tokio::test]
async fn a_reader_asleep_is_woken_and_one_of_another_namespace_is_not() {
    let mut feed = Feed::new(Bounds::default());
    let mut other = feed.watch(WatchOptions {
        prefix: "b/".into(),
        ..watching()
    });
    let mut w = feed.watch(WatchOptions {
        prefix: "a/".into(),
        ..watching()
    });
    let reader = tokio::spawn(async move { w.next().await });
    let mut other = by_hand(async move { other.next().await });
    tokio::task::yield_now().await;
    assert!(!other.poll_woken());
    feed.put("a/1");
    assert!(matches!(
        reader.await.expect("joined"),
        Some(WatchItem::Change(EventType::Added, _))
    ));
    assert!(!other.woken(), "nothing of its own happened");
    feed.put("b/1");
    assert!(other.woken() && other.poll_woken());
}

/// A future polled by hand, with a count of its wakes.
struct ByHand<F> {
    future: std::pin::Pin<Box<F>>,
    wakes: Arc<Wakes>,
}

#[derive(Default)]
struct Wakes(AtomicBool);

impl std::task::Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

fn by_hand<F: Future>(future: F) -> ByHand<F> {
    ByHand {
        future: Box::pin(future),
        wakes: Arc::default(),
    }
}

impl<F: Future> ByHand<F> {
    fn woken(&self) -> bool {
        self.wakes.0.load(Ordering::Acquire)
    }

    fn poll_woken(&mut self) -> bool {
        let waker = self.wakes.clone().into();
        let mut cx = std::task::Context::from_waker(&waker);
        self.future.as_mut().poll(&mut cx).is_ready()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Whatever was written, every revision can be listed as it was, and a watch from it leads to the present.
    #[test]
    fn every_kept_revision_is_as_it_was(writes in proptest::collection::vec((0u8..12, any::<bool>()), 1..600)) {
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
            let mut w = feed.watch(WatchOptions { since: Some(Revision(r as u64)), ..watching() });
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

/// Selects what is on a node, and counts how often it is asked.
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
async fn what_is_on_a_node_is_found_and_watched_without_looking_at_the_rest() {
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
        Setting::new(Bounds::default(), Budget::unlimited()),
    ));
    let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let predicate = |node| Predicate(Some(Arc::new(OnNode(node, asked.clone()))));
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
    assert_eq!(asked.swap(0, std::sync::atomic::Ordering::Relaxed), 500);
    assert_eq!((list("nowhere", "").await, list("", "").await), (0, 250));
    assert_eq!(
        asked.swap(0, std::sync::atomic::Ordering::Relaxed),
        1000,
        "the empty value is looked for"
    );
    let watching = |node| WatchOptions {
        predicate: predicate(node),
        ..watching()
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
    asked.store(0, std::sync::atomic::Ordering::Relaxed);
    let was = cacher.peek("ns1/001").expect("on a");
    change(on_node("ns1/001", "b", 2), Some(was), false);
    assert!(
        asked.load(std::sync::atomic::Ordering::Relaxed) <= 4,
        "only the watchers of a and b are asked"
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
        "the past has its index"
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

#[test]
fn a_ring_forgets_when_its_bytes_are_too_many() {
    let bounds = Bounds {
        min_events: 2,
        max_bytes: 20_000,
        ..Bounds::default()
    };
    let mut feed = Feed::new(Bounds::default());
    let now = Instant::now();
    let mut history = History::new(bounds, Revision(1), vec![], now);
    let state = Snapshot::new(vec![], Revision(1));
    for _ in 0..200 {
        history.push(now, feed.put("ns/a"), &state);
        history.trim(now, usize::MAX);
    }
    let (events, bytes, _) = history.figures();
    assert!(
        events > 2 && events < 100 && bytes <= 20_000,
        "{events} events of {bytes} bytes"
    );
}

#[test]
fn rings_give_way_when_all_caches_together_take_too_much() {
    let budget = Budget::new(60_000, 0);
    let mut a = Feed::within(Bounds::default(), budget.clone());
    let mut b = Feed::within(Bounds::default(), budget.clone());
    for _ in 0..1000 {
        a.put("ns/a");
        b.put("ns/b");
    }
    a.cacher.trim();
    b.cacher.trim();
    let (read, kept) = (budget.read(), a.cacher.figures());
    assert!(read.objects + read.history <= 60_000 * 11 / 10, "{read:?}");
    assert!((100..300).contains(&kept.events), "{} events", kept.events);
    assert!(!budget.is_over());
    // Objects alone are too much: history goes down to its minimum, and nothing of the state.
    for i in 0..1000 {
        b.put(&format!("ns/{i}"));
    }
    a.cacher.trim();
    assert_eq!((a.cacher.figures().events, b.cacher.figures().events), (100, 100));
    assert!(budget.is_over());
    assert_eq!(b.cacher.count(), 1001);
    drop(b);
    assert!(!budget.is_over(), "a cache that goes gives its share back");
    assert_eq!(budget.read().objects, a.cacher.snapshot().bytes());
}

#[tokio::test]
async fn what_pages_hold_on_to_is_bounded_too() {
    let bounds = Bounds {
        min_events: 2,
        max_events: 2,
        max_bytes: 8 << 20,
        window: Duration::ZERO,
    };
    let mut feed = Feed::new(bounds);
    let big = "x".repeat(100_000);
    let put = |feed: &mut Feed, i: usize| {
        let draft = Draft::new(
            &crate::json!({"metadata": {"name": "x"}, "data": {"k": big.as_str()}}),
            vec![],
        );
        feed.revision += 1;
        let key = format!("ns/{}", i % 4);
        let entry = Arc::new(draft.into_entry(&key, Revision(feed.revision)));
        feed.publish(&[Arc::new(Event::new(entry, feed.cacher.peek(&key), false))]);
    };
    (0..4).for_each(|i| put(&mut feed, i));
    let page = ListOptions {
        limit: 1,
        ..ListOptions::latest("")
    };
    let first = feed.cacher.list(page.clone()).await.expect("a page");
    (0..40).for_each(|i| put(&mut feed, i));
    let token = first.next.clone();
    let next = ListOptions { token, ..page.clone() };
    assert!(
        feed.cacher.list(next.clone()).await.is_ok(),
        "4 MB are within the bound"
    );
    (0..100).for_each(|i| put(&mut feed, i));
    assert!(matches!(feed.cacher.list(next).await, Err(Error::Compacted(_))));
    assert!(feed.cacher.figures().history_bytes <= 8 << 20);
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
async fn the_initial_state_of_a_watch_is_taken_a_little_at_a_time() {
    let entry = |i: u64| {
        let draft = Draft::new(&crate::json!({"metadata": {}}), vec![]);
        Arc::new(draft.into_entry(&format!("ns/{i:05}"), Revision(i)))
    };
    let initial = Initial {
        state: Snapshot::new((1..=5000).map(entry).collect(), Revision(5000)),
        base: Revision(5000),
        events: vec![],
    };
    let progress = Arc::new(Progress::new(Revision(5000), Duration::ZERO));
    let cacher = Arc::new(Cacher::new(
        progress,
        initial,
        Setting::new(Bounds::default(), Budget::unlimited()),
    ));
    let options = WatchOptions {
        initial: Some(MinRevision::Any),
        ..watching()
    };
    let mut watch = cacher.subscribe(options, None).expect("serving").expect("watched");
    let mut seen = 0;
    while let Some(WatchItem::Initial(e)) = watch.try_next() {
        seen += 1;
        assert_eq!(e.revision, Revision(seen), "in order, none twice and none left out");
        assert!(watch.held() <= 256, "{} are held at once", watch.held());
    }
    assert_eq!(seen, 5000);
}

#[tokio::test]
async fn what_remains_of_a_paged_list_is_counted_once() {
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
            // Writes in between change nothing of it.
            feed.put(&format!("b/new-{seen}-{all}"));
            let Some(next) = page.next else { break };
            let counted = lock(&feed.cacher.history).counted(page.revision, prefix, &next.start);
            assert_eq!(counted, page.remaining, "the next page need not count");
            let first = lock(&feed.cacher.history).counted(page.revision, prefix, "");
            assert_eq!(first, Some(all), "nor need the first one, if it is asked for again");
            options.token = Some(next);
        }
        assert_eq!(seen, all);
        // The second round reads the state as it is now.
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
