//! [`Latencies`]: percentiles of recent durations, recorded with relaxed atomics.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Durations per window. Percentiles cover the last one to two windows.
const WINDOW: u64 = 1024;
/// Histogram buckets: four per power of two, from 1 µs to 134 s.
const BUCKETS: usize = 27 * 4;

/// Two histograms: one is current, the other is the previous window.
pub(crate) struct Latencies {
    // Counts and not samples: recording is one atomic addition, and percentiles need no sort.
    windows: [[AtomicU32; BUCKETS]; 2],
    counted: AtomicU64,
    second: AtomicBool,
}

// === impl Latencies ===

impl Default for Latencies {
    fn default() -> Self {
        let window = || std::array::from_fn(|_| AtomicU32::new(0));
        Self {
            windows: [window(), window()],
            counted: AtomicU64::new(0),
            second: AtomicBool::new(false),
        }
    }
}

impl Latencies {
    /// Records a duration. Never blocks.
    pub(crate) fn count(&self, after: Duration) {
        let window = usize::from(self.second.load(Ordering::Relaxed));
        self.windows[window][bucket(after)].fetch_add(1, Ordering::Relaxed);
        // Concurrent calls may rotate or clear slightly out of step, which costs a few samples at most.
        if self.counted.fetch_add(1, Ordering::Relaxed) % WINDOW == WINDOW - 1 {
            // The older window, which becomes the current one, must be empty by then.
            for b in &self.windows[1 - window] {
                b.store(0, Ordering::Relaxed);
            }
            self.second.store(window == 0, Ordering::Relaxed);
        }
    }

    /// The median, the 90th and the 99th percentile; `None` if nothing was recorded.
    pub(crate) fn percentiles(&self) -> Option<[Duration; 3]> {
        // Both windows, so that percentiles do not jump to nothing when a window begins.
        let both = |i: usize| {
            self.windows
                .iter()
                .map(|w| u64::from(w[i].load(Ordering::Relaxed)))
                .sum()
        };
        let counts: Vec<u64> = (0..BUCKETS).map(both).collect();
        let all: u64 = counts.iter().sum();
        let at = |percent: u64| {
            let mut seen = 0;
            let found = counts.iter().position(|n| {
                seen += n;
                seen * 100 >= all * percent
            });
            upper_bound(found.unwrap_or(BUCKETS - 1))
        };
        (all > 0).then(|| [at(50), at(90), at(99)])
    }
}

fn bucket(after: Duration) -> usize {
    // At least 1, since zero has no logarithm.
    let us = u64::try_from(after.as_micros()).unwrap_or(u64::MAX).max(1);
    let doubling = us.ilog2() as usize;
    // The two bits below the highest one.
    let quarter = match doubling {
        // Below 4 µs a power of two has no quarters.
        0 | 1 => 0,
        d => ((us >> (d - 2)) & 3) as usize,
    };
    (doubling * 4 + quarter).min(BUCKETS - 1)
}

fn upper_bound(bucket: usize) -> Duration {
    let (doubling, quarter) = (bucket / 4, bucket as u64 % 4);
    let unit = 1_u64 << doubling;
    // A quarter of less than 4 µs would be zero.
    Duration::from_micros(if doubling < 2 {
        unit * 2
    } else {
        unit + unit / 4 * (quarter + 1)
    })
}

/// Formats a duration: `1.3ms`, `250µs`, `2.1s`, `5m`, `3h`.
pub(crate) fn short_duration(d: Duration) -> String {
    let us = d.as_micros();
    match us {
        0 => "0s".to_owned(),
        1..1_000 => format!("{us}µs"),
        1_000..1_000_000 => format!("{:.1}ms", us as f64 / 1e3),
        1_000_000..120_000_000 if us.is_multiple_of(1_000_000) => format!("{}s", us / 1_000_000),
        1_000_000..120_000_000 => format!("{:.1}s", us as f64 / 1e6),
        120_000_000..7_200_000_000 => format!("{}m", us / 60_000_000),
        _ => format!("{}h", us / 3_600_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn percentiles_cover_recent_windows_only() {
        let l = Latencies::default();
        assert_eq!(l.percentiles(), None);
        for _ in 0..WINDOW {
            l.count(Duration::from_secs(5));
        }
        for _ in 0..2 * WINDOW {
            l.count(Duration::from_millis(1));
        }
        let [_, _, p99] = l.percentiles().unwrap();
        assert!(p99 < Duration::from_millis(2), "{p99:?}");
    }

    proptest! {
        #[test]
        fn buckets_overestimate_by_at_most_a_quarter(us in 4_u64..100_000_000) {
            let at = upper_bound(bucket(Duration::from_micros(us))).as_micros() as u64;
            prop_assert!(at >= us && at <= us + us / 4 + 1, "{us} in {at}");
        }
    }
}
