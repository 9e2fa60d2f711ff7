//! Measures the cost of storage operations. The numbers are for people to read, so the test is ignored by
//! default: `cargo test --release --test conformance cost -- --ignored --nocapture`.

use crate::support::*;
use std::time::{Duration, Instant};
use torana::json;
use torana::testing::storage::embedded::Engine;
use torana::testing::storage::{Draft, ListOptions, MinRevision, Precondition, WatchOptions};

/// CPU time of this process.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let of = |text: String| text.split(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    let sum: u64 = threads
        .map(|t| of(std::fs::read_to_string(t.path().join("schedstat")).unwrap_or_default()))
        .sum();
    Duration::from_nanos(sum.max(of(stat)))
}

fn measure<T>(what: &str, per: u32, f: impl FnOnce() -> T) -> T {
    let (wall, before) = (Instant::now(), cpu());
    let out = f();
    println!(
        "{what}: {:?} CPU, {:?} wall each",
        (cpu() - before) / per,
        wall.elapsed() / per
    );
    out
}

fn object(i: u32) -> Draft {
    let name = format!("cm-{i:05}");
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "a"}, "uid": "5f0f2c0e-0000-4000-8000-000000000000"},
        "data": {"payload": "x".repeat(300)},
    });
    Draft::new(&object, vec![])
}

#[test]
#[ignore = "prints figures"]
fn print_costs() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .unwrap();
    let engine = Engine::open(dir.path(), options()).unwrap();
    let s = engine.resource(config("configmaps"));
    let drafts: Vec<_> = (0..20_000).map(object).collect();
    let create = |from: usize, to: usize, in_flight: usize| {
        for chunk in drafts[from..to].chunks(in_flight) {
            let writes = chunk.iter().enumerate().map(|(i, d)| {
                let (s, d, key) = (s.clone(), d.clone(), format!("default/{}-{i}", chunk.as_ptr() as usize));
                tokio::spawn(async move { s.put(&key, Precondition::Absent, d, None).await.unwrap() })
            });
            let writes: Vec<_> = writes.collect();
            for w in writes {
                runtime.block_on(w).unwrap();
            }
        }
    };
    let guard = runtime.enter();
    measure("put, 1000 in flight", 10_000, || create(0, 10_000, 1000));
    measure("put, 128 in flight", 9_984, || create(10_000, 19_984, 128));
    measure("put, 1 in flight", 16, || create(19_984, 20_000, 1));
    measure("get", 10_000, || {
        let key = s.count().to_string();
        for _ in 0..10_000 {
            runtime.block_on(s.get(&key, MinRevision::Latest)).unwrap();
        }
    });
    measure("list of 20,000", 10, || {
        for _ in 0..10 {
            runtime.block_on(s.list(everything())).unwrap();
        }
    });
    measure("list of 20,000, none matches", 10, || {
        for _ in 0..10 {
            let none = ListOptions {
                predicate: labelled("none"),
                ..everything()
            };
            assert!(runtime.block_on(s.list(none)).unwrap().entries.is_empty());
        }
    });
    let watchers: Vec<_> = (0..500)
        .map(|_| {
            let mut w = runtime.block_on(s.watch(from_now())).unwrap();
            tokio::spawn(async move {
                let mut seen = 0;
                while seen < 500 && w.next().await.is_some() {
                    seen += 1;
                }
                seen
            })
        })
        .collect();
    measure("event to each of 500 watchers, 500 events", 250_000, || {
        let t = engine.resource(config("configmaps"));
        runtime.block_on(async move {
            for i in 0..500 {
                t.put(&format!("fan/{i}"), Precondition::Absent, object(i), None)
                    .await
                    .unwrap();
            }
            for w in watchers {
                assert_eq!(w.await.unwrap(), 500);
            }
        });
    });
    let initial = Some(MinRevision::Latest);
    measure("initial state of 20,500 for a watch", 1, || {
        let mut w = runtime
            .block_on(s.watch(WatchOptions { initial, ..from_now() }))
            .unwrap();
        while w.try_next().is_some() {}
    });
    drop(guard);
    println!("{:?}", engine.stats());
    engine.shutdown();
    measure("open and load 20,500", 1, || {
        let engine = Engine::open(dir.path(), options()).unwrap();
        assert_eq!(engine.resource(config("configmaps")).count(), 20_500);
    });
}
