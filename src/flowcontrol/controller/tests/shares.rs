//! How levels share the server's seats over time.

use super::*;
use std::collections::HashMap;

#[tokio::test(start_paused = true)]
async fn limits_follow_demand_within_two_periods() {
    let telemetry = Telemetry::new();
    let controller = FlowController::new(100, mandatory(), Nothing, &telemetry);
    let lending = |name: &str| {
        let mut object = level(name, 50, 100);
        object.set(&["spec", "limited", "lendablePercent"], 80i64);
        object.set(&["spec", "limited", "borrowingLimitPercent"], Value::Null);
        object
    };
    controller.digest(
        &[schema("a", 100, "a", "busy"), schema("b", 200, "b", "b")],
        &[lending("a"), lending("b")],
    );
    let task = tokio::spawn(controller.clone().run());
    let limit = |name: &str| {
        let name = name.to_owned();
        controller.inspect(|levels| {
            levels
                .iter()
                .find(|m| **m.level.name() == *name)
                .map(|m| m.current)
                .unwrap()
        })
    };
    let mut held: Vec<Permit> = (0..120)
        .map(|_| get(&controller, "u", "busy").admission.unwrap())
        .collect();
    // Half a second past the adjustment of limits.
    tokio::time::sleep(Duration::from_millis(10_500)).await;
    let borrowed = limit("a");
    assert!(borrowed > 75, "{borrowed}");
    let _owner: Vec<Permit> = (0..100)
        .map(|_| get(&controller, "u", "b").admission.unwrap())
        .collect();
    held.truncate(100);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let returned = limit("b");
    assert!(
        returned >= 48,
        "{returned} of 48 nominal seats are back after one period"
    );
    task.abort();
}

/// Clients in closed loops: each of them sends its next request when the previous one is done.
struct Crowd {
    user: &'static str,
    group: &'static str,
    waiting: Vec<Permit>,
    /// Executing requests and their ends, in milliseconds.
    executing: Vec<(u64, Permit)>,
    seat_milliseconds: u64,
}

impl Crowd {
    const EXECUTION: u64 = 50;

    fn new(controller: &FlowController, user: &'static str, group: &'static str, clients: usize) -> Self {
        let waiting = (0..clients)
            .map(|_| get(controller, user, group).admission.unwrap())
            .collect();
        Self {
            user,
            group,
            waiting,
            executing: Vec::new(),
            seat_milliseconds: 0,
        }
    }

    /// Ends finished requests, starts admitted ones, and counts executing ones for the next `step`
    /// milliseconds.
    fn step(&mut self, controller: &FlowController, now: u64, step: u64) {
        let (done, running) = std::mem::take(&mut self.executing)
            .into_iter()
            .partition_map(|(end, permit)| {
                if end <= now {
                    Ok((end, permit))
                } else {
                    Err((end, permit))
                }
            });
        self.executing = running;
        for (_, permit) in done {
            drop(permit);
            self.waiting
                .push(get(controller, self.user, self.group).admission.unwrap());
        }
        let (started, waiting) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition_map(|mut permit| match permit.dispatched().now_or_never() {
                Some(()) => Ok(permit),
                None => Err(permit),
            });
        self.waiting = waiting;
        let ends = started.into_iter().map(|permit| (now + Self::EXECUTION, permit));
        self.executing.extend(ends);
        self.seat_milliseconds += self.executing.len() as u64 * step;
    }
}

#[tokio::test(start_paused = true)]
async fn levels_under_contention_use_their_nominal_seats() {
    const STEP: u64 = 10;
    const SECONDS: u64 = 30;
    let controller = FlowController::new(40, mandatory(), Nothing, &Telemetry::new());
    let lending = |name: &str, shares| {
        let mut object = level(name, shares, 100);
        object.set(&["spec", "limited", "lendablePercent"], 50i64);
        object.set(&["spec", "limited", "borrowingLimitPercent"], Value::Null);
        object
    };
    controller.digest(
        &[schema("large", 100, "large", "a"), schema("small", 200, "small", "b")],
        &[lending("large", 60), lending("small", 20)],
    );
    // The second crowd arrives when the first one has borrowed all available seats.
    let mut large = Crowd::new(&controller, "l", "a", 120);
    let mut small = Crowd::new(&controller, "s", "b", 0);
    let mut nominal = HashMap::new();
    controller.inspect(|levels| {
        for m in levels.iter() {
            nominal.insert(m.level.name().to_string(), f64::from(m.limits.nominal));
        }
    });
    for now in (0..SECONDS * 1_000 + 20_000).step_by(STEP as usize) {
        if now == 10_000 {
            small = Crowd::new(&controller, "s", "b", 120);
        }
        if now == 20_000 {
            // One period later, both have their fair shares.
            (large.seat_milliseconds, small.seat_milliseconds) = (0, 0);
        }
        large.step(&controller, now, STEP);
        small.step(&controller, now, STEP);
        tokio::time::advance(Duration::from_millis(STEP)).await;
        if (now + STEP).is_multiple_of(10_000) {
            controller.rebalance();
        }
    }
    for (name, crowd) in [("large", &large), ("small", &small)] {
        let seats = crowd.seat_milliseconds as f64 / (SECONDS * 1_000) as f64;
        let due = nominal[name];
        assert!(
            (seats - due).abs() <= due * 0.05,
            "{name}: {seats} of {due} nominal seats"
        );
    }
}
