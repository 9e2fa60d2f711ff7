//! The `Retry-After` of rejections: it doubles while many requests are rejected, and goes down again by a
//! second at a time (upstream's `k8s.io/apiserver/pkg/util/flowcontrol/dropped_requests_tracker.go`). Without
//! a clock: callers pass the time.

use std::collections::VecDeque;

// Seconds; upstream's `maxRetryAfter`.
const MAX: u64 = 32;

/// The rejections of one level.
#[derive(Debug)]
pub(crate) struct RetryAfter {
    seconds: u64,
    raised_at: Option<u64>,
    /// The second that is being counted, and its rejections.
    current: (u64, u64),
    /// Earlier seconds with rejections, at most [`MAX`].
    history: VecDeque<(u64, u64)>,
}

impl Default for RetryAfter {
    fn default() -> Self {
        Self {
            seconds: 1,
            raised_at: None,
            current: (0, 0),
            history: VecDeque::new(),
        }
    }
}

impl RetryAfter {
    /// Counts a rejection in the second `now` and returns the seconds to wait.
    pub(crate) fn rejected(&mut self, now: u64) -> u64 {
        if self.current.0 == now {
            self.current.1 += 1;
        } else {
            // A second is counted once it is over. The current one is incomplete and would look quieter than it is.
            self.history.push_back(self.current);
            let kept = (2 * self.seconds).min(MAX);
            let newest = self.current.0;
            self.history
                .retain(|(second, _)| newest - (*second).min(newest) <= kept);
            self.current = (now, 1);
            self.adjust(now);
        }
        self.seconds
    }

    fn adjust(&mut self, now: u64) {
        let recent = self.history.iter().rev();
        let recent = recent.take_while(|(second, _)| now.saturating_sub(*second) <= self.seconds);
        let rejected: u64 = recent.filter(|(second, _)| *second < now).map(|(_, n)| n).sum();
        // Clients were told to stay away for `seconds`: only after that does a high rate mean that it was too short.
        let may_rise = self.raised_at.is_none_or(|at| now.saturating_sub(at) >= self.seconds);
        // Three rejections a second on average raise it, fewer than one lower it.
        if may_rise && rejected >= 3 * self.seconds {
            self.seconds = (2 * self.seconds).min(MAX);
            self.raised_at = Some(now);
        } else if rejected < self.seconds && self.seconds > 1 {
            self.seconds -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rejects `n` requests in a second and returns the delay that the last one gets.
    fn second(tracker: &mut RetryAfter, now: u64, n: u64) -> u64 {
        (0..n).map(|_| tracker.rejected(now)).last().unwrap()
    }

    #[test]
    fn sustained_rejections_double_it_up_to_the_maximum() {
        let mut t = RetryAfter::default();
        assert_eq!(second(&mut t, 1_000, 100), 1);
        let delays: Vec<u64> = (1_001..1_100).map(|now| second(&mut t, now, 100)).collect();
        assert_eq!(
            &delays[..4],
            [2, 2, 4, 4],
            "it waits its own length before it rises again"
        );
        assert_eq!(delays.last(), Some(&32));
        assert!(t.history.len() <= 33, "{}", t.history.len());
    }

    #[test]
    fn it_decreases_by_one_when_rejections_are_few() {
        let mut t = RetryAfter::default();
        for now in 1_000..1_004 {
            second(&mut t, now, 100);
        }
        assert_eq!(t.seconds, 4);
        let delays: Vec<u64> = (1..6).map(|i| second(&mut t, 1_004 + 100 * i, 1)).collect();
        assert_eq!(delays, [3, 2, 1, 1, 1]);
    }
}
