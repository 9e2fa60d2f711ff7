//! Behaviour specific to the engine: restarts, history, space, release.

use super::*;
use crate::storage::backend::SelectableFields;
use crate::storage::transform::Opened;
use crate::storage::{
    Draft, EventType, ListOptions, MinRevision, Precondition, Predicate, VersionMatch, WatchItem, WatchOptions,
};

fn config(name: &str) -> ResourceConfig {
    ResourceConfig {
        prefix: format!("/registry/{name}/"),
        fields: None,
        compressed: false,
    }
}

fn draft(value: &str) -> Draft {
    let object = crate::json!({"kind": "Secret", "metadata": {"labels": {"v": value}}, "type": value});
    Draft::new(&object, vec![("type".into(), value.into())])
}

async fn put(s: &Arc<dyn Storage>, key: &str, value: &str) -> Arc<Entry> {
    let when = s.get(key, MinRevision::Latest).await.expect("readable");
    let when = when.map_or(Precondition::Absent, |e| Precondition::Unchanged(e.revision));
    s.put(key, when, draft(value), None).await.expect("written")
}

fn list(version: VersionMatch) -> ListOptions {
    let prefix = String::new();
    ListOptions {
        prefix,
        single: false,
        version,
        predicate: Predicate(None),
        limit: 0,
        token: None,
    }
}

fn since(revision: u64) -> WatchOptions {
    let (prefix, predicate, since) = (String::new(), Predicate(None), Some(Revision(revision)));
    WatchOptions {
        prefix,
        single: false,
        predicate,
        since,
        initial: None,
        bookmarks: false,
        until: None,
    }
}

async fn replay(s: &Arc<dyn Storage>, from: u64) -> Result<Vec<(EventType, u64)>, Error> {
    let mut w = s.watch(since(from)).await?;
    let mut out = Vec::new();
    while let Some(WatchItem::Change(kind, e)) = w.try_next() {
        out.push((kind, e.entry.revision.0));
    }
    Ok(out)
}

#[tokio::test]
async fn restart_keeps_objects_revisions_and_history() {
    let dir = tempfile::tempdir().expect("a directory");
    let (before, past) = {
        let engine = Engine::open(dir.path(), Options::default()).expect("opens");
        let s = engine.resource(config("secrets"));
        let a = put(&s, "ns/a", "1").await;
        put(&s, "ns/b", "1").await;
        put(&s, "ns/a", "2").await;
        let past = s
            .list(list(VersionMatch::Exact(Revision(3))))
            .await
            .expect("listed")
            .entries;
        let b = s.get("ns/b", MinRevision::Any).await.expect("read").expect("there");
        s.delete("ns/b", b.revision).await.expect("deleted");
        assert_eq!(a.revision, past[0].revision);
        (replay(&s, 1).await.expect("replayed"), past)
    };
    let engine = Engine::open(dir.path(), Options::default()).expect("opens again");
    let fields: SelectableFields = Arc::new(|v| vec![("type".into(), v.str_at(&["type"]).into())]);
    let s = engine.resource(ResourceConfig {
        fields: Some(fields),
        ..config("secrets")
    });
    assert_eq!((s.revision(), s.count()), (Revision(5), 1));
    let a = s.get("ns/a", MinRevision::Latest).await.expect("read").expect("there");
    assert_eq!(
        (a.revision, a.label("v"), a.field("type")),
        (Revision(4), Some("2"), Some("2"))
    );
    assert_eq!(replay(&s, 1).await.expect("replayed"), before);
    let again = s
        .list(list(VersionMatch::Exact(Revision(3))))
        .await
        .expect("listed")
        .entries;
    let bytes = |l: &[Arc<Entry>]| l.iter().map(|e| e.json().into_owned()).collect::<Vec<_>>();
    assert_eq!(bytes(&again), bytes(&past));
    assert_eq!(put(&s, "ns/c", "1").await.revision, Revision(6));
}

#[tokio::test]
async fn compressed_resource_reads_like_any_other() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = || ResourceConfig {
        compressed: true,
        ..config("definitions")
    };
    let object = |v: &str| crate::json!({"metadata": {"labels": {"v": v}}, "spec": "x".repeat(50_000)});
    let draft = |v: &str| Draft::new(&object(v), vec![]);
    {
        let engine = Engine::open(dir.path(), Options::default()).expect("opens");
        let s = engine.resource(config());
        for v in ["1", "2"] {
            let there = s.get("a", MinRevision::Latest).await.expect("readable");
            let when = there.map_or(Precondition::Absent, |e| Precondition::Unchanged(e.revision));
            let written = s.put("a", when, draft(v), None).await.expect("written");
            assert!(written.json.is_compressed());
        }
        let b = s
            .put("b", Precondition::Absent, draft("3"), None)
            .await
            .expect("written");
        s.delete("b", b.revision).await.expect("deleted");
        assert!(s.resident_bytes() < 5000 && s.encoded_bytes() > Some(50_000));
    }
    let engine = Engine::open(dir.path(), Options::default()).expect("opens again");
    let s = engine.resource(config());
    let a = s.get("a", MinRevision::Latest).await.expect("read").expect("there");
    let mut want = object("2");
    want.set(&["metadata", "resourceVersion"], a.revision.0.to_string());
    assert!(a.json.is_compressed());
    assert_eq!(a.decode(), want);
    let kinds: Vec<EventType> = replay(&s, 1)
        .await
        .expect("replayed")
        .into_iter()
        .map(|e| e.0)
        .collect();
    let want = [
        EventType::Added,
        EventType::Modified,
        EventType::Added,
        EventType::Deleted,
    ];
    assert_eq!(kinds, want);
}

#[tokio::test]
async fn compacted_history_replays_its_remainder() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = Options {
        max_history: 50,
        ..Options::default()
    };
    let engine = Engine::open(dir.path(), options.clone()).expect("opens");
    let s = engine.resource(config("secrets"));
    for round in 0..30 {
        let keys: Vec<_> = (0..100).map(|i| format!("ns/{i:02}")).collect();
        let value = round.to_string();
        futures_util::future::join_all(keys.iter().map(|key| put(&s, key, &value))).await;
    }
    engine.shutdown();
    let db = rusqlite::Connection::open(dir.path().join("store.db")).expect("anyone can open it");
    let rows: i64 = db
        .query_row("SELECT count(*) FROM log", [], |r| r.get(0))
        .expect("counted");
    assert!(rows < 2000, "{rows} of 3000 writes are kept");
    drop(db);
    let engine = Engine::open(dir.path(), options).expect("opens again");
    let s = engine.resource(config("secrets"));
    assert_eq!(s.count(), 100);
    assert!(matches!(replay(&s, 10).await, Err(Error::Compacted(_))));
    assert_eq!(replay(&s, 2996).await.expect("replayed").len(), 5);
}

#[tokio::test]
async fn continue_tokens_of_a_quiet_resource_expire() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = Options {
        max_history: 5,
        ..Options::default()
    };
    let engine = Engine::open(dir.path(), options).expect("opens");
    let (quiet, busy) = (engine.resource(config("quiet")), engine.resource(config("busy")));
    for name in ["a", "b", "c"] {
        put(&quiet, &format!("ns/{name}"), "1").await;
    }
    let any = VersionMatch::NotOlderThan(MinRevision::Latest);
    let page = |token| ListOptions {
        limit: 1,
        token,
        ..list(any)
    };
    let first = quiet.list(page(None)).await.expect("listed");
    let again = || quiet.list(page(first.next.clone()));
    assert_eq!(&*again().await.expect("listed").entries[0].key, "ns/b");
    let until = std::time::Instant::now() + Duration::from_secs(60);
    let oldest = loop {
        // Maintenance runs between writes.
        put(&busy, "ns/x", "1").await;
        match again().await {
            Err(Error::Compacted(oldest)) => break oldest,
            _ => assert!(std::time::Instant::now() < until, "the token does not expire"),
        }
    };
    assert!(oldest > first.revision);
    let mut exact = list(VersionMatch::Exact(first.revision));
    assert!(matches!(quiet.list(exact.clone()).await, Err(Error::Compacted(_))));
    exact.version = VersionMatch::NotOlderThan(MinRevision::AtLeast(first.revision));
    assert_eq!(quiet.list(exact).await.expect("listed").entries.len(), 3);
}

#[test]
fn rewriting_keeps_the_file_size_and_deleting_shrinks_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store.db");
    let size = || std::fs::metadata(&path).expect("there").len();
    let mut disk = Disk::open(dir.path(), None).expect("opens");
    let mut revision = 1;
    let mut last = [0; 200];
    let mut write = |disk: &mut Disk, delete: bool| {
        let rows: Vec<_> = (last.iter_mut().enumerate())
            .map(|(i, last)| {
                revision += 1;
                let prev = std::mem::replace(last, revision);
                let value = (!delete).then(|| vec![b'x'; 8000].into());
                disk::Row {
                    revision,
                    key: format!("/registry/a/{i}"),
                    prev,
                    value,
                    expires: None,
                }
            })
            .collect();
        disk.commit(&rows, if delete { 0 } else { 200 }).expect("written");
        let target = revision.saturating_sub(300);
        while disk.compacted() < target {
            disk.compact(target, 1000).expect("compacted");
        }
    };
    for _ in 0..8 {
        write(&mut disk, false);
    }
    disk.close().expect("closed");
    let steady = size();
    let mut disk = Disk::open(dir.path(), None).expect("opens");
    disk.load(0).expect("loads");
    for _ in 0..20 {
        write(&mut disk, false);
    }
    disk.close().expect("closed");
    assert!(size() < steady * 5 / 4, "{} grew to {}", steady, size());
    let mut disk = Disk::open(dir.path(), None).expect("opens");
    assert_eq!(disk.load(0).expect("loads").objects.len(), 200);
    write(&mut disk, true);
    disk.compact(revision, 1000).expect("compacted");
    while disk.reclaim(0, false).expect("reclaimed") {}
    disk.close().expect("closed");
    assert!(size() < steady / 2, "{} shrank only to {}", steady, size());
}

#[tokio::test]
async fn released_resource_can_be_requested_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let engine = Engine::open(dir.path(), Options::default()).expect("opens");
    let s = engine.resource(config("widgets"));
    put(&s, "ns/a", "1").await;
    let mut w = s.watch(since(1)).await.expect("watched");
    assert!(w.next().await.is_some());
    engine.release("/registry/widgets/");
    assert!(w.next().await.is_none());
    assert!(matches!(s.get("ns/a", MinRevision::Any).await, Err(Error::NotReady(_))));
    let refused = s.put("ns/b", Precondition::Absent, draft("1"), None).await;
    assert!(matches!(refused, Err(Error::NotReady(_))));
    let s = engine.resource(config("widgets"));
    let back = s.get("ns/a", MinRevision::Any).await.expect("read").expect("there");
    assert_eq!((back.revision, s.count()), (Revision(2), 1));
    assert!(matches!(replay(&s, 1).await, Err(Error::Compacted(Revision(2)))));
}

/// Marks values, and can no longer do so once it is told to fail.
struct Marking(AtomicBool);

impl Transform for Marking {
    fn open(&self, _: &str, stored: Bytes) -> Result<Opened, TransformError> {
        Ok(Opened {
            bytes: stored.slice(1..),
            stale: false,
        })
    }

    fn seal(&self, _: &str, object: Bytes) -> Result<Bytes, TransformError> {
        match self.0.load(Ordering::Acquire) {
            true => Err(TransformError::Encrypt),
            false => Ok([&b"!"[..], &object].concat().into()),
        }
    }
}

#[tokio::test]
async fn released_objects_are_restored_even_if_encryption_fails() {
    let dir = tempfile::tempdir().expect("a directory");
    let engine = Engine::open(dir.path(), Options::default()).expect("opens");
    let marking = Arc::new(Marking(AtomicBool::new(false)));
    let open = || {
        let transform: Arc<dyn Transform> = marking.clone();
        let hooks = ResourceHooks {
            transform: Some(transform),
            ..ResourceHooks::default()
        };
        engine.resource_with(config("widgets"), hooks)
    };
    let written = put(&open(), "ns/a", "1").await;
    marking.0.store(true, Ordering::Release);
    engine.release("/registry/widgets/");
    let back = open().get("ns/a", MinRevision::Any).await.expect("read");
    let back = back.expect("there");
    assert_eq!((back.revision, back.json()), (written.revision, written.json()));
}

#[tokio::test]
async fn closed_store_refuses_writes_and_ends_watches() {
    let dir = tempfile::tempdir().expect("a directory");
    let engine = Engine::open(dir.path(), Options::default()).expect("opens");
    let s = engine.resource(config("secrets"));
    put(&s, "ns/a", "1").await;
    let mut w = s.watch(since(2)).await.expect("watched");
    engine.shutdown();
    engine.shutdown();
    assert!(w.next().await.is_none());
    assert!(matches!(s.watch(since(2)).await.err(), Some(Error::NotReady(_))));
    assert!(engine.health().is_err());
    let refused = s.put("ns/b", Precondition::Absent, draft("1"), None).await;
    assert!(matches!(refused, Err(Error::NotReady(_))));
    assert!(
        s.get("ns/a", MinRevision::Latest)
            .await
            .expect("reads continue")
            .is_some()
    );
}

#[tokio::test]
async fn stats_report_objects_watches_and_commits() {
    let dir = tempfile::tempdir().expect("a directory");
    let engine = Engine::open(dir.path(), Options::default()).expect("opens");
    let s = engine.resource(config("secrets"));
    put(&s, "ns/a", "1").await;
    let _watch = s.watch(since(2)).await.expect("watched");
    let stats = engine.stats();
    assert_eq!((stats.revision, stats.commits, stats.writes), (2, 1, 1));
    assert_eq!(stats.objects, [("/registry/secrets/".to_owned(), 1)]);
    assert_eq!(stats.watchers, [("/registry/secrets/".to_owned(), 1)]);
    assert!(stats.db_bytes > 0 && stats.commit_buckets.iter().sum::<u64>() == 1);
}

/// Holds the disk up until the other end of the channel is dropped.
#[derive(Debug)]
struct Stuck(Mutex<mpsc::Receiver<()>>);

impl faults::Faults for Stuck {
    fn next_fault(&self, _: faults::Step) -> Option<faults::Fault> {
        // Fails once the sender has gone.
        let _ = self.0.lock().recv();
        None
    }
}

#[tokio::test]
async fn health_does_not_wait_for_a_shutdown_that_waits_for_the_disk() {
    let dir = tempfile::tempdir().expect("a directory");
    let (go, gate) = mpsc::channel();
    let options = Options {
        faults: Some(Arc::new(Stuck(Mutex::new(gate)))),
        ..Options::default()
    };
    let engine = Engine::open(dir.path(), options).expect("opens");
    let store = engine.resource(config("secrets"));
    let written = tokio::spawn(async move { store.put("ns/a", Precondition::Absent, draft("v"), None).await });
    // Runs until the write is queued.
    tokio::task::yield_now().await;
    let stopped = engine.clone();
    let stopped = std::thread::spawn(move || stopped.shutdown());
    let (sender, receiver) = mpsc::channel();
    let asked = engine.clone();
    std::thread::spawn(move || {
        while asked.health().is_ok() {
            std::thread::yield_now();
        }
        let _ = sender.send(asked.health());
    });
    let health = receiver.recv_timeout(Duration::from_secs(60));
    // Before the assertion, whose panic would otherwise wait for the disk.
    drop(go);
    assert_eq!(health, Ok(Err(Unavailable::Closed)));
    written.await.expect("no panic").expect("written before the shutdown");
    stopped.join().expect("it ends well");
}

/// Panics in the place of a fault.
#[derive(Debug)]
struct Panics;

impl faults::Faults for Panics {
    fn next_fault(&self, _: faults::Step) -> Option<faults::Fault> {
        panic!("injected")
    }
}

#[tokio::test]
async fn writers_do_not_wait_for_a_committer_that_has_panicked() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = Options {
        faults: Some(Arc::new(Panics)),
        ..Options::default()
    };
    let engine = Engine::open(dir.path(), options).expect("opens");
    let store = engine.resource(config("secrets"));
    let write = |key| store.put(key, Precondition::Absent, draft("v"), None);
    assert!(matches!(write("ns/a").await, Err(Error::Failed(_))));
    while engine.health().is_ok() {
        tokio::task::yield_now().await;
    }
    engine.shared.permits.forget_permits(QUEUE_PERMITS);
    let refused = tokio::time::timeout(Duration::from_secs(60), write("ns/b")).await;
    assert!(matches!(refused, Ok(Err(Error::NotReady(_)))), "the queue is full");
}
