//! Upstream's simulations (`queueset_test.go`): clients in closed loops, and the seats that each of them gets over time.

use super::*;
use crate::flowcontrol::integrator::Integrator;
use std::collections::BTreeMap;

const SECOND: i64 = 1_000_000_000;

/// Threads that alternate between a request and other work. Times in nanoseconds.
#[derive(Clone, Copy)]
struct Client {
    hash: u64,
    threads: u32,
    calls: u32,
    execution: i64,
    /// Negative: the next call starts before the previous one ends.
    pause: i64,
    seats: u32,
    last: (u32, i64),
    /// Half of the threads begin in the second half of the evaluation.
    split: bool,
}

fn client(hash: u64, threads: u32, calls: u32, execution: i64, pause: i64) -> Client {
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
    fn wide(self, seats: u32) -> Self {
        Self { seats, ..self }
    }

    fn demand(&self) -> f64 {
        f64::from(self.threads * self.seats) * self.execution as f64 / (self.execution + self.pause) as f64
    }
}

#[derive(Clone, Copy)]
enum Event {
    Call { client: usize, calls_left: u32 },
    End { client: usize, id: Id },
}

struct Simulation {
    set: QueueSet<(usize, u32)>,
    clients: Vec<Client>,
    events: BTreeMap<(i64, u64), Event>,
    serial: u64,
    seats: Vec<Integrator>,
    in_use: Vec<u32>,
    rejected: u32,
}

fn at(nanos: i64) -> Duration {
    Duration::from_nanos(nanos as u64)
}

impl Simulation {
    fn new(queuing: Queuing, limit: u32, clients: &[Client], evaluation: i64) -> Self {
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

    fn run_until(&mut self, end: i64) {
        loop {
            let timer = self.set.next_event().and_then(|due| i64::try_from(due.as_nanos()).ok());
            let next = self.events.first_key_value().map(|(key, _)| *key);
            match (timer, next) {
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

    fn averages(&mut self, now: i64) -> Vec<f64> {
        self.seats.iter_mut().map(|s| s.reset(at(now)).average).collect()
    }
}

/// Divides `capacity` so that the smallest unsatisfied share is as large as possible.
fn fair(demands: &[f64], capacity: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..demands.len()).collect();
    order.sort_by(|a, b| demands[*a].total_cmp(&demands[*b]));
    let (mut left, mut shares) = (capacity, vec![0.0; demands.len()]);
    for (served, i) in order.into_iter().enumerate() {
        shares[i] = demands[i].min(left / (demands.len() - served) as f64);
        left -= shares[i];
    }
    shares
}

fn assert_near(name: &str, got: &[f64], expected: &[f64], margin: f64) {
    for (got, expected) in got.iter().zip(expected) {
        let off = (got - expected).abs() / expected;
        assert!(off <= margin + 1e-7, "{name}: {got} instead of {expected}");
    }
}

/// Every client gets its fair share, and every request is served.
fn exercise(name: &str, queuing: Queuing, limit: u32, clients: &[Client], seconds: i64, margin: f64) {
    let mut simulation = Simulation::new(queuing, limit, clients, seconds * SECOND);
    simulation.run_until(seconds * SECOND);
    let demands: Vec<f64> = clients.iter().map(Client::demand).collect();
    let averages = simulation.averages(seconds * SECOND);
    assert_near(name, &averages, &fair(&demands, f64::from(limit)), margin);
    simulation.run_until(i64::MAX);
    assert_eq!(simulation.rejected, 0, "{name}");
    assert!(simulation.set.is_idle(), "{name}");
}

#[test]
fn fair_shares_are_max_min() {
    assert_eq!(fair(&[3.0, 7.0, 9.0, 1.0], 14.0), [3.0, 5.0, 5.0, 1.0]);
    assert_eq!(fair(&[1.0, 47.0], 42.0), [1.0, 41.0]);
}

#[test]
fn one_client_has_what_it_asks_for() {
    let alone = [client(1001001001, 1, 21, SECOND, 0)];
    exercise("baseline", queues(9, 3, 8), 1, &alone, 20, 0.0);
}

#[test]
fn flows_share_equally() {
    let equal = |a, b| {
        [
            client(a, 8, 20, SECOND, SECOND - 1),
            client(b, 8, 20, SECOND, SECOND - 1),
        ]
    };
    let flows = equal(1001001001, 2002002002);
    exercise("hand of one", queues(9, 1, 8), 4, &flows, 50, 0.01);
    let flows = [
        client(400900100100, 8, 30, SECOND, SECOND - 1),
        client(300900200200, 8, 30, SECOND, SECOND - 1),
    ];
    exercise("hand of three", queues(8, 3, 16), 4, &flows, 60, 0.03);
    let different = [
        client(1001001001, 8, 20, SECOND, SECOND),
        client(2002002002, 7, 30, SECOND, SECOND / 2),
    ];
    exercise("different pauses", queues(9, 1, 8), 4, &different, 40, 0.01);
}

#[test]
fn a_flow_that_asks_for_less_gets_all_of_it() {
    let flows = [
        client(1001001001, 4, 20, SECOND, SECOND - 1),
        client(2002002002, 2, 20, SECOND, SECOND - 1),
    ];
    exercise("unequal", queues(9, 1, 6), 3, &flows, 20, 0.01);
}

#[test]
fn wide_requests_are_charged_by_seats() {
    let flows = [
        client(10010010010010, 13, 10, SECOND, SECOND - 1),
        client(20020020020020, 7, 10, SECOND, SECOND - 1).wide(2),
    ];
    exercise("different widths", queues(64, 7, 13), 6, &flows, 20, 0.155);
    let mut flows: Vec<Client> = [40040040040040, 50050050050050, 60060060060060, 70070070070070]
        .map(|hash| client(hash, 15, 21, SECOND, SECOND - 1).wide(2))
        .to_vec();
    flows.push(client(90090090090090, 15, 21, SECOND, SECOND - 1).wide(7));
    exercise("wider than the limit", queues(64, 7, 35), 6, &flows, 225, 0.33);
}

/// A quarter of a year per request and thousands of seats: upstream's 64-bit meter is wound back eight times.
#[test]
fn the_meter_reaches_any_reading() {
    const QUARTER: i64 = 91 * 24 * 3600;
    let flows = [
        client(1001001001, 8, 20, QUARTER * SECOND, QUARTER * SECOND).wide(500),
        client(2002002002, 7, 30, QUARTER * SECOND, QUARTER / 2 * SECOND).wide(500),
    ];
    exercise("years", queues(9, 1, 8), 2000, &flows, QUARTER * 40 / 2, 0.01);
}

/// A flow that used less than its share while nobody else wanted it does not starve the other one later.
#[test]
fn unused_shares_do_not_accumulate() {
    let half = Client {
        split: true,
        ..client(2002002002, 2, 40, SECOND, -1)
    };
    let flows = [client(1001001001, 2, 40, SECOND, -1), half];
    let mut simulation = Simulation::new(queues(9, 1, 6), 3, &flows, 40 * SECOND);
    simulation.run_until(20 * SECOND);
    assert_near("first half", &simulation.averages(20 * SECOND), &[2.0, 1.0], 0.01);
    simulation.run_until(40 * SECOND);
    assert_near("second half", &simulation.averages(40 * SECOND), &[1.5, 1.5], 0.26);
}

/// Upstream's table of `TestSeparations`: how additional latency limits what a client gets.
#[test]
fn seats_that_linger_are_missing() {
    let third = 1.0 / 3.0;
    for (pause, pad, last, limit, clients, expected) in [
        (1.0, 0.0, 1, 1, 1, 0.5),
        (1.0, 0.0, 1, 2, 1, 0.5),
        (1.0, 0.0, 2, 2, 1, 0.5),
        (1.0, 0.0, 1, 1, 2, 0.5),
        (1.0, 0.0, 1, 2, 2, 0.5),
        (1.0, 0.0, 2, 2, 2, 0.5),
        (0.0, 1.0, 1, 1, 1, 0.5),
        (0.0, 1.0, 1, 2, 1, 1.0),
        (0.0, 1.0, 2, 2, 1, 0.5),
        (0.0, 1.0, 1, 1, 2, 0.25),
        (0.0, 1.0, 1, 2, 2, 0.5),
        (0.0, 1.0, 2, 2, 2, 0.25),
        (1.0, 0.5, 1, 1, 1, 0.5),
        (1.0, 0.5, 1, 2, 1, 0.5),
        (1.0, 0.5, 2, 2, 1, 0.5),
        (1.0, 0.5, 1, 1, 2, third),
        (1.0, 0.5, 1, 2, 2, 0.5),
        (1.0, 0.5, 2, 2, 2, third),
        (0.5, 1.0, 1, 1, 1, 0.5),
        (0.5, 1.0, 1, 2, 1, 2.0 * third),
        (0.5, 1.0, 2, 2, 1, 0.5),
        (0.5, 1.0, 1, 1, 2, 0.25),
        (0.5, 1.0, 1, 2, 2, 0.5),
        (0.5, 1.0, 2, 2, 2, 0.25),
    ] {
        let nanos = |seconds: f64| (seconds * SECOND as f64) as i64;
        let flow = |hash| Client {
            last: (last, nanos(pad)),
            ..client(hash, 1, 25, SECOND, nanos(pause))
        };
        let flows = &[flow(1001001001), flow(2002002002)][..clients];
        let mut simulation = Simulation::new(queues(9, 3, 8), limit, flows, 24 * SECOND);
        simulation.run_until(24 * SECOND);
        let name = format!("pause {pause}, pad {pad}, {last} final seats, limit {limit}, {clients} clients");
        let averages = simulation.averages(24 * SECOND);
        assert_near(&name, &averages, &vec![expected; clients], 0.0);
    }
}
