//! A disk that fails on purpose, for tests of what comes then.

use rusqlite::ffi;
use std::fmt::Debug;

/// What the store is about to do, or has just done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// To write a batch; nothing of it is on the disk yet.
    Write,
    /// It was told to the disk; whether it is durable is known after this.
    Sync,
    /// To compact, or to look whether there is space again.
    Upkeep,
}

/// How a step fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `ENOSPC`.
    Full,
    /// `EIO` of a write.
    Write,
    /// `EIO` of an fsync.
    Sync,
}

/// Decides which steps fail.
pub trait Faults: Debug + Send + Sync {
    /// The fault of this step, if it is to have one.
    fn strike(&self, step: Step) -> Option<Fault>;
}

impl Fault {
    pub(super) fn error(self) -> rusqlite::Error {
        let (code, text) = match self {
            Self::Full => (ffi::SQLITE_FULL, "database or disk is full"),
            Self::Write => (ffi::SQLITE_IOERR_WRITE, "disk I/O error"),
            Self::Sync => (ffi::SQLITE_IOERR_FSYNC, "disk I/O error"),
        };
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), Some(text.to_owned()))
    }
}
