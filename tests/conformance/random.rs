//! Counters that are incremented only by conditional updates, while members and stores are restarted. The
//! history of each counter must be 1, 2, 3, …: a lost update, a gap, a repetition or a reordering would break
//! it.

use crate::etcd_process::{Etcd, is_there};
use crate::support::*;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use torana::testing::storage::embedded::Engine;
use torana::testing::storage::{
    Backend as _, Error, MinRevision, Precondition, Revision, Storage, WatchItem, WatchOptions,
};

const COUNTERS: u64 = 3;
const WRITERS: usize = 6;
const PATIENCE: Duration = Duration::from_secs(90);

/// Increments counters until stopped. Returns, per counter, the highest value acknowledged to this writer.
async fn raise(s: Arc<dyn Storage>, seed: usize, stop: Arc<AtomicBool>) -> HashMap<String, u64> {
    let mut highest = HashMap::new();
    for i in seed as u64.. {
        if stop.load(Ordering::Acquire) {
            break;
        }
        let key = format!("ns/{}", i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % COUNTERS);
        let Ok(now) = s.get(&key, MinRevision::Latest).await else {
            tokio::task::yield_now().await;
            continue;
        };
        let (when, count) = match &now {
            None => (Precondition::Absent, 0),
            Some(e) => (Precondition::Unchanged(e.revision), value(e).parse::<u64>().unwrap()),
        };
        let floor = highest.get(&key).copied().unwrap_or(0);
        assert!(
            count >= floor,
            "{key} is {count} after {floor} was acknowledged to this very writer"
        );
        if s.put(&key, when, draft(&(count + 1).to_string()), None).await.is_ok() {
            highest.insert(key, count + 1);
        }
        tokio::task::yield_now().await;
    }
    highest
}

/// Watches from the beginning until every counter has reached its final value. Reads slowly now and then, and
/// resumes when the watch ends.
async fn follow(s: Arc<dyn Storage>, from: Revision, end: HashMap<String, u64>) {
    let mut shown: HashMap<String, u64> = HashMap::new();
    let mut at = from;
    let until = Instant::now() + PATIENCE;
    while shown != end {
        assert!(Instant::now() < until, "{shown:?} of {end:?}");
        let options = WatchOptions {
            since: Some(at),
            ..from_now()
        };
        let mut w = match s.watch(options).await {
            Ok(w) => w,
            Err(Error::Compacted(r)) => panic!("history before {r:?} is gone"),
            Err(_) => continue,
        };
        while shown != end {
            match tokio::time::timeout(PATIENCE, w.next()).await.expect("an event") {
                None => break,
                Some(WatchItem::Change(_, event)) => {
                    assert!(event.entry.revision > at, "{:?} behind {at:?}", event.entry.revision);
                    at = event.entry.revision;
                    let before = shown.entry(event.entry.key.to_string()).or_default();
                    let now: u64 = value(&event.entry).parse().unwrap();
                    assert_eq!(now, *before + 1, "{} at {at:?}", event.entry.key);
                    *before = now;
                }
                Some(_) => {}
            }
        }
    }
}

async fn counts(s: &Arc<dyn Storage>) -> HashMap<String, u64> {
    let until = Instant::now() + PATIENCE;
    loop {
        match s.list(everything()).await {
            Ok(list) => {
                let pairs = list
                    .entries
                    .iter()
                    .map(|e| (e.key.to_string(), value(e).parse().unwrap()));
                return pairs.collect();
            }
            Err(e) => assert!(Instant::now() < until, "{e}"),
        }
    }
}

fn hold(end: &HashMap<String, u64>, acknowledged: Vec<HashMap<String, u64>>) {
    for (key, highest) in acknowledged.into_iter().flatten() {
        assert!(end[&key] >= highest, "{key} ends at {} below {highest}", end[&key]);
    }
}

/// Waits until the writers have made progress.
async fn raised(s: &Arc<dyn Storage>) {
    let sum = async || counts(s).await.values().sum::<u64>();
    let (before, until) = (sum().await, Instant::now() + PATIENCE);
    while sum().await < before + 5 {
        assert!(Instant::now() < until, "nobody writes");
        tokio::task::yield_now().await;
    }
}

#[test]
fn counters_on_etcd_survive_member_restarts() {
    if !is_there() {
        return;
    }
    block_on(async {
        let mut etcd = Etcd::start(3);
        let gateways = [cluster(&etcd).await, cluster(&etcd).await];
        let stores: Vec<_> = gateways.iter().map(|g| g.resource(config("configmaps"))).collect();
        let start = loop {
            if stores[0].list(everything()).await.is_ok() {
                break stores[0].revision();
            }
        };
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..WRITERS)
            .map(|i| tokio::spawn(raise(stores[i % 2].clone(), i, stop.clone())))
            .collect();
        for member in [1, 0, 2] {
            raised(&stores[0]).await;
            etcd.kill(member);
            raised(&stores[0]).await;
            etcd.restart(member);
            raised(&stores[0]).await;
        }
        stop.store(true, Ordering::Release);
        let mut acknowledged = Vec::new();
        for w in writers {
            acknowledged.push(tokio::time::timeout(PATIENCE, w).await.expect("it ends").unwrap());
        }
        let end = counts(&stores[0]).await;
        assert!(end.values().sum::<u64>() > 10, "{end:?}");
        hold(&end, acknowledged);
        for s in stores {
            follow(s, start, end.clone()).await;
        }
    });
}

#[test]
fn counters_on_the_embedded_store_survive_restarts() {
    block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let mut acknowledged = Vec::new();
        for round in 0..4 {
            let engine = Engine::open(dir.path(), options()).unwrap();
            let s = engine.resource(config("configmaps"));
            let stop = Arc::new(AtomicBool::new(false));
            let writers: Vec<_> = (0..WRITERS)
                .map(|i| tokio::spawn(raise(s.clone(), i + round, stop.clone())))
                .collect();
            tokio::time::sleep(Duration::from_millis(150)).await;
            stop.store(true, Ordering::Release);
            for w in writers {
                acknowledged.push(w.await.unwrap());
            }
            let end = counts(&s).await;
            follow(s.clone(), Revision(1), end).await;
            engine.shutdown();
        }
        let engine = Engine::open(dir.path(), options()).unwrap();
        hold(&counts(&engine.resource(config("configmaps"))).await, acknowledged);
    });
}
