//! [`InFile`]: an error in the contents of a file, with the file's name.

use std::error::Error;
use std::path::{Path, PathBuf};

/// An error with the file that it is about.
///
/// ```
/// # use std::path::Path;
/// # use torana_apimachinery::codec::{InFile, yaml};
/// let read = |path: &Path| yaml::decode(b"a: [").map_err(InFile::at(path));
/// let wrong = read(Path::new("/etc/torana.yaml")).unwrap_err();
/// assert!(wrong.to_string().starts_with("/etc/torana.yaml: "));
/// ```
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", .file.display())]
pub struct InFile<E: Error + 'static> {
    file: PathBuf,
    source: E,
}

impl<E: Error + 'static> InFile<E> {
    /// Adds the name of the file to an error.
    pub fn at(file: &Path) -> impl FnOnce(E) -> Self {
        |source| Self {
            file: file.to_owned(),
            source,
        }
    }
}
