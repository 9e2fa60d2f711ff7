//! [`DirectoryLock`]: a lock file that keeps a second process from opening the store.

use super::OpenError;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Held while the store is open. The operating system releases it when the process ends, even after a crash.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    file: File,
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // Closing is not enough: a child process that was forked and has not yet executed its program has a
        // copy of the descriptor, which would keep the lock until then.
        let _ = self.file.unlock();
    }
}

impl DirectoryLock {
    /// Creates the directory if missing, accessible to its owner only, and locks it.
    pub(crate) fn acquire(dir: &Path) -> Result<Self, OpenError> {
        let path = dir.join("lock");
        let io = |source| OpenError::Io {
            path: path.clone(),
            source,
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(|source| OpenError::Io {
                path: dir.to_path_buf(),
                source,
            })?;
        // Not truncated on open: another process may hold the lock, and its process id is in the file.
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(&path).map_err(io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // The holder may not have written its process id yet; the message is then less specific.
                let _ = file.read_to_string(&mut holder);
                return Err(OpenError::Locked {
                    dir: dir.to_path_buf(),
                    holder: holder.trim().parse().ok(),
                });
            }
            Err(TryLockError::Error(source)) => return Err(io(source)),
        }
        // Truncated only under the lock.
        file.set_len(0).map_err(io)?;
        file.seek(SeekFrom::Start(0)).map_err(io)?;
        writeln!(file, "{}", std::process::id()).map_err(io)?;
        Ok(Self { file })
    }
}
