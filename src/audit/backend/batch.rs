//! The queue of a batching backend and its worker, which collects events into batches, throttles, and hands them to
//! the sink. Follows upstream's `plugin/pkg/audit/buffered`.

use super::{Batching, Sink, WriteOutcome};
use crate::audit::event::Event;
use crate::tasks::Signal;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;

/// Maximum number of concurrent writes. Bounds the events that a retrying sink holds in memory.
const MAX_WRITES: usize = 16;

/// Maximum size of all events that wait or are being written, in kibibytes. The queue's length alone would allow ten
/// thousand times the largest object while a sink does not answer.
const MAX_KB: usize = 256 << 10;

/// The sending side of a worker's queue.
pub(super) struct Queue {
    events: mpsc::Sender<Waiting>,
    capacity: Arc<Semaphore>,
}

/// An event in the queue, with its share of the limit on all.
pub(super) struct Waiting {
    pub event: Arc<Event>,
    share: OwnedSemaphorePermit,
}

impl Queue {
    /// A queue of this many events at most, and its receiving side.
    pub(super) fn new(events: usize) -> (Self, mpsc::Receiver<Waiting>) {
        // `mpsc::channel` panics on zero.
        let (events, waiting) = mpsc::channel(events.max(1));
        let capacity = Arc::new(Semaphore::new(MAX_KB));
        (Self { events, capacity }, waiting)
    }

    /// Adds an event, without its objects if there is no capacity for them. False if there is none for the event at
    /// all; does not wait.
    pub(super) fn add(&self, event: Arc<Event>) -> bool {
        // Reserved first: a full queue must not cost the event a share, nor a copy without its objects.
        let Ok(place) = self.events.try_reserve() else {
            return false;
        };
        if let Some(share) = self.share(&event) {
            place.send(Waiting { event, share });
            return true;
        }
        let event = Arc::new(event.truncated());
        let Some(share) = self.share(&event) else { return false };
        place.send(Waiting { event, share });
        true
    }

    fn share(&self, event: &Event) -> Option<OwnedSemaphorePermit> {
        let kb = u32::try_from(event.size().div_ceil(1024)).ok()?;
        self.capacity.clone().try_acquire_many_owned(kb).ok()
    }
}

pub(super) struct Worker {
    pub sink: Arc<dyn Sink>,
    pub how: Batching,
    /// Maximum size of a batch, in bytes of JSON.
    pub max_bytes: Option<usize>,
    pub waiting: mpsc::Receiver<Waiting>,
    /// Shutdown: the worker writes the queued events, then ends.
    pub stop: Signal,
}

type Writes = FuturesUnordered<Pin<Box<dyn Future<Output = bool> + Send>>>;

impl Worker {
    pub(crate) async fn run(mut self) {
        let mut writes = Writes::new();
        let mut bucket = self.how.throttle.map(|(qps, burst)| Bucket::new(qps, burst));
        loop {
            let first = tokio::select! {
                // Completed writes first: they free a slot.
                biased;
                Some(_) = writes.next() => continue,
                event = self.waiting.recv() => event,
                // Closing keeps what is queued: `recv` returns it, and then `None`, which ends the loop.
                () = self.stop.wait(), if !self.waiting.is_closed() => {
                    self.waiting.close();
                    continue;
                }
            };
            let Some(first) = first else { break };
            let batch = self.gather(first, &mut writes).await;
            for part in self.parts(batch) {
                if let Some(bucket) = &mut bucket {
                    let wait = bucket.take(Instant::now());
                    // No throttling at shutdown: flush before the deadline.
                    if !wait.is_zero() && !self.stop.fired() {
                        tokio::time::sleep(wait).await;
                    }
                }
                // Backpressure: meanwhile events stay in the bounded queue, where overflow is counted.
                while writes.len() >= MAX_WRITES {
                    writes.next().await;
                }
                let (events, shares): (Vec<_>, Vec<_>) = part.into_iter().map(|w| (w.event, w.share)).unzip();
                let outcome = self.sink.clone().write(events);
                writes.push(Box::pin(async move {
                    let stored = match outcome {
                        WriteOutcome::Queued(stored) => stored.await.unwrap_or(false),
                        // Driven by this worker, so that the number of concurrent writes is bounded.
                        WriteOutcome::Work(work) => work.await,
                    };
                    // Not before: until then the sink holds the events.
                    drop(shares);
                    stored
                }));
            }
        }
        // Shutdown: the task ends when the last write has, until the deadline of its group.
        while writes.next().await.is_some() {}
    }

    async fn gather(&mut self, first: Waiting, writes: &mut Writes) -> Vec<Waiting> {
        let mut batch = vec![first];
        let until = Instant::now() + self.how.max_wait;
        while batch.len() < self.how.max_size {
            // Without a wait as long as the queue has events: a full queue fills a batch at once.
            if let Ok(event) = self.waiting.try_recv() {
                batch.push(event);
                continue;
            }
            if self.how.max_wait.is_zero() || self.waiting.is_closed() {
                break;
            }
            tokio::select! {
                biased;
                Some(_) = writes.next() => {}
                event = self.waiting.recv() => match event {
                    Some(event) => batch.push(event),
                    None => break,
                },
                () = self.stop.wait() => self.waiting.close(),
                () = tokio::time::sleep_until(until) => break,
            }
        }
        batch
    }

    /// Splits a batch where its size in bytes is limited. An event larger than the limit is a batch of its
    /// own.
    fn parts(&self, batch: Vec<Waiting>) -> Vec<Vec<Waiting>> {
        let Some(most) = self.max_bytes else {
            return vec![batch];
        };
        let (mut parts, mut bytes) = (vec![Vec::new()], 0);
        for waiting in batch {
            // Encoded a second time by the sink; only with a byte limit, which is off by default.
            let size = waiting.event.encode(false).len();
            // Not for the first event: one that is too large alone must not leave an empty batch behind.
            if bytes > 0 && bytes + size > most {
                parts.push(Vec::new());
                bytes = 0;
            }
            bytes += size;
            if let Some(last) = parts.last_mut() {
                last.push(waiting);
            }
        }
        parts
    }
}

/// A token bucket that may go into debt: `take` returns how long to sleep instead of queueing the caller.
struct Bucket {
    qps: f64,
    burst: f64,
    tokens: f64,
    at: Instant,
}

impl Bucket {
    fn new(qps: f64, burst: usize) -> Self {
        let burst = burst.max(1) as f64;
        Self {
            qps,
            burst,
            tokens: burst,
            at: Instant::now(),
        }
    }

    /// Takes a token and returns how long to wait for it. A negative balance is a token borrowed from the
    /// future.
    fn take(&mut self, now: Instant) -> Duration {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        self.tokens = (self.tokens + passed * self.qps).min(self.burst) - 1.0;
        if self.tokens >= 0.0 || self.qps <= 0.0 {
            return Duration::ZERO;
        }
        Duration::from_secs_f64(-self.tokens / self.qps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_bucket_allows_a_burst_and_then_the_rate() {
        let mut b = Bucket::new(10.0, 2);
        let now = Instant::now();
        let waits: Vec<u128> = (0..4).map(|_| b.take(now).as_millis()).collect();
        assert_eq!(waits, [0, 0, 100, 200]);
        assert_eq!(b.take(now + Duration::from_secs(60)).as_millis(), 0);
    }
}
