//! Errors of the configuration file of encryption at rest. Texts are upstream's where it has them: operators read
//! them.

use crate::storage::kms_error::KmsError;
use std::io;
use std::path::PathBuf;

/// Why a configuration file is not used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("error reading encryption provider configuration file \"{}\": {source}", .path.display())]
    Read {
        /// The file of `--encryption-provider-config`.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is empty.
    #[error("encryption provider configuration file \"{}\" is empty", .0.display())]
    Empty(PathBuf),
    /// The file's content is wrong.
    #[error("error decoding encryption provider configuration file \"{}\": {source}", .path.display())]
    Decode {
        /// The file of `--encryption-provider-config`.
        path: PathBuf,
        /// The complaint and its line.
        source: Complaint,
    },
    /// A plugin of a reloaded file is not healthy.
    #[error(transparent)]
    Plugin(#[from] KmsError),
}

/// An error in the content of a configuration file.
#[derive(Debug, thiserror::Error)]
pub enum Complaint {
    /// A rule is broken in this line.
    #[error("line {line}: {why}")]
    At {
        /// Counted from 1.
        line: usize,
        /// The field and the rule.
        why: String,
    },
    /// A rule is broken, or the file is not valid YAML.
    #[error("{0}")]
    Somewhere(String),
    /// A plugin could not be started.
    #[error(transparent)]
    Plugin(#[from] KmsError),
}
