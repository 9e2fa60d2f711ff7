//! [`Error`]: why a gateway does not start, why it ended, or why a command failed.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

/// The error of the module below that failed.
pub(super) type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a gateway does not start, why it ended, or why a command failed.
///
/// `Display` is one line for the operator. It names the flag or the file to change, if there is one, and
/// includes the source's text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The value of a flag cannot be used.
    #[error("--{flag}: {source}")]
    Flag {
        /// The flag, without its dashes.
        flag: &'static str,
        /// What is wrong with the value or with its file.
        source: Cause,
    },
    /// A file that a flag names cannot be used.
    #[error("--{flag}: {}: {source}", .path.display())]
    File {
        /// The flag, without its dashes.
        flag: &'static str,
        /// The file as the flag names it.
        path: PathBuf,
        /// Why the file cannot be read, or what is wrong in it.
        source: Cause,
    },
    /// An authorizer of `--authorization-config` cannot be used.
    #[error("authorizer {name}: {source}")]
    Authorizer {
        /// `name` of the authorizer in the file.
        name: String,
        /// What is wrong with its configuration, or with a file that this names.
        source: Cause,
    },
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
    /// The system does not deliver signals.
    #[error("cannot listen for signals: {0}")]
    Signals(#[source] io::Error),
    /// A second signal came before the shutdown was complete.
    #[error("ended by a second signal")]
    SecondSignal,
    /// A running gateway cannot continue, for example because a post-start hook failed.
    #[error(transparent)]
    Fatal(Cause),
    /// Anything else, such as a taken port or a damaged store.
    #[error(transparent)]
    Other(Cause),
}

/// A file that a flag names cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}: {source}", .path.display())]
struct Unreadable {
    path: PathBuf,
    source: io::Error,
}

impl Error {
    /// For `map_err`: the value of a flag cannot be used.
    pub(super) fn flag<E: Into<Cause>>(flag: &'static str) -> impl Fn(E) -> Self {
        move |source| Self::Flag {
            flag,
            source: source.into(),
        }
    }

    /// For `map_err`: a file that a flag names cannot be used.
    pub(super) fn file<E: Into<Cause>>(flag: &'static str, path: &Path) -> impl Fn(E) -> Self {
        move |source| Self::File {
            flag,
            path: path.to_owned(),
            source: source.into(),
        }
    }

    /// For `map_err`: a file that a flag names cannot be read.
    pub(super) fn unreadable(flag: &'static str, path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Flag {
            flag,
            source: Box::new(Unreadable {
                path: path.to_owned(),
                source,
            }),
        }
    }

    /// For `map_err`: an error whose own message suffices.
    pub(super) fn other(source: impl Into<Cause>) -> Self {
        Self::Other(source.into())
    }

    /// For `map_err`: something on the way to a running gateway, such as "reading the stored services".
    pub(super) fn during<E: Display>(what: &'static str) -> impl Fn(E) -> Self {
        move |e| Self::Other(format!("{what}: {e}").into())
    }
}

/// An error in the file of `--admission-control-config-file`.
pub(super) fn admission_file(error: impl Into<Cause>) -> Error {
    Error::flag("admission-control-config-file")(error)
}

/// An error in that file's configuration of a plugin.
pub(super) fn admission_plugin(plugin: &str, error: impl Display) -> Error {
    admission_file(format!("{plugin}: {error}"))
}
