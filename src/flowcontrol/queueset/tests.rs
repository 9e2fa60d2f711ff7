//! Properties of a single set. `scenarios` repeats upstream's simulations, `model` compares with a reference
//! model.

mod model;
mod scenarios;
mod simulation;

use super::*;
use crate::flowcontrol::work_estimate::WorkEstimate;

const NEVER: Duration = Duration::MAX;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn queues(count: u32, hand: u32, length_limit: u32) -> Queuing {
    Queuing::Queues {
        dealer: Dealer::try_new(count, hand).expect("usable sizes"),
        length_limit,
    }
}

fn dispatched<T>(set: &mut QueueSet<T>) -> Vec<Id> {
    let mut ids = Vec::new();
    set.take_dispatched(&mut ids);
    ids
}

fn id(started: Result<Started, Rejected>) -> Id {
    match started.expect("not rejected") {
        Started::Executing(id) | Started::Waiting(id) => id,
    }
}

#[test]
fn requests_beyond_the_limit_wait_and_run_in_order() {
    let mut set = QueueSet::new(ms(0), queues(1, 1, 2), 1, NEVER);
    let mut start = |n| set.start(ms(n), WorkEstimate::ONE_SEAT, 0, 0, n);
    let [a, b, c] = [start(0), start(1), start(2)];
    assert!(matches!(a, Ok(Started::Executing(_))));
    assert!(matches!((b, c), (Ok(Started::Waiting(_)), Ok(Started::Waiting(_)))));
    assert_eq!(start(3), Err(Rejected::QueueFull));
    assert_eq!(set.finish(ms(5), id(a)), 0);
    assert_eq!(dispatched(&mut set), [id(b)]);
    set.finish(ms(6), id(b));
    assert_eq!(dispatched(&mut set), [id(c)]);
    set.finish(ms(7), id(c));
    assert!(set.is_idle());
    assert_eq!((set.totals.dispatched, set.totals.rejected), (3, 1));
}

#[test]
fn a_cancelled_request_leaves_the_middle_of_its_queue() {
    let mut set = QueueSet::new(ms(0), queues(1, 1, 9), 1, NEVER);
    let ids: Vec<Id> = (0..4)
        .map(|n| id(set.start(ms(0), WorkEstimate::ONE_SEAT, 0, 0, n)))
        .collect();
    assert_eq!(set.finish(ms(1), ids[2]), 2);
    assert_eq!(
        (set.totals.waiting, set.totals.cancelled, set.totals.rejected),
        (2, 1, 1)
    );
    set.finish(ms(2), ids[0]);
    assert_eq!(dispatched(&mut set), [ids[1]]);
    set.finish(ms(3), ids[1]);
    assert_eq!(dispatched(&mut set), [ids[3]]);
}

#[test]
fn a_cancelled_wide_request_lets_the_next_one_run() {
    let mut set = QueueSet::new(ms(0), queues(1, 1, 9), 3, NEVER);
    let first = id(set.start(ms(0), WorkEstimate::seats(2), 0, 0, ()));
    let wide = id(set.start(ms(0), WorkEstimate::seats(3), 0, 0, ()));
    let narrow = id(set.start(ms(0), WorkEstimate::ONE_SEAT, 0, 0, ()));
    assert!(set.is_waiting(narrow), "it queues behind the wide one");
    assert!(set.accounts()[0].no_accommodation > 0);
    set.finish(ms(1), wide);
    assert_eq!(dispatched(&mut set), [narrow]);
    set.finish(ms(2), first);
}

#[test]
fn a_request_wider_than_the_limit_runs_alone() {
    let mut set = QueueSet::new(ms(0), queues(8, 2, 9), 4, NEVER);
    let small = id(set.start(ms(0), WorkEstimate::ONE_SEAT, 1, 0, ()));
    let wide = id(set.start(ms(0), WorkEstimate::seats(9), 2, 0, ()));
    assert!(set.is_waiting(wide));
    set.finish(ms(1), small);
    assert_eq!(dispatched(&mut set), [wide]);
    let after = id(set.start(ms(2), WorkEstimate::ONE_SEAT, 1, 0, ()));
    assert!(set.is_waiting(after));
    set.finish(ms(3), wide);
    assert_eq!(dispatched(&mut set), [after]);
}

#[test]
fn queues_that_are_held_back_are_skipped() {
    let mut set = QueueSet::new(ms(0), queues(64, 1, 9), 1, NEVER).holding_back_if(|held_back: &bool| *held_back);
    let waits = id(set.start(ms(0), WorkEstimate::ONE_SEAT, 1, 0, true));
    assert!(set.is_waiting(waits), "though a seat is free");
    let runs = id(set.start(ms(1), WorkEstimate::ONE_SEAT, 2, 0, false));
    assert!(!set.is_waiting(runs));
    set.finish(ms(2), runs);
    assert!(set.is_waiting(waits));
    for _ in 1..9 {
        id(set.start(ms(2), WorkEstimate::ONE_SEAT, 1, 0, true));
    }
    let tenth = set.start(ms(2), WorkEstimate::ONE_SEAT, 1, 0, true);
    assert_eq!(tenth, Err(Rejected::QueueFull), "though a seat is free");
    assert_eq!(set.next_event(), Some(ms(22)), "it is checked again");
    *set.item_mut(waits) = false;
    set.advance(ms(22));
    assert_eq!(dispatched(&mut set), [waits]);
}

#[test]
fn seats_of_a_write_stay_occupied_for_its_additional_latency() {
    let mut set = QueueSet::new(ms(0), queues(1, 1, 9), 2, NEVER);
    let write = WorkEstimate {
        initial_seats: 1,
        final_seats: 2,
        additional_latency: ms(50),
    };
    let first = id(set.start(ms(0), write, 0, 0, ()));
    let second = id(set.start(ms(1), WorkEstimate::ONE_SEAT, 0, 0, ()));
    set.finish(ms(10), first);
    assert_eq!(set.totals.seats_in_use, 2);
    assert_eq!(set.next_event(), Some(ms(60)));
    set.advance(ms(59));
    assert!(set.is_waiting(second));
    set.advance(ms(60));
    assert_eq!(dispatched(&mut set), [second]);
    assert_eq!((set.totals.seats_in_use, set.next_event()), (1, None));
}

#[test]
fn final_seats_beyond_the_limit_become_time() {
    let mut set = QueueSet::new(ms(0), queues(1, 1, 9), 2, NEVER);
    let write = WorkEstimate {
        initial_seats: 1,
        final_seats: 4,
        additional_latency: ms(5),
    };
    let first = id(set.start(ms(0), write, 0, 0, ()));
    assert_eq!(set.totals.seats_in_use, 2);
    set.start(ms(0), WorkEstimate::ONE_SEAT, 0, 0, ()).unwrap();
    set.finish(ms(1), first);
    assert_eq!(set.next_event(), Some(ms(11)), "4 seats for 5 ms are 2 for 10 ms");
}

#[test]
fn seats_held_for_long_are_given_to_waiting_requests() {
    let mut set = QueueSet::new(ms(0), queues(1, 1, 9), 1, ms(5_000));
    let slow = id(set.start(ms(0), WorkEstimate::ONE_SEAT, 0, 0, ()));
    let next = id(set.start(ms(1_000), WorkEstimate::ONE_SEAT, 0, 0, ()));
    set.advance(ms(4_999));
    assert!(set.is_waiting(next));
    assert_eq!(set.next_event(), Some(ms(5_000)));
    set.advance(ms(5_000));
    assert_eq!(dispatched(&mut set), [next]);
    set.finish(ms(9_000), slow);
    assert_eq!((set.totals.seats_in_use, set.totals.executing), (1, 1));
    set.finish(ms(9_001), next);
    assert!(set.is_idle() && set.totals.seats_in_use == 0);
}

#[test]
fn requests_with_a_reason_keep_their_seats() {
    let mut set = QueueSet::new(ms(0), queues(1, 1, 9), 1, ms(20)).keeping_seats_if(|computes: &bool| *computes);
    let computing = id(set.start(ms(0), WorkEstimate::ONE_SEAT, 0, 0, true));
    let next = id(set.start(ms(1), WorkEstimate::ONE_SEAT, 0, 0, false));
    set.advance(ms(30));
    assert!(set.is_waiting(next));
    assert_eq!(
        set.next_event(),
        Some(ms(50)),
        "it is checked again after another hold time"
    );
    *set.item_mut(computing) = false;
    set.advance(ms(50));
    assert_eq!(dispatched(&mut set), [next]);
    assert_eq!(set.times(computing).started, ms(0));
    set.finish(ms(60), computing);
    set.finish(ms(60), next);
    assert!(set.is_idle() && set.totals.seats_in_use == 0);
}

#[test]
fn a_queue_without_unfinished_requests_gets_seats_from_those_that_compute() {
    let mut set = QueueSet::new(ms(0), queues(64, 1, 9), 1, ms(20)).keeping_seats_if(|computes: &bool| *computes);
    let [flood, other] = [1, 2];
    id(set.start(ms(0), WorkEstimate::ONE_SEAT, flood, 0, true));
    let more = id(set.start(ms(1), WorkEstimate::ONE_SEAT, flood, 0, true));
    for at in [20, 40, 60] {
        set.advance(ms(at));
    }
    assert!(set.is_waiting(more), "its flow has a request that computes");
    // The flood has used a seat for 60 ms, so the newcomer is served before it.
    let first = id(set.start(ms(61), WorkEstimate::ONE_SEAT, other, 0, true));
    assert!(!set.is_waiting(first));
    let second = id(set.start(ms(62), WorkEstimate::ONE_SEAT, other, 0, true));
    set.advance(ms(90));
    assert!(
        set.is_waiting(second) && set.is_waiting(more),
        "each flow has a request that computes"
    );
}

#[test]
fn narrow_requests_of_idle_flows_pass_a_wide_request_that_does_not_fit() {
    let mut set = QueueSet::new(ms(0), queues(64, 1, 9), 10, ms(20)).keeping_seats_if(|computes: &bool| *computes);
    let [flood, other] = [1, 2];
    for (flow, seats) in [(flood, 6), (other, 4)] {
        id(set.start(ms(0), WorkEstimate::seats(seats), flow, 0, true));
    }
    let wide = id(set.start(ms(1), WorkEstimate::seats(6), other, 0, true));
    set.advance(ms(20));
    let narrow = |set: &mut QueueSet<bool>, flow| id(set.start(ms(30), WorkEstimate::ONE_SEAT, flow, 0, false));
    let passed = [narrow(&mut set, 3), narrow(&mut set, 4)];
    assert!(set.is_waiting(wide), "its turn comes first");
    assert!(passed.iter().all(|id| !set.is_waiting(*id)));
    let third = narrow(&mut set, 5);
    assert!(set.is_waiting(third), "a quarter of the seats is given out of turn");
    let again = narrow(&mut set, other);
    set.finish(ms(31), passed[0]);
    assert!(!set.is_waiting(third));
    assert!(set.is_waiting(again), "its flow has unfinished requests");
}

#[test]
fn a_request_that_needs_all_seats_is_not_passed() {
    for seats in [4, 5] {
        let mut set = QueueSet::new(ms(0), queues(64, 1, 9), 4, ms(20)).keeping_seats_if(|computes: &bool| *computes);
        let computing = id(set.start(ms(0), WorkEstimate::seats(3), 1, 0, true));
        let wide = id(set.start(ms(1), WorkEstimate::seats(seats), 1, 0, false));
        set.advance(ms(20));
        let narrow = id(set.start(ms(30), WorkEstimate::ONE_SEAT, 2, 0, true));
        assert!(set.is_waiting(narrow), "it would keep {seats} seats from becoming free");
        set.finish(ms(31), computing);
        assert!(!set.is_waiting(wide));
    }
}

#[test]
fn a_level_without_queues_rejects_and_an_exempt_one_does_not() {
    let mut reject = QueueSet::new(ms(0), Queuing::Reject, 1, NEVER);
    let first = id(reject.start(ms(0), WorkEstimate::ONE_SEAT, 0, 0, ()));
    let second = reject.start(ms(0), WorkEstimate::ONE_SEAT, 0, 0, ());
    assert_eq!(second, Err(Rejected::ConcurrencyLimit));
    reject.finish(ms(1), first);
    let mut exempt = QueueSet::new(ms(0), Queuing::Exempt, 0, NEVER);
    for _ in 0..100 {
        let started = exempt.start(ms(0), WorkEstimate::seats(3), 0, 0, ());
        assert!(matches!(started, Ok(Started::Executing(_))));
    }
    assert_eq!(exempt.totals.seats_in_use, 300);
    assert_eq!(exempt.reset_demand(ms(1)).max, 300.0);
}

#[test]
fn a_lower_limit_applies_to_the_next_request_and_a_higher_one_at_once() {
    let mut set = QueueSet::new(ms(0), queues(4, 2, 9), 4, NEVER);
    let ids: Vec<Id> = (0..4u64)
        .map(|flow| id(set.start(ms(0), WorkEstimate::ONE_SEAT, flow, 0, ())))
        .collect();
    set.reconfigure(ms(1), queues(2, 1, 9), 2);
    let fifth = id(set.start(ms(1), WorkEstimate::ONE_SEAT, 9, 0, ()));
    set.finish(ms(2), ids[0]);
    set.finish(ms(2), ids[1]);
    assert!(set.is_waiting(fifth), "two seats are still in use");
    set.reconfigure(ms(3), Queuing::Reject, 3);
    assert_eq!(
        dispatched(&mut set),
        [fifth],
        "waiting requests are served without queues, too"
    );
    for left in [ids[2], ids[3], fifth] {
        set.finish(ms(4), left);
    }
    assert!(set.queues().is_empty(), "queues without requests are forgotten");
}

#[test]
fn an_idle_flow_gains_no_advantage() {
    // A hand of one of many queues: the flows are in queues of their own.
    let mut set = QueueSet::new(ms(0), queues(64, 1, 99), 1, NEVER);
    let busy = 1;
    let running = id(set.start(ms(0), WorkEstimate::ONE_SEAT, busy, 0, busy));
    for _ in 0..4 {
        set.start(ms(0), WorkEstimate::ONE_SEAT, busy, 0, busy).unwrap();
    }
    // Ten seconds later a second flow arrives with a burst.
    for _ in 0..4 {
        set.start(ms(10_000), WorkEstimate::ONE_SEAT, 2, 0, 2).unwrap();
    }
    set.finish(ms(10_000), running);
    let mut served = Vec::new();
    let mut now = 10_000;
    while let [next] = dispatched(&mut set)[..] {
        now += 100;
        served.push(set.finish(ms(now), next));
    }
    assert_eq!(served.len(), 8);
    let second = served.iter().filter(|flow| **flow == 2).count();
    assert_eq!(second, 4);
    let last_of_busy = served.iter().rposition(|flow| *flow == busy);
    assert!(last_of_busy > Some(3), "{served:?}");
    assert!(served[..5].contains(&busy), "the burst does not go first: {served:?}");
}

#[test]
fn ten_thousand_waiting_requests_cost_no_more_than_a_list_entry_each() {
    let mut set = QueueSet::new(ms(0), queues(128, 6, 10_000), 1, NEVER);
    let ids: Vec<Id> = (0..10_000u64)
        .map(|n| id(set.start(ms(n), WorkEstimate::ONE_SEAT, n % 100, 0, ())))
        .collect();
    assert_eq!(set.totals.waiting, 9_999);
    // From the middle outwards, so that no request is the first or last of its queue when it leaves.
    for at in (0..10_000).map(|n| if n % 2 == 0 { 5_000 + n / 2 } else { 4_999 - n / 2 }) {
        set.finish(ms(20_000), ids[at]);
    }
    assert!(set.is_idle() && set.queues().is_empty() && set.order.is_empty() && set.narrow_and_idle.is_empty());
    assert_eq!(
        (set.totals.seats_waiting, set.queued_seats, set.active_queues),
        (0, 0, 0)
    );
}
