//! Several gateways on one etcd, and members that fail.

use crate::etcd_process::{Etcd, is_there};
use crate::support::*;
use futures_util::StreamExt;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use torana::testing::storage::{
    Backend as _, Error, EventType, MinRevision, Precondition, Revision, Storage, Watch, WatchItem,
};

/// Writes one value once, retrying failures, because a store may refuse calls during a failover. The key must not
/// have this value before.
pub(crate) async fn insist(s: &Arc<dyn Storage>, key: &str, text: &str) -> Revision {
    let until = Instant::now() + PATIENCE;
    loop {
        let when = match s.get(key, MinRevision::Latest).await {
            Ok(None) => Precondition::Absent,
            // A write that was reported as failed has been made.
            Ok(Some(e)) if value(&e) == text => return e.revision,
            Ok(Some(e)) => Precondition::Unchanged(e.revision),
            Err(e) => {
                assert!(Instant::now() < until, "reads still fail: {e}");
                continue;
            }
        };
        match s.put(key, when, draft(text), None).await {
            Ok(e) => return e.revision,
            Err(e) => assert!(Instant::now() < until, "writes still fail: {e}"),
        }
    }
}

/// Reads a watch until it has delivered `last`, and checks that revisions increase. If the store ends the
/// watch, a new one resumes after the last event, as clients do.
pub(crate) async fn history(s: Arc<dyn Storage>, from: Revision, last: Revision) -> Vec<(String, Revision, bool)> {
    let mut seen: Vec<(String, Revision, bool)> = Vec::new();
    let mut at = from;
    let until = Instant::now() + PATIENCE;
    'again: loop {
        assert!(Instant::now() < until, "the watch is at {at:?} of {last:?}");
        let options = torana::testing::storage::WatchOptions {
            since: Some(at),
            ..from_now()
        };
        let mut w: Box<dyn Watch> = match s.watch(options).await {
            Ok(w) => w,
            Err(Error::Compacted(r)) => panic!("history before {r:?} is gone"),
            Err(_) => continue,
        };
        while at < last {
            match tokio::time::timeout(PATIENCE, w.next()).await.expect("an event") {
                Some(WatchItem::Change(kind, event)) => {
                    let revision = event.entry.revision;
                    assert!(revision > at, "{revision:?} arrived after {at:?}");
                    at = revision;
                    seen.push((event.entry.key.to_string(), revision, kind == EventType::Deleted));
                }
                Some(_) => {}
                None => continue 'again,
            }
        }
        return seen;
    }
}

#[test]
fn writes_of_one_gateway_reach_the_others_in_order() {
    if !is_there() {
        return;
    }
    block_on(async {
        let etcd = Etcd::start(1);
        let (one, two, three) = (cluster(&etcd).await, cluster(&etcd).await, cluster(&etcd).await);
        let stores = [&one, &two, &three].map(|c| c.resource(config("configmaps")));
        let start = create(&stores[0], "ns/first", "0").await.revision;
        for s in &stores {
            let seen = s.get("ns/first", MinRevision::Latest).await.unwrap();
            assert_eq!(seen.unwrap().revision, start, "no gateway serves an older state");
        }
        let mut written = Vec::new();
        for i in 0..60 {
            let writer = &stores[i % 3];
            let key = format!("ns/{}", i % 7);
            let old = writer.get(&key, MinRevision::Latest).await.unwrap();
            let (revision, deleted) = match old {
                Some(old) if i % 4 == 0 => (writer.delete(&key, old.revision).await.unwrap().revision, true),
                Some(old) => (update(writer, &old, "x").await.revision, false),
                None => (create(writer, &key, "x").await.revision, false),
            };
            written.push((key, revision, deleted));
            let list = stores[(i + 1) % 3].list(everything()).await.unwrap();
            let present: BTreeMap<_, _> = list.entries.iter().map(|e| (e.key.to_string(), e.revision)).collect();
            let (key, revision, deleted) = written.last().unwrap();
            assert_eq!(
                present.get(key),
                (!deleted).then_some(revision),
                "a list elsewhere shows the write"
            );
            assert!(list.revision >= *revision);
        }
        let last = written.last().unwrap().1;
        for s in &stores {
            assert_eq!(history(s.clone(), start, last).await, written);
        }
    });
}

#[test]
fn a_killed_member_loses_no_event_and_no_write() {
    if !is_there() {
        return;
    }
    block_on(async {
        let mut etcd = Etcd::start(3);
        let (one, two) = (cluster(&etcd).await, cluster(&etcd).await);
        let (s, t) = (one.resource(config("configmaps")), two.resource(config("configmaps")));
        let start = insist(&s, "ns/first", "0").await;
        let mut written = Vec::new();
        for round in 0..3 {
            for i in 0..10 {
                let key = format!("ns/{i}");
                written.push((key.clone(), insist(&s, &key, &round.to_string()).await, false));
                match i {
                    3 => etcd.kill(round),
                    8 => etcd.restart(round),
                    _ => {}
                }
            }
        }
        let last = written.last().unwrap().1;
        for s in [s, t] {
            assert_eq!(history(s, start, last).await, written);
        }
    });
}

#[test]
fn a_hanging_member_is_replaced_by_another() {
    if !is_there() {
        return;
    }
    block_on(async {
        let etcd = Etcd::start(3);
        let one = cluster(&etcd).await;
        let s = one.resource(config("configmaps"));
        let start = insist(&s, "ns/first", "0").await;
        etcd.signal(0, "STOP");
        let mut last = Revision(0);
        for i in 0..5 {
            last = insist(&s, &format!("ns/{i}"), "1").await;
        }
        etcd.signal(0, "CONT");
        assert_eq!(history(s, start, last).await.len(), 5);
    });
}

#[test]
fn a_recovered_cluster_is_used_again() {
    if !is_there() {
        return;
    }
    block_on(async {
        let mut etcd = Etcd::start(1);
        let one = cluster(&etcd).await;
        let s = one.resource(config("configmaps"));
        let start = insist(&s, "ns/first", "0").await;
        etcd.kill(0);
        let refused = tokio::time::timeout(Duration::from_secs(30), s.get("ns/first", MinRevision::Latest));
        assert!(
            refused.await.expect("an answer").is_err(),
            "the latest state cannot be read"
        );
        let any = s.get("ns/first", MinRevision::Any).await.unwrap();
        assert_eq!(any.unwrap().revision, start, "the cached state is still served");
        etcd.restart(0);
        let last = insist(&s, "ns/first", "1").await;
        assert_eq!(history(s, start, last).await.len(), 1);
        let until = Instant::now() + PATIENCE;
        // Health and readiness come from probes, of which the last may have failed.
        while let Err(why) = one.health().and_then(|()| one.readiness()) {
            assert!(Instant::now() < until, "the recovered cluster is not ready: {why}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
}

fn any() -> torana::testing::storage::ListOptions {
    torana::testing::storage::ListOptions {
        version: torana::testing::storage::VersionMatch::NotOlderThan(MinRevision::Any),
        ..everything()
    }
}

#[test]
fn a_full_database_refuses_writes_but_stays_readable() {
    if !is_there() {
        return;
    }
    block_on(async {
        let etcd = Etcd::start_with(1, &["--quota-backend-bytes=16777216"]);
        let one = cluster(&etcd).await;
        let s = one.resource(config("configmaps"));
        let kept = create(&s, "ns/kept", "1").await;
        let big = "x".repeat(1 << 19);
        let mut refusal = None;
        for i in 0..64 {
            match s.put(&format!("ns/{i}"), Precondition::Absent, draft(&big), None).await {
                Ok(_) => {}
                Err(e) => {
                    refusal = Some(e.to_string());
                    break;
                }
            }
        }
        assert_eq!(refusal.as_deref(), Some("etcdserver: mvcc: database space exceeded"));
        let why = one.readiness().unwrap_err().to_string();
        assert!(why.contains("NOSPACE"), "{why}");
        let until = Instant::now() + PATIENCE;
        // As above: the probe may have timed out behind the writes.
        while let Err(why) = one.health() {
            assert!(Instant::now() < until, "it stays readable: {why}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let seen = s.get("ns/kept", MinRevision::Latest).await.unwrap().unwrap();
        assert_eq!(seen.revision, kept.revision);
        assert!(!s.list(everything()).await.unwrap().entries.is_empty());
    });
}

#[test]
fn a_late_gateway_reads_many_objects_in_pages() {
    if !is_there() {
        return;
    }
    block_on(async {
        let etcd = Etcd::start(1);
        let one = cluster(&etcd).await;
        let s = one.resource(config("configmaps"));
        // More than one page of the initial load.
        let writes: Vec<_> = (0..2300)
            .map(|i| {
                let s = s.clone();
                async move { create(&s, &format!("ns/{i:05}"), "1").await }
            })
            .collect();
        for chunk in futures_util::stream::iter(writes).chunks(50).collect::<Vec<_>>().await {
            futures_util::future::join_all(chunk).await;
        }
        let two = cluster(&etcd).await;
        let t = two.resource(config("configmaps"));
        // A list waits for the cache, but not for as long as a busy machine may take to fill it.
        until_loaded(&*two).await;
        let all = t.list(any()).await.unwrap();
        assert_eq!(all.entries.len(), 2300);
        let mut options = torana::testing::storage::ListOptions {
            limit: 700,
            ..everything()
        };
        let mut seen = Vec::new();
        loop {
            let page = t.list(options.clone()).await.unwrap();
            seen.extend(page.entries.iter().map(|e| e.key.to_string()));
            assert_eq!(page.remaining.unwrap_or(0), 2300 - seen.len());
            // Concurrent changes must not appear in the remaining pages.
            create(&s, &format!("ns/x{}", seen.len()), "1").await;
            match page.next {
                Some(next) => options.token = Some(next),
                None => break,
            }
        }
        assert_eq!(seen.len(), 2300);
        assert!(seen.is_sorted());
        assert_eq!(t.list(everything()).await.unwrap().entries.len(), 2304);
    });
}
