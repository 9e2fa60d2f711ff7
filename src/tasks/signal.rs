//! [`Signal`]: a named one-shot event that fires once and stays fired, for shutdown and readiness.

use std::fmt;
use std::sync::Arc;
use tokio::sync::watch;

/// An event that fires once. Clones refer to the same event.
///
/// ```
/// use torana::sdk::Signal;
///
/// # #[tokio::main]
/// # async fn main() {
/// let ready = Signal::new("ready");
/// let (waiter, seen) = (ready.clone(), ready.clone());
/// let task = tokio::spawn(async move { waiter.wait().await });
/// assert!(!seen.fired());
/// assert!(ready.fire());
/// assert!(task.await.is_ok() && seen.fired());
/// # }
/// ```
#[derive(Clone)]
pub struct Signal(Arc<Inner>);

struct Inner {
    name: &'static str,
    fired: watch::Sender<bool>,
}

impl Signal {
    /// Creates a signal that has not fired.
    pub fn new(name: &'static str) -> Self {
        Self(Arc::new(Inner {
            name,
            fired: watch::Sender::new(false),
        }))
    }

    /// The name used in logs.
    pub fn name(&self) -> &'static str {
        self.0.name
    }

    /// Fires the signal. Returns true for the first call only.
    pub fn fire(&self) -> bool {
        let first = self.0.fired.send_if_modified(|f| !std::mem::replace(f, true));
        if first {
            tracing::debug!(signal = self.0.name, "signal fired");
        }
        first
    }

    /// True if the signal has fired.
    pub fn fired(&self) -> bool {
        *self.0.fired.borrow()
    }

    /// Waits until the signal has fired; returns at once if it already has.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn wait(&self) {
        let mut receiver = self.0.fired.subscribe();
        // `self` owns the sender, so the channel cannot be closed.
        let _ = receiver.wait_for(|f| *f).await;
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}({})",
            self.name(),
            if self.fired() { "fired" } else { "not fired" }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn signal_fires_once_and_stays_fired() {
        let s = Signal::new("x");
        let waiter = tokio::spawn({
            let s = s.clone();
            async move { s.wait().await }
        });
        assert!(!s.fired());
        assert!(s.fire());
        assert!(!s.fire());
        waiter.await.unwrap();
        s.wait().await;
        assert!(s.fired());
    }
}
