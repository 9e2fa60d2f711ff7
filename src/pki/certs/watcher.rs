//! Polls the files of the reloadable sources.

use super::source::Reload;
use std::sync::Arc;
use std::time::Duration;

/// Checks every source each `interval` and never returns; the caller owns the task and aborts it.
///
/// Polls file content instead of using file events: a mounted Secret is replaced behind two levels of
/// symbolic links, network file systems deliver no events, and re-reading a dozen small files is cheap.
///
/// # Cancel safety
/// Cancel safe. A check that has already started finishes on its blocking thread.
pub(crate) async fn watch_files(sources: Vec<Arc<dyn Reload>>, interval: Duration) {
    // Shared, because each check moves to a thread of the blocking pool.
    let sources: Arc<[Arc<dyn Reload>]> = sources.into();
    let mut ticks = tokio::time::interval(interval);
    // One check is enough after the machine was suspended.
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // The first tick completes immediately, and the sources have just been loaded.
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let sources = Arc::clone(&sources);
        // A network file system may hang, which must not block a reactor.
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
