//! The directory of an ephemeral session.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// In memory on Linux. Elsewhere, and where it cannot be written, the directory for temporary files is used.
const MEMORY: &str = "/dev/shm";

/// Why the directory could not be created.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("no random numbers are available")]
    NoRandomNumbers,
    #[error("--ephemeral: cannot make {}: {source}", .path.display())]
    Create { path: PathBuf, source: std::io::Error },
}

/// A new directory, removed with its content when dropped.
#[derive(Debug)]
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn create() -> Result<Self, Error> {
        let mut suffix = [0u8; 8];
        aws_lc_rs::rand::fill(&mut suffix).map_err(|_| Error::NoRandomNumbers)?;
        let name = format!("torana-dev-{}", crate::apimachinery::codec::hex(&suffix));
        let create = |parent: &Path| {
            let path = parent.join(&name);
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => Ok(Self(path)),
                Err(source) => Err(Error::Create { path, source }),
            }
        };
        // Memory needs no syncs, so the session starts and writes faster.
        create(Path::new(MEMORY)).or_else(|_| create(&std::env::temp_dir()))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(%error, dir = %self.0.display(), "the directory of the session could not be removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropping_the_scratch_directory_deletes_its_content() {
        let scratch = Scratch::create().unwrap();
        let path = scratch.path().to_owned();
        std::fs::write(path.join("file"), "x").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }
}
