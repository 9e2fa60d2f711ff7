//! Watches: starting point, delivered events, and their order.

use crate::support::*;
use futures_util::FutureExt;
use std::time::Instant;
use torana::testing::storage::{Error, MinRevision, Revision, WatchItem, WatchOptions};

pub(crate) async fn changes_arrive_in_order_with_their_type(b: Backend) {
    let s = b.resource("configmaps");
    create(&s, "ns/old", "1").await;
    let mut w = s.watch(from_now()).await.unwrap();
    assert!(w.try_next().is_none());
    let a = create(&s, "ns/a", "1").await;
    let a = update(&s, &a, "2").await;
    create(&b.resource("secrets"), "ns/a", "x").await;
    s.delete("ns/a", a.revision).await.unwrap();
    assert_eq!(next(&mut w).await, "ADDED ns/a@3");
    assert_eq!(next(&mut w).await, "MODIFIED ns/a@4");
    assert_eq!(next(&mut w).await, "DELETED ns/a@6");
    assert!(w.try_next().is_none());
}

pub(crate) async fn a_selector_turns_changes_into_additions_and_deletions(b: Backend) {
    let s = b.resource("configmaps");
    let options = WatchOptions {
        predicate: labelled("in"),
        ..from_now()
    };
    let mut w = s.watch(options).await.unwrap();
    let a = create(&s, "ns/a", "out").await;
    let a = update(&s, &a, "in").await;
    let a = update(&s, &a, "in").await;
    let a = update(&s, &a, "out").await;
    let a = update(&s, &a, "in").await;
    s.delete("ns/a", a.revision).await.unwrap();
    for expected in ["ADDED ns/a@3", "MODIFIED ns/a@4"] {
        assert_eq!(next(&mut w).await, expected);
    }
    match w.next().await {
        Some(WatchItem::Change(kind, event)) => {
            let left = event.object(kind);
            assert_eq!(
                (value(&left).as_str(), left.revision),
                ("in", Revision(5)),
                "the state before, at the change"
            );
        }
        _ => panic!("expected a deletion"),
    }
    assert_eq!(next(&mut w).await, "ADDED ns/a@6");
    assert_eq!(next(&mut w).await, "DELETED ns/a@7");
}

pub(crate) async fn the_initial_state_comes_first_and_has_an_end(b: Backend) {
    let s = b.resource("configmaps");
    for key in ["b/1", "a/1", "a/2"] {
        create(&s, key, "1").await;
    }
    create(&b.resource("secrets"), "a/1", "x").await;
    for bookmarks in [true, false] {
        let initial = Some(MinRevision::Latest);
        let mut w = s
            .watch(WatchOptions {
                initial,
                bookmarks,
                ..from_now()
            })
            .await
            .unwrap();
        for expected in ["INITIAL a/1@3", "INITIAL a/2@4", "INITIAL b/1@2"] {
            assert_eq!(next(&mut w).await, expected);
        }
        if bookmarks {
            assert_eq!(next(&mut w).await, "END@5");
        }
        assert!(w.try_next().is_none());
    }
}

pub(crate) async fn a_watch_resumes_after_a_revision(b: Backend) {
    let s = b.resource("configmaps");
    // The first read fills the cache; its history begins there.
    s.list(everything()).await.unwrap();
    for i in 0..5 {
        create(&s, &format!("ns/{i}"), "1").await;
    }
    let since = |r| WatchOptions {
        since: Some(Revision(r)),
        ..from_now()
    };
    let mut w = s.watch(since(4)).await.unwrap();
    assert_eq!(next(&mut w).await, "ADDED ns/3@5");
    assert_eq!(next(&mut w).await, "ADDED ns/4@6");
    create(&s, "ns/5", "1").await;
    assert_eq!(next(&mut w).await, "ADDED ns/5@7");
    let mut all = s.watch(since(1)).await.unwrap();
    assert_eq!(next(&mut all).await, "ADDED ns/0@2");
}

pub(crate) async fn a_watch_older_than_history_reports_where_history_begins(b: Backend) {
    let s = b.resource("configmaps");
    let first = create(&s, "ns/first", "1").await;
    let names: Vec<String> = (0..=RING).map(|i| format!("ns/{i}")).collect();
    futures_util::future::join_all(names.iter().map(|name| create(&s, name, "1"))).await;
    let until = Instant::now() + PATIENCE;
    // The history is the cache's, which may lag behind the acknowledgements.
    while s.count() <= names.len() {
        assert!(Instant::now() < until, "the cache has {} objects", s.count());
        tokio::task::yield_now().await;
    }
    let since = |r| WatchOptions {
        since: Some(r),
        ..from_now()
    };
    let oldest = match s.watch(since(first.revision)).await {
        Err(Error::Compacted(oldest)) => oldest,
        other => panic!("it was begun: {}", other.is_ok()),
    };
    assert!(oldest > first.revision && oldest < s.revision());
    let mut w = s.watch(since(oldest)).await.unwrap();
    let WatchItem::Change(_, event) = w.next().await.unwrap() else {
        panic!("no change")
    };
    assert_eq!(
        event.entry.revision,
        Revision(oldest.0 + 1),
        "no later event is left out"
    );
}

pub(crate) async fn a_watch_from_the_future_is_quiet_until_then(b: Backend) {
    let s = b.resource("configmaps");
    let mut w = s
        .watch(WatchOptions {
            since: Some(Revision(3)),
            ..from_now()
        })
        .await
        .unwrap();
    for i in 0..3 {
        create(&s, &format!("ns/{i}"), "1").await;
    }
    assert_eq!(next(&mut w).await, "ADDED ns/2@4");
}

pub(crate) async fn a_watch_is_scoped_to_a_namespace_or_a_key(b: Backend) {
    let s = b.resource("configmaps");
    let scope = |prefix: &str, single| WatchOptions {
        prefix: prefix.into(),
        single,
        ..from_now()
    };
    let mut namespace = s.watch(scope("a/", false)).await.unwrap();
    let mut one = s.watch(scope("a/1", true)).await.unwrap();
    let since = Some(Revision(1));
    for key in ["ab/1", "a/2", "a/1", "a/11"] {
        create(&s, key, "1").await;
    }
    for expected in ["ADDED a/2@3", "ADDED a/1@4", "ADDED a/11@5"] {
        assert_eq!(next(&mut namespace).await, expected);
    }
    assert_eq!(next(&mut one).await, "ADDED a/1@4");
    assert!(one.try_next().is_none());
    let mut replayed = s
        .watch(WatchOptions {
            since,
            ..scope("a/1", true)
        })
        .await
        .unwrap();
    assert_eq!(next(&mut replayed).await, "ADDED a/1@4");
    assert!(replayed.try_next().is_none());
}

pub(crate) async fn a_stalled_watcher_does_not_delay_writers(b: Backend) {
    let s = b.resource("configmaps");
    let mut stalled = s.watch(from_now()).await.unwrap();
    let mut a = create(&s, "ns/a", "0").await;
    for i in 1..300 {
        a = update(&s, &a, &i.to_string()).await;
    }
    // The delivered events must have no gap.
    let mut expected = 2;
    while let Some(item) = stalled.try_next() {
        assert!(describe(Some(item)).ends_with(&format!("@{expected}")));
        expected += 1;
    }
    assert!(expected > 100);
}

pub(crate) async fn initial_state_and_live_changes_join_without_gaps(b: Backend) {
    let s = b.resource("configmaps");
    let writer = tokio::spawn({
        let s = s.clone();
        async move {
            for i in 0..200 {
                create(&s, &format!("ns/{i}"), "1").await;
            }
        }
    });
    let mut seen = 0;
    while !writer.is_finished() {
        let initial = Some(MinRevision::Any);
        let mut w = s
            .watch(WatchOptions {
                initial,
                bookmarks: true,
                ..from_now()
            })
            .await
            .unwrap();
        let mut at = 1;
        loop {
            match w.next().await {
                Some(WatchItem::Initial(_)) => at += 1,
                Some(WatchItem::Bookmark { revision, .. }) => {
                    assert!(revision.0 >= at, "the end covers the initial state");
                    assert_eq!(revision.0, at.max(revision.0));
                    if at >= 201 {
                        break;
                    }
                }
                Some(WatchItem::Change(_, e)) => {
                    assert_eq!(e.entry.revision.0, at + 1, "no gap, nothing twice");
                    at += 1;
                    if at % 20 == 0 || at >= 201 {
                        break;
                    }
                }
                Some(WatchItem::Failed(why)) => panic!("{why}"),
                None => panic!("ended"),
            }
        }
        seen = seen.max(at);
        if at >= 201 {
            break;
        }
    }
    writer.await.unwrap();
    assert!(seen > 1);
}

pub(crate) async fn a_dropped_watch_is_removed(b: Backend) {
    let s = b.resource("configmaps");
    create(&s, "ns/a", "1").await;
    // A cache that has not been filled yet has no watchers.
    s.list(everything()).await.unwrap();
    let mut watches = Vec::new();
    for _ in 0..10 {
        watches.push(s.watch(from_now()).await.unwrap());
    }
    let watchers = || {
        let stats = b.engine.stats();
        let (_, cache) = stats.caches.iter().find(|(p, _)| p.contains("configmaps")).unwrap();
        cache.watchers
    };
    assert_eq!(watchers(), 10);
    // A watch dropped while its `next` is pending must be removed as well.
    let mut waiting = watches.pop().unwrap();
    assert!(waiting.next().now_or_never().is_none());
    drop(waiting);
    assert_eq!(watchers(), 9);
    watches.clear();
    assert_eq!(watchers(), 0);
    create(&s, "ns/b", "1").await;
}
