//! Memory held by watches whose clients do not read.

use super::*;
use crate::storage::budget::WatchBounds;
use std::sync::Weak;

const OBJECT: usize = 100_000;

/// A ring that keeps only two events, and watches that may keep ten objects alive.
fn feed() -> Feed {
    let watches = WatchBounds {
        max_pinned_bytes: 10 * OBJECT,
        stall_timeout: Duration::from_secs(60),
        ..WatchBounds::default()
    };
    Feed::within(two_events(), Budget::with_watch_bounds(usize::MAX, 0, watches))
}

fn put(feed: &mut Feed, key: &str) -> Weak<Entry> {
    let text = "x".repeat(OBJECT);
    let draft = Draft::new(
        &crate::json!({"metadata": {"name": "x"}, "data": {"k": text.as_str()}}),
        vec![],
    );
    feed.revision += 1;
    let entry = Arc::new(draft.into_entry(key, Revision(feed.revision)));
    let weak = Arc::downgrade(&entry);
    feed.publish(&[Arc::new(Event::new(entry, feed.cacher.peek(key), false))]);
    weak
}

fn initial() -> WatchOptions {
    WatchOptions {
        initial: Some(MinRevision::Any),
        ..WatchOptions::all()
    }
}

fn alive(all: &[Weak<Entry>]) -> usize {
    all.iter().filter(|e| e.strong_count() > 0).count()
}

#[tokio::test]
async fn stalled_watches_share_one_snapshot() {
    let mut feed = feed();
    let objects: Vec<_> = (0..100).map(|i| put(&mut feed, &format!("ns/{i}"))).collect();
    let counts = || objects.iter().map(Weak::strong_count).collect::<Vec<_>>();
    let before = counts();
    let watches: Vec<_> = (0..1000).map(|_| feed.watch(initial())).collect();
    assert_eq!(counts(), before, "they share one snapshot");
    assert!(watches.iter().all(|w| w.held() == (0, true)));
}

#[tokio::test]
async fn watches_keep_old_snapshots_only_up_to_the_bound() {
    let mut feed = feed();
    let mut versions = Vec::new();
    let mut watches = Vec::new();
    for i in 0..200 {
        versions.push(put(&mut feed, &format!("ns/{}", i % 4)));
        watches.push(feed.watch(initial()));
    }
    // The current state, the ring, and what watches may keep alive, plus an eighth until the next sweep.
    let kept = alive(&versions);
    assert!(kept <= 4 + 2 * 2 + 10 + 2, "{kept} of 200 versions are kept");
    let mut ended = 0;
    for watch in &mut watches {
        ended += usize::from(matches!(
            futures_util::FutureExt::now_or_never(watch.next()),
            Some(None)
        ));
    }
    assert!(ended > 150, "{ended} watches ended");
    assert_eq!(feed.cacher.counters().terminated.get(), ended as u64);
}

#[tokio::test]
async fn queued_changes_are_bounded_without_loss_for_active_readers() {
    let mut feed = feed();
    let mut stalled: Vec<_> = (0..100).map(|_| feed.watch(WatchOptions::all())).collect();
    let mut reader = feed.watch(WatchOptions::all());
    let mut versions = Vec::new();
    for i in 0..90 {
        versions.push(put(&mut feed, "ns/a"));
        match reader.try_next() {
            Some(WatchItem::Change(_, e)) => assert_eq!(e.entry.revision, Revision(2 + i)),
            _ => panic!("the reader gets every change"),
        }
    }
    let kept = alive(&versions);
    assert!(kept <= 1 + 2 * 2 + 10 + 2, "{kept} of 90 versions are kept");
    assert!(
        stalled
            .iter_mut()
            .all(|w| futures_util::FutureExt::now_or_never(w.next()).is_some_and(|n| n.is_none()))
    );
    assert_eq!(feed.cacher.counters().terminated.get(), 100);
}

#[tokio::test]
async fn stalled_watch_ends_but_idle_watch_stays_open() {
    let mut feed = feed();
    let mut stalled = feed.watch(WatchOptions::all());
    let mut idle = feed.watch(WatchOptions {
        prefix: "other/".into(),
        ..WatchOptions::all()
    });
    feed.put("ns/a");
    let start = Instant::now();
    feed.cacher.trim_at(start);
    feed.cacher.trim_at(start + Duration::from_secs(59));
    assert_eq!(feed.cacher.counters().terminated.get(), 0);
    feed.cacher.trim_at(start + Duration::from_secs(61));
    assert_eq!(feed.cacher.counters().terminated.get(), 1);
    assert!(stalled.next().await.is_none());
    feed.put("other/a");
    assert!(matches!(idle.next().await, Some(WatchItem::Change(..))));
}

#[tokio::test]
async fn past_changes_are_read_from_the_ring_in_batches() {
    let mut feed = Feed::new(Bounds::default());
    for i in 0..3000 {
        feed.put(&format!("ns/{}", i % 10));
    }
    let mut watch = feed.watch(WatchOptions {
        since: Some(Revision(1)),
        ..WatchOptions::all()
    });
    assert_eq!(watch.held(), (0, false));
    feed.put("ns/live");
    for revision in 2..=3002 {
        match watch.next().await {
            Some(WatchItem::Change(_, e)) => assert_eq!(e.entry.revision, Revision(revision)),
            _ => panic!("no gap"),
        }
        assert!(watch.held().0 <= 1025);
    }
}
