//! A log file with size-based rotation: `audit.log` is renamed to `audit-2026-11-20T15-04-05.000.log`, and
//! old files are compressed and pruned. Names and rules are those of lumberjack, the library upstream uses,
//! so that existing log collectors recognise the files.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;
use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

/// Rotation limits and retention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rotation {
    /// Size in bytes at which the file is rotated; 0: never.
    pub max_bytes: u64,
    /// Number of rotated files to keep; 0: all.
    pub max_backups: usize,
    /// How long rotated files are kept; zero: forever.
    pub max_age: Duration,
    /// Whether rotated files are compressed with gzip.
    pub compress: bool,
}

// The format of lumberjack's backup names, in UTC.
const STAMP: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]-[minute]-[second].[subsecond digits:3]");

pub(super) struct RotatingFile {
    path: PathBuf,
    rotation: Rotation,
    file: File,
    size: u64,
    /// The thread that compresses and prunes; at most one at a time.
    maintenance: Option<JoinHandle<()>>,
}

fn create(path: &Path) -> io::Result<File> {
    // At each rotation too, as lumberjack does: the directory may be gone.
    if let Some(dir) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
        fs::create_dir_all(dir)?;
    }
    // Owner only, like lumberjack: events may contain secrets.
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

impl RotatingFile {
    pub(crate) fn open(path: &Path, rotation: Rotation) -> io::Result<Self> {
        let file = create(path)?;
        Ok(Self {
            // The file may contain lines of an earlier process.
            size: file.metadata()?.len(),
            path: path.to_owned(),
            rotation,
            file,
            maintenance: None,
        })
    }

    /// Appends whole lines. Rotates beforehand if they do not fit, so that no line is split across files.
    pub(crate) fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let max = self.rotation.max_bytes;
        // A write larger than the limit goes to an empty file as a whole: rotating again would not make room.
        if max > 0 && self.size > 0 && self.size + lines.len() as u64 > max {
            self.rotate()?;
        }
        self.file.write_all(lines)?;
        self.size += lines.len() as u64;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        let Names { stem, ending } = Names::of(&self.path);
        let dir = self.path.parent().unwrap_or(Path::new(""));
        let mut at = OffsetDateTime::now_utc();
        // Advance the timestamp until the name is free, so that two rotations within a millisecond do not
        // collide.
        let rotated = loop {
            let stamp = at.format(STAMP).map_err(io::Error::other)?;
            let rotated = dir.join(format!("{stem}-{stamp}{ending}"));
            if !rotated.exists() && !dir.join(format!("{stem}-{stamp}{ending}.gz")).exists() {
                break rotated;
            }
            at += Duration::from_millis(1);
        };
        match fs::rename(&self.path, rotated) {
            // Moved away by someone else, or by an earlier rotation that could then not create the file: only a new
            // one is missing, which lumberjack creates, too.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed?,
        }
        self.file = create(&self.path)?;
        // Not before: if the file cannot be created, the next write tries to rotate again.
        self.size = 0;
        // If a maintenance run is still active, skip this one: the next rotation looks at all files again.
        if self.maintenance.as_ref().is_none_or(JoinHandle::is_finished) {
            let (path, rotation) = (self.path.clone(), self.rotation);
            let name = std::thread::Builder::new().name("audit-log-files".to_owned());
            self.maintenance = name
                .spawn(move || prune(&path, rotation, OffsetDateTime::now_utc()))
                .ok();
        }
        Ok(())
    }
}

impl Drop for RotatingFile {
    fn drop(&mut self) {
        // Waits at shutdown, so that a file that is being compressed is not left half written.
        if let Some(maintenance) = self.maintenance.take() {
            // The panic hook has already reported a panic of the thread.
            let _ = maintenance.join();
        }
    }
}

/// A log's file name, split into `audit` and `.log`.
struct Names {
    stem: String,
    ending: String,
}

impl Names {
    fn of(path: &Path) -> Self {
        let text = |s: Option<&std::ffi::OsStr>| s.map(|s| s.to_string_lossy().into_owned());
        Self {
            stem: text(path.file_stem()).unwrap_or_default(),
            ending: text(path.extension()).map_or_else(String::new, |e| format!(".{e}")),
        }
    }

    /// Parses the name of a rotated file: when it was rotated, and whether it is compressed. `None` for other
    /// files.
    fn stamp(&self, name: &str) -> Option<(OffsetDateTime, bool)> {
        // Files that do not match exactly are never touched: the directory may contain other logs.
        let rest = name.strip_prefix(&self.stem)?.strip_prefix('-')?;
        let (rest, gz) = rest.strip_suffix(".gz").map_or((rest, false), |r| (r, true));
        let stamp = rest.strip_suffix(&self.ending)?;
        let at = time::PrimitiveDateTime::parse(stamp, STAMP).ok()?;
        Some((at.assume_utc(), gz))
    }
}

/// Deletes rotated files beyond the retention limits, and compresses the rest.
fn prune(path: &Path, rotation: Rotation, now: OffsetDateTime) {
    let names = Names::of(path);
    // `read_dir` does not accept the empty path of a bare file name.
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) => return tracing::error!("listing rotated audit logs in {}: {error}", dir.display()),
    };
    let mut rotated: Vec<(OffsetDateTime, bool, PathBuf)> = entries
        .flatten()
        .filter_map(|e| {
            let (at, gz) = names.stamp(&e.file_name().to_string_lossy())?;
            Some((at, gz, e.path()))
        })
        .collect();
    // Newest first, so that the index is the number of newer files.
    rotated.sort_by_key(|(at, ..)| std::cmp::Reverse(*at));
    for (i, (at, gz, file)) in rotated.iter().enumerate() {
        let many = rotation.max_backups > 0 && i >= rotation.max_backups;
        let old = !rotation.max_age.is_zero() && now - *at > rotation.max_age;
        let done = if many || old {
            fs::remove_file(file)
        } else if rotation.compress && !gz {
            compress(file)
        } else {
            Ok(())
        };
        if let Err(error) = done {
            tracing::error!("compressing or deleting rotated audit log {}: {error}", file.display());
        }
    }
}

fn compress(file: &Path) -> io::Result<()> {
    let mut name = file.as_os_str().to_owned();
    name.push(".gz");
    let packed = PathBuf::from(name);
    let out = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&packed)?;
    let mut out = flate2::write::GzEncoder::new(out, flate2::Compression::default());
    // Synced before the original is deleted, or a crash could lose both.
    let written = io::copy(&mut File::open(file)?, &mut out).and_then(|_| out.finish()?.sync_all());
    match written {
        Ok(()) => fs::remove_file(file),
        Err(error) => {
            // Best effort: the next run overwrites what is left.
            let _ = fs::remove_file(&packed);
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn listed(dir: &Path) -> Vec<String> {
        let names = fs::read_dir(dir).unwrap();
        let mut all: Vec<String> = names
            .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        all.sort();
        all
    }

    #[test]
    fn a_full_file_is_rotated_and_old_backups_are_pruned() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("below/audit.log");
        let rotation = Rotation {
            max_bytes: 10,
            max_backups: 2,
            compress: true,
            ..Rotation::default()
        };
        let mut file = RotatingFile::open(&path, rotation).unwrap();
        for n in 0..6 {
            file.write(format!("line {n}\n").as_bytes()).unwrap();
            if let Some(maintenance) = file.maintenance.take() {
                maintenance.join().unwrap();
            }
        }
        drop(file);
        let all = listed(path.parent().unwrap());
        assert_eq!(all.len(), 3, "{all:?}");
        assert!(all[0].starts_with("audit-2") && all[0].ends_with(".log.gz"), "{all:?}");
        assert_eq!(fs::read(&path).unwrap(), b"line 5\n");
        for name in all {
            let mode = fs::metadata(path.with_file_name(&name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }

    #[test]
    fn a_file_that_was_moved_away_is_created_again_by_the_next_rotation() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("below/audit.log");
        let rotation = Rotation {
            max_bytes: 10,
            ..Rotation::default()
        };
        let mut file = RotatingFile::open(&path, rotation).unwrap();
        file.write(b"line 0\n").unwrap();
        fs::rename(&path, dir.path().join("mine.log")).unwrap();
        file.write(b"line 1\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"line 1\n");
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
        file.write(b"line 2\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"line 2\n");
    }

    #[test]
    fn without_a_size_limit_the_file_is_not_rotated() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let mut file = RotatingFile::open(&path, Rotation::default()).unwrap();
        for _ in 0..100 {
            file.write(&[b'x'; 1000]).unwrap();
        }
        assert_eq!(listed(dir.path()), ["audit.log"]);
    }

    #[test]
    fn expired_files_are_deleted_and_unrelated_files_kept() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "audit-2026-01-01T00-00-00.000.log",
            "audit-2026-01-09T00-00-00.000.log",
            "audit-notes.log",
            "other-2026-01-01T00-00-00.000.log",
        ] {
            fs::write(dir.path().join(name), "x").unwrap();
        }
        let rotation = Rotation {
            max_age: Duration::from_secs(5 * 24 * 3600),
            ..Rotation::default()
        };
        let now = time::macros::datetime!(2026-01-10 00:00 UTC);
        prune(&dir.path().join("audit.log"), rotation, now);
        assert_eq!(
            listed(dir.path()),
            [
                "audit-2026-01-09T00-00-00.000.log",
                "audit-notes.log",
                "other-2026-01-01T00-00-00.000.log"
            ]
        );
    }
}
