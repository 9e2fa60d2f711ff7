//! What every dynamic source shares: errors, the seen content, and the rule for bad replacements.

use aws_lc_rs::digest;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Why a certificate, key or bundle cannot be used.
#[derive(Debug)]
pub enum CertError {
    /// The file cannot be read.
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The content is no usable certificate, key or bundle.
    Invalid {
        /// Where it came from; absent for values made in memory.
        path: Option<PathBuf>,
        /// What is wrong and, where it helps, how to mend it.
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

/// A source whose files can be looked at again.
pub trait Reload: Send + Sync {
    /// Looks at the files now (blocking, small files); true where a new value has replaced the old.
    fn check_now(&self) -> bool;
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>, CertError> {
    std::fs::read(path).map_err(|source| CertError::Read {
        path: path.to_owned(),
        source,
    })
}

/// Digest of the content last looked at, good or bad, so that each content is judged and reported once.
#[derive(Debug, Default)]
pub(super) struct Seen(Mutex<Option<[u8; 32]>>);

impl Seen {
    /// True the first time this content (the parts in order) is met after another one.
    pub(super) fn is_new(&self, parts: &[&[u8]]) -> bool {
        let mut context = digest::Context::new(&digest::SHA256);
        for part in parts {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        let mut now = [0; 32];
        now.copy_from_slice(context.finish().as_ref());
        let mut seen = self.0.lock().expect("no code panics while holding this lock");
        seen.replace(now) != Some(now)
    }
}
