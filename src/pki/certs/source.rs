//! Shared by the reloadable sources: the error type, the [`Reload`] trait, and detection of changed content.

use aws_lc_rs::digest;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::sync::Mutex;

/// Reasons why a certificate, key or bundle cannot be used.
#[derive(Debug)]
pub enum CertError {
    /// The file cannot be read.
    Read {
        /// The file that was to be read.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The content is not a usable certificate, key or bundle.
    Invalid {
        /// The file; absent for in-memory values.
        path: Option<PathBuf>,
        /// The error and, where it helps, its remedy.
        reason: String,
    },
}

impl CertError {
    pub(super) fn invalid(reason: impl Into<String>) -> Self {
        Self::Invalid {
            path: None,
            reason: reason.into(),
        }
    }

    pub(super) fn at(self, file: &Path) -> Self {
        match self {
            Self::Invalid { path: None, reason } => Self::Invalid {
                path: Some(file.to_owned()),
                reason,
            },
            other => other,
        }
    }
}

impl fmt::Display for CertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { path, source } => write!(f, "cannot read {}: {source}", path.display()),
            Self::Invalid {
                path: Some(path),
                reason,
            } => write!(f, "{}: {reason}", path.display()),
            Self::Invalid { path: None, reason } => f.write_str(reason),
        }
    }
}

impl std::error::Error for CertError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read { source, .. } => Some(source),
            Self::Invalid { .. } => None,
        }
    }
}

/// A source backed by files that can be re-read.
pub(crate) trait Reload: Send + Sync {
    /// Re-reads the files, blocking. Returns true if a new value has replaced the old one.
    fn check_now(&self) -> bool;
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>, CertError> {
    std::fs::read(path).map_err(|source| CertError::Read {
        path: path.to_owned(),
        source,
    })
}

/// Digest of the content last read, valid or not, so that each content is validated and logged only once.
#[derive(Debug, Default)]
pub(super) struct ContentDigest(Mutex<Option<[u8; 32]>>);

impl ContentDigest {
    /// True if the content (its parts in order) differs from that of the previous call.
    pub(super) fn is_new(&self, parts: &[&[u8]]) -> bool {
        // A digest rather than the content: private keys should not be kept in memory twice.
        let mut context = digest::Context::new(&digest::SHA256);
        // Length prefixes distinguish content that moved from one part to the other.
        for part in parts {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        let mut now = [0; 32];
        now.copy_from_slice(context.finish().as_ref());
        let mut seen = self.0.lock();
        seen.replace(now) != Some(now)
    }
}
