use super::*;

/// The default levels: exempt, catch-all, global-default, leader-election, node-high, system, workload-high,
/// workload-low.
fn defaults() -> Vec<Shares> {
    let level = |shares, lendable_percent| Shares {
        shares,
        lendable_percent,
        borrowing_percent: None,
        exempt: false,
    };
    let exempt = Shares {
        exempt: true,
        ..level(0, 0)
    };
    let limited = [(5, 0), (20, 50), (10, 0), (40, 25), (30, 33), (40, 50), (100, 90)];
    std::iter::once(exempt)
        .chain(limited.map(|(s, l)| level(s, l)))
        .collect()
}

fn demands(all: &[Limits], watermarks: &[f64]) -> Vec<LevelDemand> {
    let of = |(i, limits): (usize, &Limits)| {
        let mut demand = Demand::default();
        demand.update(Observed {
            seconds: 10.0,
            average: watermarks[i],
            deviation: 0.0,
            max: watermarks[i],
        });
        LevelDemand {
            limits: *limits,
            demand,
            current: limits.initial(),
            exempt: i == 0,
        }
    };
    all.iter().enumerate().map(of).collect()
}

#[test]
fn nominal_seats_of_the_default_levels_are_upstreams() {
    let all = limits(600, &defaults());
    let nominal: Vec<u32> = all.iter().map(|l| l.nominal).collect();
    assert_eq!(nominal, [0, 13, 49, 25, 98, 74, 98, 245]);
    let low = all[7];
    assert_eq!((low.lower, low.upper, low.initial()), (24, 845, 135));
}

#[test]
fn borrowing_is_limited_by_the_percentage() {
    let level = Shares {
        shares: 10,
        lendable_percent: 25,
        borrowing_percent: Some(50),
        exempt: false,
    };
    let all = limits(100, &[level, level]);
    assert_eq!((all[0].nominal, all[0].lower, all[0].upper), (50, 37, 75));
}

/// Upstream's table in `max_seats_test.go`.
#[test]
fn a_request_may_occupy_a_part_of_the_level() {
    for (nominal, hand, max) in [
        (5, 6, 1),
        (10, 6, 1),
        (15, 6, 2),
        (20, 6, 3),
        (35, 6, 5),
        (100, 6, 15),
        (200, 6, 30),
        (10, 1, 2),
        (100, 20, 5),
    ] {
        let limits = Limits {
            nominal,
            ..Limits::default()
        };
        assert_eq!(limits.max_seats(hand), max, "{nominal} seats, hand of {hand}");
    }
}

#[test]
fn a_busy_level_borrows_seats_of_idle_ones_and_returns_them_within_a_period() {
    let all = limits(600, &defaults());
    let total: u32 = all.iter().map(|l| l.nominal).sum();
    let mut watermarks = [0.0; 8];
    watermarks[2] = 600.0;
    let lent = rebalance(&demands(&all, &watermarks));
    let lendable: u32 = all.iter().map(|l| l.nominal - l.lower).sum();
    let got = lent.levels[2].0;
    // All that the others lend, except the rounding of their shares.
    assert!(got > 49 + (lendable - 25) - 8, "{got} of {lendable}");

    watermarks[7] = 600.0;
    let returned = rebalance(&demands(&all, &watermarks));
    assert!(returned.levels[7].0 >= 245, "the owner has its nominal seats again");
    let sum: u32 = returned.levels.iter().map(|l| l.0).sum();
    assert!(sum.abs_diff(total) <= 8, "{sum} of {total}");
}

#[test]
fn under_contention_each_level_has_its_nominal_seats() {
    let all = limits(600, &defaults());
    let balance = rebalance(&demands(&all, &[0.0, 600.0, 600.0, 600.0, 600.0, 600.0, 600.0, 600.0]));
    for (limits, (current, _)) in all.iter().zip(&balance.levels) {
        assert_eq!(*current, limits.nominal);
    }
}

#[test]
fn seats_of_exempt_requests_are_taken_from_the_others_down_to_their_lower_limits() {
    let all = limits(600, &defaults());
    let busy = |exempt: f64| {
        let mut watermarks = [600.0; 8];
        watermarks[0] = exempt;
        rebalance(&demands(&all, &watermarks)).levels
    };
    let few = busy(100.0);
    assert_eq!(few[0].0, 100);
    let sum: u32 = few.iter().map(|l| l.0).sum();
    assert!(sum.abs_diff(602) <= 8, "{sum}");
    let many = busy(10_000.0);
    for (limits, (current, _)) in all.iter().zip(&many).skip(1) {
        assert_eq!(*current, limits.lower);
    }
}

#[test]
fn demand_rises_at_once_and_falls_slowly() {
    let mut demand = Demand::default();
    let period = |average| Observed {
        seconds: 10.0,
        average,
        deviation: 1.0,
        max: average,
    };
    demand.update(period(99.0));
    assert_eq!(demand.smoothed, 100.0);
    for _ in 0..30 {
        demand.update(period(0.0));
    }
    // Five minutes later.
    assert!((45.0..55.0).contains(&demand.smoothed), "{}", demand.smoothed);
}
