//! A gate that lets a few through at a time, and owners in turn: whoever has many waiting delays himself, not others.

use super::slots::Owner;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::oneshot;

/// The gate.
#[derive(Debug)]
pub(super) struct Gate(Mutex<State>);

#[derive(Debug)]
struct State {
    free: usize,
    waiting: HashMap<Owner, VecDeque<oneshot::Sender<Pass>>>,
    /// Those who have somebody waiting, the next one first.
    turns: VecDeque<Owner>,
}

/// The right to be inside, given up on drop.
#[derive(Debug)]
pub(super) struct Pass(Option<Arc<Gate>>);

impl Gate {
    /// Lets `places` through at once.
    pub(super) fn new(places: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            free: places.max(1),
            waiting: HashMap::new(),
            turns: VecDeque::new(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no code panics while holding this lock")
    }

    /// Waits for the owner's turn.
    ///
    /// # Cancel safety
    /// Cancel safe: a place in the queue is lost, and a pass that was granted goes to the next.
    pub(super) async fn pass(self: &Arc<Self>, owner: &Owner) -> Pass {
        let granted = {
            let mut state = self.lock();
            if state.free > 0 {
                state.free -= 1;
                return Pass(Some(Arc::clone(self)));
            }
            let (grant, granted) = oneshot::channel();
            let queue = state.waiting.entry(owner.clone()).or_default();
            let is_first = queue.is_empty();
            queue.push_back(grant);
            if is_first {
                state.turns.push_back(owner.clone());
            }
            granted
        };
        // The gate outlives those who wait: each holds it.
        let pass = granted.await.unwrap_or(Pass(None));
        // Woken by the one before, a task runs next on its thread; what else is ready there goes first.
        tokio::task::yield_now().await;
        pass
    }

    /// One has left: the next may enter.
    fn next(self: &Arc<Self>) {
        let mut pass = Pass(Some(Arc::clone(self)));
        loop {
            let grant = {
                let mut state = self.lock();
                match state.pop() {
                    Some(grant) => grant,
                    None => {
                        state.free += 1;
                        pass.0 = None;
                        return;
                    }
                }
            };
            match grant.send(pass) {
                Ok(()) => return,
                // That one waits no more.
                Err(back) => pass = back,
            }
        }
    }
}

impl State {
    fn pop(&mut self) -> Option<oneshot::Sender<Pass>> {
        let owner = self.turns.pop_front()?;
        let queue = self.waiting.get_mut(&owner)?;
        let grant = queue.pop_front();
        if queue.is_empty() {
            self.waiting.remove(&owner);
        } else {
            self.turns.push_back(owner);
        }
        grant
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if let Some(gate) = self.0.take() {
            gate.next();
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
    async fn owners_take_turns_whoever_has_more_waiting() {
        let gate = Gate::new(1);
        let first = gate.pass(&owner(1)).await;
        let mut many: Vec<_> = (0..100)
            .map(|_| {
                Box::pin({
                    let gate = gate.clone();
                    async move { gate.pass(&owner(1)).await }
                })
            })
            .collect();
        for waiting in &mut many {
            assert!(waiting.as_mut().now_or_never().is_none());
        }
        let other = owner(2);
        let mut one = Box::pin(gate.pass(&other));
        assert!(one.as_mut().now_or_never().is_none());
        drop(first);
        drop(many.remove(0).await);
        drop(one.await);
        // Those who stop waiting hold nobody up.
        many.truncate(2);
        drop(many.pop());
        drop(many.remove(0).await);
        assert!(gate.pass(&other).now_or_never().is_some());
        assert!(gate.lock().waiting.is_empty() && gate.lock().turns.is_empty());
    }
}
