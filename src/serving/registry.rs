//! The set of open connections: signals all of them, and waits until the last one has ended.

use super::activity::Activity;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

use crate::sync::Mutex;

/// The open connections. A connection is entered before its task is spawned, and removed when the task ends.
#[derive(Debug)]
pub(super) struct Registry {
    open: Mutex<(u64, HashMap<u64, Arc<Activity>>)>,
    count: watch::Sender<usize>,
}

/// A connection's registration, removed on drop.
pub(super) struct Entry {
    registry: Arc<Registry>,
    id: u64,
}

impl Registry {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            open: Mutex::default(),
            count: watch::Sender::new(0),
        })
    }

    pub(super) fn enter(self: &Arc<Self>, activity: Arc<Activity>) -> Entry {
        let mut open = self.open.lock();
        open.0 += 1;
        let id = open.0;
        open.1.insert(id, activity);
        // Under the lock, so that counts are published in order.
        self.count.send_replace(open.1.len());
        Entry {
            registry: Arc::clone(self),
            id,
        }
    }

    pub(super) fn len(&self) -> usize {
        *self.count.borrow()
    }

    /// Sends a signal to every connection.
    pub(super) fn signal(&self, signal: u8) {
        // Connections that enter later are not signalled: a drain ends the accept loop first.
        let open = self.open.lock();
        for activity in open.1.values() {
            activity.signal(signal);
        }
    }

    /// Waits until no connection is left. False if some remain after `limit`.
    pub(super) async fn wait_empty(&self, limit: Duration) -> bool {
        let mut count = self.count.subscribe();
        let empty = count.wait_for(|n| *n == 0);
        matches!(tokio::time::timeout(limit, empty).await, Ok(Ok(_)))
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut open = self.registry.open.lock();
        open.1.remove(&self.id);
        self.registry.count.send_replace(open.1.len());
    }
}
