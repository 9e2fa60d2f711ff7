//! Atomic and durable file writes, and permissions of private keys. Entry point: [`Staged`], which writes
//! several files so that a crash leaves a usable set.

use super::PkiError;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Mode of private keys and of files that contain them.
pub(super) const SECRET: u32 = 0o600;
/// Mode of certificates.
pub(super) const PUBLIC: u32 = 0o644;

pub(super) fn create_dir(dir: &Path) -> Result<(), PkiError> {
    // The mode applies to directories that are created only; an existing one keeps its own.
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

/// Writes one file as [`Staged`] does.
pub(super) fn write(path: &Path, content: &str, mode: u32) -> Result<(), PkiError> {
    let mut one = Staged::default();
    one.add(path, content.to_owned(), mode);
    one.commit()
}

/// Files that are written together. They are synced in parallel, so they take about as long as two files.
///
/// After a crash, each has its old or its new content. Secrets are renamed before public files: a certificate
/// can be issued again for its key, but a lost key cannot be recovered from its certificate.
#[derive(Default)]
pub(super) struct Staged(Vec<Target>);

struct Target {
    path: PathBuf,
    content: String,
    mode: u32,
}

/// A written file under a temporary name. Removed when dropped, unless it was renamed.
struct Temporary<'a> {
    target: &'a Target,
    path: PathBuf,
    dir: &'a Path,
    file: File,
}

impl Staged {
    pub(super) fn add(&mut self, path: &Path, content: String, mode: u32) {
        let path = path.to_owned();
        self.0.push(Target { path, content, mode });
    }

    pub(super) fn append(&mut self, mut more: Self) {
        self.0.append(&mut more.0);
    }

    /// Writes and syncs the files under temporary names, then renames them. Blocking.
    pub(super) fn commit(self) -> Result<(), PkiError> {
        // All are written before any is synced, so that the syncs can overlap.
        let written: Vec<Temporary<'_>> = self.0.iter().map(Target::write).collect::<Result<_, _>>()?;
        // In parallel: the file system commits pending syncs together.
        let synced: Vec<std::io::Result<()>> = std::thread::scope(|scope| {
            let threads: Vec<_> = written.iter().map(|t| scope.spawn(move || t.file.sync_all())).collect();
            let failed = |_| Err(std::io::Error::other("the thread failed"));
            threads.into_iter().map(|t| t.join().unwrap_or_else(failed)).collect()
        });
        for (temporary, synced) in written.iter().zip(synced) {
            synced.map_err(|e| temporary.target.failed(&e))?;
        }
        // Renamed only after all were synced: a name must never point to content that a crash could lose.
        let (secrets, public): (Vec<_>, Vec<_>) = written.into_iter().partition(|t| t.target.mode == SECRET);
        rename(secrets)?;
        rename(public)
    }
}

/// Gives the files their names, and makes that durable.
fn rename(files: Vec<Temporary<'_>>) -> Result<(), PkiError> {
    for file in &files {
        std::fs::rename(&file.path, &file.target.path).map_err(|e| file.target.failed(&e))?;
    }
    let mut dirs: Vec<&Path> = files.iter().map(|f| f.dir).collect();
    dirs.sort_unstable();
    dirs.dedup();
    for dir in dirs {
        // A rename is durable once its directory is synced.
        let synced = File::open(dir).and_then(|dir| dir.sync_all());
        synced.map_err(|e| PkiError::new(dir, format!("cannot be synced: {e}")))?;
    }
    Ok(())
}

impl Target {
    fn failed(&self, error: &std::io::Error) -> PkiError {
        PkiError::new(&self.path, format!("cannot be written: {error}"))
    }

    /// Writes a temporary file. It is created with its mode, so a key is never readable by others, not even
    /// briefly.
    fn write(&self) -> Result<Temporary<'_>, PkiError> {
        let (Some(dir), Some(name)) = (self.path.parent(), self.path.file_name()) else {
            return Err(PkiError::new(&self.path, "is not a file name"));
        };
        // In the same directory: a rename across file systems would fail.
        let path = dir.join(format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id()));
        // Left behind by a crashed process with the same PID.
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(self.failed(&e)),
            _ => {}
        }
        let mut options = OpenOptions::new();
        // `create_new` does not follow symbolic links that somebody planted under this name.
        let opened = options.write(true).create_new(true).mode(self.mode).open(&path);
        let mut temporary = Temporary {
            target: self,
            file: opened.map_err(|e| self.failed(&e))?,
            path,
            dir: match dir.as_os_str().is_empty() {
                true => Path::new("."),
                false => dir,
            },
        };
        let written = temporary.file.write_all(self.content.as_bytes());
        written.map_err(|e| self.failed(&e))?;
        Ok(temporary)
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        // Fails with `NotFound` after a successful rename, which is the usual case.
        let _ = std::fs::remove_file(&self.path);
    }
}
