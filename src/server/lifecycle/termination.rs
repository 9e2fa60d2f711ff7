//! The signals that end the process.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens for SIGTERM and SIGINT. The first asks for an orderly shutdown; whoever gets a second exits with 1.
pub struct Termination {
    term: Signal,
    int: Signal,
}

impl Termination {
    /// Starts to listen; from now on the signals do not end the process by themselves.
    ///
    /// # Errors
    /// The operating system refuses a handler.
    pub fn listen() -> std::io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
        })
    }

    /// The name of the next signal.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn next(&mut self) -> &'static str {
        // Either is as good as the other.
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.int.recv() => "SIGINT",
        }
    }
}
