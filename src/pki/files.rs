//! Files that are there whole or not at all, and keys nobody else may read.

use super::PkiError;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Mode of keys and of files that hold them.
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

/// The content, or nothing where there is no such file.
pub(super) fn read(path: &Path) -> Result<Option<String>, PkiError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(PkiError::new(path, format!("cannot be read: {e}"))),
    }
}

/// A key; says so where others may read it.
pub(super) fn read_secret(path: &Path) -> Result<Option<String>, PkiError> {
    let text = read(path)?;
    if text.is_some()
        && let Ok(meta) = std::fs::metadata(path)
        && meta.permissions().mode() & 0o077 != 0
    {
        tracing::warn!(file = %path.display(), "others may read this private key; chmod 600 it");
    }
    Ok(text)
}

/// Writes beside the file, syncs, and renames over it; the mode is there from the first byte on.
pub(super) fn write(path: &Path, content: &str, mode: u32) -> Result<(), PkiError> {
    let fail = |e: std::io::Error| PkiError::new(path, format!("cannot be written: {e}"));
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(PkiError::new(path, "is no file name"));
    };
    let temporary = dir.join(format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id()));
    // A leftover of a process that had our id and died.
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
