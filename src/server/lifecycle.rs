//! Signals, hooks, and the order in which a gateway goes down (upstream's `server/lifecycle_signals.go`).
//!
//! ```text
//! SIGTERM ─▶ ShutdownInitiated ─▶ /readyz 500
//!               ├─ shutdown delay ───────────▶ AfterShutdownDelay ─┐
//!               └─ pre-shutdown hooks ─▶ PreShutdownHooksStopped ──┴─▶ NotAcceptingNewRequest
//!                                                                        │ listener closed, watches told to end
//!                                                                        ▼ in-flight requests end (≤ request timeout)
//!                                                                     InFlightRequestsDrained
//!                                                                        ▼ connections closed
//!                                                                     HttpServerStoppedListening ─▶ exit 0
//! a second SIGTERM at any time ─▶ exit 1 (app's business)
//! ```

mod hooks;
mod termination;
mod wait_group;

pub use hooks::{HookContext, PostStartHook, PreShutdownHook};
pub use termination::Termination;
pub use wait_group::{InFlight, WaitGroup};

use super::health::{Endpoints, HealthCheck};
use crate::tasks::Signal;
use std::future::Future;
use std::time::Duration;

/// The signals of one gateway. Clones are the same gateway's.
#[derive(Clone, Debug)]
pub struct Lifecycle {
    /// A termination signal arrived.
    pub shutdown_initiated: Signal,
    /// The shutdown delay is over.
    pub after_shutdown_delay: Signal,
    /// The pre-shutdown hooks have ended.
    pub pre_shutdown_hooks_stopped: Signal,
    /// The listener is closed; long-running requests should end.
    pub not_accepting_new_request: Signal,
    /// Requests that are waited for have ended.
    pub in_flight_requests_drained: Signal,
    /// All connections are closed.
    pub http_server_stopped_listening: Signal,
    /// `/readyz` was 200 once.
    pub has_been_ready: Signal,
    /// Requests that shutdown waits for.
    pub requests: WaitGroup,
}

/// How long shutdown takes its time.
#[derive(Clone, Copy, Debug)]
pub struct ShutdownTimes {
    /// `--shutdown-delay-duration`: requests are served as before for that long.
    pub delay: Duration,
    /// `--request-timeout`: how long requests in flight are waited for.
    pub in_flight: Duration,
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self::new()
    }
}

impl Lifecycle {
    /// Nothing has happened yet.
    pub fn new() -> Self {
        Self {
            shutdown_initiated: Signal::new("ShutdownInitiated"),
            after_shutdown_delay: Signal::new("AfterShutdownDelayDuration"),
            pre_shutdown_hooks_stopped: Signal::new("PreShutdownHooksStopped"),
            not_accepting_new_request: Signal::new("NotAcceptingNewRequest"),
            in_flight_requests_drained: Signal::new("InFlightRequestsDrained"),
            http_server_stopped_listening: Signal::new("HTTPServerStoppedListening"),
            has_been_ready: Signal::new("HasBeenReady"),
            requests: WaitGroup::new(),
        }
    }

    /// The check that turns `/readyz` false as soon as shutdown begins.
    pub fn shutdown_check(&self) -> HealthCheck {
        let initiated = self.shutdown_initiated.clone();
        HealthCheck::new("shutdown", Endpoints::READYZ, move || {
            if initiated.fired() {
                Err("process is shutting down".into())
            } else {
                Ok(())
            }
        })
    }

    /// Goes down in order. `stop_accepting` closes the listener; `close` closes the connections and returns when they
    /// are gone. False where requests were still in flight when their time was over.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropped in the middle, the rest of the order is not kept.
    pub async fn shut_down<C: Future<Output = ()>>(
        &self,
        times: ShutdownTimes,
        hooks: Vec<PreShutdownHook>,
        stop_accepting: impl FnOnce(),
        close: impl FnOnce() -> C,
    ) -> bool {
        self.shutdown_initiated.fire();
        let delay = async {
            tokio::time::sleep(times.delay).await;
            self.after_shutdown_delay.fire();
        };
        let hooks = async {
            for hook in hooks {
                hook.run().await;
            }
            self.pre_shutdown_hooks_stopped.fire();
        };
        tokio::join!(delay, hooks);
        stop_accepting();
        self.requests.start_draining();
        self.not_accepting_new_request.fire();
        let drained = tokio::time::timeout(times.in_flight, self.requests.wait_empty())
            .await
            .is_ok();
        if !drained {
            tracing::warn!(
                requests = self.requests.len(),
                "requests were still in flight when their time was over"
            );
        }
        self.in_flight_requests_drained.fire();
        close().await;
        self.http_server_stopped_listening.fire();
        drained
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[tokio::test(start_paused = true)]
    async fn going_down_keeps_the_order() {
        let l = Lifecycle::new();
        let ready = l.shutdown_check();
        let request = l.requests.enter().unwrap();
        let log = Mutex::new(Vec::new());
        let times = ShutdownTimes {
            delay: Duration::from_secs(4),
            in_flight: Duration::from_secs(60),
        };
        let hook = PreShutdownHook::new("h", async { tokio::time::sleep(Duration::from_secs(5)).await });
        let start = tokio::time::Instant::now();
        let down = l.shut_down(
            times,
            vec![hook],
            || log.lock().unwrap().push(("listener closed", start.elapsed().as_secs())),
            || async {
                log.lock()
                    .unwrap()
                    .push(("connections closed", start.elapsed().as_secs()))
            },
        );
        let client = async {
            l.shutdown_initiated.wait().await;
            assert!(l.requests.enter().is_some(), "requests are served during the delay");
            l.not_accepting_new_request.wait().await;
            assert!(l.requests.enter().is_none(), "and refused afterwards");
            tokio::time::sleep(Duration::from_secs(2)).await;
            drop(request);
        };
        let (drained, ()) = tokio::join!(down, client);
        assert!(drained);
        assert_eq!(
            *log.lock().unwrap(),
            [("listener closed", 5), ("connections closed", 7)]
        );
        let _ = ready;
        assert!(l.http_server_stopped_listening.fired());
    }
}
