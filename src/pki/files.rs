//! Atomic file writes, and permissions of private keys.

use super::PkiError;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Mode of private keys and of files that contain them.
pub(super) const SECRET: u32 = 0o600;
/// Mode of certificates.
pub(super) const PUBLIC: u32 = 0o644;

pub(super) fn create_dir(dir: &Path) -> Result<(), PkiError> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|e| {
        PkiError::new(
            dir,
            format!("cannot make the directory: {e}; choose one that can be written with --data-dir"),
        )
    })
}

/// Reads a file; `None` if it does not exist.
pub(super) fn read(path: &Path) -> Result<Option<String>, PkiError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(PkiError::new(path, format!("cannot be read: {e}"))),
    }
}

/// Reads a private key; logs a warning if its mode lets others read it.
pub(super) fn read_secret(path: &Path) -> Result<Option<String>, PkiError> {
    let text = read(path)?;
    if text.is_some()
        && let Ok(meta) = std::fs::metadata(path)
        && meta.permissions().mode() & 0o077 != 0
    {
        tracing::warn!(file = %path.display(), "this private key is accessible to other users; chmod 600 it");
    }
    Ok(text)
}

/// Writes a temporary file, syncs it, and renames it over `path`, so that a crash leaves the old or the new content.
/// The file is created with `mode`, so a key is never readable by others, not even briefly.
pub(super) fn write(path: &Path, content: &str, mode: u32) -> Result<(), PkiError> {
    let fail = |e: std::io::Error| PkiError::new(path, format!("cannot be written: {e}"));
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(PkiError::new(path, "is no file name"));
    };
    let temporary = dir.join(format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id()));
    // Left behind by a crashed process with the same PID.
    match std::fs::remove_file(&temporary) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(fail(e)),
        _ => {}
    }
    let written = (|| {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&temporary)?;
        file.write_all(content.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)?;
        // The rename is durable only after a sync of the directory.
        File::open(if dir.as_os_str().is_empty() {
            Path::new(".")
        } else {
            dir
        })?
        .sync_all()
    })();
    written.map_err(|e| {
        let _ = std::fs::remove_file(&temporary);
        fail(e)
    })
}
