//! [`FairQueue`]: the pool's queue, fair between flows by CPU time used, and limited in the memory of started
//! jobs.
//!
//! It implements start-time fair queueing. Each flow has a virtual time, the CPU time charged to it. The flow
//! with the lowest virtual time runs next. An idle flow resumes at the queue's virtual time, so that idling
//! earns no credit.

use std::collections::{BTreeSet, HashMap, VecDeque};

/// Jobs up to this size draw from a separate quarter of the memory, which big jobs cannot use.
const SMALL_JOB_BYTES: usize = 3 << 19;
/// After being passed over this often for lack of memory, a big job blocks all other big jobs until it
/// starts.
const MAX_PASSED_OVER: u32 = 32;

/// Above this number of flows, idle flows are forgotten together with their virtual times.
const MAX_FLOWS: usize = 4096;

/// The jobs waiting to be polled.
pub(super) struct FairQueue<T> {
    system: VecDeque<T>,
    flows: HashMap<u64, Flow<T>>,
    /// Flows with waiting jobs, by virtual time.
    order: BTreeSet<(u64, u64)>,
    /// The queue's virtual time.
    now: u64,
    /// Number of jobs started and not yet finished.
    started: usize,
    memory: Memory,
}

struct Flow<T> {
    virtual_time: u64,
    /// Started jobs ready to continue. They hold memory, so they run first.
    woken: VecDeque<T>,
    /// Jobs not yet started, with their memory.
    new: VecDeque<(T, usize)>,
    /// Number of jobs being polled, or started and waiting for something.
    started: usize,
    memory: usize,
    passed_over: u32,
}

/// Memory of started jobs, in bytes.
struct Memory {
    limit: usize,
    small: usize,
    big: usize,
}

impl Memory {
    /// True if another job fits. The first one always does, so that a job larger than the limit still runs,
    /// alone.
    fn has_room(&self, flow: usize, wanted: usize) -> bool {
        if wanted <= SMALL_JOB_BYTES {
            // The first small job always fits, as the first big one does.
            return self.small == 0 || self.small + wanted <= self.limit / 4;
        }
        let in_all = self.big == 0 || self.big + wanted <= self.limit / 4 * 3;
        // Half for one flow, so that its big jobs cannot keep the others out.
        in_all && (flow == 0 || flow + wanted <= self.limit / 2)
    }

    fn part(&mut self, wanted: usize) -> &mut usize {
        if wanted <= SMALL_JOB_BYTES {
            &mut self.small
        } else {
            &mut self.big
        }
    }
}

impl<T> Flow<T> {
    fn new(virtual_time: u64) -> Self {
        Self {
            virtual_time,
            woken: VecDeque::new(),
            new: VecDeque::new(),
            started: 0,
            memory: 0,
            passed_over: 0,
        }
    }

    fn is_waiting(&self) -> bool {
        !self.woken.is_empty() || !self.new.is_empty()
    }

    fn is_idle(&self) -> bool {
        !self.is_waiting() && self.started == 0
    }
}

impl<T> FairQueue<T> {
    /// Creates a queue. `memory` limits the bytes of started jobs; a job larger than that runs alone.
    pub(super) fn new(memory: usize) -> Self {
        Self {
            system: VecDeque::new(),
            flows: HashMap::new(),
            order: BTreeSet::new(),
            now: 0,
            started: 0,
            memory: Memory {
                limit: memory,
                small: 0,
                big: 0,
            },
        }
    }

    /// Adds a job of the server itself, which has priority.
    pub(super) fn push_system(&mut self, item: T) {
        self.system.push_back(item);
    }

    /// Adds a job that has not started, with the memory it will hold once started.
    pub(super) fn push_new(&mut self, flow: u64, item: T, memory: usize) {
        self.flow_to_fill(flow).new.push_back((item, memory));
    }

    /// Adds a started job that is ready to continue.
    pub(super) fn push_woken(&mut self, flow: u64, item: T) {
        self.flow_to_fill(flow).woken.push_back(item);
    }

    fn flow_to_fill(&mut self, id: u64) -> &mut Flow<T> {
        let now = self.now;
        let flow = self.flows.entry(id).or_insert_with(|| Flow::new(now));
        if !flow.is_waiting() {
            // An idle flow keeps a debt but earns no credit.
            flow.virtual_time = flow.virtual_time.max(now);
            self.order.insert((flow.virtual_time, id));
        }
        flow
    }

    /// Takes the next job to poll; `None` if there is none or memory permits none.
    pub(super) fn pop(&mut self) -> Option<T> {
        if let Some(item) = self.system.pop_front() {
            return Some(item);
        }
        let mut found = None;
        let mut reserved = false;
        // Usually the first flow can run; the loop continues only while memory is short.
        for &(_, id) in &self.order {
            let flow = self.flows.get_mut(&id).expect("an ordered flow exists");
            let startable = |flow: &Flow<T>| {
                let wanted = flow.new.front().map(|(_, wanted)| *wanted);
                // Once a big job has been passed over too often no other big one may start, so that memory
                // frees up for it.
                wanted.is_some_and(|w| (w <= SMALL_JOB_BYTES || !reserved) && self.memory.has_room(flow.memory, w))
            };
            if !flow.woken.is_empty() || startable(flow) {
                found = Some(id);
                break;
            }
            flow.passed_over += 1;
            reserved |= flow.passed_over > MAX_PASSED_OVER;
        }
        let id = found?;
        let flow = self.flows.get_mut(&id).expect("an ordered flow exists");
        // `max`: the flow may lag behind the queue's time.
        self.now = self.now.max(flow.virtual_time);
        let item = match flow.woken.pop_front() {
            Some(item) => item,
            None => {
                let (item, memory) = flow.new.pop_front().expect("the flow has something to start");
                flow.started += 1;
                self.started += 1;
                flow.memory += memory;
                flow.passed_over = 0;
                *self.memory.part(memory) += memory;
                item
            }
        };
        if !flow.is_waiting() {
            self.order.remove(&(flow.virtual_time, id));
        }
        Some(item)
    }

    /// Charges CPU time to a flow, in nanoseconds.
    pub(super) fn charge(&mut self, id: u64, used: u64) {
        // The queue's time advances by one flow's share, counting one flow that may yet arrive. Newcomers
        // start at this time, so a stream of them delays waiting flows only for a bounded time.
        self.now += used / (self.order.len() as u64 + 1);
        let Some(flow) = self.flows.get_mut(&id) else { return };
        let was = flow.virtual_time;
        flow.virtual_time += used;
        if flow.is_waiting() {
            // The order's key contains the virtual time, so it is replaced and not changed in place.
            self.order.remove(&(was, id));
            self.order.insert((flow.virtual_time, id));
        }
        self.forget_if_idle(id);
    }

    /// Releases the memory of a finished job.
    pub(super) fn release(&mut self, id: u64, memory: usize) {
        let part = self.memory.part(memory);
        *part = part.saturating_sub(memory);
        self.started = self.started.saturating_sub(1);
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.started = flow.started.saturating_sub(1);
            flow.memory = flow.memory.saturating_sub(memory);
        }
        self.forget_if_idle(id);
    }

    /// Forgets a flow without jobs. A flow whose virtual time is ahead of the queue's is kept; otherwise it
    /// could return without its debt.
    fn forget_if_idle(&mut self, id: u64) {
        let now = self.now;
        if self
            .flows
            .get(&id)
            .is_some_and(|f| f.is_idle() && f.virtual_time <= now)
        {
            self.flows.remove(&id);
        }
        // Resetting also keeps virtual times from growing for ever.
        if self.order.is_empty() && self.started == 0 {
            // No flow competes, so no flow is ahead.
            self.flows.clear();
            self.now = 0;
        } else if self.flows.len() > MAX_FLOWS {
            // Their debts are lost; a bounded map matters more.
            self.flows.retain(|_, flow| !flow.is_idle());
        }
    }

    /// Number of jobs waiting to be polled.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let flows = self.order.iter().filter_map(|(_, id)| self.flows.get(id));
        self.system.len() + flows.map(|f| f.woken.len() + f.new.len()).sum::<usize>()
    }

    /// Bytes held by started jobs.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.memory.small + self.memory.big
    }

    /// Removes and returns all jobs.
    pub(super) fn drain(&mut self) -> Vec<T> {
        self.order.clear();
        let mut all: Vec<T> = self.system.drain(..).collect();
        for flow in self.flows.values_mut() {
            all.extend(flow.woken.drain(..));
            all.extend(flow.new.drain(..).map(|(item, _)| item));
        }
        all
    }
}

#[cfg(test)]
mod tests;
