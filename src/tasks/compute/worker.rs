//! A thread of the pool: takes what the queue says is next, polls it, and charges its flow with the CPU time it used.

use super::{Flow, Job, Shared};
use crate::interrupt::{self, Limit};
use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Deep objects are walked recursively, as on the reactors.
const STACK: usize = 8 << 20;
/// Below the reactors (0), so that they preempt it; above what is to be done when nothing else is.
const NICE: i32 = 5;

pub(super) fn start(shared: Arc<Shared>, runtime: tokio::runtime::Handle) -> io::Result<()> {
    let work = move || {
        // On Linux the priority is a thread's own. Where it is refused, the pool works with everybody's.
        if let Err(error) = rustix::process::setpriority_process(None, NICE) {
            tracing::debug!(%error, "the compute pool runs with normal priority");
        }
        let _timers = runtime.enter();
        run(&shared);
    };
    let thread = std::thread::Builder::new().name("compute".to_owned()).stack_size(STACK);
    thread.spawn(work).map(drop)
}

/// CPU time this thread has used. Unlike a clock, it stands still while other threads run.
pub fn thread_cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

/// CPU time after which a job lets other threads run. A lower priority alone does not do that: Linux (EEVDF) lets a thread
/// finish its slice of some 3 ms even where one of higher priority wakes up, and a small request would wait for it.
const YIELD_AFTER: Duration = Duration::from_micros(300);

/// One poll's bounds.
struct PollLimit {
    job: Arc<Job>,
    until: Duration,
    next_yield: Cell<Duration>,
}

impl Limit for PollLimit {
    fn is_exceeded(&self) -> bool {
        let now = thread_cpu_time();
        if now >= self.next_yield.get() {
            self.next_yield.set(now + YIELD_AFTER);
            std::thread::yield_now();
        }
        self.job.abandoned.load(Ordering::Relaxed) || now > self.until
    }
}

fn run(shared: &Arc<Shared>) {
    loop {
        let mut state = shared.lock();
        let runnable = loop {
            if state.closed {
                return;
            }
            match state.queue.pop() {
                Some(runnable) => break runnable,
                None => {
                    state = (shared.work.wait(state)).expect("no code panics while holding this lock");
                }
            }
        };
        let job = Arc::clone(runnable.metadata());
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
        // A panic, and an interruption, is kept by the task for whoever waits for it.
        let polled = interrupt::run(limit, || runnable.run());
        debug_assert!(polled.is_ok(), "the task catches what unwinds");
        let used = thread_cpu_time().saturating_sub(begun);
        shared.metrics.polled(used.as_secs_f64());
        if let Flow::Caller(id) = job.flow {
            let used = u64::try_from(used.as_nanos()).unwrap_or(u64::MAX);
            shared.lock().queue.charge(id, used);
        }
    }
}
