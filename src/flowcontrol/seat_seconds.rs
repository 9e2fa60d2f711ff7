//! [`SeatSeconds`]: amounts of work, and readings of the progress meter of fair queuing (upstream's
//! `k8s.io/apiserver/pkg/util/flowcontrol/request/seat_seconds.go`).

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// Units per seat-second, as upstream: the debug dumps have eight decimals.
const SCALE: i128 = 100_000_000;
const NANOS_PER_UNIT: f64 = 1e9 / SCALE as f64;
/// Amounts below this are exact as `f64` and fit 64 bits.
const MAX_NARROW: f64 = (1u64 << 52) as f64;

/// Seats multiplied by time. Wider than upstream's 64 bits, so the meter never has to be wound back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SeatSeconds(i128);

impl SeatSeconds {
    pub(crate) const ZERO: Self = Self(0);

    /// The work of `seats` for `time`.
    pub(crate) fn of(seats: f64, time: Duration) -> Self {
        if time.is_zero() {
            return Self::ZERO;
        }
        let nanos = match u64::try_from(time.as_nanos()) {
            Ok(nanos) => nanos as f64,
            // More than 584 years; only the type requires this.
            Err(_) => time.as_nanos() as f64,
        };
        let units = seats * nanos / NANOS_PER_UNIT;
        // Conversions to 64 bits are single instructions, unlike those to 128 bits, and requests need several
        // of them. Neither seats nor time are negative, so this rounds to the nearest.
        Self(if units < MAX_NARROW {
            i128::from((units + 0.5) as i64)
        } else {
            units.round() as i128
        })
    }

    /// The work of one seat for a time that is known when this is compiled.
    pub(crate) const fn of_one(time: Duration) -> Self {
        Self(time.as_nanos() as i128 * SCALE / 1_000_000_000)
    }

    /// That many times this work.
    pub(crate) fn times(self, seats: u32) -> Self {
        Self(self.0 * i128::from(seats))
    }

    /// How long `seats` take for this work.
    pub(crate) fn spread_over(self, seats: u32) -> Duration {
        // Neither a negative amount nor 0 seats occurs; the bounds keep the result finite.
        let nanos = self.0.max(0) as f64 * NANOS_PER_UNIT / f64::from(seats.max(1));
        Duration::from_nanos(nanos as u64)
    }

    /// In seat-seconds.
    pub(crate) fn as_f64(self) -> f64 {
        self.0 as f64 / SCALE as f64
    }
}

impl Add for SeatSeconds {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for SeatSeconds {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for SeatSeconds {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl fmt::Display for SeatSeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:08}ss", self.0 / SCALE, (self.0 % SCALE).abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_keeps_its_amount_when_it_is_spread_over_other_seats() {
        let work = SeatSeconds::of(25.0, Duration::from_millis(5));
        assert_eq!(work.to_string(), "0.12500000ss");
        assert_eq!(work.spread_over(10), Duration::from_micros(12_500));
        assert_eq!(SeatSeconds::of(10.0, work.spread_over(10)), work);
    }

    #[test]
    fn a_meter_at_full_speed_for_a_century_does_not_overflow() {
        let century = Duration::from_secs(100 * 366 * 86_400);
        let reading = SeatSeconds::of(1e6, century);
        assert!(reading + reading > reading);
        let expected = 1e6 * century.as_secs_f64();
        assert!((reading.as_f64() - expected).abs() < 1.0);
    }
}
