//! Upstream's simulations (`queueset_test.go`).

use super::simulation::{Client, SECOND, Simulation, assert_near, client, fair};
use super::*;

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
fn a_single_client_is_served_at_its_own_rate() {
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
fn a_flow_below_its_fair_share_gets_all_of_its_demand() {
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

/// A flow that used less than its share while the rest was unclaimed does not starve the other one later.
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

/// Without queues, requests are served as they come: none waits, and the shares depend on the timing of the
/// clients.
#[test]
fn a_level_without_queues_is_not_fair() {
    let flows = [
        client(1001001001, 6, 10, SECOND, 57_000_000),
        client(2002002002, 4, 15, SECOND, 750_000_000),
    ];
    let mut simulation = Simulation::new(Queuing::Reject, 4, &flows, 13 * SECOND);
    simulation.run_until(13 * SECOND);
    let demands: Vec<f64> = flows.iter().map(Client::demand).collect();
    let (got, fair) = (simulation.averages(13 * SECOND), fair(&demands, 4.0));
    let off = got.iter().zip(&fair).any(|(got, fair)| (got - fair).abs() / fair > 0.2);
    assert!(off, "{got:?} is as fair as {fair:?}");
    assert!(simulation.rejected > 0);
}

/// An exempt level serves everybody at once and still integrates the demand for seats.
#[test]
fn an_exempt_level_counts_seats_without_a_limit() {
    for limit in [0, 2] {
        let alone = [client(1001001001, 5, 20, SECOND, SECOND).wide(3)];
        let mut simulation = Simulation::new(Queuing::Exempt, limit, &alone, 40 * SECOND);
        simulation.run_until(40 * SECOND);
        assert_near("exempt", &simulation.averages(40 * SECOND), &[7.5], 1e-8);
        let demand = simulation.set.reset_demand(Duration::from_secs(40));
        assert_near("demand", &[demand.average], &[7.5], 1e-8);
        assert_eq!((demand.max, simulation.rejected), (15.0, 0));
    }
}
