//! The compute pool: threads for CPU-bound work that would block a reactor.
//!
//! Reactor threads do I/O. Decoding, validation, patches, tables and other work that may take longer than a
//! few hundred microseconds runs here, on threads of lower priority that reactor threads preempt. A job is a
//! future: it may await storage, and occupies a thread only while it is polled.
//!
//! The pool shares CPU time fairly between flows ([`Flow`]: one per caller), limits the number of jobs per
//! flow and in total, and starts no more big jobs than fit its memory limit (`queue`). A job is stopped at
//! its next [checkpoint](crate::interrupt) if its caller has gone or one poll exceeds
//! [`Config::longest_poll`].
//!
//! Entry points: [`offload`] and [`ComputePool::run`] for work that ends with its caller,
//! [`ComputePool::spawn`] for work that must finish once started, [`ComputePool::reservation`] for memory
//! occupied before the work starts.

mod bodies;
mod config;
mod current;
mod movable;
mod queue;
mod runnable;
mod spawned;
mod worker;

pub(crate) use bodies::{Reservation, account_for, account_for_part};
pub(crate) use config::Config;
pub(crate) use current::{Current, Within, continue_job, current, offload};
pub(crate) use movable::{
    MEMORY_PER_STORED_BYTE, is_heavy, is_large, leave_reactor, leave_reactor_to_decode, leave_reactor_to_list,
    leave_reactor_with, movable,
};
pub(crate) use runnable::{HeldBackFlows, RunnableJobs};
pub(crate) use spawned::Spawned;
#[cfg(debug_assertions)]
pub(crate) use worker::thread_cpu_time;

use crate::apimachinery::status::{self, Status};
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::telemetry::compute::ComputeMetrics;
use crate::telemetry::{request_parts, spans};
use async_task::{Builder, FallibleTask, Runnable};
use bodies::Bodies;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use queue::FairQueue;
use spawned::outcome;
use std::collections::HashMap;
use std::future::Future;
use std::hash::{BuildHasher, Hash, RandomState};
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// The owner of a job. CPU time is shared fairly between flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// The server's own work, which has priority over all callers and no limits.
    System,
    /// A caller, by a hash of the user name or of the flow that the caller's request belongs to.
    Caller(u64),
}

/// Why a job has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Error {
    /// Too many unfinished jobs, of this flow or in total. The job was not started.
    Full,
    /// The job was stopped because it took too long, or the pool shut down.
    Interrupted,
}

/// A pool of threads for computations. Clones refer to the same pool; its threads end when the last clone is
/// dropped.
#[derive(Clone)]
pub(crate) struct ComputePool(Arc<Handle>);

struct Handle {
    shared: Arc<Shared>,
    flows: RandomState,
}

struct Shared {
    state: Mutex<State>,
    bodies: Mutex<Bodies>,
    work: Condvar,
    config: Config,
    metrics: ComputeMetrics,
}

struct State {
    queue: FairQueue<Runnable<Arc<Job>>>,
    /// Unfinished jobs: in total and by caller.
    jobs: usize,
    by_flow: HashMap<u64, usize>,
    /// True if memory was released and a thread has yet to find out that no other job can start in it.
    released: bool,
    closed: bool,
}

/// How a job enters the pool.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Entrance {
    /// Refused beyond the limits on the number of jobs.
    Limited,
    /// The same, but shares the memory of a job that was started.
    WithinJob,
    /// Never refused: the work has begun on a reactor.
    Unlimited,
}

/// Metadata of a job.
struct Job {
    flow: Flow,
    lease: Arc<Lease>,
    runnable: Option<RunnableJobs>,
    /// True once it was polled, or from the start if it shares the memory of a started job.
    started: AtomicBool,
    /// True if the caller no longer waits.
    abandoned: AtomicBool,
}

/// Memory accounted to a job and the jobs it spawns; released when the last of them ends.
struct Lease {
    shared: Weak<Shared>,
    flow: Flow,
    memory: usize,
    /// True once the queue has accounted for it.
    granted: AtomicBool,
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Not granted: the job never started, and the queue has accounted for nothing.
        if let (Flow::Caller(id), true) = (self.flow, *self.granted.get_mut())
            && let Some(shared) = self.shared.upgrade()
        {
            let mut state = shared.lock();
            state.queue.release(id, self.memory);
            // Queued jobs may have been waiting for this memory. One thread is woken, which wakes the next if there
            // is room for more than its own job.
            state.released = true;
            drop(state);
            shared.work.notify_one();
        }
    }
}

impl ComputePool {
    /// Starts the threads. Jobs may use the timers and I/O of the current tokio runtime.
    ///
    /// # Errors
    /// A thread could not be started.
    ///
    /// # Panics
    /// If called outside a tokio runtime.
    pub(crate) fn start(config: Config, metrics: ComputeMetrics) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                queue: FairQueue::new(config.memory_bytes),
                jobs: 0,
                by_flow: HashMap::new(),
                released: false,
                closed: false,
            }),
            bodies: Mutex::default(),
            work: Condvar::new(),
            config,
            metrics,
        });
        let pool = Self(Arc::new(Handle {
            shared: Arc::clone(&shared),
            flows: RandomState::new(),
        }));
        // At least one, or accepted jobs would never run.
        for _ in 0..shared.config.threads.max(1) {
            worker::start(Arc::clone(&shared), tokio::runtime::Handle::current())?;
        }
        Ok(pool)
    }

    /// Returns the flow of a caller. The hash is randomly keyed, so that users cannot choose colliding names.
    pub(crate) fn flow(&self, caller: impl Hash) -> Flow {
        Flow::Caller(self.0.flows.hash_one(caller))
    }

    /// Runs `work` on the pool and waits for it. `memory` is the estimate of what it will hold, in bytes.
    ///
    /// # Errors
    /// [`Error::Full`] if a limit is reached; [`Error::Interrupted`] if it was stopped.
    ///
    /// # Panics
    /// Propagates a panic of `work`.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future stops `work`. It is not polled again, and a running poll ends at
    /// its next checkpoint.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        flow: Flow,
        memory: usize,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Error> {
        self.run_counted((flow, None), memory, Entrance::Limited, work.boxed())
            .await
    }

    async fn run_counted<T: Send + 'static>(
        &self,
        (flow, runnable): (Flow, Option<RunnableJobs>),
        memory: usize,
        entrance: Entrance,
        work: BoxFuture<'static, T>,
    ) -> Result<T, Error> {
        let (job, task) = self.admit(flow, runnable, self.lease(flow, memory), entrance, work)?;
        // Dropping the future marks the job, whose running poll then ends at the next checkpoint.
        let _waiting = AbandonOnDrop(job);
        outcome(AssertUnwindSafe(task).catch_unwind().await, &self.0.shared.metrics)
    }

    /// As [`run`](Self::run), for work of the server itself.
    ///
    /// # Errors
    /// That of `work`, or 503 if it was stopped.
    pub(crate) async fn run_own<T: Send + 'static>(
        &self,
        work: impl Future<Output = status::Result<T>> + Send + 'static,
    ) -> status::Result<T> {
        let done = self.run(Flow::System, 0, work).await;
        done.unwrap_or_else(|e| Err(Status::service_unavailable(format!("the work was not finished: {e:?}"))))
    }

    /// Runs `work` to its end, even if the result is not awaited.
    ///
    /// # Errors
    /// [`Error::Full`]; `work` was not started.
    #[cfg(test)]
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        flow: Flow,
        memory: usize,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<Spawned<T>, Error> {
        let (_, task) = self.admit(flow, None, self.lease(flow, memory), Entrance::Limited, work.boxed())?;
        Ok(self.spawned(task))
    }

    /// As [`Self::spawn`], for a job that is started by another and shares its memory.
    fn spawn_within<T: Send + 'static>(
        &self,
        flow: Flow,
        runnable: Option<RunnableJobs>,
        lease: Arc<Lease>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<Spawned<T>, Error> {
        let (_, task) = self.admit(flow, runnable, lease, Entrance::WithinJob, work.boxed())?;
        Ok(self.spawned(task))
    }

    fn spawned<T>(&self, task: FallibleTask<T, Arc<Job>>) -> Spawned<T> {
        Spawned::new(task, self.0.shared.metrics.clone())
    }

    fn lease(&self, flow: Flow, memory: usize) -> Arc<Lease> {
        Arc::new(Lease {
            shared: Arc::downgrade(&self.0.shared),
            flow,
            memory,
            granted: AtomicBool::new(false),
        })
    }

    fn admit<T: Send + 'static>(
        &self,
        flow: Flow,
        runnable: Option<RunnableJobs>,
        lease: Arc<Lease>,
        entrance: Entrance,
        work: BoxFuture<'static, T>,
    ) -> Result<(Arc<Job>, FallibleTask<T, Arc<Job>>), Error> {
        let shared = &self.0.shared;
        let job = Arc::new(Job {
            flow,
            lease: Arc::clone(&lease),
            runnable: runnable.clone(),
            started: AtomicBool::new(entrance == Entrance::WithinJob),
            abandoned: AtomicBool::new(false),
        });
        shared.enter(flow, entrance)?;
        // Moved into the task, so that the job is counted until its future is dropped, wherever that happens.
        let leave = LeaveOnDrop(Arc::clone(shared), flow);
        let work = request_parts::carried(spans::carried(work));
        let work = current::within(Current::new(self, flow, runnable, Some(lease)), work);
        let work = async move {
            let _leave = leave;
            work.await
        };
        // A weak reference: the queue holds tasks, whose schedule function would otherwise keep the pool
        // alive.
        let queue = Arc::downgrade(shared);
        let schedule = move |runnable: Runnable<Arc<Job>>| {
            if let Some(shared) = queue.upgrade() {
                shared.push(runnable);
            }
        };
        let metadata = Arc::clone(&job);
        let (runnable, task) = Builder::new()
            // A panic propagates to the task that awaits the job instead of ending the worker.
            .propagate_panic(true)
            .metadata(metadata)
            .spawn(move |_| work, schedule);
        runnable.schedule();
        // Fallible: a task that is cancelled yields `None` instead of panicking.
        Ok((job, task.fallible()))
    }
}

struct AbandonOnDrop(Arc<Job>);

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        // Relaxed: only a hint to stop early.
        self.0.abandoned.store(true, Ordering::Relaxed);
    }
}

struct LeaveOnDrop(Arc<Shared>, Flow);

impl Drop for LeaveOnDrop {
    fn drop(&mut self) {
        self.0.leave(self.1);
    }
}

// === impl Shared ===

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn enter(&self, flow: Flow, entrance: Entrance) -> Result<(), Error> {
        let mut state = self.lock();
        if let Flow::Caller(id) = flow {
            let in_all = state.jobs;
            let of_flow = state.by_flow.entry(id).or_default();
            let reason = if in_all >= self.config.jobs {
                Some("jobs")
            } else if *of_flow >= self.config.jobs_per_flow {
                Some("jobs_of_one_caller")
            } else {
                None
            };
            // An unlimited job is counted as well, so that it makes others wait.
            if let Some(reason) = reason.filter(|_| entrance != Entrance::Unlimited) {
                // Undoes the entry that the lookup has made; refused callers would fill the map.
                if *of_flow == 0 {
                    state.by_flow.remove(&id);
                }
                self.metrics.refused(reason);
                return Err(Error::Full);
            }
            *of_flow += 1;
        }
        state.jobs += 1;
        self.metrics.entered();
        Ok(())
    }

    fn leave(&self, flow: Flow) {
        let mut state = self.lock();
        state.jobs -= 1;
        if let Flow::Caller(id) = flow
            && let Some(of_flow) = state.by_flow.get_mut(&id)
        {
            *of_flow -= 1;
            if *of_flow == 0 {
                state.by_flow.remove(&id);
            }
        }
        self.metrics.left();
    }

    fn push(&self, runnable: Runnable<Arc<Job>>) {
        let mut state = self.lock();
        if state.closed {
            // Dropped outside the lock: dropping the task runs `leave`, which takes the lock.
            drop(state);
            return drop(runnable);
        }
        let job = runnable.metadata();
        if let Some(count) = &job.runnable {
            count.increment();
        }
        match job.flow {
            Flow::System => state.queue.push_system(runnable),
            // Started jobs hold memory already and go first within their flow.
            Flow::Caller(id) if job.started.load(Ordering::Relaxed) => state.queue.push_woken(id, runnable),
            Flow::Caller(id) => {
                let memory = job.lease.memory;
                state.queue.push_new(id, runnable, memory);
            }
        }
        drop(state);
        // One job, one thread; notifying all would wake them for nothing.
        self.work.notify_one();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.closed = true;
        // Taken out under the lock and dropped outside: dropping a task takes the lock, see `push`.
        let left = state.queue.drain();
        drop(state);
        self.shared.work.notify_all();
        drop(left);
    }
}

#[cfg(test)]
mod tests;
