//! A file that is put aside when it has grown large: `audit.log` becomes `audit-2026-11-20T15-04-05.000.log`, and old
//! ones are compressed and removed. Names and rules are those of the library upstream uses (lumberjack), so that what
//! collects and prunes such files knows them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;
use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

/// When a file is put aside, and how long those put aside are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// Bytes from which on the file is put aside; 0: never.
    pub max_bytes: u64,
    /// Files that are kept; 0: all.
    pub max_backups: usize,
    /// How long they are kept; zero: for ever.
    pub max_age: Duration,
    /// Compress them.
    pub compress: bool,
}

const STAMP: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]-[minute]-[second].[subsecond digits:3]");

pub(super) struct RotatingFile {
    path: PathBuf,
    rotation: Rotation,
    file: File,
    size: u64,
    /// Compresses and removes; one at a time.
    keeper: Option<JoinHandle<()>>,
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

impl RotatingFile {
    pub fn open(path: &Path, rotation: Rotation) -> io::Result<Self> {
        if let Some(dir) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
            fs::create_dir_all(dir)?;
        }
        let file = create(path)?;
        Ok(Self {
            size: file.metadata()?.len(),
            path: path.to_owned(),
            rotation,
            file,
            keeper: None,
        })
    }

    /// Writes whole lines; never cuts one in two.
    pub fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let max = self.rotation.max_bytes;
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
        // Two in one millisecond do not overwrite each other.
        let aside = loop {
            let stamp = at.format(STAMP).map_err(io::Error::other)?;
            let aside = dir.join(format!("{stem}-{stamp}{ending}"));
            if !aside.exists() && !dir.join(format!("{stem}-{stamp}{ending}.gz")).exists() {
                break aside;
            }
            at += Duration::from_millis(1);
        };
        fs::rename(&self.path, aside)?;
        self.file = create(&self.path)?;
        self.size = 0;
        // One that still runs is left to it: the next rotation looks at all files again.
        if self.keeper.as_ref().is_none_or(JoinHandle::is_finished) {
            let (path, rotation) = (self.path.clone(), self.rotation);
            let name = std::thread::Builder::new().name("audit-log-files".to_owned());
            self.keeper = name
                .spawn(move || keep(&path, rotation, OffsetDateTime::now_utc()))
                .ok();
        }
        Ok(())
    }
}

impl Drop for RotatingFile {
    fn drop(&mut self) {
        if let Some(keeper) = self.keeper.take() {
            // A panic there has been printed.
            let _ = keeper.join();
        }
    }
}

/// `audit` and `.log`.
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

    /// When a file of this name was put aside, and whether it is compressed.
    fn stamp(&self, name: &str) -> Option<(OffsetDateTime, bool)> {
        let rest = name.strip_prefix(&self.stem)?.strip_prefix('-')?;
        let (rest, gz) = rest.strip_suffix(".gz").map_or((rest, false), |r| (r, true));
        let stamp = rest.strip_suffix(&self.ending)?;
        let at = time::PrimitiveDateTime::parse(stamp, STAMP).ok()?;
        Some((at.assume_utc(), gz))
    }
}

/// Removes what is too old or too much, and compresses the rest.
fn keep(path: &Path, rotation: Rotation, now: OffsetDateTime) {
    let names = Names::of(path);
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) => return tracing::error!("looking for old audit logs in {}: {error}", dir.display()),
    };
    let mut aside: Vec<(OffsetDateTime, bool, PathBuf)> = entries
        .flatten()
        .filter_map(|e| {
            let (at, gz) = names.stamp(&e.file_name().to_string_lossy())?;
            Some((at, gz, e.path()))
        })
        .collect();
    aside.sort_by_key(|(at, ..)| std::cmp::Reverse(*at));
    for (i, (at, gz, file)) in aside.iter().enumerate() {
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
            tracing::error!("keeping old audit logs: {}: {error}", file.display());
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
    let written = io::copy(&mut File::open(file)?, &mut out).and_then(|_| out.finish()?.sync_all());
    match written {
        Ok(()) => fs::remove_file(file),
        Err(error) => {
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
    fn a_full_file_is_put_aside_and_only_so_many_are_kept() {
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
            if let Some(keeper) = file.keeper.take() {
                keeper.join().unwrap();
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
    fn without_a_size_nothing_is_put_aside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let mut file = RotatingFile::open(&path, Rotation::default()).unwrap();
        for _ in 0..100 {
            file.write(&[b'x'; 1000]).unwrap();
        }
        assert_eq!(listed(dir.path()), ["audit.log"]);
    }

    #[test]
    fn old_files_go_and_strangers_stay() {
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
        keep(&dir.path().join("audit.log"), rotation, now);
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
