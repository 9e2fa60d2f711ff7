//! Corruption at every offset of the files, failing disks, and the bound on file size.

use super::faults::{Fault, Faults, Step};
use super::format::{SCHEMA, checksum};
use super::*;
use crate::storage::{Draft, MinRevision, Precondition};
use std::sync::atomic::AtomicU64;

fn config() -> ResourceConfig {
    ResourceConfig {
        prefix: "/registry/secrets/".into(),
        fields: None,
        compressed: false,
    }
}

fn draft(value: &str) -> Draft {
    Draft::new(&crate::json!({"kind": "Secret", "metadata": {}, "v": value}), vec![])
}

async fn put(s: &Arc<dyn Storage>, key: &str, value: &str) -> Result<Arc<Entry>, Error> {
    let when = s.get(key, MinRevision::Latest).await?;
    let when = when.map_or(Precondition::Absent, |e| Precondition::Unchanged(e.revision));
    s.put(key, when, draft(value), None).await
}

/// In memory if possible: these tests open stores thousands of times.
fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() {
        tempfile::tempdir_in(memory)
    } else {
        tempfile::tempdir()
    };
    made.expect("a directory")
}

fn row(revision: u64, i: u64, prev: u64, size: usize) -> disk::Row {
    disk::Row {
        revision,
        key: format!("/registry/a/{i}"),
        prev,
        value: Some(vec![b'x'; size].into()),
        expires: (i == 1).then_some(4_000_000_000_000),
    }
}

type Everything = (u64, Vec<(String, u64, Bytes, Option<i64>)>, Vec<(String, u64, u64)>);

/// Everything that loading a store returns, sorted.
fn read_all(dir: &Path) -> Result<Everything, OpenError> {
    let mut disk = Disk::open(dir, None)?;
    let found = disk.load(1000)?;
    let mut objects: Vec<_> = (found.objects.into_iter())
        .map(|(key, o)| (key, o.revision, o.value, o.expires))
        .collect();
    objects.sort();
    let event = |(key, e): (String, disk::RawEvent)| (key, e.revision, e.previous.map_or(0, |p| p.0));
    Ok((found.revision, objects, found.events.into_iter().map(event).collect()))
}

/// One offset per `stride`, or every offset if TORANA_EVERY_OFFSET is set.
fn offsets(len: usize, stride: usize) -> impl Iterator<Item = usize> {
    let stride = match std::env::var_os("TORANA_EVERY_OFFSET") {
        Some(_) => 1,
        None => stride,
    };
    (0..len).step_by(stride)
}

fn is_clear(refused: &OpenError, dir: &Path) -> bool {
    let text = refused.to_string();
    match refused {
        OpenError::Damaged { .. } => text.contains("torana store check") && text.contains(&dir.display().to_string()),
        OpenError::Version { .. } | OpenError::Sqlite { .. } => text.contains("store.db"),
        _ => false,
    }
}

#[test]
fn corrupt_or_truncated_file_is_never_served() {
    let dir = scratch();
    let mut disk = Disk::open(dir.path(), None).expect("opens");
    for i in 1..9 {
        disk.commit(&[row(i + 1, i, 0, 300)], i).expect("written");
    }
    disk.commit(&[row(10, 3, 4, 700)], 8).expect("written");
    disk.close().expect("closed");
    let path = dir.path().join("store.db");
    let intact = read_all(dir.path()).expect("it is intact");
    let bytes = std::fs::read(&path).expect("read");
    let (mut refused, mut harmless) = (0, 0);
    let mut expect_detected = |what: String| match read_all(dir.path()) {
        Err(e) => {
            assert!(is_clear(&e, dir.path()), "{what}: {e}");
            refused += 1;
        }
        Ok(found) => {
            assert!(found == intact, "{what} was not detected");
            harmless += 1;
        }
    };
    for at in offsets(bytes.len(), 41) {
        for flip in [0xff, 1 << (at % 8)] {
            let mut bad = bytes.clone();
            bad[at] ^= flip;
            std::fs::write(&path, &bad).expect("written");
            expect_detected(format!("byte {at} ^ {flip:#x}"));
        }
    }
    for at in (0..2).chain(offsets(bytes.len(), 97)) {
        std::fs::write(&path, &bytes[..at]).expect("written");
        expect_detected(format!("truncated at byte {at}"));
    }
    assert!(refused > harmless / 8, "{refused} refused, {harmless} harmless");
}

#[test]
fn write_ahead_log_loses_at_most_a_torn_transaction() {
    let (dir, copy) = (scratch(), scratch());
    let files = ["store.db", "store.db-wal", "store.db-shm"];
    let mut disk = Disk::open(dir.path(), None).expect("opens");
    for i in 1..7 {
        disk.commit(&[row(i + 1, i, 0, 300)], i).expect("written");
    }
    // The files as a killed process leaves them.
    let bytes = files.map(|f| std::fs::read(dir.path().join(f)).expect("there"));
    let lay = |wal: &[u8], index: bool| {
        for (name, bytes) in files.iter().zip([&bytes[0][..], wal, &bytes[2]]) {
            let path = copy.path().join(name);
            if *name == "store.db-shm" && !index {
                // It may not exist.
                let _ = std::fs::remove_file(path);
            } else {
                std::fs::write(path, bytes).expect("written");
            }
        }
        read_all(copy.path())
    };
    let intact = lay(&bytes[1], true).expect("a killed process loses nothing");
    assert_eq!(intact.0, 7);
    assert!(lay(&bytes[1], false).expect("nor does one whose index is missing") == intact);
    for at in offsets(bytes[1].len(), 211) {
        let mut bad = bytes[1].clone();
        bad[at] ^= 0xff;
        match lay(&bad, true) {
            Err(e) => assert!(is_clear(&e, copy.path()), "{e}"),
            Ok(found) => assert!(found == intact, "byte {at} was not detected"),
        }
        match lay(&bad, false) {
            Err(e) => assert!(is_clear(&e, copy.path()), "{e}"),
            Ok(found) => assert!(found.0 >= intact.0 - 1, "byte {at}: {} of {}", found.0, intact.0),
        }
    }
    for at in offsets(bytes[1].len(), 103) {
        let refused = lay(&bytes[1][..at], true).expect_err("the index records more frames");
        assert!(is_clear(&refused, copy.path()), "{refused}");
    }
}

/// Injects one fault into the given steps, `left` times.
#[derive(Debug)]
struct Failing {
    steps: &'static [Step],
    fault: Fault,
    left: AtomicU64,
}

impl Faults for Failing {
    fn next_fault(&self, step: Step) -> Option<Fault> {
        let take = |n: u64| n.checked_sub(1);
        let strikes = self.steps.contains(&step)
            && self
                .left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
                .is_ok();
        strikes.then_some(self.fault)
    }
}

fn failing(steps: &'static [Step], fault: Fault) -> (Arc<Failing>, Options) {
    let left = AtomicU64::new(0);
    let faults = Arc::new(Failing { steps, fault, left });
    let options = Options {
        faults: Some(faults.clone()),
        ..Options::default()
    };
    (faults, options)
}

#[tokio::test]
async fn full_disk_refuses_writes_until_space_is_freed() {
    let dir = tempfile::tempdir().expect("a directory");
    let (faults, options) = failing(&[Step::Write, Step::Upkeep], Fault::Full);
    let engine = Engine::open(dir.path(), options).expect("opens");
    let s = engine.resource(config());
    put(&s, "ns/a", "1").await.expect("written");
    faults.left.store(2, Ordering::Relaxed);
    let refused = put(&s, "ns/b", "1").await.expect_err("there is no space");
    assert!(refused.to_string().contains("disk is full"), "{refused}");
    assert!(engine.health().is_ok(), "a restart would not help");
    assert_eq!(engine.readiness(), Err(Unavailable::DiskFull));
    let again = put(&s, "ns/b", "1").await.expect_err("still");
    assert!(again.to_string().contains("disk is full"), "{again}");
    assert!(s.get("ns/a", MinRevision::Latest).await.expect("readable").is_some());
    let until = tokio::time::Instant::now() + Duration::from_secs(30);
    while engine.readiness().is_err() {
        assert!(tokio::time::Instant::now() < until, "the store never recovered");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(faults.left.load(Ordering::Relaxed), 0);
    let b = put(&s, "ns/b", "1").await.expect("there is space again");
    assert_eq!(b.revision, Revision(3), "the refused write used no revision");
}

#[tokio::test]
async fn no_write_is_accepted_after_a_failed_write_or_fsync() {
    for (step, fault, made) in [
        (&[Step::Write] as &'static [Step], Fault::Write, false),
        (&[Step::Sync], Fault::Sync, true),
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        let (faults, options) = failing(step, fault);
        let engine = Engine::open(dir.path(), options).expect("opens");
        let s = engine.resource(config());
        put(&s, "ns/a", "1").await.expect("written");
        faults.left.store(1, Ordering::Relaxed);
        assert!(put(&s, "ns/b", "1").await.is_err());
        let refused = put(&s, "ns/c", "1")
            .await
            .expect_err("refused although the disk would accept it");
        assert!(refused.to_string().contains("can no longer be written"), "{refused}");
        assert!(engine.readiness().is_err() && engine.health().is_err());
        assert!(s.get("ns/a", MinRevision::Latest).await.expect("readable").is_some());
        drop(s);
        engine.shutdown();
        let engine = Engine::open(dir.path(), Options::default()).expect("opens again");
        let s = engine.resource(config());
        let b = s.get("ns/b", MinRevision::Latest).await.expect("readable");
        assert_eq!(b.is_some(), made, "a failed fsync may have written");
        assert_eq!(
            put(&s, "ns/c", "1").await.expect("written").revision.0,
            if made { 4 } else { 3 }
        );
    }
}

#[test]
fn file_size_stays_below_twice_its_objects() {
    const OBJECTS: u64 = 3000;
    const SIZE: usize = 3500;
    let dir = scratch();
    let options = Options {
        max_history: u64::MAX,
        ..Options::default()
    };
    let engine = Engine::open(dir.path(), options).expect("opens");
    let s = engine.resource(config());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let payload = "x".repeat(SIZE);
    let mut random = 7u64;
    runtime.block_on(async {
        for round in 0..14 {
            let keys = (0..OBJECTS).map(|i| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let i = if round == 0 { i } else { (random >> 33) % OBJECTS };
                format!("ns/{i}")
            });
            let keys: std::collections::BTreeSet<String> = keys.collect();
            futures_util::future::join_all(keys.iter().map(|key| put(&s, key, &payload))).await;
        }
    });
    let bytes = engine.stats().db_bytes;
    let written = engine.revision().0 * SIZE as u64;
    let live = OBJECTS * space::packed(30, SIZE + 60);
    let wal = 12 << 20;
    assert!(written > 3 * live, "{written} bytes written for {live} live bytes");
    assert!(bytes < 2 * live + space::ALLOWANCE + wal, "{bytes} for {live}");
    engine.shutdown();
    let found = tool::check(dir.path(), &mut |_, _| {}).expect("intact");
    assert!(found.writes >= space::MIN_HISTORY, "{} writes are kept", found.writes);
}

#[tokio::test]
async fn consistency_check_counts_differences() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = Options {
        compare_every: Duration::ZERO,
        ..Options::default()
    };
    let engine = Engine::open(dir.path(), options).expect("opens");
    let s = engine.resource(config());
    put(&s, "ns/a", "1").await.expect("written");
    let count = |i: usize| engine.stats().comparisons[0].1[i];
    let wait = async |i: usize| {
        let until = tokio::time::Instant::now() + Duration::from_secs(30);
        while count(i) == 0 {
            assert!(tokio::time::Instant::now() < until, "no comparison happened");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    wait(0).await;
    assert_eq!(count(1), 0);
    let other = rusqlite::Connection::open(dir.path().join("store.db")).expect("anyone can open it");
    other.execute("UPDATE live SET revision = 9", []).expect("updated");
    wait(1).await;
    assert!(s.get("ns/a", MinRevision::Latest).await.expect("readable").is_some());
}

#[test]
fn store_of_format_1_is_upgraded() {
    let dir = scratch();
    let path = dir.path().join("store.db");
    let mut disk = Disk::open(dir.path(), None).expect("opens");
    disk.commit(&[row(2, 1, 0, 30), row(3, 2, 0, 30), row(4, 2, 3, 40)], 2)
        .expect("written");
    disk.close().expect("closed");
    let intact = read_all(dir.path()).expect("intact");
    // Rewritten as format 1.
    let db = rusqlite::Connection::open(&path).expect("opens");
    let rows = [(2, 1, 30), (3, 2, 30), (4, 2, 40)];
    for (revision, i, size) in rows {
        let sum = checksum(&format!("/registry/a/{i}"), revision, 0, Some(&vec![b'x'; size]));
        db.execute(
            "UPDATE log SET sum = ?1 WHERE revision = ?2",
            [sum, revision.cast_signed()],
        )
        .expect("written");
    }
    assert!(SCHEMA.contains("room"));
    db.execute_batch(
        "ALTER TABLE live DROP COLUMN sum; ALTER TABLE meta DROP COLUMN sum; DROP TABLE room;
         ALTER TABLE meta ADD COLUMN clean INTEGER NOT NULL DEFAULT 1; PRAGMA user_version = 1;",
    )
    .expect("written");
    db.close().expect("closed");
    assert!(read_all(dir.path()).expect("upgraded") == intact);
    assert!(read_all(dir.path()).expect("opened again") == intact);
}
