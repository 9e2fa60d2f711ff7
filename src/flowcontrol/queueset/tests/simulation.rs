//! [`Simulation`]: clients in closed loops, and the seats that each of them gets over time.

use super::*;
use crate::flowcontrol::integrator::Integrator;
use std::collections::BTreeMap;

pub(super) const SECOND: i64 = 1_000_000_000;

/// Threads that alternate between a request and other work. Times in nanoseconds.
#[derive(Clone, Copy)]
pub(super) struct Client {
    pub(super) hash: u64,
    pub(super) threads: u32,
    pub(super) calls: u32,
    pub(super) execution: i64,
    /// Negative: the next call starts before the previous one ends.
    pub(super) pause: i64,
    pub(super) seats: u32,
    pub(super) last: (u32, i64),
    /// Half of the threads begin in the second half of the evaluation.
    pub(super) split: bool,
}

pub(super) fn client(hash: u64, threads: u32, calls: u32, execution: i64, pause: i64) -> Client {
    Client {
        hash,
        threads,
        calls,
        execution,
        pause,
        seats: 1,
        last: (1, 0),
        split: false,
    }
}

impl Client {
    pub(super) fn wide(self, seats: u32) -> Self {
        Self { seats, ..self }
    }

    pub(super) fn demand(&self) -> f64 {
        f64::from(self.threads * self.seats) * self.execution as f64 / (self.execution + self.pause) as f64
    }
}

#[derive(Clone, Copy)]
enum Event {
    Call { client: usize, calls_left: u32 },
    End { client: usize, id: Id },
}

pub(super) struct Simulation {
    pub(super) set: QueueSet<(usize, u32)>,
    clients: Vec<Client>,
    events: BTreeMap<(i64, u64), Event>,
    serial: u64,
    seats: Vec<Integrator>,
    in_use: Vec<u32>,
    pub(super) rejected: u32,
}

pub(super) fn at(nanos: i64) -> Duration {
    Duration::from_nanos(nanos as u64)
}

impl Simulation {
    pub(super) fn new(queuing: Queuing, limit: u32, clients: &[Client], evaluation: i64) -> Self {
        let mut simulation = Self {
            set: QueueSet::new(at(0), queuing, limit, NEVER),
            clients: clients.to_vec(),
            events: BTreeMap::new(),
            serial: 0,
            seats: vec![Integrator::new(at(0)); clients.len()],
            in_use: vec![0; clients.len()],
            rejected: 0,
        };
        for (i, c) in clients.iter().enumerate() {
            for thread in 0..c.threads {
                let late = c.split && thread >= c.threads / 2;
                // Some nanoseconds apart, so that the order of the first requests is fixed, as in upstream's tests.
                let delay = i64::from(90 * thread) + 20 * i as i64 + if late { evaluation / 2 } else { 0 };
                let calls_left = if late { c.calls / 2 } else { c.calls };
                simulation.schedule(delay, Event::Call { client: i, calls_left });
            }
        }
        simulation
    }

    fn schedule(&mut self, when: i64, event: Event) {
        self.serial += 1;
        self.events.insert((when, self.serial), event);
    }

    fn note(&mut self, now: i64, client: usize, more: i64) {
        let seats = i64::from(self.in_use[client]) + more;
        self.in_use[client] = seats as u32;
        self.seats[client].set(at(now), seats as f64);
    }

    fn begin(&mut self, now: i64, id: Id) {
        let (client, calls_left) = *self.set.item_mut(id);
        let c = self.clients[client];
        self.note(now, client, i64::from(c.seats));
        let next = Event::Call {
            client,
            calls_left: calls_left - 1,
        };
        self.schedule(now + c.execution + c.pause, next);
        self.schedule(now + c.execution, Event::End { client, id });
    }

    pub(super) fn run_until(&mut self, end: i64) {
        loop {
            let timer = self.set.next_event().and_then(|due| i64::try_from(due.as_nanos()).ok());
            let next = self.events.first_key_value().map(|(key, _)| *key);
            match (timer, next) {
                // An event of the same instant comes first: it may make the timer unnecessary.
                (Some(due), next) if due <= end && next.is_none_or(|(when, _)| due < when) => {
                    self.set.advance(at(due));
                    self.begin_dispatched(due);
                }
                (_, Some(key)) if key.0 <= end => {
                    let event = self.events.remove(&key).expect("it was the first");
                    self.happen(key.0, event);
                }
                _ => return,
            }
        }
    }

    fn happen(&mut self, now: i64, event: Event) {
        match event {
            Event::Call { calls_left: 0, .. } => {}
            Event::Call { client, calls_left } => {
                let c = self.clients[client];
                let work = WorkEstimate {
                    initial_seats: c.seats,
                    final_seats: c.last.0,
                    additional_latency: at(c.last.1),
                };
                match self
                    .set
                    .start(at(now), work, c.hash, client as u32, (client, calls_left))
                {
                    Ok(Started::Executing(id)) => self.begin(now, id),
                    Ok(Started::Waiting(_)) => {}
                    Err(_) => self.rejected += 1,
                }
            }
            Event::End { client, id } => {
                let seats = self.clients[client].seats;
                self.note(now, client, -i64::from(seats));
                self.set.finish(at(now), id);
            }
        }
        self.begin_dispatched(now);
    }

    fn begin_dispatched(&mut self, now: i64) {
        for id in dispatched(&mut self.set) {
            self.begin(now, id);
        }
    }

    pub(super) fn averages(&mut self, now: i64) -> Vec<f64> {
        self.seats.iter_mut().map(|s| s.reset(at(now)).average).collect()
    }
}

/// Divides `capacity` so that the smallest unsatisfied share is as large as possible.
pub(super) fn fair(demands: &[f64], capacity: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..demands.len()).collect();
    order.sort_by(|a, b| demands[*a].total_cmp(&demands[*b]));
    let (mut left, mut shares) = (capacity, vec![0.0; demands.len()]);
    for (served, i) in order.into_iter().enumerate() {
        shares[i] = demands[i].min(left / (demands.len() - served) as f64);
        left -= shares[i];
    }
    shares
}

pub(super) fn assert_near(name: &str, got: &[f64], expected: &[f64], margin: f64) {
    for (got, expected) in got.iter().zip(expected) {
        let off = (got - expected).abs() / expected;
        assert!(off <= margin + 1e-7, "{name}: {got} instead of {expected}");
    }
}
