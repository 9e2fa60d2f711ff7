//! [`RunnableJobs`]: whether a request waits for the pool. [`HeldBackFlows`]: whose responses wait until
//! their callers have read others.

use crate::sync::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Number of jobs of one request that wait for a thread of the pool or run on one. Jobs that wait for
/// storage, a client or another server do not count. Clones share the number.
#[derive(Clone, Debug)]
pub(crate) struct RunnableJobs(Arc<OfRequest>);

#[derive(Debug)]
struct OfRequest {
    jobs: AtomicU32,
    flow: u64,
    held_back: Arc<HeldBackFlows>,
}

impl RunnableJobs {
    /// The counter of one request. Responses that wait are counted in `held_back`.
    pub(crate) fn of_flow(flow: u64, held_back: &Arc<HeldBackFlows>) -> Self {
        Self(Arc::new(OfRequest {
            jobs: AtomicU32::new(0),
            flow,
            held_back: Arc::clone(held_back),
        }))
    }

    /// True if the pool owes the request work.
    pub(crate) fn any(&self) -> bool {
        self.0.jobs.load(Ordering::Relaxed) > 0
    }

    pub(super) fn increment(&self) {
        self.0.jobs.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn decrement(&self) {
        self.0.jobs.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a response of the request as held back until the result is dropped.
    pub(super) fn hold_back(&self) -> HeldBack {
        self.0.held_back.change(self.0.flow, |responses| responses + 1);
        HeldBack(self.clone())
    }
}

/// See [`RunnableJobs::hold_back`].
pub(super) struct HeldBack(RunnableJobs);

impl Drop for HeldBack {
    fn drop(&mut self) {
        let of_request = &*self.0.0;
        of_request.held_back.change(of_request.flow, |responses| responses - 1);
    }
}

/// The flows whose responses wait because the callers have not read others. More of their requests would only
/// have to wait, too.
#[derive(Debug, Default)]
pub(crate) struct HeldBackFlows {
    /// Number of such flows.
    flows: AtomicUsize,
    responses: Mutex<HashMap<u64, u32>>,
}

impl HeldBackFlows {
    /// True if a response of the flow waits.
    pub(crate) fn contains(&self, flow: u64) -> bool {
        // The counter spares the lock in the common case that nobody is held back.
        self.flows.load(Ordering::Relaxed) > 0 && self.responses.lock().contains_key(&flow)
    }

    fn change(&self, flow: u64, to: impl FnOnce(u32) -> u32) {
        let mut responses = self.responses.lock();
        let of_flow = responses.entry(flow).or_default();
        *of_flow = to(*of_flow);
        if *of_flow == 0 {
            responses.remove(&flow);
        }
        self.flows.store(responses.len(), Ordering::Relaxed);
    }
}
