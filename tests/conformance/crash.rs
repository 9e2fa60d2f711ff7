//! Kills the store with SIGKILL at random moments during writes. After each restart every acknowledged write
//! is present, no write is partial, and revisions have not gone back.

use crate::support::*;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use torana::testing::storage::embedded::Engine;
use torana::testing::storage::{MinRevision, Precondition};

const DIR: &str = "TORANA_CRASH_TEST_DIR";
const WRITERS: usize = 8;

/// The child process that is killed: writers that report acknowledged writes on stdout.
#[test]
#[ignore = "runs as a child of the test below"]
fn writer_child() {
    let Some(dir) = std::env::var_os(DIR) else {
        return;
    };
    let engine = Engine::open(Path::new(&dir), options()).unwrap();
    let s = engine.resource(config("configmaps"));
    let out = Arc::new(Mutex::new(std::io::stdout()));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    let tasks: Vec<_> = (0..WRITERS)
        .map(|w| {
            let (s, out) = (s.clone(), out.clone());
            runtime.spawn(async move {
                let key = format!("ns/{w}");
                let mut last = s.get(&key, MinRevision::Latest).await.unwrap();
                for i in 0u64.. {
                    let (line, now) = match &last {
                        Some(e) if i % 5 == 4 => {
                            let gone = s.delete(&key, e.revision).await.unwrap();
                            (format!("ack {w} - {}", gone.revision.0), None)
                        }
                        e => {
                            let when = e
                                .as_ref()
                                .map_or(Precondition::Absent, |e| Precondition::Unchanged(e.revision));
                            // Two fields, far apart, that must agree: a partial write would break the pair.
                            let payload = format!("{i}-{}-{i}", "x".repeat(3000));
                            let put = s.put(&key, when, draft(&payload), None).await.unwrap();
                            (format!("ack {w} {i} {}", put.revision.0), Some(put))
                        }
                    };
                    last = now;
                    writeln!(out.lock().unwrap(), "{line}").unwrap();
                }
            })
        })
        .collect();
    for t in tasks {
        runtime.block_on(t).unwrap();
    }
}

/// Per writer, the last acknowledged value (`None`: deleted) and its revision.
type Acknowledged = HashMap<usize, (Option<String>, u64)>;

fn run_and_kill(dir: &Path, after: Duration) -> Acknowledged {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "crash::writer_child",
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let mut acknowledged = Acknowledged::new();
    let mut started = None;
    // Read the pipe to its end: acknowledgements printed before the kill count.
    for line in out.lines().map_while(Result::ok) {
        if let Some(ack) = line.strip_prefix("ack ") {
            let parts: Vec<_> = ack.split(' ').collect();
            if let [w, i, revision] = parts[..]
                && let (Ok(w), Ok(revision)) = (w.parse(), revision.parse())
            {
                acknowledged.insert(w, ((i != "-").then(|| i.to_owned()), revision));
            }
            let since = *started.get_or_insert_with(Instant::now);
            if since.elapsed() >= after {
                let _ = child.kill();
            }
        }
    }
    child.wait().unwrap();
    assert!(started.is_some(), "the child wrote");
    acknowledged
}

#[test]
fn every_acknowledged_write_survives_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let deadline = Instant::now() + Duration::from_secs(7);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let (mut revision, mut rounds) = (1, 0u64);
    // A few rounds however slow the machine is, and more if there is time.
    while rounds < 3 || (rounds < 25 && Instant::now() < deadline) {
        // Spread the kills over the duration of a checkpoint.
        let after = Duration::from_micros((rounds * 7919) % 90_000);
        let acknowledged = run_and_kill(dir.path(), after);
        let engine = Engine::open(dir.path(), options()).unwrap();
        let s = engine.resource(config("configmaps"));
        let highest = acknowledged.values().map(|(_, r)| *r).max().unwrap();
        assert!(s.revision().0 >= highest.max(revision), "revisions have gone back");
        revision = s.revision().0;
        for (w, (payload, at)) in acknowledged {
            let found = runtime
                .block_on(s.get(&format!("ns/{w}"), MinRevision::Latest))
                .unwrap();
            let found_at = found.as_ref().map_or(u64::MAX, |e| e.revision.0);
            assert!(
                found_at >= at,
                "writer {w}: {at} was acknowledged, {found_at} is stored"
            );
            let Some(e) = &found else {
                // Deleted by an acknowledged write, or by the one write that was in flight.
                let next = payload.map(|i| i.parse::<u64>().unwrap() + 1);
                assert!(next.is_none_or(|i| i % 5 == 4), "writer {w}: the write at {at} is lost");
                continue;
            };
            let v = value(e);
            let (first, last) = (v.split('-').next().unwrap(), v.rsplit('-').next().unwrap());
            assert_eq!((first, v.len()), (last, 3002 + 2 * first.len()), "half a write");
            if found_at == at {
                assert_eq!(Some(first), payload.as_deref());
            }
        }
        engine.shutdown();
        rounds += 1;
    }
}
