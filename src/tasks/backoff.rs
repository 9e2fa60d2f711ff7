//! [`Backoff`]: the delays between attempts, for everything that retries.

use std::time::Duration;

/// Exponential backoff.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Backoff {
    /// Delay after the first failure.
    pub base: Duration,
    /// Maximum delay, without jitter.
    pub max: Duration,
    /// Growth of the delay with each failure.
    pub factor: f64,
    /// Maximum part of a delay that [`Delays`] adds at random, so that clients that failed together do not
    /// retry together.
    pub jitter: f64,
}

impl Backoff {
    /// client-go's default for controllers: 5 ms to 1000 s.
    pub(crate) const CONTROLLER: Self = Self::doubling(Duration::from_millis(5), Duration::from_secs(1000));

    /// Upstream's default for webhooks (`util/webhook.DefaultRetryBackoffWithInitialDelay`). Its limit is the
    /// number of attempts, not the delay.
    pub(crate) const WEBHOOK: Self = Self {
        base: Duration::from_millis(500),
        max: Duration::MAX,
        factor: 1.5,
        jitter: 0.2,
    };

    /// Doubles from `base` to `max`, without jitter.
    pub(crate) const fn doubling(base: Duration, max: Duration) -> Self {
        Self {
            base,
            max,
            factor: 2.0,
            jitter: 0.0,
        }
    }

    /// The delay after `failures` earlier failures, without jitter.
    pub(crate) fn delay(&self, failures: u32) -> Duration {
        // A power beyond the range is infinite, which `try_from_secs_f64` refuses; the maximum applies.
        let factor = self.factor.powi(i32::try_from(failures).unwrap_or(i32::MAX));
        let delay = Duration::try_from_secs_f64(self.base.as_secs_f64() * factor);
        delay.map_or(self.max, |d| d.min(self.max))
    }

    /// The delays of one sequence of attempts.
    pub(crate) fn delays(self) -> Delays {
        Delays {
            backoff: self,
            failures: 0,
        }
    }
}

/// The delays of one sequence of attempts.
#[derive(Debug)]
pub(crate) struct Delays {
    backoff: Backoff,
    failures: u32,
}

impl Delays {
    /// Counts a failure and returns the delay before the next attempt, with jitter.
    pub(crate) fn next_delay(&mut self) -> Duration {
        let delay = self.backoff.delay(self.failures);
        self.failures = self.failures.saturating_add(1);
        if self.backoff.jitter == 0.0 {
            return delay;
        }
        let mut byte = [0u8];
        // If no random byte is available, the delay merely has no jitter.
        let _ = aws_lc_rs::rand::fill(&mut byte);
        delay + delay.mul_f64(self.backoff.jitter * f64::from(byte[0]) / 255.0)
    }

    /// Starts again at the first delay, after a success.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_the_maximum() {
        assert_eq!(Backoff::CONTROLLER.delay(0), Duration::from_millis(5));
        assert_eq!(Backoff::CONTROLLER.delay(3), Duration::from_millis(40));
        for failures in [40, u32::MAX] {
            assert_eq!(Backoff::CONTROLLER.delay(failures), Duration::from_secs(1000));
        }
        let mut delays = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(3)).delays();
        let secs: Vec<u64> = (0..3).map(|_| delays.next_delay().as_secs()).collect();
        assert_eq!(secs, [1, 2, 3]);
        delays.reset();
        assert_eq!(delays.next_delay().as_secs(), 1);
    }

    #[test]
    fn jitter_adds_at_most_its_part() {
        let mut delays = Backoff::WEBHOOK.delays();
        for least in [500.0, 750.0, 1125.0] {
            let delay = delays.next_delay().as_secs_f64() * 1000.0;
            assert!((least..=least * 1.2 + 0.001).contains(&delay), "{delay}");
        }
    }
}
