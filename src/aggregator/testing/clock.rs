//! A clock that stands still until it is moved.

use std::future::Future;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Turns that everybody gets for what can be done without time passing.
const TURNS: usize = 60;

/// For tests with `start_paused`. The paused clock moves on by itself whenever everybody waits, also for a socket: whoever
/// waits for a backend would be late at once. While this lives, it does not.
pub struct Still {
    _held: mpsc::Sender<()>,
}

impl Still {
    pub fn new() -> Self {
        let (held, until) = mpsc::channel::<()>();
        // While blocking work is under way, tokio leaves its clock alone.
        tokio::task::spawn_blocking(move || until.recv());
        Self { _held: held }
    }

    /// Gives others their turn until `f` gives a value; no time passes.
    pub async fn until<T, F: Future<Output = Option<T>>>(&self, what: &str, f: impl Fn() -> F) -> T {
        let limit = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(t) = f().await {
                return t;
            }
            assert!(Instant::now() < limit, "{what} did not come about");
            tokio::task::yield_now().await;
        }
    }

    /// Lets everybody do what needs no time.
    pub async fn settle(&self) {
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
    }

    /// Time passes, and everybody does what is due.
    pub async fn pass(&self, time: Duration) {
        tokio::time::advance(time).await;
        self.settle().await;
    }
}
