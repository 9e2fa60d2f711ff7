//! Reports the state of the process to systemd (`sd_notify(3)`, `Type=notify` and `WatchdogSec=` in the
//! unit). Does nothing unless systemd asks for it through the environment.
//!
//! The process reports that it is ready once `/readyz` would pass, so units ordered after it can use the
//! gateway. The watchdog is fed by a task of the reactors while `/livez` would pass: a process whose reactors
//! hang is restarted.

use super::readiness::{self, pass};
use crate::server::Lifecycle;
use crate::server::health::{HealthCheck, HealthEndpoint};
use crate::tasks::TaskGroup;
use sd_notify::NotifyState;
use std::sync::Arc;

/// Starts reporting in `tasks`, if systemd started the process.
pub(super) fn report(checks: &Arc<Vec<HealthCheck>>, lifecycle: &Lifecycle, tasks: &TaskGroup) {
    if std::env::var_os("NOTIFY_SOCKET").is_none() {
        return;
    }
    let shutdown = lifecycle.shutdown_initiated.clone();
    tasks.spawn("service manager: stopping", async move {
        shutdown.wait().await;
        notify(&[NotifyState::Stopping]);
    });
    let (ready, checks) = (readiness::signal(checks, tasks), checks.clone());
    let watchdog = sd_notify::watchdog_enabled();
    tasks.spawn_until_stopped("service manager: readiness and watchdog", async move {
        ready.wait().await;
        notify(&[NotifyState::Ready, NotifyState::Status("serving")]);
        let Some(limit) = watchdog else { return };
        loop {
            // Silence is the signal: systemd restarts the process when the watchdog is not fed in time.
            if pass(&checks, HealthEndpoint::Livez) {
                notify(&[NotifyState::Watchdog]);
            }
            // The manual asks for half of the limit.
            tokio::time::sleep(limit / 2).await;
        }
    });
}

fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "the service manager could not be notified");
    }
}
