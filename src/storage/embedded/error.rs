//! Why a store could not be opened, in words for whoever starts the server.

use std::fmt;
use std::path::{Path, PathBuf};

/// Why a store could not be opened.
#[derive(Debug)]
pub enum OpenError {
    /// Another process has it.
    Locked {
        /// The store's directory.
        dir: PathBuf,
        /// The process, where it is known.
        holder: Option<u32>,
    },
    /// There is none.
    Missing {
        /// Where it was looked for.
        dir: PathBuf,
    },
    /// A file that is to be made is there already.
    Exists {
        /// Which.
        path: PathBuf,
    },
    /// A backup that cannot be taken for one.
    Backup {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A file could not be opened or made.
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not what was written.
    Damaged {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The file was written by another version of the format.
    Version {
        /// Which file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The format this program knows.
        known: i64,
    },
    /// The database refused for another reason.
    Sqlite {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: rusqlite::Error,
    },
}

// === impl OpenError ===

impl OpenError {
    pub(super) fn damaged(path: &Path, why: impl Into<String>) -> Self {
        Self::Damaged {
            path: path.to_path_buf(),
            why: why.into(),
        }
    }

    /// The same about a file that should be a backup.
    pub(super) fn of_backup(self, path: &Path) -> Self {
        let why = match self {
            Self::Damaged { why, .. } => why,
            Self::Io { source, .. } => source.to_string(),
            Self::Sqlite { source, .. } => source.to_string(),
            other => other.to_string(),
        };
        Self::Backup {
            path: path.to_path_buf(),
            why,
        }
    }

    pub(super) fn sqlite(path: &Path, source: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
        match source.sqlite_error_code() {
            Some(DatabaseCorrupt | NotADatabase) => Self::damaged(path, source.to_string()),
            // A value of another type than was written, or bytes that are no text.
            None => Self::damaged(path, source.to_string()),
            Some(_) => Self::Sqlite {
                path: path.to_path_buf(),
                source,
            },
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Locked { dir, holder: Some(pid) } => {
                write!(f, "the store in {} is in use by process {pid}", dir.display())
            }
            Self::Locked { dir, holder: None } => {
                write!(f, "the store in {} is in use by another process", dir.display())
            }
            Self::Missing { dir } => write!(f, "there is no store in {}", dir.display()),
            Self::Exists { path } => write!(f, "{} is there already and is not overwritten", path.display()),
            Self::Backup { path, why } => write!(
                f,
                "{} cannot be taken for a backup: {why}. Nothing was changed",
                path.display()
            ),
            Self::Io { path, source } => write!(f, "cannot open {}: {source}", path.display()),
            Self::Damaged { path, why } => write!(
                f,
                "the store {} is damaged and was not opened: {why}. See `torana store check \
                 --data-dir={dir}`; put a backup in its place with `torana store restore --data-dir={dir} --from=FILE`",
                path.display(),
                dir = path.parent().unwrap_or(path).display()
            ),
            Self::Version { path, found, known } => write!(
                f,
                "the store {} has format {found}, this program knows format {known}",
                path.display()
            ),
            Self::Sqlite { path, source } if source.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull) => {
                write!(f, "there is no space for {}: {source}", path.display())
            }
            Self::Sqlite { path, source } => write!(f, "cannot open {}: {source}", path.display()),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Sqlite { source, .. } => Some(source),
            _ => None,
        }
    }
}
