//! [`Clock`]: the time of the parts that have none of their own.

use std::time::{Duration, Instant, SystemTime};

/// Measures from one moment on. Follows tokio's clock, which tests can pause.
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
            .saturating_duration_since(self.origin)
    }

    /// The moment of a reading, for timers.
    pub(crate) fn instant(&self, at: Duration) -> tokio::time::Instant {
        (self.origin + at).into()
    }

    /// The moment of a reading, for people.
    pub(crate) fn wall(&self, at: Duration) -> SystemTime {
        self.wall + at
    }
}
