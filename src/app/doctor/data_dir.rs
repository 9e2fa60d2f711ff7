//! The data directory: permissions, file system, space, and how long a sync takes. Entry point: [`examine`].
//! Limits are strict for the embedded store, which commits here; with etcd, only keys and caches are in the
//! directory.

use super::Finding;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Syncs that are measured, of a block each.
const SYNCS: usize = 50;
const BLOCK: usize = 4096;
/// Time limit of the measurement; a few syncs are enough to recognise a bad disk.
const LIMIT: Duration = Duration::from_secs(5);
/// etcd's own guidance for the 99th percentile of a sync.
const SLOW: Duration = Duration::from_millis(10);
/// A write then misses the lease renewals of leader election.
const UNUSABLE: Duration = Duration::from_millis(500);
/// Space below which the store may not grow by a day's history.
const LITTLE: u64 = 1 << 30;
const NONE: u64 = 64 << 20;
/// `f_type` of NFS, SMB, CIFS and FUSE (statfs(2)), without the locks and shared memory that the store relies
/// on.
const REMOTE: [(u64, &str); 4] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0x6573_5546, "FUSE"),
];
/// `f_type` of tmpfs.
const TMPFS: u64 = 0x0102_1994;

pub(super) fn examine(dir: &Path, embedded: bool, findings: &mut Vec<Finding>) {
    let check = "data directory";
    // A missing directory will be created below its closest existing parent.
    let existing = dir.ancestors().find(|p| p.exists()).map(Path::to_owned);
    let existing = existing
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or_else(|| PathBuf::from("."));
    findings.push(match std::fs::metadata(&existing) {
        Ok(metadata) if !metadata.is_dir() => Finding::error(
            check,
            format!("{} is not a directory", existing.display()),
            "choose another --data-dir",
        ),
        // Only of the directory itself; that a parent such as /tmp is writable to all is normal.
        Ok(metadata) if existing == dir && metadata.permissions().mode() & 0o022 != 0 => Finding::warning(
            check,
            format!(
                "others may replace the files in {} (mode {:o})",
                dir.display(),
                metadata.mode() & 0o777
            ),
            format!("chmod 700 {}", dir.display()),
        ),
        Ok(_) => Finding::ok(check, format!("{}", dir.display())),
        Err(e) => Finding::error(
            check,
            format!("{}: {e}", existing.display()),
            "choose another --data-dir, or give the server's user access to it",
        ),
    });
    if let Ok(found) = rustix::fs::statfs(&existing) {
        #[allow(
            clippy::unnecessary_cast,
            reason = "the type of the fields depends on the architecture"
        )]
        let (kind, free) = (found.f_type as u64, found.f_bavail as u64 * found.f_bsize as u64);
        // Where the field is signed, the type of CIFS is negative.
        findings.push(file_system(kind & 0xffff_ffff, embedded));
        findings.push(space(free));
    }
    findings.push(match measure(&existing) {
        Ok(times) => sync(&times, embedded),
        Err(e) => Finding::error(
            "sync",
            format!("cannot write below {}: {e}", existing.display()),
            "give the server's user write access, or choose another --data-dir",
        ),
    });
}

fn file_system(kind: u64, embedded: bool) -> Finding {
    let check = "file system";
    let mend = "put --data-dir on a local disk, or use etcd";
    match REMOTE.iter().find(|(remote, _)| *remote == kind) {
        Some((_, name)) if embedded => Finding::error(
            check,
            format!("{name}: the embedded store needs a local file system"),
            mend,
        ),
        _ if kind == TMPFS && embedded => Finding::error(check, "tmpfs: the store is lost at the next restart", mend),
        Some((_, name)) => Finding::warning(check, format!("{name}: keys are read from it at every start"), mend),
        None => Finding::ok(check, "local"),
    }
}

fn space(free: u64) -> Finding {
    let check = "disk space";
    let what = format!("{} MiB are free", free >> 20);
    let mend = "free space, grow the volume, or choose another --data-dir";
    match free {
        n if n < NONE => Finding::error(check, what, mend),
        n if n < LITTLE => Finding::warning(check, what, mend),
        _ => Finding::ok(check, what),
    }
}

/// A file that is removed when dropped.
struct Scratch(PathBuf, File);

impl Drop for Scratch {
    fn drop(&mut self) {
        // A leftover file is harmless: 4 KiB, named after this command.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Writes and syncs a block repeatedly; returns how long each took, sorted.
fn measure(dir: &Path) -> io::Result<Vec<Duration>> {
    let path = dir.join(format!(".torana-doctor-{}", std::process::id()));
    let mut open = OpenOptions::new();
    // Never an existing file, and never through a link.
    let file = open.write(true).create_new(true).mode(0o600).open(&path)?;
    let mut scratch = Scratch(path, file);
    let block = [0x5a; BLOCK];
    scratch.1.write_all(&block)?;
    // The first sync also writes metadata of the new file; it is not measured.
    scratch.1.sync_all()?;
    let (start, mut times) = (Instant::now(), Vec::new());
    while times.len() < SYNCS && start.elapsed() < LIMIT {
        let began = Instant::now();
        // The same block each time: a growing file would also sync its new size.
        scratch.1.write_all_at(&block, 0)?;
        scratch.1.sync_data()?;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    Ok(times)
}

/// Judges sorted durations by the 98th percentile: of fifty, all but the slowest.
fn sync(times: &[Duration], embedded: bool) -> Finding {
    let check = "sync";
    let at = |percent: usize| times.get((times.len() * percent / 100).min(times.len().saturating_sub(1)));
    // The 49th of fifty.
    let (Some(median), Some(high)) = (at(50), at(96)) else {
        return Finding::error(check, "no sync ended within the time limit", "use another disk");
    };
    let ms = |d: &Duration| d.as_secs_f64() * 1e3;
    let what = format!(
        "{} syncs: half within {:.2} ms, nearly all within {:.2} ms",
        times.len(),
        ms(median),
        ms(high)
    );
    let mend = "use a disk with a power-loss-protected cache, alone; every write waits for a sync";
    match high {
        h if *h > UNUSABLE && embedded => Finding::error(check, what, mend),
        h if *h > SLOW && embedded => Finding::warning(check, what, mend),
        _ => Finding::ok(check, what),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    #[test]
    fn a_slow_disk_only_matters_to_the_embedded_store() {
        let of = |ms| vec![Duration::from_millis(ms); SYNCS];
        assert_eq!(sync(&of(1), true).severity, Severity::Ok);
        assert_eq!(sync(&of(20), true).severity, Severity::Warning);
        assert_eq!(sync(&of(600), true).severity, Severity::Error);
        assert_eq!(sync(&of(600), false).severity, Severity::Ok);
        assert_eq!(sync(&[], true).severity, Severity::Error);
        // One outlier of fifty is not a slow disk.
        let mut times = of(1);
        times[SYNCS - 1] = Duration::from_secs(1);
        assert_eq!(sync(&times, true).severity, Severity::Ok);
    }

    #[test]
    fn file_systems_without_locks_are_refused_for_the_embedded_store() {
        assert_eq!(file_system(0x6969, true).severity, Severity::Error);
        assert_eq!(file_system(0x6969, false).severity, Severity::Warning);
        assert_eq!(file_system(TMPFS, true).severity, Severity::Error);
        assert_eq!(file_system(0xef53, true).severity, Severity::Ok);
        assert_eq!(space(NONE - 1).severity, Severity::Error);
        assert_eq!(space(LITTLE - 1).severity, Severity::Warning);
        assert_eq!(space(LITTLE).severity, Severity::Ok);
    }

    #[test]
    fn the_check_leaves_no_files() {
        let dir = tempfile::tempdir().unwrap();
        let times = measure(dir.path()).unwrap();
        assert!(!times.is_empty());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_that_others_may_write_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let mut found = Vec::new();
        let severity = |found: &[Finding]| found[0].severity;
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        examine(dir.path(), true, &mut found);
        assert_eq!(severity(&found), Severity::Ok, "{found:?}");
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        found.clear();
        examine(dir.path(), true, &mut found);
        assert_eq!(severity(&found), Severity::Warning, "{found:?}");
        found.clear();
        examine(&dir.path().join("not/yet"), true, &mut found);
        assert_eq!(severity(&found), Severity::Ok, "{found:?}");
    }
}
