//! A thread of the pool: takes the next job, polls it, and charges the CPU time to its flow.

use super::{Flow, Job, Shared};
use crate::interrupt::{self, Limit};
use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Stack size in bytes. Deeply nested objects are walked recursively, as on the reactors.
const STACK: usize = 8 << 20;
/// Niceness: lower priority than the reactors (0), which preempt these threads, but above idle work.
const NICE: i32 = 5;

pub(super) fn start(shared: Arc<Shared>, runtime: tokio::runtime::Handle) -> io::Result<()> {
    let work = move || {
        // On Linux, niceness is per thread. If it is refused, the pool runs at normal priority.
        if let Err(error) = rustix::process::setpriority_process(None, NICE) {
            tracing::debug!(%error, "the compute pool runs with normal priority");
        }
        // Timers and sockets of jobs register with this runtime.
        let _timers = runtime.enter();
        run(&shared);
    };
    let thread = std::thread::Builder::new().name("compute".to_owned()).stack_size(STACK);
    thread.spawn(work).map(drop)
}

/// CPU time used by this thread. Does not advance while other threads run.
pub(crate) fn thread_cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

/// CPU time after which a job yields to other threads. Its lower priority is not enough: Linux (EEVDF) lets a
/// running thread finish its slice of about 3 ms even if a thread of higher priority wakes up, which would
/// delay small requests.
const YIELD_AFTER: Duration = Duration::from_micros(300);

/// Time without work after which a thread calls [`Config::on_idle`](super::Config::on_idle).
const IDLE_AFTER: Duration = Duration::from_secs(1);
/// The same after a large job: its memory is returned before the next one runs on another thread.
const IDLE_AFTER_LARGE: Duration = Duration::from_millis(20);
/// A thread that has had jobs calls it at the first moment without work after this time, however short.
const RELEASE_EVERY: Duration = Duration::from_secs(10);
/// Estimated memory of a large job, in bytes.
const LARGE: usize = 8 << 20;

/// Limits of one poll.
struct PollLimit {
    job: Arc<Job>,
    until: Duration,
    next_yield: Cell<Duration>,
}

impl PollLimit {
    /// Returns the CPU time used so far.
    fn yield_if_due(&self) -> Duration {
        let now = thread_cpu_time();
        if now >= self.next_yield.get() {
            self.next_yield.set(now + YIELD_AFTER);
            // Yields the CPU and not the job: its memory and place are kept.
            std::thread::yield_now();
        }
        now
    }
}

impl Limit for PollLimit {
    fn is_exceeded(&self) -> bool {
        let now = self.yield_if_due();
        self.job.abandoned.load(Ordering::Relaxed) || now > self.until
    }

    fn pause(&self) {
        self.yield_if_due();
    }
}

/// How long a thread waits for work before it calls `on_idle`. Under steady light load no pause would be as long as
/// `idle_after`.
fn pause_before_release(idle_after: Duration, since_release: Duration) -> Duration {
    idle_after.min(RELEASE_EVERY.saturating_sub(since_release))
}

fn run(shared: &Arc<Shared>) {
    // When to call `on_idle`; `None` once that has been done after the last job.
    let mut idle_after = None;
    let mut released = Instant::now();
    loop {
        let mut state = shared.lock();
        let runnable = loop {
            if state.closed {
                return;
            }
            if let Some(runnable) = state.queue.pop() {
                if state.released {
                    // Only after a release: a job that was pushed has woken a thread of its own.
                    shared.work.notify_one();
                }
                break runnable;
            }
            state.released = false;
            state = match shared.config.on_idle.zip(idle_after) {
                None => shared.work.wait(state),
                Some((on_idle, after)) => {
                    let pause = pause_before_release(after, released.elapsed());
                    let (state, waited) = shared.work.wait_timeout(state, pause);
                    if waited.timed_out() {
                        // Called without the lock: returning memory takes milliseconds.
                        drop(state);
                        on_idle();
                        idle_after = None;
                        released = Instant::now();
                        // Locked again, so the queue is looked at again before waiting.
                        shared.lock()
                    } else {
                        state
                    }
                }
            };
        };
        let job = Arc::clone(runnable.metadata());
        let after = if job.lease.memory < LARGE {
            IDLE_AFTER
        } else {
            IDLE_AFTER_LARGE
        };
        // The shorter of all jobs since the last call.
        idle_after = Some(idle_after.map_or(after, |before: Duration| before.min(after)));
        // Under the lock that `pop` accounted the memory with, so a drop of the lease in between cannot miss
        // it.
        if !job.started.swap(true, Ordering::Relaxed) {
            job.lease.granted.store(true, Ordering::Relaxed);
        }
        drop(state);

        let begun = thread_cpu_time();
        let limit = Rc::new(PollLimit {
            job: Arc::clone(&job),
            until: begun + shared.config.longest_poll,
            next_yield: Cell::new(begun + YIELD_AFTER),
        });
        // The task stores a panic or interruption for the future that awaits it.
        let polled = interrupt::run(limit, || runnable.run());
        debug_assert!(polled.is_ok(), "the task catches what unwinds");
        if let Some(count) = &job.runnable {
            count.decrement();
        }
        // CPU time and not wall time: being preempted by reactors costs the flow nothing.
        let used = thread_cpu_time().saturating_sub(begun);
        shared.metrics.polled(used.as_secs_f64());
        if let Flow::Caller(id) = job.flow {
            let used = u64::try_from(used.as_nanos()).unwrap_or(u64::MAX);
            shared.lock().queue.charge(id, used);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_released_under_steady_light_load() {
        assert_eq!(pause_before_release(IDLE_AFTER, Duration::ZERO), IDLE_AFTER);
        assert_eq!(
            pause_before_release(IDLE_AFTER, RELEASE_EVERY - IDLE_AFTER / 2),
            IDLE_AFTER / 2
        );
        assert_eq!(pause_before_release(IDLE_AFTER, RELEASE_EVERY), Duration::ZERO);
    }
}
