//! [`OpenError`]: why a store could not be opened, worded for the operator.

use std::fmt;
use std::path::{Path, PathBuf};

/// Why a store could not be opened.
#[derive(Debug)]
pub enum OpenError {
    /// Another process holds the store's lock.
    Locked {
        /// The data directory.
        dir: PathBuf,
        /// The process id of the holder, if known.
        holder: Option<u32>,
    },
    /// The directory has no store.
    Missing {
        /// The directory that was searched.
        dir: PathBuf,
    },
    /// A restore into the directory was interrupted.
    HalfRestored {
        /// The data directory.
        dir: PathBuf,
    },
    /// The file to create exists already.
    Exists {
        /// The file, which is not overwritten.
        path: PathBuf,
    },
    /// A file is not a usable backup.
    Backup {
        /// The file that was to be restored.
        path: PathBuf,
        /// The problem, as the text after a colon.
        why: String,
    },
    /// A file could not be opened or created.
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file's contents are inconsistent.
    Damaged {
        /// The database file.
        path: PathBuf,
        /// The problem, as the text after a colon.
        why: String,
    },
    /// The file was written in another version of the format.
    Version {
        /// The database file.
        path: PathBuf,
        /// The format version of the file.
        found: i64,
        /// The format version this program supports.
        known: i64,
    },
    /// SQLite failed for another reason.
    Sqlite {
        /// The database file.
        path: PathBuf,
        /// SQLite's error.
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

    /// Converts the error to one about a backup file.
    pub(super) fn of_backup(self, path: &Path) -> Self {
        // The path inside the error is that of a temporary copy or of the backup itself; the operator is told
        // about the backup once.
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
            // Not from SQLite but from decoding a row: a value of an unexpected type, or text that is not
            // UTF-8.
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
            Self::HalfRestored { dir } => write!(
                f,
                "the restore of the store in {dir} was interrupted. Repeat `torana store restore --data-dir={dir} \
                 --from=FILE`; the old store's files are in store.db* and in the newest store.db.before-*",
                dir = dir.display()
            ),
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
                "the store {} has format {found}, this program supports format {known}",
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
