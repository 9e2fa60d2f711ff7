//! When history is discarded.

use super::*;
use crate::storage::budget::HistoryLimits;
use crate::storage::cacher::history::TRIMMED_AT_ONCE;
use crate::storage::encoding_cache::EncodingKey;

const UNLIMITED: HistoryLimits = HistoryLimits {
    bytes: usize::MAX,
    min_bytes: usize::MAX,
};

#[tokio::test]
async fn compacted_error_carries_the_oldest_available_revision() {
    let bounds = Bounds {
        min_events: 5,
        min_bytes: usize::MAX,
        max_events: 10,
        max_bytes: usize::MAX,
        window: Duration::from_secs(3600),
        ..Bounds::default()
    };
    let mut feed = Feed::new(bounds);
    for i in 0..20 {
        feed.put(&format!("ns/{}", i % 4));
    }
    let since = |r| WatchOptions {
        since: Some(Revision(r)),
        ..WatchOptions::all()
    };
    // Revisions 2 to 21 were written; the last ten are kept.
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
fn history_keeps_its_time_window_and_a_minimum() {
    let bounds = Bounds {
        min_events: 5,
        min_bytes: usize::MAX,
        max_events: 1000,
        max_bytes: usize::MAX,
        window: Duration::from_secs(75),
        ..Bounds::default()
    };
    let mut feed = Feed::new(Bounds::default());
    let start = Instant::now();
    let mut history = History::new(bounds, Revision(1), vec![], start);
    let state = Snapshot::new(vec![], Revision(1));
    for i in 0..20 {
        let event = feed.put("ns/a");
        history.push(start + Duration::from_secs(10 * i), event, &state);
    }
    history.trim(start + Duration::from_secs(200), UNLIMITED);
    let kept = |h: &History, since| h.after(Revision(since), usize::MAX).map(|e| e.len()).ok();
    // At 200 s, events from 130 s on are within the window: 13 to 19, which are revisions 15 to 21.
    assert_eq!((kept(&history, 13), kept(&history, 14)), (None, Some(7)));
    history.trim(start + Duration::from_secs(9000), UNLIMITED);
    assert_eq!((kept(&history, 15), kept(&history, 16)), (None, Some(5)));
}

#[test]
fn the_minimum_of_events_is_bounded_in_bytes() {
    let mut feed = Feed::new(Bounds::default());
    let now = Instant::now();
    let bounds = Bounds {
        min_events: 100,
        min_bytes: 20_000,
        ..Bounds::default()
    };
    let mut history = History::new(bounds, Revision(1), vec![], now);
    let state = Snapshot::new(vec![], Revision(1));
    for _ in 0..90 {
        history.push(now, feed.put("ns/a"), &state);
    }
    let all = history.stats();
    assert!(
        all.0 == 90 && all.1 > 20_000,
        "the events are larger than the minimum: {all:?}"
    );
    history.trim(now, UNLIMITED);
    assert_eq!(history.stats(), all, "young events are kept");
    history.trim(now + Duration::from_secs(3600), UNLIMITED);
    let (events, bytes, _) = history.stats();
    assert!(
        events > 0 && bytes <= 20_000,
        "{events} events of {bytes} bytes are left"
    );
}

#[test]
fn a_burst_of_large_events_is_not_kept_for_the_whole_window() {
    let bounds = Bounds {
        min_events: 2,
        min_bytes: 2_000,
        burst_bytes: 10_000,
        rest_bytes: 4_000,
        ..Bounds::default()
    };
    let mut feed = Feed::new(bounds);
    let now = Instant::now();
    let mut history = History::new(bounds, Revision(1), vec![], now);
    let state = Snapshot::new(vec![], Revision(1));
    for _ in 0..200 {
        history.push(now, feed.put("ns/a"), &state);
    }
    let last = now + bounds.burst_window;
    history.push(last, feed.put("ns/a"), &state);
    history.trim(last, UNLIMITED);
    assert_eq!(history.stats().0, 201, "a watcher may resume at any of them");
    history.trim(last + Duration::from_secs(1), UNLIMITED);
    let (busy, bytes, _) = history.stats();
    assert!(busy > 20 && bytes <= 10_000, "{busy} events of {bytes} bytes are left");
    history.trim(last + bounds.burst_window, UNLIMITED);
    assert_eq!(history.stats().0, busy, "those are kept while there are events");
    history.trim(last + bounds.burst_window + Duration::from_secs(1), UNLIMITED);
    let (resting, bytes, _) = history.stats();
    assert!(
        resting > 8 && bytes <= 4_000,
        "{resting} events of {bytes} bytes are left"
    );
    history.trim(now + bounds.window, UNLIMITED);
    assert_eq!(history.stats().0, resting, "those are kept for the window");
}

#[test]
fn a_burst_is_discarded_in_steps_and_freed_by_the_caller() {
    const STEPS: usize = 3;
    let bounds = Bounds {
        min_events: 0,
        ..Bounds::default()
    };
    let mut feed = Feed::new(bounds);
    let now = Instant::now();
    let mut history = History::new(bounds, Revision(1), vec![], now);
    let state = Snapshot::new(vec![], Revision(1));
    let events: Vec<_> = (0..STEPS * TRIMMED_AT_ONCE)
        .map(|_| feed.event(None, "ns/a", false))
        .collect();
    events.iter().for_each(|event| history.push(now, event.clone(), &state));
    let later = now + Duration::from_secs(3600);
    assert!(history.drop_frames(later), "there are more");
    for step in 1..=STEPS {
        let discarded = history.trim(later, UNLIMITED);
        assert_eq!(history.stats().0, (STEPS - step) * TRIMMED_AT_ONCE);
        assert_eq!(discarded.more, step < STEPS);
        let held = |events: &[Arc<Event>]| events.iter().filter(|e| Arc::strong_count(e) > 1).count();
        assert_eq!(held(&events), (STEPS - step + 1) * TRIMMED_AT_ONCE);
        drop(discarded);
        assert_eq!(held(&events), (STEPS - step) * TRIMMED_AT_ONCE);
    }
}

#[test]
fn frames_of_old_events_are_dropped_and_their_events_kept() {
    let budget = Budget::unlimited();
    let bounds = Bounds::default();
    let mut feed = Feed::new(bounds);
    let now = Instant::now();
    let mut history = History::new(bounds, Revision(1), vec![], now);
    let state = Snapshot::new(vec![], Revision(1));
    let frame = EncodingKey::Frame(EventType::Modified, 0);
    let encode = |event: &Event| event.encodings.bytes(Some(&budget), frame, || vec![0; 1000].into());
    let events: Vec<_> = (0..6).map(|_| feed.put("ns/a")).collect();
    for (n, event) in events.iter().enumerate() {
        encode(event);
        history.push(now + Duration::from_secs(4 * n as u64), event.clone(), &state);
    }
    history.drop_frames(now + Duration::from_secs(15));
    let left = budget.stats().encodings;
    assert!((4_000..5_000).contains(&left), "four of six are left: {left}");
    encode(&events[0]);
    history.drop_frames(now + Duration::from_secs(3600));
    let left = budget.stats().encodings;
    assert!((1_000..2_000).contains(&left), "one was encoded again: {left}");
    assert_eq!(history.stats().0, 6);
}

#[test]
fn history_is_bounded_in_bytes() {
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
        history.trim(now, UNLIMITED);
    }
    let (events, bytes, _) = history.stats();
    assert!(
        events > 2 && events < 100 && bytes <= 20_000,
        "{events} events of {bytes} bytes"
    );
}

#[test]
fn idle_histories_share_one_bound() {
    let budget = Budget::unlimited();
    let value = "x".repeat(500_000);
    let mut feeds: Vec<Feed> = (0..10)
        .map(|_| Feed::within(Bounds::default(), budget.clone()))
        .collect();
    for feed in &mut feeds {
        for _ in 0..8 {
            feed.put_value("ns/a", &value);
        }
        feed.put("ns/b");
    }
    assert!(budget.stats().history > 40_000_000, "young events are kept");
    let later = Instant::now() + Duration::from_secs(100);
    // Each pass starts from the state that the previous ones left.
    for feed in feeds.iter().cycle().take(30) {
        feed.cacher.trim_at(later);
    }
    let kept = budget.stats().history;
    assert!(kept <= 17 << 20, "{kept} bytes");
    assert!(feeds.iter().all(|f| f.cacher.stats().events > 0));
}

#[test]
fn histories_shrink_under_a_shared_budget() {
    let budget = Budget::new(60_000, 0);
    let mut a = Feed::within(Bounds::default(), budget.clone());
    let mut b = Feed::within(Bounds::default(), budget.clone());
    for _ in 0..1000 {
        a.put("ns/a");
        b.put("ns/b");
    }
    a.cacher.trim();
    b.cacher.trim();
    let (read, kept) = (budget.stats(), a.cacher.stats());
    assert!(read.objects + read.history <= 60_000 * 11 / 10, "{read:?}");
    assert!((100..300).contains(&kept.events), "{} events", kept.events);
    assert!(!budget.is_over());
    // Objects alone exceed the budget: history shrinks to its minimum, and the state stays complete.
    for i in 0..1000 {
        b.put(&format!("ns/{i}"));
    }
    a.cacher.trim();
    assert_eq!((a.cacher.stats().events, b.cacher.stats().events), (100, 100));
    assert!(budget.is_over());
    assert_eq!(b.cacher.count(), 1001);
    drop(b);
    assert!(!budget.is_over(), "a dropped cache returns its share");
    assert_eq!(budget.stats().objects, a.cacher.snapshot().bytes());
}

#[tokio::test]
async fn pinned_snapshots_are_bounded_in_bytes() {
    let bounds = Bounds {
        min_events: 2,
        min_bytes: usize::MAX,
        max_events: 2,
        max_bytes: 8 << 20,
        window: Duration::ZERO,
        ..Bounds::default()
    };
    let mut feed = Feed::new(bounds);
    let big = "x".repeat(100_000);
    let put = |feed: &mut Feed, i: usize| feed.put_value(&format!("ns/{}", i % 4), &big);
    (0..4).for_each(|i| put(&mut feed, i));
    let page = ListOptions {
        limit: 1,
        ..ListOptions::latest("")
    };
    let first = feed.cacher.list(page.clone()).await.expect("a page");
    (0..40).for_each(|i| put(&mut feed, i));
    let token = first.next.clone();
    let next = ListOptions { token, ..page.clone() };
    assert!(feed.cacher.list(next.clone()).await.is_ok(), "4 MB is within the bound");
    (0..100).for_each(|i| put(&mut feed, i));
    assert!(matches!(feed.cacher.list(next).await, Err(Error::Compacted(_))));
    assert!(feed.cacher.stats().history_bytes <= 8 << 20);
}

#[test]
fn the_last_change_of_a_namespace_is_known_within_the_history() {
    let mut feed = Feed::new(Bounds::default());
    let a = feed.put("a/x").entry.revision;
    // Neither the name of a namespace with the same beginning, nor an object of cluster scope.
    feed.put("ab/x");
    feed.put("a");
    assert_eq!(feed.cacher.last_change_in("a", Revision(1)), Some(a));
    assert_eq!(feed.cacher.last_change_in("a", a), None);
    assert_eq!(feed.cacher.last_change_in("c", Revision(1)), None);
    let before = feed.cacher.last_change();
    feed.delete("a/x");
    let deleted = feed.cacher.last_change();
    assert_eq!(feed.cacher.last_change_in("a", before), Some(deleted));
    // The history begins at revision 1.
    assert_eq!(feed.cacher.last_change_in("c", Revision(0)), Some(deleted));
    for _ in 0..TRIMMED_AT_ONCE {
        feed.put("b/x");
    }
    assert_eq!(feed.cacher.last_change_in("c", deleted), None);
    let last = feed.cacher.last_change();
    assert_eq!(
        feed.cacher.last_change_in("c", before),
        Some(last),
        "too many to look at"
    );
}
