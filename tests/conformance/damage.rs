//! Damaged stores are refused with a clear message, as is a store that is in use.

use crate::support::*;
use std::fs::{OpenOptions, read, write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use torana::testing::storage::embedded::{Engine, OpenError, Options};
use torana::testing::storage::{Error, MinRevision, Precondition};

fn block_on<F: Future>(f: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap()
        .block_on(f)
}

fn filled(dir: &Path) {
    let engine = Engine::open(dir, options()).unwrap();
    let s = engine.resource(config("configmaps"));
    block_on(async {
        for i in 0..200 {
            create(
                &s,
                &format!("ns/{i:03}"),
                &format!("payload-{i:03}-{}", "x".repeat(500)),
            )
            .await;
        }
    });
    engine.shutdown();
}

#[test]
fn a_store_in_use_is_refused_and_its_owner_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), options()).unwrap();
    let refused = Engine::open(dir.path(), options()).err().unwrap();
    let text = refused.to_string();
    assert!(matches!(refused, OpenError::Locked { .. }));
    assert!(text.contains(&dir.path().display().to_string()), "{text}");
    assert!(text.contains(&std::process::id().to_string()), "{text}");
    engine.shutdown();
    // A process forked by another test at this moment inherits the lock until it execs, so retry.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while Engine::open(dir.path(), options()).is_err() {
        assert!(std::time::Instant::now() < until, "the lock is released");
        std::thread::yield_now();
    }
}

#[test]
fn a_changed_byte_of_an_object_is_detected_when_opening() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let path = dir.path().join("store.db");
    let bytes = read(&path).unwrap();
    let at = bytes.windows(11).rposition(|w| w == b"payload-150").unwrap();
    OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .write_at(b"q", at as u64)
        .unwrap();
    let refused = Engine::open(dir.path(), options()).err().unwrap();
    assert!(matches!(&refused, OpenError::Damaged { .. }), "{refused}");
    assert!(refused.to_string().contains("damaged"), "{refused}");
}

#[test]
fn a_flipped_page_a_torn_file_and_a_foreign_file_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let path = dir.path().join("store.db");
    let good = read(&path).unwrap();
    let refused = |bytes: &[u8]| {
        write(&path, bytes).unwrap();
        let refused = Engine::open(dir.path(), options()).err().expect("damage is found");
        assert!(matches!(&refused, OpenError::Damaged { .. }), "{refused}");
    };
    refused(&good[..good.len() / 2]);
    refused(
        b"This is no database, however long one looks at it. "
            .repeat(100)
            .as_slice(),
    );
    // Pages other than pointer maps and free pages are checked when the store is opened.
    for page in [1, 3, 4, good.len() / 4096 / 2] {
        let mut bad = good.clone();
        bad[page * 4096..(page + 1) * 4096].fill(0xa5);
        write(&path, &bad).unwrap();
        if let Err(e) = Engine::open(dir.path(), options()) {
            assert!(matches!(&e, OpenError::Damaged { .. }), "{e}");
        } else {
            assert!(page == 1, "page {page} is in use");
        }
    }
    write(&path, &good).unwrap();
    let engine = Engine::open(dir.path(), options()).unwrap();
    assert_eq!(engine.resource(config("configmaps")).count(), 200);
}

#[test]
fn a_store_of_another_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let path = dir.path().join("store.db");
    // A SQLite file has its user version at offset 60, big-endian.
    OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .write_at(&99u32.to_be_bytes(), 60)
        .unwrap();
    let refused = Engine::open(dir.path(), options()).err().unwrap();
    assert!(matches!(refused, OpenError::Version { found: 99, .. }), "{refused}");
}

#[test]
fn a_full_store_refuses_writes_until_something_is_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let full = Options {
        max_bytes: Some(256 << 10),
        ..options()
    };
    let engine = Engine::open(dir.path(), full).unwrap();
    let s = engine.resource(config("configmaps"));
    block_on(async {
        let kept = create(&s, "ns/kept", "1").await;
        assert!(engine.health().is_ok());
        let large = "x".repeat(100 << 10);
        let mut failed = None;
        for i in 0..10 {
            if let Err(e) = s
                .put(&format!("ns/{i}"), Precondition::Absent, draft(&large), None)
                .await
            {
                failed = Some((i, e));
                break;
            }
        }
        let (i, e) = failed.expect("the disk is full");
        assert!(matches!(e, Error::Failed(_)), "{e}");
        assert!(e.to_string().contains("full"), "{e}");
        let again = s.put("ns/small", Precondition::Absent, draft("1"), None).await;
        assert!(matches!(again, Err(Error::Failed(_))), "writes stay refused");
        assert!(engine.readiness().is_err() && engine.health().is_ok());
        let read = s.get("ns/kept", MinRevision::Latest).await.unwrap();
        assert_eq!(read.unwrap().revision, kept.revision);
        assert!(s.get(&format!("ns/{i}"), MinRevision::Latest).await.unwrap().is_none());
        let large = s.get("ns/0", MinRevision::Latest).await.unwrap().unwrap();
        s.delete("ns/0", large.revision).await.unwrap();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while engine.readiness().is_err() {
            assert!(
                std::time::Instant::now() < until,
                "the store never accepts writes again"
            );
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        create(&s, "ns/small", "1").await;
    });
    engine.shutdown();
    let engine = Engine::open(dir.path(), options()).unwrap();
    assert!(engine.resource(config("configmaps")).count() >= 1);
}
