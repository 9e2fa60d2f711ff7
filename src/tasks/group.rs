//! [`TaskGroup`]: every spawned task has an owner that stops it and waits for it.

use super::Signal;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use tokio::task::{Id, JoinSet};
use tokio::time::Instant;

use crate::sync::Mutex;

/// The tasks of one owner. Clones refer to the same group.
///
/// ```
/// use std::time::Duration;
/// use tokio::time::Instant;
/// use torana::sdk::TaskGroup;
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), torana::sdk::Stragglers> {
/// let tasks = TaskGroup::new("example");
/// let stop = tasks.stop_signal().clone();
/// tasks.spawn("finishes by itself", async move {
///     stop.wait().await;
///     // Unfinished work is completed here.
/// });
/// tasks.spawn_until_stopped("is dropped", std::future::pending());
/// assert_eq!(tasks.len(), 2);
/// tasks.shutdown(Instant::now() + Duration::from_secs(5)).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TaskGroup(Arc<Inner>);

struct Inner {
    name: &'static str,
    stop: Signal,
    tasks: Mutex<Tasks>,
}

#[derive(Default)]
struct Tasks {
    set: JoinSet<()>,
    names: HashMap<Id, String>,
}

/// Names of the tasks that were still running at the deadline and were aborted.
#[derive(Debug, PartialEq, Eq)]
pub struct Stragglers(pub Vec<String>);

impl TaskGroup {
    /// Creates an empty group. The name is used in logs.
    pub fn new(name: &'static str) -> Self {
        Self(Arc::new(Inner {
            name,
            stop: Signal::new(name),
            tasks: Mutex::default(),
        }))
    }

    /// Fires when the group shuts down.
    pub fn stop_signal(&self) -> &Signal {
        &self.0.stop
    }

    /// Starts a task, which should end soon after [`Self::stop_signal`] fires. Returns false, without
    /// starting it, after the group was shut down.
    pub fn spawn(&self, name: impl Into<String>, task: impl Future<Output = ()> + Send + 'static) -> bool {
        self.start(name.into(), task.boxed())
    }

    /// Boxed, because tokio's task code is instantiated per future type: one type keeps the binary and builds
    /// small.
    fn start(&self, name: String, task: BoxFuture<'static, ()>) -> bool {
        let mut tasks = self.lock();
        // Checked under the lock, because `shutdown` fires the signal before it takes the set.
        if self.0.stop.fired() {
            return false;
        }
        // Ended tasks are collected here, or a group that spawns one per connection would grow for ever.
        while let Some(ended) = tasks.set.try_join_next_with_id() {
            tasks.note(self.0.name, ended);
        }
        let id = tasks.set.spawn(task).id();
        tasks.names.insert(id, name);
        true
    }

    /// Spawns work that runs until the group stops, and is then dropped.
    pub fn spawn_until_stopped(
        &self,
        name: impl Into<String>,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> bool {
        self.start_until_stopped(name.into(), work.boxed())
    }

    fn start_until_stopped(&self, name: String, work: BoxFuture<'static, ()>) -> bool {
        let stop = self.stop_signal().clone();
        let work = async move {
            // The stop signal first: the work never ends on its own.
            tokio::select! {
                biased;
                () = stop.wait() => {}
                () = work => {}
            }
        };
        self.start(name, work.boxed())
    }

    /// Number of running tasks.
    pub fn len(&self) -> usize {
        let mut tasks = self.lock();
        while let Some(ended) = tasks.set.try_join_next_with_id() {
            tasks.note(self.0.name, ended);
        }
        tasks.set.len()
    }

    /// True if no task is running.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Stops all tasks and waits for them. Tasks still running at `deadline` are aborted and named in the
    /// error.
    ///
    /// # Errors
    /// [`Stragglers`] if tasks had to be aborted.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future aborts the tasks it was waiting for.
    pub async fn shutdown(&self, deadline: Instant) -> Result<(), Stragglers> {
        self.0.stop.fire();
        // Taken out of the lock: waiting for the tasks must not block `spawn` and `len`.
        let mut tasks = std::mem::take(&mut *self.lock());
        loop {
            match tokio::time::timeout_at(deadline, tasks.set.join_next_with_id()).await {
                Ok(None) => return Ok(()),
                Ok(Some(ended)) => tasks.note(self.0.name, ended),
                Err(_) => {
                    tasks.set.abort_all();
                    let mut late: Vec<String> = tasks.names.into_values().collect();
                    late.sort();
                    return Err(Stragglers(late));
                }
            }
        }
    }

    fn lock(&self) -> crate::sync::MutexGuard<'_, Tasks> {
        self.0.tasks.lock()
    }
}

impl Tasks {
    fn note(&mut self, group: &str, ended: Result<(Id, ()), tokio::task::JoinError>) {
        let id = match &ended {
            Ok((id, ())) => *id,
            Err(e) => e.id(),
        };
        let name = self.names.remove(&id).unwrap_or_default();
        // A cancelled task was aborted on purpose.
        if let Err(e) = ended
            && e.is_panic()
        {
            tracing::error!(group, task = name, "task panicked: {e}");
        }
    }
}

impl fmt::Debug for TaskGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskGroup({})", self.0.name)
    }
}

impl fmt::Display for Stragglers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tasks did not end in time: {}", self.0.join(", "))
    }
}

impl std::error::Error for Stragglers {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn shutdown_waits_for_tasks_and_names_stragglers() {
        let g = TaskGroup::new("g");
        let stop = g.stop_signal().clone();
        assert!(g.spawn("willing", async move { stop.wait().await }));
        assert!(g.spawn("stubborn", std::future::pending()));
        let late = g.shutdown(Instant::now() + Duration::from_secs(1)).await;
        assert_eq!(late, Err(Stragglers(vec!["stubborn".into()])));
        assert!(!g.spawn("late", async {}));
        assert!(g.is_empty());
    }
}
