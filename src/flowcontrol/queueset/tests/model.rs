//! A reference model of the algorithm: every decision is a loop over all queues, and nothing is cached that can be
//! computed. Random histories must lead the set and the model to the same decisions.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const SERVICE: f64 = 0.003;

#[derive(Clone, Default)]
struct ModelQueue {
    waiting: Vec<u32>,
    executing: Vec<u32>,
    seats: u32,
    next: i128,
}

struct Model {
    dealer: Dealer,
    length_limit: usize,
    limit: u32,
    queues: Vec<ModelQueue>,
    r: i128,
    now: Duration,
    last: usize,
    enqueues: usize,
    /// Work, queue, arrival, start.
    requests: BTreeMap<u32, (WorkEstimate, usize, i128, Duration)>,
    /// Ends of additional latencies: when, queue, seats.
    lingering: Vec<(Duration, usize, u32)>,
}

fn units(seats: f64, seconds: f64) -> i128 {
    (seats * seconds * 1e8).round() as i128
}

impl Model {
    fn work(&self, n: u32) -> i128 {
        let work = self.requests[&n].0;
        let latency = work.additional_latency.as_secs_f64();
        units(f64::from(work.initial_seats), SERVICE) + units(f64::from(work.final_seats), latency)
    }

    fn seats(&self, n: u32) -> u32 {
        self.requests[&n].0.max_seats()
    }

    fn in_use(&self) -> u32 {
        self.queues.iter().map(|q| q.seats).sum()
    }

    fn executing(&self) -> usize {
        self.queues.iter().map(|q| q.executing.len()).sum()
    }

    fn read(&mut self, now: Duration) {
        let active = |q: &&ModelQueue| !q.waiting.is_empty() || !q.executing.is_empty();
        let queues = self.queues.iter().filter(active).count();
        if queues > 0 {
            let wanted = |q: &ModelQueue| q.seats + q.waiting.iter().map(|n| self.seats(*n)).sum::<u32>();
            let wanted: u32 = self.queues.iter().map(wanted).sum();
            let rate = f64::from(wanted.min(self.limit)) / queues as f64;
            self.r += units(rate, (now - self.now).as_secs_f64());
        }
        self.now = now;
    }

    fn sync(&mut self, now: Duration) {
        self.lingering.sort();
        while let Some((until, queue, seats)) = self.lingering.first().copied().filter(|l| l.0 <= now) {
            self.lingering.remove(0);
            self.read(until);
            self.queues[queue].seats -= seats;
        }
        self.read(now);
    }

    fn bound(&mut self, queue: usize) {
        if let Some(first) = self.queues[queue].waiting.first() {
            let arrival = self.requests[first].2;
            self.queues[queue].next = self.queues[queue].next.max(arrival);
        }
    }

    fn start(&mut self, now: Duration, n: u32, work: WorkEstimate, hash: u64) -> bool {
        self.sync(now);
        let hand = self.dealer.deal(hash);
        let cards = hand.cards();
        // As `QueueSet::next_card`, but counted: the hand has one size here.
        let offset = self.enqueues % cards.len();
        self.enqueues += 1;
        let (mut best, mut least) = (0, i128::MAX);
        for i in 0..cards.len() {
            let card = cards[(offset + i) % cards.len()] as usize;
            let work = self.queues[card].waiting.iter().map(|n| self.work(*n)).sum::<i128>();
            if work < least {
                (best, least) = (card, work);
            }
        }
        if self.in_use() >= self.limit && self.queues[best].waiting.len() >= self.length_limit {
            return false;
        }
        self.requests.insert(n, (work, best, self.r, now));
        let r = self.r;
        let queue = &mut self.queues[best];
        if queue.waiting.is_empty() && queue.executing.is_empty() {
            queue.next = r;
        }
        queue.waiting.push(n);
        self.bound(best);
        self.dispatch();
        true
    }

    fn dispatch(&mut self) {
        while self.in_use() < self.limit {
            let (mut best, mut first) = (None, i128::MAX);
            for i in 1..=self.queues.len() {
                let at = (self.last + i) % self.queues.len();
                if let Some(n) = self.queues[at].waiting.first() {
                    let finish = self.queues[at].next + self.work(*n);
                    if finish < first {
                        (best, first) = (Some(at), finish);
                    }
                }
            }
            let Some(at) = best else { return };
            let n = self.queues[at].waiting[0];
            let seats = self.seats(n);
            let fits = match seats > self.limit {
                true => self.executing() == 0,
                false => self.in_use() + seats <= self.limit,
            };
            if !fits {
                return;
            }
            let work = self.work(n);
            if self.requests[&n].0.final_seats > self.limit {
                let narrow = self.requests[&n].0.narrowed_to(self.limit);
                self.requests.get_mut(&n).unwrap().0 = narrow;
            }
            let seats = self.seats(n);
            let now = self.now;
            self.requests.get_mut(&n).unwrap().3 = now;
            let queue = &mut self.queues[at];
            queue.waiting.remove(0);
            queue.executing.push(n);
            queue.seats += seats;
            queue.next += work;
            self.last = at;
            self.bound(at);
        }
    }

    fn finish(&mut self, now: Duration, n: u32) {
        self.sync(now);
        let (work, at, _, started) = self.requests[&n];
        let queue = &mut self.queues[at];
        if let Some(position) = queue.waiting.iter().position(|w| *w == n) {
            queue.waiting.remove(position);
        } else {
            queue.executing.retain(|e| *e != n);
            let seats = f64::from(work.initial_seats);
            queue.next += units(seats, (now - started).as_secs_f64()) - units(seats, SERVICE);
            match work.additional_latency {
                Duration::ZERO => queue.seats -= work.max_seats(),
                latency => self.lingering.push((now + latency, at, work.max_seats())),
            }
        }
        self.bound(at);
        self.requests.remove(&n);
        self.dispatch();
    }
}

#[derive(Clone, Debug)]
enum Step {
    Start { flow: u8, seats: u8, last: u8 },
    Finish(u16),
    Limit(u8),
}

fn step() -> impl Strategy<Value = (u16, Step)> {
    let start = (0..5u8, 1..4u8, 0..8u8).prop_map(|(flow, seats, last)| Step::Start { flow, seats, last });
    let step = prop_oneof![
        5 => start,
        4 => any::<u16>().prop_map(Step::Finish),
        1 => (1..8u8).prop_map(Step::Limit),
    ];
    (0..30u16, step)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn decisions_match_the_reference_model(
        count in 1..12u32, hand in 1..4u32, length in 1..6u32,
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let Some(dealer) = Dealer::try_new(count, hand.min(count)) else { return Ok(()) };
        let queuing = Queuing::Queues { dealer, length_limit: length };
        let mut set = QueueSet::new(ms(0), queuing, 4, NEVER);
        let mut model = Model {
            dealer,
            length_limit: length as usize,
            limit: 4,
            queues: vec![ModelQueue::default(); count as usize],
            r: 0,
            now: ms(0),
            last: 0,
            enqueues: 0,
            requests: BTreeMap::new(),
            lingering: Vec::new(),
        };
        let mut open: Vec<(u32, Id)> = Vec::new();
        let mut now = ms(0);
        for (n, (passed, step)) in (0u32..).zip(steps) {
            now += ms(u64::from(passed));
            // Lingering seats become free at their time, as the driver's timer does.
            while let Some(at) = set.next_event().filter(|at| *at < now) {
                set.advance(at);
                model.sync(at);
                model.dispatch();
            }
            match step {
                Step::Start { flow, seats, last } => {
                    let work = WorkEstimate {
                        initial_seats: u32::from(seats),
                        final_seats: u32::from(last),
                        additional_latency: ms(if last > 0 { 20 } else { 0 }),
                    };
                    let hash = u64::from(flow).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                    let started = set.start(now, work, hash, 0, n);
                    prop_assert_eq!(started.is_ok(), model.start(now, n, work, hash));
                    if let Ok(Started::Executing(id) | Started::Waiting(id)) = started {
                        open.push((n, id));
                    }
                }
                Step::Finish(which) if !open.is_empty() => {
                    let (n, id) = open.remove(usize::from(which) % open.len());
                    prop_assert_eq!(set.finish(now, id), n);
                    model.finish(now, n);
                }
                Step::Finish(_) => {}
                Step::Limit(limit) => {
                    set.reconfigure(now, queuing, u32::from(limit));
                    model.sync(now);
                    model.limit = u32::from(limit);
                    model.dispatch();
                }
            }
            dispatched(&mut set);
            for (n, id) in &open {
                let queue = &model.queues[model.requests[n].1];
                prop_assert_eq!(set.is_waiting(*id), queue.waiting.contains(n), "request {}", n);
            }
            prop_assert_eq!(set.totals.seats_in_use, model.in_use());
            prop_assert_eq!(set.totals.executing as usize, model.executing());
            // Readings differ by rounding only.
            let difference = set.r.as_f64() - model.r as f64 / 1e8;
            prop_assert!(difference.abs() < 1e-4, "{difference}");
        }
        for (_, id) in open {
            set.finish(now, id);
        }
        // Past the ends of all additional latencies.
        set.sync(now + ms(10_000));
        prop_assert!(set.is_idle() && set.queues().is_empty());
        prop_assert_eq!((set.totals.seats_in_use, set.queued_seats, set.active_queues), (0, 0, 0));
    }
}
