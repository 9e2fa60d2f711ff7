//! Writes and single reads.

use crate::support::*;
use futures_util::FutureExt;
use std::sync::Arc;
use torana::testing::storage::{Error, EventType, MinRevision, Precondition, Revision, WatchItem};

pub(crate) async fn an_empty_store_is_at_revision_one(b: Backend) {
    let s = b.resource("configmaps");
    assert_eq!((s.revision(), s.count()), (Revision(1), 0));
    let list = s.list(everything()).await.unwrap();
    assert_eq!(
        (list.entries.len(), list.revision, list.remaining),
        (0, Revision(1), None)
    );
    assert!(s.get("ns/a", MinRevision::Latest).await.unwrap().is_none());
}

pub(crate) async fn a_created_object_is_read_back(b: Backend) {
    let s = b.resource("configmaps");
    let made = create(&s, "ns/a", "1").await;
    for min in [
        MinRevision::Latest,
        MinRevision::Any,
        MinRevision::AtLeast(made.revision),
    ] {
        let read = s.get("ns/a", min).await.unwrap().unwrap();
        assert_eq!(read.json(), made.json());
        assert_eq!(read.decode().str_at(&["metadata", "resourceVersion"]), "2");
    }
    assert_eq!((s.count(), s.revision()), (1, Revision(2)));
}

pub(crate) async fn creating_twice_is_a_conflict(b: Backend) {
    let s = b.resource("configmaps");
    let made = create(&s, "ns/a", "1").await;
    let again = s.put("ns/a", Precondition::Absent, draft("2"), None).await;
    assert_eq!(conflict(again), Some(made.revision));
    assert_eq!(s.revision(), made.revision, "a refused write takes no revision");
}

pub(crate) async fn an_update_needs_the_revision_it_read(b: Backend) {
    let s = b.resource("configmaps");
    let one = create(&s, "ns/a", "1").await;
    let two = update(&s, &one, "2").await;
    let stale = s
        .put("ns/a", Precondition::Unchanged(one.revision), draft("3"), None)
        .await;
    assert_eq!(conflict(stale), Some(two.revision));
    let missing = s
        .put("ns/b", Precondition::Unchanged(one.revision), draft("3"), None)
        .await;
    assert_eq!(conflict(missing), None);
    assert_eq!(value(&s.get("ns/a", MinRevision::Latest).await.unwrap().unwrap()), "2");
}

pub(crate) async fn a_deletion_returns_the_last_state_at_its_own_revision(b: Backend) {
    let s = b.resource("configmaps");
    let made = create(&s, "ns/a", "1").await;
    let gone = s.delete("ns/a", made.revision).await.unwrap();
    assert_eq!((gone.revision, value(&gone).as_str()), (Revision(3), "1"));
    assert_eq!(gone.decode().str_at(&["metadata", "resourceVersion"]), "3");
    assert_eq!(conflict(s.delete("ns/a", made.revision).await), None);
    assert_eq!(s.count(), 0);
    assert_eq!(create(&s, "ns/a", "2").await.revision, Revision(4));
}

pub(crate) async fn revisions_are_shared_by_resources_and_grow_by_one(b: Backend) {
    let (s, t) = (b.resource("configmaps"), b.resource("secrets"));
    assert_eq!(create(&s, "ns/a", "1").await.revision, Revision(2));
    assert_eq!(create(&t, "ns/a", "1").await.revision, Revision(3));
    assert_eq!(create(&s, "ns/b", "1").await.revision, Revision(4));
    let at = MinRevision::AtLeast(Revision(4));
    assert!(
        t.get("ns/a", at).await.unwrap().is_some(),
        "a resource without writes is current"
    );
}

pub(crate) async fn one_of_concurrent_updates_wins(b: Backend) {
    let s = b.resource("configmaps");
    let made = create(&s, "ns/a", "0").await;
    let writers: Vec<_> = (0..32)
        .map(|i| {
            let (s, r) = (s.clone(), made.revision);
            tokio::spawn(async move {
                s.put("ns/a", Precondition::Unchanged(r), draft(&i.to_string()), None)
                    .await
            })
        })
        .collect();
    let mut won = Vec::new();
    for w in writers {
        match w.await.unwrap() {
            Ok(e) => won.push(e),
            Err(Error::Conflict(Some(there))) => assert_eq!(there.revision, Revision(3)),
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(won.len(), 1);
    assert_eq!(s.revision(), Revision(3));
}

pub(crate) async fn a_read_waits_for_a_future_revision(b: Backend) {
    let s = b.resource("configmaps");
    let reader = tokio::spawn({
        let s = s.clone();
        async move { s.get("ns/a", MinRevision::AtLeast(Revision(2))).await }
    });
    tokio::task::yield_now().await;
    create(&s, "ns/a", "1").await;
    assert!(reader.await.unwrap().unwrap().is_some());
}

pub(crate) async fn a_read_of_the_far_future_is_too_new(b: Backend) {
    let s = b.resource("configmaps");
    match s.get("ns/a", MinRevision::AtLeast(Revision(99))).await {
        Err(Error::TooNew { requested, current }) => assert_eq!((requested, current), (Revision(99), Revision(1))),
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn an_object_with_a_ttl_expires(b: Backend) {
    let s = b.resource("events");
    let mut w = s.watch(from_now()).await.unwrap();
    let kept = create(&s, "ns/kept", "1").await;
    s.put("ns/a", Precondition::Absent, draft("1"), Some(0)).await.unwrap();
    let renewed = s
        .put(
            "ns/kept",
            Precondition::Unchanged(kept.revision),
            draft("2"),
            Some(3600),
        )
        .await;
    assert_eq!(next(&mut w).await, "ADDED ns/kept@2");
    assert_eq!(next(&mut w).await, "ADDED ns/a@3");
    let mut rest = [next(&mut w).await, next(&mut w).await];
    rest.sort();
    assert!(
        rest[0].starts_with("DELETED ns/a@") && rest[1].starts_with("MODIFIED ns/kept@"),
        "{rest:?}"
    );
    let kept: Arc<_> = s.get("ns/kept", MinRevision::Latest).await.unwrap().unwrap();
    assert_eq!(kept.revision, renewed.unwrap().revision);
    assert_eq!(s.count(), 1);
}

pub(crate) async fn an_abandoned_write_is_made_once_or_not_at_all(b: Backend) {
    let s = b.resource("configmaps");
    let start = create(&s, "ns/first", "0").await.revision;
    let mut w = s.watch(from_now()).await.unwrap();
    for i in 0..20 {
        let (key, draft) = (format!("ns/{i}"), draft("1"));
        let write = s.put(&key, Precondition::Absent, draft, None);
        // Start the write and drop its future, sometimes at once and sometimes in the middle.
        let mut write = std::pin::pin!(write);
        for _ in 0..i % 4 {
            let _ = write.as_mut().now_or_never();
            tokio::task::yield_now().await;
        }
    }
    let last = create(&s, "ns/last", "1").await;
    let mut seen = Vec::new();
    loop {
        let Some(WatchItem::Change(kind, event)) = w.next().await else {
            panic!("the watch has ended")
        };
        assert_eq!(kind, EventType::Added);
        assert!(event.entry.revision > start);
        let key = event.entry.key.to_string();
        assert!(!seen.contains(&key), "{key} was made twice");
        seen.push(key);
        if event.entry.revision == last.revision {
            break;
        }
    }
    let all = s.list(everything()).await.unwrap();
    for entry in all
        .entries
        .iter()
        .filter(|e| e.revision > start && e.revision <= last.revision)
    {
        assert!(seen.contains(&entry.key.to_string()), "{} was told", entry.key);
    }
}
