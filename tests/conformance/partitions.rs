//! Network partitions between a gateway and a member, and between the leader and its followers. No
//! acknowledged write is lost, no stale state is returned as the latest, a watch continues without a gap, and
//! impossible operations fail in time.

use crate::etcd_process::forwarder::Forwarder;
use crate::etcd_process::{Etcd, is_there};
use crate::shared::{history, insist};
use crate::support::*;
use std::sync::Arc;
use std::time::{Duration, Instant};
use torana::testing::storage::etcd::{self, Access, Cluster};
use torana::testing::storage::{Backend as _, Error, MinRevision, Precondition, Storage};

/// A call gives up after ten seconds; a busy machine may add to that. Longer than any wait for an event in
/// these tests.
const DEADLINE: Duration = Duration::from_secs(60);

/// A gateway whose connections to members can be cut.
struct Gateway {
    links: Vec<Forwarder>,
    cluster: Arc<Cluster>,
}

impl Gateway {
    async fn connect(etcd: &Etcd, members: &[usize]) -> Self {
        let links: Vec<_> = members.iter().map(|i| Forwarder::before(etcd.port(*i))).collect();
        let access = Access {
            servers: links.iter().map(Forwarder::url).collect(),
            ..Access::default()
        };
        let cluster = Cluster::connect(&access, etcd::Options::default()).await.unwrap();
        Self { links, cluster }
    }

    fn store(&self) -> Arc<dyn Storage> {
        self.cluster.resource(config("configmaps"))
    }
}

/// A cluster with two gateways: `s` belongs to one whose connections can be cut, `t` to one with direct
/// connections.
struct Two {
    etcd: Etcd,
    cut: Gateway,
    s: Arc<dyn Storage>,
    t: Arc<dyn Storage>,
    _other: Arc<Cluster>,
}

impl Two {
    async fn on(members: usize) -> Self {
        let etcd = Etcd::start(members);
        let all: Vec<usize> = (0..members).collect();
        let cut = Gateway::connect(&etcd, &all).await;
        let other = cluster(&etcd).await;
        Self {
            s: cut.store(),
            t: other.resource(config("configmaps")),
            etcd,
            cut,
            _other: other,
        }
    }
}

#[test]
fn a_gateway_partitioned_from_a_member_uses_another() {
    if !is_there() {
        return;
    }
    block_on(async {
        let two = Two::on(3).await;
        let (cut, s, t) = (&two.cut, &two.s, &two.t);
        let start = insist(s, "ns/first", "0").await;
        let mut written = Vec::new();
        for round in 0..3 {
            cut.links[round].cut();
            for i in 0..4 {
                let key = format!("ns/{round}-{i}");
                let writer = if i % 2 == 0 { s } else { t };
                let since = Instant::now();
                let made = create(writer, &key, "1").await;
                assert!(since.elapsed() < DEADLINE, "it took {:?}", since.elapsed());
                written.push((key.clone(), made.revision, false));
                for reader in [s, t] {
                    let seen = reader.get(&key, MinRevision::Latest).await.unwrap();
                    assert_eq!(seen.unwrap().revision, made.revision);
                    let all = reader.list(everything()).await.unwrap();
                    assert!(keys(&all.entries).contains(&&*key), "the list shows {key}");
                }
            }
            let last = written.last().unwrap().1;
            // The connection is still cut.
            assert_eq!(history(s.clone(), start, last).await, written);
            cut.links[round].heal();
        }
        let last = written.last().unwrap().1;
        assert_eq!(history(t.clone(), start, last).await, written);
    });
}

#[test]
fn a_silent_member_is_abandoned_without_local_writes() {
    if !is_there() {
        return;
    }
    block_on(async {
        let two = Two::on(3).await;
        let (cut, s, t) = (&two.cut, &two.s, &two.t);
        let mut w = s.watch(from_now()).await.unwrap();
        // Cutting each pair of the three members covers whichever member the watch uses.
        for (a, b) in [(0, 1), (1, 2), (0, 2)] {
            [a, b].iter().for_each(|i| cut.links[*i].cut());
            let made = create(t, &format!("ns/{a}{b}"), "1").await;
            let event = tokio::time::timeout(DEADLINE, next(&mut w)).await;
            assert_eq!(event.unwrap(), format!("ADDED ns/{a}{b}@{}", made.revision.0));
            [a, b].iter().for_each(|i| cut.links[*i].heal());
        }
    });
}

#[test]
fn missed_events_arrive_in_order_over_several_messages() {
    if !is_there() {
        return;
    }
    block_on(async {
        let two = Two::on(1).await;
        let (cut, s, t) = (&two.cut, &two.s, &two.t);
        let start = insist(s, "ns/first", "0").await;
        cut.links[0].cut();
        // More than fits into one message of etcd.
        let large = "x".repeat(300_000);
        let mut written = Vec::new();
        for i in 0..30 {
            let key = format!("ns/{i:02}");
            written.push((key.clone(), create(t, &key, &large).await.revision, false));
        }
        cut.links[0].heal();
        let last = written.last().unwrap().1;
        assert_eq!(history(s.clone(), start, last).await, written);
    });
}

#[test]
fn compaction_during_a_partition_ends_watches_and_reloads() {
    if !is_there() {
        return;
    }
    block_on(async {
        let two = Two::on(1).await;
        let (cut, s, t) = (&two.cut, &two.s, &two.t);
        let start = insist(s, "ns/a", "0").await;
        let gone = create(s, "ns/gone", "0").await;
        let mut w = s.watch(from_now()).await.unwrap();
        cut.links[0].sever();
        t.delete("ns/gone", gone.revision).await.unwrap();
        let mut last = start;
        for i in 1..=20 {
            last = insist(t, "ns/a", &i.to_string()).await;
        }
        two.etcd.ctl(&["compact", &last.0.to_string()]);
        cut.links[0].heal();
        // The missed events are compacted, so the watch must end instead of skipping them.
        let ended = tokio::time::timeout(DEADLINE, next(&mut w)).await;
        assert_eq!(ended.unwrap(), "ended");
        let until = Instant::now() + DEADLINE;
        let now = loop {
            let any = everything_of_any_age();
            match s.list(any).await {
                Ok(list) if list.revision >= last => break list,
                _ => assert!(Instant::now() < until, "the cache has not caught up after the deadline"),
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(keys(&now.entries), ["ns/a"]);
        assert_eq!(now.entries[0].revision, last);
        let early = torana::testing::storage::ListOptions {
            version: torana::testing::storage::VersionMatch::Exact(start),
            ..everything()
        };
        let early = s.list(early).await.err();
        assert!(
            matches!(early, Some(Error::Compacted(_))),
            "a list of a compacted revision is refused: {early:?}"
        );
        let again = s.watch(torana::testing::storage::WatchOptions {
            since: Some(start),
            ..from_now()
        });
        assert!(
            matches!(again.await.err(), Some(Error::Compacted(_))),
            "a resumed watch must list again"
        );
    });
}

fn everything_of_any_age() -> torana::testing::storage::ListOptions {
    torana::testing::storage::ListOptions {
        version: torana::testing::storage::VersionMatch::NotOlderThan(MinRevision::Any),
        ..everything()
    }
}

#[test]
fn a_partitioned_leader_accepts_no_write_and_returns_nothing_stale() {
    if !is_there() {
        return;
    }
    block_on(async {
        let etcd = Etcd::start_apart(3);
        let leader = etcd.leader();
        let rest: Vec<usize> = (0..3).filter(|i| *i != leader).collect();
        let (few, many) = (
            Gateway::connect(&etcd, &[leader]).await,
            Gateway::connect(&etcd, &rest).await,
        );
        let (s, t) = (few.store(), many.store());
        let start = insist(&t, "ns/a", "1").await;
        let old = s.get("ns/a", MinRevision::Latest).await.unwrap().unwrap();
        assert_eq!((value(&old), old.revision), ("1".to_owned(), start));
        assert_eq!(s.list(everything()).await.unwrap().entries.len(), 1);

        etcd.isolate(leader);
        let new = insist(&t, "ns/a", "2").await;
        let since = Instant::now();
        let (get, list, put, update) = tokio::join!(
            s.get("ns/a", MinRevision::Latest),
            s.list(everything()),
            s.put("ns/b", Precondition::Absent, draft("lost"), None),
            s.put("ns/a", Precondition::Unchanged(start), draft("lost"), None),
        );
        assert!(since.elapsed() < DEADLINE, "it took {:?}", since.elapsed());
        assert!(
            matches!(get, Err(Error::Failed(_))),
            "the latest state cannot be read: {get:?}"
        );
        assert!(list.is_err(), "nor can it be listed");
        for refused in [put, update] {
            let Err(Error::Failed(why)) = refused else {
                panic!("a minority acknowledged a write: {refused:?}")
            };
            assert!(why.contains("etcdserver: ") || why.contains("rpc error"), "{why}");
        }
        let any = s.get("ns/a", MinRevision::Any).await.unwrap().unwrap();
        assert_eq!(any.revision, start, "the cached state is still served");
        let why = few.cluster.health().unwrap_err().to_string();
        assert!(why.starts_with("error getting data from etcd: "), "{why}");

        etcd.heal();
        let last = insist(&s, "ns/a", "3").await;
        assert_eq!(
            history(s.clone(), start, last).await.last(),
            Some(&("ns/a".to_owned(), last, false))
        );
        let of_a = |all: Vec<(String, _, _)>| -> Vec<_> {
            let of_a = all.into_iter().filter(|(key, ..)| key == "ns/a");
            of_a.map(|(_, revision, _)| revision).collect()
        };
        for reader in [s, t] {
            assert_eq!(of_a(history(reader, start, last).await), [new, last]);
        }
    });
}

#[test]
fn a_partition_between_members_loses_no_acknowledged_write() {
    if !is_there() {
        return;
    }
    block_on(async {
        let etcd = Etcd::start_apart(3);
        let all = Gateway::connect(&etcd, &[0, 1, 2]).await;
        let s = all.store();
        let start = insist(&s, "ns/first", "0").await;
        let mut written = Vec::new();
        for round in 0..4 {
            let member = match round % 2 {
                0 => etcd.leader(),
                _ => (etcd.leader() + 1) % 3,
            };
            etcd.isolate(member);
            for i in 0..3 {
                let key = format!("ns/{round}-{i}");
                written.push((key.clone(), insist(&s, &key, "1").await, false));
            }
            etcd.heal();
        }
        let last = written.last().unwrap().1;
        let seen = history(s, start, last).await;
        // A refused write may have been made nevertheless.
        for write in &written {
            assert!(seen.contains(write), "{write:?} in {seen:?}");
        }
    });
}
