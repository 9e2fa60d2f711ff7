//! [`Clock`]: the time that is passed into the pure parts of flow control, as the duration since its start.
//! [`QueueSet`](super::queueset::QueueSet) and the statistics have no clock of their own.

use std::time::{Duration, Instant, SystemTime};

/// Monotonic time since a fixed origin. Follows tokio's clock, which tests can pause.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
    wall: SystemTime,
}

impl Clock {
    /// Starts now.
    pub(crate) fn start() -> Self {
        Self {
            origin: tokio::time::Instant::now().into_std(),
            wall: SystemTime::now(),
        }
    }

    /// Time since the start.
    pub(crate) fn now(&self) -> Duration {
        tokio::time::Instant::now()
            .into_std()
            // Monotonic, but a test may advance and resume tokio's clock: never panic over it.
            .saturating_duration_since(self.origin)
    }

    /// The moment of a reading, for timers.
    pub(crate) fn instant(&self, at: Duration) -> tokio::time::Instant {
        (self.origin + at).into()
    }

    /// The moment of a reading, for people.
    pub(crate) fn wall(&self, at: Duration) -> SystemTime {
        // Later steps of the system clock are ignored, so the times of one dump are consistent with each other.
        self.wall + at
    }
}
