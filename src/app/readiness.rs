//! A signal for what has to wait until the gateway is ready: the control loops, and the service manager's
//! notification.

use crate::server::health::{HealthCheck, HealthEndpoint};
use crate::tasks::{Signal, TaskGroup};
use std::sync::Arc;
use std::time::Duration;

/// How often the checks run until they pass.
const POLL: Duration = Duration::from_millis(10);

/// Fires once `/readyz` would pass.
pub(super) fn signal(checks: &Arc<Vec<HealthCheck>>, tasks: &TaskGroup) -> Signal {
    let (checks, ready) = (checks.clone(), Signal::new("ready"));
    let fired = ready.clone();
    tasks.spawn_until_stopped("readiness", async move {
        while !pass(&checks, HealthEndpoint::Readyz) {
            tokio::time::sleep(POLL).await;
        }
        fired.fire();
    });
    ready
}

/// Whether an endpoint would answer 200.
pub(super) fn pass(checks: &[HealthCheck], endpoint: HealthEndpoint) -> bool {
    let mut included = checks.iter().filter(|check| check.is_on(endpoint));
    included.all(|check| check.run().is_ok())
}
