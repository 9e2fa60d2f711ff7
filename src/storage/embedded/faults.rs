//! Fault injection for the disk, for tests of error handling.

use rusqlite::ffi;
use std::fmt::Debug;

/// The point at which a fault may occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Before a batch is written to disk.
    Write,
    /// After a batch was handed to the disk; it may or may not be durable.
    Sync,
    /// During compaction, or when probing for free space.
    Upkeep,
}

/// The error to simulate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `ENOSPC`: the disk is full.
    Full,
    /// `EIO` from a write.
    Write,
    /// `EIO` from an fsync.
    Sync,
}

/// Decides which steps fail. Called on the committer thread.
pub trait Faults: Debug + Send + Sync {
    /// Returns the fault for this step, if any.
    fn next_fault(&self, step: Step) -> Option<Fault>;
}

impl Fault {
    pub(super) fn error(self) -> rusqlite::Error {
        // The codes and messages SQLite itself reports, so that callers classify them as they do real faults.
        let (code, text) = match self {
            Self::Full => (ffi::SQLITE_FULL, "database or disk is full"),
            Self::Write => (ffi::SQLITE_IOERR_WRITE, "disk I/O error"),
            Self::Sync => (ffi::SQLITE_IOERR_FSYNC, "disk I/O error"),
        };
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), Some(text.to_owned()))
    }
}
