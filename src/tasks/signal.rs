//! Named one-shot signals: they fire once and stay fired.

use std::fmt;
use std::sync::Arc;
use tokio::sync::watch;

/// Something that happens once. Clones are the same signal.
#[derive(Clone)]
pub struct Signal(Arc<Inner>);

struct Inner {
    name: &'static str,
    fired: watch::Sender<bool>,
}

impl Signal {
    /// A signal that has not fired.
    pub fn new(name: &'static str) -> Self {
        Self(Arc::new(Inner {
            name,
            fired: watch::Sender::new(false),
        }))
    }

    /// What it is called in logs.
    pub fn name(&self) -> &'static str {
        self.0.name
    }

    /// Fires it. True for the call that did.
    pub fn fire(&self) -> bool {
        let first = self.0.fired.send_if_modified(|f| !std::mem::replace(f, true));
        if first {
            tracing::debug!(signal = self.0.name, "signal fired");
        }
        first
    }

    /// Whether it has fired.
    pub fn fired(&self) -> bool {
        *self.0.fired.borrow()
    }

    /// Waits until it has fired; at once where it has.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn wait(&self) {
        let mut receiver = self.0.fired.subscribe();
        // The sender lives in `self`, so the only way out is the value.
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
    async fn it_fires_once_and_stays_fired() {
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
