use super::*;
use crate::telemetry::Telemetry;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn lasting_failures_are_reported_at_growing_intervals() {
    let reported: Vec<u32> = (1..=40).filter(|n| is_reported(*n)).collect();
    assert_eq!(reported, [4, 8, 16, 32]);
}

fn queue() -> WorkQueue<&'static str> {
    let backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(30));
    WorkQueue::new(backoff, Telemetry::new().queue("q"))
}

#[tokio::test]
async fn item_is_queued_once_and_processed_by_one_worker() {
    let q = queue();
    q.add("a");
    q.add("a");
    assert_eq!(q.next().await, Some("a"));
    q.add("a");
    assert!(q.is_empty());
    q.done(&"a");
    assert_eq!(q.0.metrics.depth.get(), 1, "it is ready again");
    assert_eq!(q.next().await, Some("a"));
    q.done(&"a");
    q.shut_down();
    assert_eq!(q.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn failing_item_is_retried_with_exponential_backoff() {
    let q = queue();
    let start = Instant::now();
    for (n, due) in [1u64, 3, 7, 15].into_iter().enumerate() {
        q.add_rate_limited("a");
        assert_eq!(q.failures(&"a") as usize, n + 1);
        assert_eq!(q.next().await, Some("a"));
        q.done(&"a");
        assert_eq!(start.elapsed().as_secs(), due);
    }
    q.forget(&"a");
    assert_eq!(q.failures(&"a"), 0);
}

#[tokio::test(start_paused = true)]
async fn removed_item_is_not_processed_and_frees_its_memory() {
    let q = queue();
    for item in ["a", "b"] {
        q.add_rate_limited(item);
    }
    q.remove(&"a");
    assert_eq!(q.failures(&"a"), 0);
    assert_eq!(q.next().await, Some("b"));
    let numbers: WorkQueue<usize> = WorkQueue::new(
        Backoff::doubling(Duration::from_secs(3600), Duration::from_secs(3600)),
        Telemetry::new().queue("n"),
    );
    for n in 0..10_000 {
        numbers.add_rate_limited(n);
    }
    for n in 0..10_000 {
        numbers.remove(&n);
    }
    let s = numbers.lock();
    assert!(s.later.capacity() < 256, "{}", s.later.capacity());
    assert_eq!([s.delayed.len(), s.due.len(), s.failures.len()], [0; 3]);
}

/// A hash map would visit all items when it grows.
#[test]
fn adding_one_of_many_items_compares_few() {
    static COMPARED: AtomicUsize = AtomicUsize::new(0);

    #[derive(Clone, PartialEq, Eq)]
    struct Item(u32);

    impl Ord for Item {
        fn cmp(&self, other: &Self) -> std::cmp::Ordering {
            COMPARED.fetch_add(1, Ordering::Relaxed);
            self.0.cmp(&other.0)
        }
    }

    impl PartialOrd for Item {
        fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
            Some(self.cmp(other))
        }
    }

    let backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(30));
    let queue = WorkQueue::new(backoff, Telemetry::new().queue("q"));
    let compared = |n: u32| {
        let before = COMPARED.load(Ordering::Relaxed);
        queue.add(Item(n));
        queue.add_after(Item(n), Duration::from_secs(1));
        COMPARED.load(Ordering::Relaxed) - before
    };
    let most = (0..20_000).map(compared).max();
    assert!(most.is_some_and(|n| n < 1000), "{most:?}");
}

#[tokio::test(start_paused = true)]
async fn items_that_are_due_together_are_promoted_in_batches() {
    let q: WorkQueue<usize> = WorkQueue::new(
        Backoff::doubling(Duration::from_secs(1), Duration::from_secs(1)),
        Telemetry::new().queue("q"),
    );
    for n in 0..3 * PROMOTED {
        q.add_after(n, Duration::from_secs(1));
    }
    assert_eq!(q.next().await, Some(0));
    assert_eq!(q.len(), PROMOTED - 1);
    for n in 1..3 * PROMOTED {
        assert_eq!(q.next().await, Some(n));
    }
}

#[tokio::test(start_paused = true)]
async fn earliest_delay_applies() {
    let q = queue();
    let start = Instant::now();
    q.add_after("a", Duration::from_secs(9));
    q.add_after("a", Duration::from_secs(2));
    q.add_after("a", Duration::from_secs(5));
    assert_eq!(q.next().await, Some("a"));
    assert_eq!(start.elapsed().as_secs(), 2);
    q.done(&"a");
    q.shut_down();
    assert_eq!(q.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn an_item_whose_work_panics_is_retried_and_the_others_are_processed() {
    let q = queue();
    let start = Instant::now();
    let tries: Mutex<Vec<(&str, u64)>> = Mutex::default();
    for item in ["early", "late", "good"] {
        q.add(item);
    }
    let work = |item: &'static str| {
        let mut all = tries.lock();
        all.push((item, start.elapsed().as_secs()));
        let count = all.len();
        drop(all);
        assert!(item != "early" || count > 3, "before the first await");
        let q = &q;
        async move {
            tokio::task::yield_now().await;
            assert!(item != "late" || count > 3, "after an await");
            if count == 5 {
                q.shut_down();
            }
            Ok::<_, std::convert::Infallible>(())
        }
    };
    q.process("q", work).await;
    let tries = tries.lock().clone();
    let wanted = [("early", 0), ("late", 0), ("good", 0), ("early", 1), ("late", 1)];
    assert_eq!(tries, wanted);
    assert_eq!([q.failures(&"early"), q.failures(&"late")], [0, 0]);
}

#[tokio::test]
async fn shutdown_wakes_every_worker() {
    let q = queue();
    let workers: Vec<_> = (0..3)
        .map(|_| {
            let q = q.clone();
            tokio::spawn(async move { q.next().await })
        })
        .collect();
    tokio::task::yield_now().await;
    q.shut_down();
    for w in workers {
        assert_eq!(w.await.unwrap(), None);
    }
}
