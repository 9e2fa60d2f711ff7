//! Task groups: every spawned task has an owner that asks it to end and waits for it.

use super::Signal;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex};
use tokio::task::{Id, JoinSet};
use tokio::time::Instant;

/// Tasks of one owner. Clones are the same group.
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

/// Tasks that were still running at the deadline, and were aborted.
#[derive(Debug, PartialEq, Eq)]
pub struct Stragglers(pub Vec<String>);

impl TaskGroup {
    /// An empty group.
    pub fn new(name: &'static str) -> Self {
        Self(Arc::new(Inner {
            name,
            stop: Signal::new(name),
            tasks: Mutex::default(),
        }))
    }

    /// Fires when the group is asked to end.
    pub fn stop_signal(&self) -> &Signal {
        &self.0.stop
    }

    /// Starts a task. It should end soon after [`Self::stop_signal`] fires. After the group was shut down nothing is
    /// started any more, and the answer is false.
    pub fn spawn(&self, name: impl Into<String>, task: impl Future<Output = ()> + Send + 'static) -> bool {
        self.start(name.into(), task.boxed())
    }

    /// Boxed, because the runtime's code for a task is made once per type of task and scheduler.
    fn start(&self, name: String, task: BoxFuture<'static, ()>) -> bool {
        let mut tasks = self.lock();
        // Looked at under the lock, because `shutdown` fires it before it takes the set.
        if self.0.stop.fired() {
            return false;
        }
        while let Some(ended) = tasks.set.try_join_next_with_id() {
            tasks.note(self.0.name, ended);
        }
        let id = tasks.set.spawn(task).id();
        tasks.names.insert(id, name);
        true
    }

    /// Spawns work that has no end of its own; it is dropped when the group stops.
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
            // Stopping first: the work has no end of its own.
            tokio::select! {
                biased;
                () = stop.wait() => {}
                () = work => {}
            }
        };
        self.start(name, work.boxed())
    }

    /// How many tasks run.
    pub fn len(&self) -> usize {
        let mut tasks = self.lock();
        while let Some(ended) = tasks.set.try_join_next_with_id() {
            tasks.note(self.0.name, ended);
        }
        tasks.set.len()
    }

    /// Whether nothing runs.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Asks all tasks to end and waits for them; those that run beyond `deadline` are aborted and named.
    ///
    /// # Errors
    /// [`Stragglers`].
    ///
    /// # Cancel safety
    /// When dropped, the tasks it waited for are aborted.
    pub async fn shutdown(&self, deadline: Instant) -> Result<(), Stragglers> {
        self.0.stop.fire();
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

    fn lock(&self) -> std::sync::MutexGuard<'_, Tasks> {
        self.0.tasks.lock().expect("no code panics while holding this lock")
    }
}

impl Tasks {
    fn note(&mut self, group: &str, ended: Result<(Id, ()), tokio::task::JoinError>) {
        let id = match &ended {
            Ok((id, ())) => *id,
            Err(e) => e.id(),
        };
        let name = self.names.remove(&id).unwrap_or_default();
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
    async fn shutting_down_waits_for_the_willing_and_names_the_rest() {
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
