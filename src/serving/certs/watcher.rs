//! Looks at the files of all sources again and again.

use super::source::Reload;
use std::sync::Arc;
use std::time::Duration;

/// Checks every source each `interval`, for ever: the caller owns the task and drops it.
///
/// Polling content instead of file events: a mounted Secret changes through two levels of symbolic links, network file
/// systems have no events, and a dozen small files cost nothing.
///
/// # Cancel safety
/// Cancel safe; a check that has begun ends on its blocking thread.
pub async fn watch_files(sources: Vec<Arc<dyn Reload>>, interval: Duration) {
    let sources: Arc<[Arc<dyn Reload>]> = sources.into();
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let sources = Arc::clone(&sources);
        let checked = tokio::task::spawn_blocking(move || {
            for source in sources.iter() {
                source.check_now();
            }
        });
        if let Err(error) = checked.await {
            tracing::error!(%error, "certificate check failed");
        }
    }
}
