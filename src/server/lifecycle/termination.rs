//! The OS signals that end the process.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens for SIGTERM and SIGINT. The first requests an orderly shutdown; on the second, callers exit with 1.
pub struct Termination {
    term: Signal,
    int: Signal,
}

impl Termination {
    /// Installs the handlers. From then on the signals do not end the process by themselves.
    ///
    /// # Errors
    /// Fails if the operating system rejects a handler.
    pub fn listen() -> std::io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next signal and returns its name.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn next(&mut self) -> &'static str {
        // The order does not matter: both signals are treated alike.
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.int.recv() => "SIGINT",
        }
    }
}
