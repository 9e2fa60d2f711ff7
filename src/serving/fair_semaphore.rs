//! A fair semaphore: permits are granted round-robin over owners, so an owner with many waiters delays only
//! itself.
//!
//! It limits how many TLS handshakes compute at once; see [`FairSemaphore::acquire`].

use super::slots::Owner;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tokio::sync::oneshot;

use crate::sync::{Mutex, MutexGuard};

/// A semaphore that is fair between owners.
#[derive(Debug)]
pub(super) struct FairSemaphore(Mutex<State>);

#[derive(Debug)]
struct State {
    free: usize,
    waiting: HashMap<Owner, VecDeque<oneshot::Sender<Permit>>>,
    /// Owners with waiters, in the order in which they are served.
    order: VecDeque<Owner>,
}

/// A permit, released on drop.
#[derive(Debug)]
pub(super) struct Permit(Option<Arc<FairSemaphore>>);

impl FairSemaphore {
    /// A semaphore with this many permits, at least one.
    pub(super) fn new(permits: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            free: permits.max(1),
            waiting: HashMap::new(),
            order: VecDeque::new(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// Waits for a permit.
    ///
    /// # Cancel safety
    /// Cancel safe: a cancelled caller loses its place in the queue, and a permit already granted passes to
    /// the next.
    pub(super) async fn acquire(self: &Arc<Self>, owner: &Owner) -> Permit {
        let granted = {
            let mut state = self.lock();
            if state.free > 0 {
                state.free -= 1;
                return Permit(Some(Arc::clone(self)));
            }
            let (grant, granted) = oneshot::channel();
            let queue = state.waiting.entry(owner.clone()).or_default();
            let is_first = queue.is_empty();
            queue.push_back(grant);
            // An owner is in `order` once, however many waiters it has.
            if is_first {
                state.order.push_back(owner.clone());
            }
            granted
        };
        // The sender is dropped only with the semaphore, which `self` keeps alive; so this never yields the
        // empty permit.
        let permit = granted.await.unwrap_or(Permit(None));
        // tokio runs a task woken by the current one next on the same thread. Yielding lets other ready tasks
        // run first.
        tokio::task::yield_now().await;
        permit
    }

    /// Passes a released permit on to the next waiter.
    fn next(self: &Arc<Self>) {
        let mut permit = Permit(Some(Arc::clone(self)));
        loop {
            let grant = {
                let mut state = self.lock();
                match state.pop() {
                    Some(grant) => grant,
                    None => {
                        // Counted free under the same lock that found no waiter, so that none can queue in
                        // between.
                        state.free += 1;
                        // Disarmed: its drop would release it a second time.
                        permit.0 = None;
                        return;
                    }
                }
            };
            match grant.send(permit) {
                Ok(()) => return,
                // That waiter was cancelled.
                Err(back) => permit = back,
            }
        }
    }
}

impl State {
    fn pop(&mut self) -> Option<oneshot::Sender<Permit>> {
        let owner = self.order.pop_front()?;
        let queue = self.waiting.get_mut(&owner)?;
        let grant = queue.pop_front();
        if queue.is_empty() {
            self.waiting.remove(&owner);
        } else {
            // Behind all others: one permit per owner and round.
            self.order.push_back(owner);
        }
        grant
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(semaphore) = self.0.take() {
            semaphore.next();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use std::net::IpAddr;

    fn owner(last: u8) -> Owner {
        Owner::of(IpAddr::from([10, 0, 0, last]))
    }

    #[tokio::test]
    async fn permits_are_granted_round_robin_over_owners() {
        let semaphore = FairSemaphore::new(1);
        let first = semaphore.acquire(&owner(1)).await;
        let mut many: Vec<_> = (0..100)
            .map(|_| {
                Box::pin({
                    let semaphore = semaphore.clone();
                    async move { semaphore.acquire(&owner(1)).await }
                })
            })
            .collect();
        for waiting in &mut many {
            assert!(waiting.as_mut().now_or_never().is_none());
        }
        let other = owner(2);
        let mut one = Box::pin(semaphore.acquire(&other));
        assert!(one.as_mut().now_or_never().is_none());
        drop(first);
        drop(many.remove(0).await);
        drop(one.await);
        // Cancelled waiters are skipped.
        many.truncate(2);
        drop(many.pop());
        drop(many.remove(0).await);
        assert!(semaphore.acquire(&other).now_or_never().is_some());
        assert!(semaphore.lock().waiting.is_empty() && semaphore.lock().order.is_empty());
    }
}
