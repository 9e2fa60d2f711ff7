//! A clock that only moves when a test advances it.

use std::future::Future;
use std::sync::mpsc;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Yields that suffice for all tasks to finish the work that needs no time.
const TURNS: usize = 60;

/// For tests with `start_paused`. A paused clock advances by itself whenever all tasks are idle, even if one
/// waits for a socket, so that every timeout towards a backend would fire at once. It does not while this
/// value exists.
pub(crate) struct Still {
    _held: mpsc::Sender<()>,
}

impl Still {
    pub(crate) fn new() -> Self {
        let (held, until) = mpsc::channel::<()>();
        // Tokio does not auto-advance while blocking work is running.
        tokio::task::spawn_blocking(move || until.recv());
        Self { _held: held }
    }

    /// Runs `work` to its end, without advancing the clock.
    pub(crate) async fn run<T>(&self, what: &str, work: impl Future<Output = T>) -> T {
        let limit = Instant::now() + Duration::from_secs(60);
        let mut work = std::pin::pin!(work);
        loop {
            let polled = std::future::poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await;
            if let Poll::Ready(done) = polled {
                return done;
            }
            assert!(Instant::now() < limit, "{what} does not end");
            tokio::task::yield_now().await;
        }
    }

    /// Yields until `f` returns a value, without advancing the clock.
    pub(crate) async fn until<T, F: Future<Output = Option<T>>>(&self, what: &str, f: impl Fn() -> F) -> T {
        let found = async {
            loop {
                if let Some(t) = f().await {
                    return t;
                }
                tokio::task::yield_now().await;
            }
        };
        self.run(what, found).await
    }

    /// Runs all tasks until they only wait for time or sockets.
    pub(crate) async fn settle(&self) {
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
    }

    /// Advances the clock and runs all tasks that are due.
    pub(crate) async fn pass(&self, time: Duration) {
        tokio::time::advance(time).await;
        self.settle().await;
    }
}
