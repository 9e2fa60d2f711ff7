//! The items a single watcher receives, and when it is ended.

use super::hub::Subscriber;
use super::scope::Scope;
use super::*;

#[tokio::test]
async fn stalled_watcher_is_ended_after_a_gapless_queue() {
    let mut feed = Feed::new(Bounds::default());
    let mut w = feed.watch(WatchOptions::all());
    // All events have the same time: on a slow machine so many puts would exceed the time that a queue may be full.
    let now = Instant::now();
    for _ in 0..hub::HARD_LIMIT + 10 {
        let event = feed.event(feed.cacher.peek("ns/a"), "ns/a", false);
        feed.publish_at(&[event], now);
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
fn full_queue_read_in_time_does_not_end_the_watch() {
    let mut feed = Feed::new(Bounds::default());
    let everything = Scope::new("", false, Predicate(None), &SelectorIds::default());
    let subscriber = Arc::new(Subscriber::new(everything, Revision(0), 2));
    let mut hub = Hub::default();
    hub.add(subscriber.clone());
    let (start, mut terminated) = (Instant::now(), 0);
    let mut offer = |hub: &mut Hub, after: Duration| {
        let event = feed.put("ns/a");
        terminated += hub::offer(hub.concerned(std::slice::from_ref(&event)), &[event], start + after, 0).1;
        terminated
    };
    let (soon, late) = (hub::FULL_QUEUE_GRACE / 2, hub::FULL_QUEUE_GRACE * 2);
    for _ in 0..3 {
        assert_eq!(offer(&mut hub, Duration::ZERO), 0);
    }
    assert_eq!(offer(&mut hub, soon), 0);
    while let hub::Dequeued::Some(_) = subscriber.take() {}
    assert_eq!(offer(&mut hub, late), 0, "it was read in time");
    assert_eq!(offer(&mut hub, late), 0);
    assert_eq!(offer(&mut hub, late), 0, "full again, but only now");
    assert_eq!(offer(&mut hub, late + late), 1);
}

#[test]
fn the_end_of_a_watch_does_not_end_that_of_one_object_with_the_same_key() {
    let watcher = |single| {
        Arc::new(Subscriber::new(
            Scope::new("ns/a", single, Predicate(None), &SelectorIds::default()),
            Revision(0),
            2,
        ))
    };
    let (one, prefix) = (watcher(true), watcher(false));
    let mut hub = Hub::default();
    hub.add(one);
    let id = hub.add(prefix.clone()).expect("it is open");
    hub.remove(id, &prefix);
    assert_eq!(hub.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn bookmark_precedes_the_announced_end_if_there_is_progress() {
    let mut feed = Feed::new(Bounds::default());
    let until = Some(Instant::now() + Duration::from_millis(2020));
    let options = WatchOptions {
        prefix: "quiet/".into(),
        bookmarks: true,
        until,
        ..WatchOptions::all()
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
    assert!(idle.try_next().is_none(), "its start revision has not been reached");
}

#[tokio::test]
async fn dropped_watch_is_unsubscribed() {
    let feed = Feed::new(Bounds::default());
    let scopes = [("", false), ("ns/", false), ("ns/a", true), ("ns", false)];
    let all: Vec<_> = scopes
        .map(|(prefix, single)| {
            feed.watch(WatchOptions {
                prefix: prefix.into(),
                single,
                ..WatchOptions::all()
            })
        })
        .into();
    assert_eq!(feed.cacher.watchers(), 4);
    drop(all);
    assert_eq!(feed.cacher.watchers(), 0);
}

#[tokio::test]
async fn only_readers_of_the_changed_namespace_are_woken() {
    let mut feed = Feed::new(Bounds::default());
    let mut other = feed.watch(WatchOptions {
        prefix: "b/".into(),
        ..WatchOptions::all()
    });
    let mut w = feed.watch(WatchOptions {
        prefix: "a/".into(),
        ..WatchOptions::all()
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
    assert!(!other.woken(), "no event in its namespace");
    feed.put("b/1");
    assert!(other.woken() && other.poll_woken());
}

/// A manually polled future that records wake-ups.
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

#[tokio::test]
async fn initial_state_is_read_in_batches() {
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
        CacherConfig::new(Bounds::default(), Budget::unlimited()),
    ));
    let options = WatchOptions {
        initial: Some(MinRevision::Any),
        ..WatchOptions::all()
    };
    let mut watch = cacher.subscribe(options, None).expect("serving").expect("watched");
    let mut seen = 0;
    while let Some(Some(WatchItem::Initial(e))) = futures_util::FutureExt::now_or_never(watch.next()) {
        seen += 1;
        assert_eq!(e.revision, Revision(seen), "in order, without duplicates or gaps");
        assert!(watch.held().0 <= 64, "{:?} are buffered at once", watch.held());
    }
    assert_eq!(seen, 5000);
}
