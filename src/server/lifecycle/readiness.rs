//! The signal for what has to wait until the server is ready: control loops, the service manager's
//! notification, manifests of `torana dev`. Entry point: [`follow`], which fires it once. Answering probes, whose
//! outcome can change again, is left to `server::health`.

use crate::server::health::{self, HealthCheck, HealthEndpoint};
use crate::tasks::Signal;
use std::sync::Arc;
use std::time::Duration;

/// Interval at which checks that no event belongs to are repeated, such as those of the store.
const POLL: Duration = Duration::from_millis(10);

/// Fires `ready` once `/readyz` would pass. `hooks` fire when the post-start hooks have returned. They are most
/// of the checks and take the longest, so nothing is polled before.
pub(crate) async fn follow(hooks: Vec<Signal>, checks: Arc<[HealthCheck]>, ready: Signal) {
    for hook in hooks {
        hook.wait().await;
    }
    while !health::pass(&checks, HealthEndpoint::Readyz) {
        tokio::time::sleep(POLL).await;
    }
    ready.fire();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::health::Endpoints;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test(start_paused = true)]
    async fn ready_fires_once_hooks_have_returned_and_checks_pass() {
        let (hook, ready) = (Signal::new("hook"), Signal::new("ready"));
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = runs.clone();
        let check = HealthCheck::new("store", Endpoints::READYZ, move || {
            match counted.fetch_add(1, Ordering::Relaxed) {
                0 => Err("not yet"),
                _ => Ok(()),
            }
        });
        let mut following = Box::pin(follow(vec![hook.clone()], Arc::from([check]), ready.clone()));
        let early = tokio::time::timeout(Duration::from_secs(1), &mut following).await;
        assert!(early.is_err() && !ready.fired());
        assert_eq!(
            runs.load(Ordering::Relaxed),
            0,
            "no check runs before the hooks have returned"
        );
        hook.fire();
        following.await;
        assert!(ready.fired());
        assert_eq!(runs.load(Ordering::Relaxed), 2);
    }
}
