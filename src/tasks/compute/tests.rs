use super::*;
use crate::interrupt::checkpoint;
use crate::telemetry::Telemetry;
use std::sync::mpsc;
use std::time::Duration;
use tokio::sync::oneshot;

fn pool(config: Config) -> (ComputePool, Telemetry) {
    let telemetry = Telemetry::new();
    let pool = ComputePool::start(config, telemetry.compute.clone()).unwrap();
    (pool, telemetry)
}

fn one_thread() -> Config {
    Config {
        threads: 1,
        ..Config::default()
    }
}

fn metric(telemetry: &Telemetry, line: &str) -> bool {
    String::from_utf8(telemetry.text()).unwrap().lines().any(|l| l == line)
}

#[tokio::test]
async fn work_runs_on_a_thread_of_the_pool() {
    let (pool, telemetry) = pool(one_thread());
    let here = std::thread::current().id();
    let there = pool
        .run(pool.flow("a"), 0, async {
            tokio::time::sleep(Duration::from_nanos(1)).await;
            std::thread::current().id()
        })
        .await;
    assert_ne!(there.unwrap(), here);
    assert!(metric(&telemetry, "torana_compute_jobs_total 1"));
    assert!(metric(&telemetry, "torana_compute_jobs 0"));
}

#[tokio::test]
async fn panic_propagates_to_the_caller() {
    let (pool, _) = pool(one_thread());
    let panics = pool.run(pool.flow("a"), 0, async { panic!("a test's own panic") });
    assert!(AssertUnwindSafe(panics).catch_unwind().await.is_err());
    assert_eq!(pool.run(pool.flow("a"), 0, async { 7 }).await, Ok(7));
}

#[tokio::test]
async fn long_poll_is_interrupted() {
    let (pool, telemetry) = pool(Config {
        longest_poll: Duration::from_millis(5),
        ..one_thread()
    });
    let endless = async {
        loop {
            checkpoint();
        }
    };
    assert_eq!(
        pool.run::<()>(pool.flow("a"), 0, endless).await,
        Err(Error::Interrupted)
    );
    assert_eq!(pool.run(pool.flow("a"), 0, async { 7 }).await, Ok(7));
    assert!(metric(&telemetry, "torana_compute_interrupted_total 1"));
}

#[tokio::test]
async fn dropping_the_caller_stops_the_job() {
    let (pool, _) = pool(one_thread());
    let (started, is_started) = oneshot::channel();
    let (held, released) = oneshot::channel::<()>();
    let mut endless = Box::pin(pool.run::<()>(pool.flow("a"), 0, async move {
        let _held = held;
        let _ = started.send(());
        loop {
            checkpoint();
        }
    }));
    assert!(endless.as_mut().now_or_never().is_none());
    is_started.await.unwrap();
    drop(endless);
    assert!(released.await.is_err(), "the job's state is dropped");
    assert_eq!(pool.run(pool.flow("a"), 0, async { 7 }).await, Ok(7));
}

#[tokio::test]
async fn spawned_work_finishes_without_a_waiter() {
    let (pool, _) = pool(one_thread());
    let (go, going) = oneshot::channel::<()>();
    let (done, is_done) = oneshot::channel();
    let spawned = pool.spawn(pool.flow("a"), 0, async move {
        let _ = going.await;
        let _ = done.send(7);
    });
    drop(spawned.unwrap());
    go.send(()).unwrap();
    assert_eq!(is_done.await, Ok(7));
}

#[tokio::test]
async fn jobs_beyond_the_limits_are_refused() {
    let (pool, telemetry) = pool(Config {
        jobs: 3,
        jobs_per_flow: 2,
        ..one_thread()
    });
    let wait = || std::future::pending::<()>();
    let [a, b, c] = ["a", "b", "c"].map(|user| pool.flow(user));
    let _one = pool.spawn(a, 0, wait()).unwrap();
    let two = pool.spawn(a, 0, wait()).unwrap();
    assert_eq!(pool.run(a, 0, async {}).await, Err(Error::Full));
    let _three = pool.spawn(b, 0, wait()).unwrap();
    assert_eq!(pool.run(c, 0, async {}).await, Err(Error::Full));
    assert_eq!(
        pool.run(Flow::System, 0, async {}).await,
        Ok(()),
        "system jobs are not limited"
    );
    for reason in ["jobs", "jobs_of_one_caller"] {
        let line = format!("torana_compute_refused_total{{reason=\"{reason}\"}} 1");
        assert!(metric(&telemetry, &line), "{line}");
    }
    drop(two);
}

#[tokio::test]
async fn flood_of_one_caller_delays_another_by_one_job() {
    let (pool, _) = pool(one_thread());
    let (order, in_order) = mpsc::channel();
    let (go, gate) = mpsc::channel::<()>();
    // Occupies the only thread until everything is queued.
    let held = pool.spawn(pool.flow("flood"), 0, async move { gate.recv() }).unwrap();
    let job = |user: &'static str| {
        let order = order.clone();
        pool.spawn(pool.flow(user), 0, async move {
            let until = std::time::Instant::now() + Duration::from_millis(1);
            while std::time::Instant::now() < until {
                std::hint::spin_loop();
            }
            let _ = order.send(user);
        })
        .unwrap()
    };
    let flood: Vec<_> = (0..20).map(|_| job("flood")).collect();
    let other = job("other");
    go.send(()).unwrap();
    other.await.unwrap();
    for one in flood {
        one.await.unwrap();
    }
    drop(held);
    let order: Vec<_> = in_order.try_iter().collect();
    let at = order.iter().position(|user| *user == "other").unwrap();
    assert!(at <= 1, "{order:?}");
}

#[tokio::test]
async fn pool_stops_with_its_last_handle() {
    let (pool, _) = pool(one_thread());
    let waiting = pool.spawn(pool.flow("a"), 0, std::future::pending::<()>()).unwrap();
    let (gate, held) = mpsc::channel::<()>();
    let (started, is_started) = oneshot::channel();
    let running = pool.spawn(pool.flow("a"), 0, async move {
        let _ = started.send(());
        held.recv().is_err()
    });
    let running = running.unwrap();
    is_started.await.unwrap();
    let queued = pool.spawn(pool.flow("b"), 0, async {}).unwrap();
    drop((pool, waiting));
    drop(gate);
    assert_eq!(running.await, Ok(true));
    assert_eq!(queued.await, Err(Error::Interrupted));
}

#[tokio::test]
async fn held_bytes_count_until_the_last_slice_is_dropped() {
    let (pool, telemetry) = pool(Config {
        body_bytes_per_flow: 300 << 10,
        ..one_thread()
    });
    let made = || pool.within(pool.flow("a"), async { account_for(vec![7; 100 << 10]) });
    let first = made().await.unwrap();
    let part = first.slice(10..20);
    assert_eq!(made().await, Err(Error::Full));
    drop(first);
    assert_eq!(made().await, Err(Error::Full), "a slice keeps the buffer");
    drop(part);
    assert_eq!(made().await.unwrap().len(), 100 << 10);
    assert!(metric(&telemetry, "torana_request_body_bytes 0"));
    assert!(
        account_for(vec![7; 100 << 10]).is_ok(),
        "nothing is counted without a pool"
    );
}

#[tokio::test]
async fn idle_threads_call_the_hook_once_after_their_last_job() {
    use std::sync::atomic::AtomicUsize;
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    static CALLED: tokio::sync::Notify = tokio::sync::Notify::const_new();
    let config = Config {
        threads: 1,
        on_idle: Some(|| {
            CALLS.fetch_add(1, Ordering::SeqCst);
            CALLED.notify_one();
        }),
        ..Config::default()
    };
    let telemetry = Telemetry::new();
    let pool = ComputePool::start(config, telemetry.compute.clone()).unwrap();
    for calls in 1..=2 {
        pool.run(pool.flow("a"), 0, async {}).await.unwrap();
        CALLED.notified().await;
        assert_eq!(CALLS.load(Ordering::SeqCst), calls);
    }
}

#[tokio::test]
async fn memory_of_a_big_job_admits_several_smaller_ones_at_once() {
    let (pool, _) = pool(Config {
        threads: 3,
        memory_bytes: 32 << 20,
        ..Config::default()
    });
    let (done, is_done) = oneshot::channel();
    let big = pool.spawn(pool.flow("big"), 24 << 20, async move { done.send(()) });
    is_done.await.unwrap();
    // Each occupies its thread until the other one runs, too.
    let both = Arc::new(std::sync::Barrier::new(2));
    let smaller = ["a", "b"].map(|user| {
        let both = Arc::clone(&both);
        pool.spawn(pool.flow(user), 8 << 20, async move { both.wait() })
            .unwrap()
    });
    // A finished job keeps its memory until its result has been taken.
    drop(big);
    let all = futures_util::future::join_all(smaller);
    let all = tokio::time::timeout(Duration::from_secs(60), all).await;
    assert_eq!(all.expect("both run at once").len(), 2);
}
