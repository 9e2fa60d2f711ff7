//! Random clients, random faults, and then the whole history held against what each of them was told.
//!
//! The seed is printed with a failure; `TORANA_SEED=…` runs it again (threads still interleave as they like).

use crate::support::*;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use torana::storage::embedded::{Engine, Options};
use torana::storage::{Error, MinRevision, Precondition, Revision, Storage, WatchItem, WatchOptions};

const KEYS: u64 = 5;
const CLIENTS: u64 = 6;
const ROUNDS: u64 = 3;
const ROUND: Duration = Duration::from_millis(350);
const PATIENCE: Duration = Duration::from_secs(60);

/// xorshift: enough to be arbitrary, and the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

/// One operation: when it began and ended by a common clock, and what came of it.
#[derive(Clone, Debug)]
enum Did {
    /// Key, the revision it was to replace (0: none), the value (`None`: deleted), and the revision if acknowledged.
    Write(String, u64, Option<String>, Option<u64>),
    /// Key, and the revision read (0: nothing).
    Read(String, u64),
}

#[derive(Clone, Debug)]
struct Op {
    began: u64,
    ended: u64,
    did: Did,
}

/// An event as a watcher sees it: revision, key, value, the revision before.
type Seen = (u64, String, Option<String>, u64);

async fn client(
    s: Arc<dyn Storage>,
    mut random: Random,
    name: String,
    clock: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
) -> Vec<Op> {
    let tick = || clock.fetch_add(1, Ordering::SeqCst);
    let mut ops = Vec::new();
    let mut known: HashMap<String, u64> = HashMap::new();
    for i in 0u64.. {
        if stop.load(Ordering::Acquire) {
            break;
        }
        let key = format!("ns{}/{}", i % 2, random.below(KEYS));
        let before = known.get(&key).copied().unwrap_or(0);
        let began = tick();
        let did = match random.below(10) {
            0..4 => match s.get(&key, MinRevision::Latest).await {
                Ok(found) => {
                    let at = found.map_or(0, |e| e.revision.0);
                    known.insert(key.clone(), at);
                    Did::Read(key, at)
                }
                Err(_) => continue,
            },
            4 if before > 0 => {
                let done = s.delete(&key, Revision(before)).await;
                if let Err(Error::Conflict(there)) = &done {
                    known.insert(key, there.as_ref().map_or(0, |e| e.revision.0));
                    continue;
                }
                known.insert(key.clone(), 0);
                Did::Write(key, before, None, done.ok().map(|e| e.revision.0))
            }
            _ => {
                let when = match before {
                    0 => Precondition::Absent,
                    r => Precondition::Unchanged(Revision(r)),
                };
                let text = format!("{name}-{i}");
                let done = s.put(&key, when, draft(&text), None).await;
                if let Err(Error::Conflict(there)) = &done {
                    known.insert(key, there.as_ref().map_or(0, |e| e.revision.0));
                    continue;
                }
                let at = done.ok().map(|e| e.revision.0);
                known.insert(key.clone(), at.unwrap_or(before));
                Did::Write(key, before, Some(text), at)
            }
        };
        let ended = tick();
        ops.push(Op { began, ended, did });
        if random.below(8) == 0 {
            tokio::task::yield_now().await;
        }
    }
    ops
}

/// Watches everything behind `from` up to `last`; a slow one dawdles, is ended for it, and goes on where it was.
async fn follow(s: Arc<dyn Storage>, from: u64, last: Arc<AtomicU64>, mut random: Random, slow: bool) -> Vec<Seen> {
    let (mut seen, mut at, mut said) = (Vec::new(), from, from);
    let until = Instant::now() + PATIENCE;
    while at < last.load(Ordering::Acquire) {
        assert!(Instant::now() < until, "it stands at {at} of {last:?}");
        let options = WatchOptions {
            since: Some(Revision(at)),
            bookmarks: true,
            ..from_now()
        };
        let mut w = match s.watch(options).await {
            Ok(w) => w,
            Err(Error::Compacted(r)) => panic!("history before {r:?} is gone"),
            Err(Error::NotReady(_)) => return seen,
            Err(e) => panic!("{e}"),
        };
        while at < last.load(Ordering::Acquire) {
            if slow && random.below(40) == 0 {
                tokio::time::sleep(Duration::from_millis(random.below(60))).await;
            }
            match tokio::time::timeout(Duration::from_millis(200), w.next()).await {
                Err(_) => {}
                Ok(None) => break,
                Ok(Some(WatchItem::Change(_, event))) => {
                    let revision = event.entry.revision.0;
                    assert!(
                        revision > at && revision > said,
                        "{revision} behind {at} and bookmark {said}"
                    );
                    at = revision;
                    let value = (!event.deleted).then(|| value(&event.entry));
                    let before = event.previous.as_ref().map_or(0, |e| e.revision.0);
                    seen.push((revision, event.entry.key.to_string(), value, before));
                }
                Ok(Some(WatchItem::Bookmark { revision, .. })) => said = said.max(revision.0),
                Ok(Some(WatchItem::Initial(_))) => panic!("it was not asked for"),
            }
            // Now and then a watcher goes and comes back.
            if random.below(500) == 0 {
                break;
            }
        }
    }
    seen
}

/// Holds what clients were told against what happened.
fn judge(ops: &[Op], history: &[Seen]) {
    let mut present: BTreeMap<&str, u64> = BTreeMap::new();
    for (i, (revision, key, value, before)) in history.iter().enumerate() {
        assert_eq!(*revision, i as u64 + 2, "revisions grow by one");
        let was = present
            .insert(key, if value.is_some() { *revision } else { 0 })
            .unwrap_or(0);
        assert_eq!(was, *before, "{key} at {revision} replaced what was there");
    }
    let by_revision: HashMap<u64, &Seen> = history.iter().map(|e| (e.0, e)).collect();
    let by_cause: HashMap<(&str, u64, Option<&str>), &Seen> = history
        .iter()
        .map(|e| ((e.1.as_str(), e.3, e.2.as_deref()), e))
        .collect();
    // Who made each change, and when.
    let mut made: HashMap<u64, &Op> = HashMap::new();
    for op in ops {
        let Did::Write(key, before, text, at) = &op.did else {
            continue;
        };
        let found = by_cause.get(&(key.as_str(), *before, text.as_deref()));
        match (at, found) {
            (Some(at), Some(event)) => assert_eq!(*at, event.0, "{op:?}"),
            (Some(_), None) => panic!("an acknowledged write is nowhere: {op:?}"),
            (None, None) => continue,
            (None, Some(_)) => {}
        }
        let other = found.and_then(|e| made.insert(e.0, op));
        assert!(other.is_none(), "made twice: {op:?}, {other:?}");
    }
    assert_eq!(made.len(), history.len(), "nothing happened that nobody asked for");
    let mut of_key: HashMap<&str, Vec<u64>> = HashMap::new();
    for (revision, key, ..) in history {
        of_key.entry(key).or_default().push(*revision);
    }
    for op in ops {
        let Did::Read(key, at) = &op.did else { continue };
        let changes = of_key.get(key.as_str()).map_or(&[][..], |c| c);
        // The changes that had certainly happened, and those that may have.
        let certain = changes
            .iter()
            .rfind(|r| made[*r].ended < op.began && matches!(made[*r].did, Did::Write(.., Some(_))));
        let floor = certain.copied().unwrap_or(0);
        if *at > 0 {
            assert!(by_revision[at].2.is_some() && by_revision[at].1 == *key, "{op:?}");
            assert!(*at >= floor, "{op:?} is older than {floor}");
            assert!(made[at].began < op.ended, "{op:?} is of the future");
        } else {
            let absent = |r: u64| r == 0 || by_revision[&r].2.is_none();
            let possible = changes.iter().filter(|r| **r >= floor && made[*r].began < op.ended);
            let possible = std::iter::once(floor).chain(possible.copied());
            assert!(
                possible.into_iter().any(absent),
                "{op:?}: it was never absent since {floor}"
            );
        }
    }
}

#[test]
fn what_clients_are_told_is_one_history_whatever_happens() {
    let given = std::env::var("TORANA_SEED").ok().and_then(|s| s.parse().ok());
    let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    let seed: u64 = given.unwrap_or(u64::from(now.subsec_nanos()) | 1);
    println!("TORANA_SEED={seed}");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        let options = Options {
            max_replay: 1_000_000,
            ..options()
        };
        Engine::open(dir.path(), options).unwrap()
    };
    let clock = Arc::new(AtomicU64::new(1));
    let (mut ops, mut watched) = (Vec::new(), Vec::new());
    let random = |n: u64| Random(seed.wrapping_mul(2 * n + 0x9e37_79b9).wrapping_add(n) | 1);
    for round in 0..ROUNDS {
        let engine = open();
        let s = engine.resource(config("configmaps"));
        let (stop, last) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(u64::MAX)));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|c| {
                let random = random(round * 100 + c);
                runtime.spawn(client(
                    s.clone(),
                    random,
                    format!("{round}.{c}"),
                    clock.clone(),
                    stop.clone(),
                ))
            })
            .collect();
        let watchers: Vec<_> = (0..4u64)
            .map(|w| {
                let mut random = random(round * 100 + 50 + w);
                // From before the restart, or from here.
                let from = if w % 2 == 0 {
                    1 + random.below(s.revision().0)
                } else {
                    s.revision().0
                };
                (
                    from,
                    runtime.spawn(follow(s.clone(), from, last.clone(), random, w >= 2)),
                )
            })
            .collect();
        runtime.block_on(async { tokio::time::sleep(ROUND).await });
        // The store goes away under the clients' hands, but in the last round.
        if round + 1 < ROUNDS {
            engine.shutdown();
        }
        stop.store(true, Ordering::Release);
        for c in clients {
            ops.extend(runtime.block_on(c).unwrap());
        }
        last.store(s.revision().0, Ordering::Release);
        for (from, w) in watchers {
            watched.push((from, runtime.block_on(w).unwrap(), round + 1 == ROUNDS));
        }
        engine.shutdown();
    }
    let engine = open();
    let s = engine.resource(config("configmaps"));
    let end = Arc::new(AtomicU64::new(s.revision().0));
    let history = runtime.block_on(follow(s, 1, end, random(7), false));
    assert!(history.len() > 20, "{} changes", history.len());
    judge(&ops, &history);
    for (from, seen, is_whole) in watched {
        let behind = &history[history.partition_point(|e| e.0 <= from)..];
        let expected = if is_whole { behind } else { &behind[..seen.len()] };
        assert!(
            seen == expected,
            "a watcher from {from} has missed or invented something"
        );
    }
}
