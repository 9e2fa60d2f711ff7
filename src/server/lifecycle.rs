//! Lifecycle signals, hooks, and the shutdown sequence (upstream's
//! `k8s.io/apiserver/pkg/server/lifecycle_signals.go`). The sequence is [`Lifecycle::shut_down`]:
//!
//! ```text
//! SIGTERM ─▶ ShutdownInitiated ─▶ /readyz 500
//!               ├─ shutdown delay ───────────▶ AfterShutdownDelay ─┐
//!               └─ pre-shutdown hooks ─▶ PreShutdownHooksStopped ──┴─▶ NotAcceptingNewRequest
//!                                                                        │ listener closed, watches ended
//!                                                                        ▼ requests end (≤ request timeout)
//!                                                                     InFlightRequestsDrained
//!                                                                        ▼ connections closed
//!                                                                     HttpServerStoppedListening ─▶ exit 0
//! a second SIGTERM at any time ─▶ exit 1 (handled in `app`)
//! ```

mod hooks;
pub(crate) mod readiness;
mod wait_group;

pub(crate) use hooks::{HookContext, HookError, PostStartHook, PreShutdownHook};
pub(crate) use wait_group::{InFlight, WaitGroup};

use super::health::{Endpoints, HealthCheck};
use crate::tasks::Signal;
use std::future::Future;
use std::time::Duration;

/// The signals of one gateway. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Lifecycle {
    /// A termination signal arrived.
    pub shutdown_initiated: Signal,
    /// The shutdown delay has passed.
    pub after_shutdown_delay: Signal,
    /// The pre-shutdown hooks have finished.
    pub pre_shutdown_hooks_stopped: Signal,
    /// The listener is closed; long-running requests should end.
    pub not_accepting_new_request: Signal,
    /// The requests that the shutdown waits for have ended.
    pub in_flight_requests_drained: Signal,
    /// All connections are closed.
    pub http_server_stopped_listening: Signal,
    /// `/readyz` would have passed at least once. [`readiness::follow`] fires it.
    pub has_been_ready: Signal,
    /// The requests that the shutdown waits for.
    pub requests: WaitGroup,
}

/// Durations of the shutdown phases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShutdownTimeouts {
    /// `--shutdown-delay-duration`: time during which requests are still served as usual.
    pub delay: Duration,
    /// `--request-timeout`: maximum time to wait for requests in flight.
    pub in_flight: Duration,
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self::new()
    }
}

impl Lifecycle {
    /// Creates the signals; none has fired.
    pub(crate) fn new() -> Self {
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

    /// The check that makes `/readyz` fail as soon as the shutdown begins.
    pub(crate) fn shutdown_check(&self) -> HealthCheck {
        let initiated = self.shutdown_initiated.clone();
        HealthCheck::new("shutdown", Endpoints::READYZ, move || {
            if initiated.fired() {
                Err("process is shutting down")
            } else {
                Ok(())
            }
        })
    }

    /// Runs the shutdown sequence. `stop_accepting` closes the listener; `close` closes the connections and
    /// returns when they are gone. Returns false if requests were still in flight when the time limit
    /// expired.
    ///
    /// # Cancel safety
    /// Not cancel safe: if the future is dropped, the remaining steps do not happen.
    pub(crate) async fn shut_down<C: Future<Output = ()>>(
        &self,
        times: ShutdownTimeouts,
        hooks: Vec<PreShutdownHook>,
        stop_accepting: impl FnOnce(),
        close: impl FnOnce() -> C,
    ) -> bool {
        // First of all, so that load balancers see `/readyz` fail during the whole delay.
        self.shutdown_initiated.fire();
        let delay = async {
            tokio::time::sleep(times.delay).await;
            self.after_shutdown_delay.fire();
        };
        let hooks = async {
            // One after the other, like upstream's `RunPreShutdownHooks`.
            for hook in hooks {
                hook.run().await;
            }
            self.pre_shutdown_hooks_stopped.fire();
        };
        // Concurrently: hooks must not lengthen the shutdown beyond the longer of the two.
        tokio::join!(delay, hooks);
        stop_accepting();
        // Draining starts before the signal fires: a task that sees the signal can rely on new requests being
        // rejected.
        self.requests.start_draining();
        self.not_accepting_new_request.fire();
        let drained = tokio::time::timeout(times.in_flight, self.requests.wait_empty())
            .await
            .is_ok();
        if !drained {
            tracing::warn!(
                requests = self.requests.len(),
                "requests still in flight at the shutdown deadline"
            );
        }
        // Also after the time limit: from here on, the shutdown no longer waits for requests.
        self.in_flight_requests_drained.fire();
        close().await;
        self.http_server_stopped_listening.fire();
        drained
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Mutex;

    #[tokio::test(start_paused = true)]
    async fn shutdown_steps_happen_in_order() {
        let l = Lifecycle::new();
        let ready = l.shutdown_check();
        let request = l.requests.enter().unwrap();
        let log = Mutex::new(Vec::new());
        let times = ShutdownTimeouts {
            delay: Duration::from_secs(4),
            in_flight: Duration::from_secs(60),
        };
        let hook = PreShutdownHook::new("h", async { tokio::time::sleep(Duration::from_secs(5)).await });
        let start = tokio::time::Instant::now();
        let down = l.shut_down(
            times,
            vec![hook],
            || log.lock().push(("listener closed", start.elapsed().as_secs())),
            || async { log.lock().push(("connections closed", start.elapsed().as_secs())) },
        );
        let client = async {
            l.shutdown_initiated.wait().await;
            assert!(l.requests.enter().is_some(), "requests are served during the delay");
            l.not_accepting_new_request.wait().await;
            assert!(l.requests.enter().is_none(), "requests are rejected afterwards");
            tokio::time::sleep(Duration::from_secs(2)).await;
            drop(request);
        };
        let (drained, ()) = tokio::join!(down, client);
        assert!(drained);
        assert_eq!(*log.lock(), [("listener closed", 5), ("connections closed", 7)]);
        let _ = ready;
        assert!(l.http_server_stopped_listening.fired());
    }
}
