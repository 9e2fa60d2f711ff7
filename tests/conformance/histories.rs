//! Counters that are incremented only by conditional updates, under injected faults. The history of each
//! counter must be 1, 2, 3, …: a lost update, a gap, a repetition or a reordering would break it. No read
//! returns less than any value acknowledged before the read began.

use crate::etcd_process::forwarder::Forwarder;
use crate::etcd_process::{Etcd, is_there};
use crate::support::*;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use torana::testing::storage::embedded::Engine;
use torana::testing::storage::etcd::{self, Access, Cluster};
use torana::testing::storage::{
    Backend as _, Error, MinRevision, Precondition, Revision, Storage, WatchItem, WatchOptions,
};

const COUNTERS: usize = 3;
const WRITERS: usize = 6;
const PATIENCE: Duration = Duration::from_secs(90);

/// State shared by all writers.
struct Board {
    /// Per counter, the highest value acknowledged to any writer.
    floors: [AtomicU64; COUNTERS],
    /// The number of acknowledged writes, and of failed calls.
    acknowledged: watch::Sender<u64>,
    refused: watch::Sender<u64>,
    stop: AtomicBool,
}

fn key(counter: usize) -> String {
    format!("ns/{counter}")
}

impl Board {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            floors: [const { AtomicU64::new(0) }; COUNTERS],
            acknowledged: watch::Sender::new(0),
            refused: watch::Sender::new(0),
            stop: AtomicBool::new(false),
        })
    }

    fn refuse(&self) {
        self.refused.send_modify(|n| *n += 1);
    }

    /// Waits until the count has grown by `n`.
    async fn more(counted: &watch::Sender<u64>, n: u64) {
        let mut counted = counted.subscribe();
        let until = *counted.borrow() + n;
        let there = counted.wait_for(|now| *now >= until);
        let there = tokio::time::timeout(PATIENCE, there).await;
        there.expect("the writers go on").expect("the board is there");
    }

    /// Stops the writers, waits for them, and returns the final value of each counter.
    async fn end(&self, writers: Vec<JoinHandle<()>>, s: &Arc<dyn Storage>) -> HashMap<String, u64> {
        self.stop.store(true, Ordering::Release);
        for w in writers {
            tokio::time::timeout(PATIENCE, w).await.expect("it ends").unwrap();
        }
        let until = Instant::now() + PATIENCE;
        let list = loop {
            match s.list(everything()).await {
                Ok(list) => break list,
                Err(e) => assert!(Instant::now() < until, "{e}"),
            }
        };
        let pairs = list.entries.iter();
        let end: HashMap<String, u64> = pairs.map(|e| (e.key.to_string(), value(e).parse().unwrap())).collect();
        for (i, floor) in self.floors.iter().enumerate() {
            let floor = floor.load(Ordering::Acquire);
            let ends = end.get(&key(i)).copied().unwrap_or(0);
            assert!(ends >= floor, "counter {i} ends at {ends} below {floor}");
        }
        end
    }
}

/// Increments counters until stopped.
async fn raise(s: Arc<dyn Storage>, seed: usize, board: Arc<Board>) {
    for i in seed as u64.. {
        if board.stop.load(Ordering::Acquire) {
            break;
        }
        let counter = (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % COUNTERS as u64) as usize;
        let key = key(counter);
        let floor = board.floors[counter].load(Ordering::Acquire);
        // Alternate between gets and lists, which take different paths (quorum read and cache).
        let now = match i % 2 {
            0 => s.get(&key, MinRevision::Latest).await,
            _ => s
                .list(everything())
                .await
                .map(|l| l.entries.into_iter().find(|e| *e.key == *key)),
        };
        let Ok(now) = now else {
            board.refuse();
            tokio::task::yield_now().await;
            continue;
        };
        let (when, count) = match &now {
            None => (Precondition::Absent, 0),
            Some(e) => (Precondition::Unchanged(e.revision), value(e).parse::<u64>().unwrap()),
        };
        assert!(count >= floor, "{key} is {count} after {floor} was acknowledged");
        match s.put(&key, when, draft(&(count + 1).to_string()), None).await {
            Ok(_) => {
                board.floors[counter].fetch_max(count + 1, Ordering::AcqRel);
                board.acknowledged.send_modify(|n| *n += 1);
            }
            Err(Error::Conflict(_)) => {}
            Err(_) => board.refuse(),
        }
        tokio::task::yield_now().await;
    }
}

/// Watches from the beginning until every counter has reached its final value, once that is known. Resumes
/// when the watch ends. `stall`: after every so many changes, stop reading until the writers have made a few
/// hundred more.
async fn follow(
    s: Arc<dyn Storage>,
    from: Revision,
    mut end: watch::Receiver<Option<HashMap<String, u64>>>,
    stall: Option<(usize, Arc<Board>)>,
) {
    let mut shown: HashMap<String, u64> = HashMap::new();
    let (mut at, mut seen) = (from, 0);
    loop {
        let options = WatchOptions {
            since: Some(at),
            ..from_now()
        };
        let mut w = match s.watch(options).await {
            Ok(w) => w,
            Err(Error::Compacted(r)) => panic!("history before {r:?} is gone"),
            Err(_) => {
                tokio::task::yield_now().await;
                continue;
            }
        };
        loop {
            if end.borrow().as_ref().is_some_and(|end| *end == shown) {
                return;
            }
            let item = tokio::select! {
                item = w.next() => item,
                changed = end.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return,
                },
            };
            match item {
                None => break,
                Some(WatchItem::Change(_, event)) => {
                    assert!(event.entry.revision > at, "{:?} behind {at:?}", event.entry.revision);
                    at = event.entry.revision;
                    let before = shown.entry(event.entry.key.to_string()).or_default();
                    let now: u64 = value(&event.entry).parse().unwrap();
                    assert_eq!(now, *before + 1, "{} at {at:?}", event.entry.key);
                    *before = now;
                    seen += 1;
                }
                Some(_) => {}
            }
            if let Some((every, board)) = &stall
                && seen % every == 0
                && !board.stop.load(Ordering::Acquire)
            {
                seen += 1;
                let mut moved = board.acknowledged.subscribe();
                let until = *moved.borrow() + 300;
                let stopped = || board.stop.load(Ordering::Acquire);
                // The writers may be stopped before they have made that many.
                while *moved.borrow_and_update() < until && !stopped() {
                    let _ = tokio::time::timeout(Duration::from_millis(200), moved.changed()).await;
                }
            }
        }
    }
}

/// A fast and a slow reader for each store.
fn followers(
    stores: &[Arc<dyn Storage>],
    from: Revision,
    end: &watch::Sender<Option<HashMap<String, u64>>>,
    board: &Arc<Board>,
) -> Vec<JoinHandle<()>> {
    let of = |s: &Arc<dyn Storage>| {
        let slow = Some((40, board.clone()));
        [
            tokio::spawn(follow(s.clone(), from, end.subscribe(), None)),
            tokio::spawn(follow(s.clone(), from, end.subscribe(), slow)),
        ]
    };
    stores.iter().flat_map(of).collect()
}

async fn all_have_ended(followers: Vec<JoinHandle<()>>) {
    for f in followers {
        let ended = tokio::time::timeout(PATIENCE, f).await;
        ended.expect("every watch shows all there was").unwrap();
    }
}

/// A fault injected into the cluster or its network.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// A member is killed and restarted.
    Kill,
    /// The leader is suspended for a while.
    Hang,
    /// The leader is partitioned from its followers.
    Isolate,
    /// A gateway is partitioned from a member.
    Cut,
    /// One of two gateways is partitioned from all members.
    CutAll,
}

const FAULTS: [Fault; 5] = [Fault::Kill, Fault::Hang, Fault::Isolate, Fault::Cut, Fault::CutAll];

#[test]
fn counters_on_etcd_survive_member_and_network_faults() {
    if !is_there() {
        return;
    }
    let mut seed = RandomState::new().hash_one(0);
    println!("seed {seed}");
    let mut choose = |n: usize| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % n
    };
    block_on(async {
        let mut etcd = Etcd::start_apart(3);
        let links: Vec<Vec<Forwarder>> = (0..2)
            .map(|_| (0..3).map(|i| Forwarder::before(etcd.port(i))).collect())
            .collect();
        let mut gateways = Vec::new();
        for links in &links {
            let access = Access {
                servers: links.iter().map(Forwarder::url).collect(),
                ..Access::default()
            };
            gateways.push(Cluster::connect(&access, etcd::Options::default()).await.unwrap());
        }
        let stores: Vec<_> = gateways.iter().map(|g| g.resource(config("configmaps"))).collect();
        let start = crate::shared::insist(&stores[0], "other/first", "0").await;
        let board = Board::new();
        let (end, _) = watch::channel(None);
        let followers = followers(&stores, start, &end, &board);
        let writers: Vec<_> = (0..WRITERS)
            .map(|i| tokio::spawn(raise(stores[i % 2].clone(), i, board.clone())))
            .collect();
        let mut faults = FAULTS.to_vec();
        for left in (1..=faults.len()).rev() {
            let fault = faults.remove(choose(left));
            println!("{fault:?}");
            Board::more(&board.acknowledged, 40).await;
            match fault {
                Fault::Kill => {
                    let member = choose(3);
                    etcd.kill(member);
                    Board::more(&board.acknowledged, 40).await;
                    etcd.restart(member);
                }
                Fault::Hang => {
                    let leader = etcd.leader();
                    etcd.signal(leader, "STOP");
                    Board::more(&board.acknowledged, 40).await;
                    etcd.signal(leader, "CONT");
                }
                Fault::Isolate => {
                    etcd.isolate(etcd.leader());
                    Board::more(&board.acknowledged, 40).await;
                    etcd.heal();
                }
                Fault::Cut => {
                    let link = &links[choose(2)][choose(3)];
                    link.cut();
                    Board::more(&board.acknowledged, 40).await;
                    link.heal();
                }
                Fault::CutAll => {
                    let links = &links[choose(2)];
                    links.iter().for_each(Forwarder::cut);
                    Board::more(&board.refused, 1).await;
                    Board::more(&board.acknowledged, 40).await;
                    links.iter().for_each(Forwarder::heal);
                }
            }
        }
        Board::more(&board.acknowledged, 40).await;
        let mut last = board.end(writers, &stores[0]).await;
        last.remove("other/first");
        end.send_replace(Some(last));
        all_have_ended(followers).await;
    });
}

#[test]
fn counters_on_the_embedded_store_survive_restarts() {
    block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let board = Board::new();
        for round in 0..4 {
            let engine = Engine::open(dir.path(), options()).unwrap();
            let s = engine.resource(config("configmaps"));
            board.stop.store(false, Ordering::Release);
            let (end, _) = watch::channel(None);
            // One set of followers spans all restarts, from the very first write on.
            let followers = followers(std::slice::from_ref(&s), Revision(1), &end, &board);
            let writers: Vec<_> = (0..WRITERS)
                .map(|i| tokio::spawn(raise(s.clone(), i + round, board.clone())))
                .collect();
            Board::more(&board.acknowledged, 400).await;
            end.send_replace(Some(board.end(writers, &s).await));
            all_have_ended(followers).await;
            engine.shutdown();
        }
        let engine = Engine::open(dir.path(), options()).unwrap();
        board.end(Vec::new(), &engine.resource(config("configmaps"))).await;
    });
}
