//! How many seats each priority level has: nominal, lower and upper limits from the configuration
//! ([`limits`]), and the current limits, which follow demand ([`rebalance`]) (upstream's
//! `apf_controller.go`). Pure functions; the controller calls them when the configuration changes and every
//! [`PERIOD`].

mod allocate;

use super::integrator::Observed;
use allocate::{Class, allocate};
use std::time::Duration;

/// Time between two adjustments of the current limits; upstream's `borrowingAdjustmentPeriod`.
pub(crate) const PERIOD: Duration = Duration::from_secs(10);
/// Weight of the past in the smoothed demand: half of it is forgotten after five minutes.
const SMOOTHING: f64 = 0.977;
/// The part of a level's nominal seats that one request may occupy.
const MAX_SEATS_FRACTION: f64 = 0.15;

/// The configuration of a level as far as seats are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    /// `nominalConcurrencyShares`.
    pub shares: u32,
    /// `lendablePercent`.
    pub lendable_percent: u32,
    /// `borrowingLimitPercent`; without it, the level may borrow as much as the server has.
    pub borrowing_percent: Option<u32>,
    /// True for the exempt level: its demand is satisfied first, and the others share the rest.
    pub exempt: bool,
}

/// Bounds of a level's current limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The level's part of the server's seats by its shares.
    pub nominal: u32,
    /// The nominal limit minus the lendable seats.
    pub lower: u32,
    /// The nominal limit plus the seats it may borrow.
    pub upper: u32,
}

/// The smoothed demand of a level.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Demand {
    /// Statistics of the last period.
    pub last: Observed,
    /// Follows a rise of the demand at once, and a fall over minutes.
    pub smoothed: f64,
}

/// The input of [`rebalance`] for one level.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LevelDemand {
    /// Bounds from the configuration.
    pub limits: Limits,
    /// The demand up to now.
    pub demand: Demand,
    /// The limit that applies now.
    pub current: u32,
    /// True for the exempt level.
    pub exempt: bool,
}

/// The result of [`rebalance`]: for each level its new limit and, unless exempt, its target.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Balance {
    /// Limit and target by level, in the order of the input.
    pub levels: Vec<(u32, f64)>,
    /// The common fraction of its target that each level got, unless a bound applied; 0 if there is no
    /// choice.
    pub fair_fraction: f64,
}

/// Divides `server` seats by shares. Fractions are rounded up, so the sum may be a few seats higher.
pub(crate) fn limits(server: u32, levels: &[Shares]) -> Vec<Limits> {
    let sum: f64 = levels.iter().map(|l| f64::from(l.shares)).sum();
    let of = |l: &Shares| {
        let nominal = match l.shares {
            // Also avoids 0 / 0 if no level has shares.
            0 => 0,
            shares => (f64::from(server) * f64::from(shares) / sum).ceil() as u32,
        };
        let percent = |p: u32| (f64::from(nominal) * f64::from(p) / 100.0).round() as u32;
        Limits {
            nominal,
            lower: nominal - percent(l.lendable_percent).min(nominal),
            // Without a limit a level may borrow the seats of the whole server.
            upper: nominal.saturating_add(l.borrowing_percent.map_or(server, percent)),
        }
    };
    levels.iter().map(of).collect()
}

impl Limits {
    /// The limit of a new level: half of its lendable seats count as lent.
    pub(crate) fn initial(&self) -> u32 {
        self.nominal - (self.nominal - self.lower) / 2
    }

    /// The seats that one request of a level with queues may occupy at most.
    pub(crate) fn max_seats(&self, hand_size: u32) -> u32 {
        let fraction = (f64::from(self.nominal) * MAX_SEATS_FRACTION).ceil() as u32;
        // A flow whose hand is full of wide requests must not fill the level alone.
        fraction.min(self.nominal / hand_size.max(1)).max(1)
    }
}

impl Demand {
    /// Takes the statistics of a period that has ended.
    pub(crate) fn update(&mut self, observed: Observed) {
        // Two adjustments in the same instant: there is no average, and dividing by zero would poison the smoothing.
        if observed.seconds <= 0.0 {
            self.last.max = observed.max;
            return;
        }
        let envelope = observed.average + observed.deviation;
        self.smoothed = envelope.max(SMOOTHING * self.smoothed + (1.0 - SMOOTHING) * envelope);
        self.last = observed;
    }

    fn watermark(&self) -> u32 {
        self.last.max.round() as u32
    }
}

/// Divides the seats among the levels by their demand, within their bounds. A level gets at least the lesser
/// of its nominal limit and the highest demand of the last period, hence borrowed seats return within one
/// period.
pub(crate) fn rebalance(levels: &[LevelDemand]) -> Balance {
    // Rounding up makes it slightly more than the server's limit; upstream divides the same sum (`nominalCLSum`).
    let total: u32 = levels.iter().map(|l| l.limits.nominal).sum();
    let least = |l: &LevelDemand| match l.exempt {
        true => l.limits.lower.max(l.demand.watermark()),
        false => l.limits.lower.max(l.limits.nominal.min(l.demand.watermark())),
    };
    let sum = |of: &dyn Fn(&LevelDemand) -> u32| levels.iter().filter(|l| !l.exempt).map(of).sum::<u32>();
    let exempt: u32 = levels.iter().filter(|l| l.exempt).map(least).sum();
    let remaining = total.saturating_sub(exempt);
    let (lower, wanted) = (sum(&|l| l.limits.lower), sum(&least));
    let target = |l: &LevelDemand| f64::from(least(l)).max(l.demand.smoothed);
    let mut balance = Balance::default();
    let limit_of: Box<dyn Fn(&LevelDemand) -> u32> = if remaining <= lower {
        Box::new(|l| l.limits.lower)
    } else if remaining <= wanted {
        let fraction = f64::from(remaining - lower) / f64::from(wanted - lower);
        Box::new(move |l| l.limits.lower + (f64::from(least(l) - l.limits.lower) * fraction).round() as u32)
    } else {
        let classes: Vec<Class> = (levels.iter().filter(|l| !l.exempt))
            .map(|l| Class {
                target: target(l),
                lower: f64::from(least(l)),
                upper: f64::from(l.limits.upper),
            })
            .collect();
        // The total, not `remaining`, as upstream's `updateBorrowingLocked`: seats in use by the exempt level are
        // not taken from the others here.
        match allocate(f64::from(total), &classes) {
            Some(found) => {
                balance.fair_fraction = found.fraction;
                let mut allocated = found.allocated.into_iter();
                balance.levels = levels
                    .iter()
                    .map(|l| match l.exempt {
                        true => (least(l), 0.0),
                        false => (allocated.next().unwrap_or_default().round() as u32, target(l)),
                    })
                    .collect();
                return balance;
            }
            // The upper limits do not allow to use all seats: nothing changes.
            None => Box::new(|l| l.current),
        }
    };
    balance.levels = levels
        .iter()
        .map(|l| match l.exempt {
            true => (least(l), 0.0),
            false => (limit_of(l), target(l)),
        })
        .collect();
    balance
}

#[cfg(test)]
mod tests;
