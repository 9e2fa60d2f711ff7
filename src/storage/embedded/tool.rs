//! Operations on a store from outside the server, for `torana store`: [`stats`], [`check`] and [`backup`]
//! work while the store is in use; [`restore`], [`compact`] and [`fill`] need it stopped.

use super::DirectoryLock;
use super::disk::{Disk, RESTORED, refuse_half_restored};
use super::format::{APPLICATION, checksum};
use super::wal;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};
use std::collections::BTreeMap;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

mod exchange;
#[cfg(test)]
mod tests;

pub(crate) use super::OpenError;
pub(crate) use exchange::{Object, fill, objects};

/// Pages copied per step of a backup; writers can proceed between steps.
const PAGES: i32 = 256;
/// Writes compacted per step.
const STEP: usize = 10_000;

/// Progress callback of a long operation: done, total.
pub(crate) type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// Contents of a store in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoreStats {
    /// The newest revision.
    pub revision: u64,
    /// History up to this revision has been compacted.
    pub compacted: u64,
    /// Objects that exist now, without their former states.
    pub objects: u64,
    /// Number of stored writes, including those of current objects.
    pub writes: u64,
    /// Size of the file and its write-ahead log, in bytes.
    pub file_bytes: u64,
    /// Free space inside the file, in bytes.
    pub free_bytes: u64,
    /// Number of objects and their bytes by resource (the key without namespace and name).
    pub resources: BTreeMap<String, (u64, u64)>,
}

fn file(dir: &Path) -> PathBuf {
    dir.join("store.db")
}

/// Returns the path of the store's file, if there is a store.
fn existing_file(dir: &Path) -> Result<PathBuf, OpenError> {
    refuse_half_restored(dir)?;
    let path = file(dir);
    match path.exists() {
        true => Ok(path),
        // A log without its database is damage, which opening reports.
        false if path.with_extension("db-wal").exists() => Ok(path),
        false => Err(OpenError::Missing { dir: dir.to_path_buf() }),
    }
}

/// Removes a leftover file together with SQLite's companion files.
fn clear(path: &Path) -> Result<(), OpenError> {
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let leftover = PathBuf::from(format!("{}{suffix}", path.display()));
        match std::fs::remove_file(&leftover) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                return Err(OpenError::Io { path: leftover, source });
            }
            _ => {}
        }
    }
    Ok(())
}

/// Opens a store read-only. If no process has it open, opening replays the write-ahead log and would truncate
/// it at the first invalid frame, so the log is checked first.
fn open_store(dir: &Path) -> Result<Connection, OpenError> {
    let path = existing_file(dir)?;
    // Taking the lock tells whether a server runs: with one, its SQLite has checked the log and keeps it in
    // use.
    if let Ok(_lock) = DirectoryLock::acquire(dir) {
        let log = wal::check(&path).map_err(|source| OpenError::Io {
            path: path.with_extension("db-wal"),
            source,
        })?;
        log.map_err(|damage| OpenError::damaged(&path, damage.to_string()))?;
    }
    open_read_only(&path)
}

/// Opens a second connection beside that of a running server, if any. All its reads see one snapshot.
fn open_read_only(path: &Path) -> Result<Connection, OpenError> {
    let missing = |source| OpenError::Io {
        path: path.to_path_buf(),
        source,
    };
    std::fs::metadata(path).map_err(missing)?;
    // Read-write, because reading a store in WAL mode needs its shared index; `query_only` below keeps it
    // from writing.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let sql = |e| OpenError::sqlite(path, e);
    let db = Connection::open_with_flags(path, flags).map_err(sql)?;
    db.busy_timeout(Duration::from_secs(10)).map_err(sql)?;
    db.pragma_update(None, "query_only", true).map_err(sql)?;
    // The transaction pins one snapshot for all queries of the tool while a server goes on writing.
    db.execute_batch("BEGIN").map_err(sql)?;
    let application: i64 = db
        .pragma_query_value(None, "application_id", |r| r.get(0))
        .map_err(sql)?;
    if application != APPLICATION {
        return Err(OpenError::damaged(path, "it is a database of another program"));
    }
    Ok(db)
}

/// Returns the resource a key belongs to: the key without the namespace and the name.
pub(crate) fn resource_of(key: &str) -> String {
    let parts: Vec<&str> = key.trim_start_matches('/').split('/').collect();
    // Directories that include the API group contain a dot; `services` is upstream's exception
    // (`services/specs`).
    let deep = parts.get(1).is_some_and(|p| p.contains('.') || *p == "services");
    let resource = parts.get(1..if deep { 3 } else { 2 }).unwrap_or_default();
    resource.join("/")
}

/// Reads the content of a store, which may be in use.
///
/// # Errors
/// [`OpenError`] if the store is missing, damaged or inaccessible.
pub(crate) fn stats(dir: &Path) -> Result<StoreStats, OpenError> {
    let path = file(dir);
    let db = open_store(dir)?;
    let sql = |e| OpenError::sqlite(&path, e);
    let mut found = StoreStats::default();
    let meta = "SELECT revision, compacted, objects, (SELECT count(*) FROM log) FROM meta";
    let mut numbers = [0u64; 4];
    db.query_row(meta, [], |row| {
        for (i, n) in numbers.iter_mut().enumerate() {
            *n = row.get::<_, i64>(i)?.cast_unsigned();
        }
        Ok(())
    })
    .map_err(sql)?;
    [found.revision, found.compacted, found.objects, found.writes] = numbers;
    let mut sizes = db
        .prepare("SELECT live.key, length(log.value) FROM live JOIN log ON log.revision = live.revision")
        .map_err(sql)?;
    let mut rows = sizes.query([]).map_err(sql)?;
    while let Some(row) = rows.next().map_err(sql)? {
        let (key, size) = (
            row.get::<_, String>(0).map_err(sql)?,
            row.get::<_, i64>(1).map_err(sql)?,
        );
        let sum = found.resources.entry(resource_of(&key)).or_default();
        *sum = (sum.0 + 1, sum.1 + size.cast_unsigned());
    }
    let number = |name| db.pragma_query_value(None, name, |r| r.get::<_, i64>(0)).map_err(sql);
    found.free_bytes = (number("freelist_count")? * number("page_size")?).cast_unsigned();
    let size = |p: &Path| std::fs::metadata(p).map_or(0, |m| m.len());
    found.file_bytes = size(&path) + size(&path.with_extension("db-wal"));
    Ok(found)
}

/// Reads every page and every write and verifies checksums and consistency. The store may be in use.
///
/// # Errors
/// [`OpenError::Damaged`] with the first defect found.
pub(crate) fn check(dir: &Path, progress: Progress<'_>) -> Result<StoreStats, OpenError> {
    check_file(open_store(dir)?, &file(dir), progress)?;
    stats(dir)
}

fn check_file(db: Connection, path: &Path, progress: Progress<'_>) -> Result<(), OpenError> {
    let sql = |e| OpenError::sqlite(path, e);
    // Unlike the start's `quick_check` it also compares indexes with their tables; time matters less here.
    let checked: String = db
        .query_row("PRAGMA integrity_check(1)", [], |r| r.get(0))
        .map_err(sql)?;
    if checked != "ok" {
        return Err(OpenError::damaged(path, checked));
    }
    let count = |query: &str| db.query_row(query, [], |r| r.get::<_, i64>(0)).map_err(sql);
    let total = count("SELECT count(*) FROM log")?.cast_unsigned();
    let mut all = db
        .prepare("SELECT revision, key, value, sum, prev FROM log ORDER BY revision")
        .map_err(sql)?;
    let mut rows = all.query([]).map_err(sql)?;
    let mut done = 0;
    while let Some(row) = rows.next().map_err(sql)? {
        let revision: i64 = row.get(0).map_err(sql)?;
        let key: String = row.get(1).map_err(sql)?;
        // A value of a wrong type fails the checksum below.
        let value = row.get_ref(2).map_err(sql)?.as_blob_or_null().unwrap_or_default();
        let prev: i64 = row.get(4).map_err(sql)?;
        if checksum(&key, revision.cast_unsigned(), prev.cast_unsigned(), value) != row.get::<_, i64>(3).map_err(sql)? {
            let why = format!("revision {revision} of {key} does not match its checksum");
            return Err(OpenError::damaged(path, why));
        }
        done += 1;
        if done % 1000 == 0 || done == total {
            progress(done, total);
        }
    }
    for (query, why) in [
        (
            "SELECT count(*) FROM live LEFT JOIN log ON log.revision = live.revision AND log.key = live.key
             WHERE log.value IS NULL",
            "objects without their bytes",
        ),
        (
            "SELECT count(*) FROM log WHERE revision > (SELECT revision FROM meta)",
            "writes after the newest revision",
        ),
        (
            "SELECT abs((SELECT count(*) FROM live) - (SELECT objects FROM meta))",
            "objects more or less than recorded",
        ),
    ] {
        let found = count(query)?;
        if found > 0 {
            return Err(OpenError::damaged(path, format!("it has {found} {why}")));
        }
    }
    Ok(())
}

/// Copies a store, which may be in use, into a new file and checks the copy.
///
/// # Errors
/// [`OpenError`]; an incomplete copy is removed.
pub(crate) fn backup(dir: &Path, to: &Path, progress: Progress<'_>) -> Result<StoreStats, OpenError> {
    // Reports a missing or damaged store before the target file is created.
    drop(open_store(dir)?);
    let mut options = std::fs::File::options();
    // Never overwrites: an older backup may be the only good one.
    let taken = options.write(true).create_new(true).mode(0o600).open(to);
    taken.map_err(|source| match source.kind() {
        std::io::ErrorKind::AlreadyExists => OpenError::Exists { path: to.to_path_buf() },
        _ => OpenError::Io {
            path: to.to_path_buf(),
            source,
        },
    })?;
    let copied = copy(&file(dir), to, progress).and_then(|()| {
        // The copy is checked and not the source, because the copy is what the operator will rely on.
        let mut quiet = |_, _| {};
        check_file(open_read_only(to)?, to, &mut quiet)
    });
    if let Err(e) = copied {
        // Best effort: the error that is returned explains the failure.
        let _ = clear(to);
        return Err(e);
    }
    stats(dir)
}

fn copy(from: &Path, to: &Path, progress: Progress<'_>) -> Result<(), OpenError> {
    let source = open_read_only(from)?;
    // The backup API takes its own read lock per step; the transaction would keep the log from being
    // checkpointed.
    source.execute_batch("COMMIT").map_err(|e| OpenError::sqlite(from, e))?;
    let sql = |e| OpenError::sqlite(to, e);
    let io = |source| OpenError::Io {
        path: to.to_path_buf(),
        source,
    };
    // Created here with mode 0600: SQLite would use the umask's permissions.
    let mut own = std::fs::File::options();
    let own = own.write(true).create(true).truncate(false).mode(0o600);
    drop(own.open(to).map_err(io)?);
    let mut target = Connection::open(to).map_err(sql)?;
    {
        let backup = Backup::new(&source, &mut target).map_err(sql)?;
        // The API restarts by itself if a writer commits between two steps.
        loop {
            let step = backup.step(PAGES).map_err(sql)?;
            let at = backup.progress();
            let all = u64::try_from(at.pagecount).unwrap_or(0);
            progress(all - u64::try_from(at.remaining).unwrap_or(0), all);
            match step {
                StepResult::Done => break,
                StepResult::More => {}
                // Busy or locked: a writer is in the middle of its transaction.
                _ => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }
    target.close().map_err(|(_, e)| sql(e))?;
    let synced = std::fs::File::open(to).and_then(|f| f.sync_all());
    synced.map_err(io)
}

/// Restores a backup into a directory; an existing store is moved aside and its path returned. The revision
/// continues `ahead` of the backup's, so that clients that saw later revisions must list again instead of
/// taking old state for new.
///
/// # Errors
/// [`OpenError`]: the backup is damaged or the store is in use; nothing has been changed then. If files could not be
/// moved, the store is refused until the restore is repeated.
pub(crate) fn restore(
    from: &Path,
    dir: &Path,
    ahead: u64,
    progress: Progress<'_>,
) -> Result<Option<PathBuf>, OpenError> {
    let mut quiet = |_, _| {};
    // Checked before anything is moved.
    let checked = open_read_only(from).and_then(|db| check_file(db, from, &mut quiet));
    checked.map_err(|e| e.of_backup(from))?;
    // Taken before the first change and held to the end, so that no server starts with half a store.
    let _lock = DirectoryLock::acquire(dir)?;
    let io = |path: &Path, source| OpenError::Io {
        path: path.to_path_buf(),
        source,
    };
    // Completed in a directory of its own before anything is moved, and under its next name durable: from then on
    // until the end, `refuse_half_restored` keeps servers from opening what is left of the old store.
    let staging = dir.join("store.db.restoring");
    std::fs::create_dir_all(&staging).map_err(|e| io(&staging, e))?;
    let new = dir.join(RESTORED);
    let prepared = clear(&file(&staging)).and_then(|()| prepare(from, &staging, ahead, progress));
    let prepared = prepared.and_then(|()| std::fs::rename(file(&staging), &new).map_err(|e| io(&new, e)));
    // Best effort: the next attempt clears it, too.
    let _ = std::fs::remove_dir_all(&staging);
    prepared?;
    sync(dir)?;
    let path = file(dir);
    // The first free number: an earlier store that was set aside is never overwritten.
    let set_aside = (0..)
        .map(|i| dir.join(format!("store.db.before-{i}")))
        .find(|p| !p.exists());
    let mut moved_to = None;
    // With its log, because it may be damaged and examined later. The database last: if this is interrupted, the
    // next attempt finds it and sets it aside under the same number as the files moved before.
    for suffix in ["-wal", "-shm", ""] {
        let old = PathBuf::from(format!("{}{suffix}", path.display()));
        let Some(set_aside) = &set_aside else { break };
        if old.exists() {
            let to = PathBuf::from(format!("{}{suffix}", set_aside.display()));
            std::fs::rename(&old, &to).map_err(|e| io(&old, e))?;
            moved_to = Some(set_aside.clone());
        }
    }
    // Durable before the name that ends the refusal: the new database must never be found beside the old log.
    sync(dir)?;
    std::fs::rename(&new, &path).map_err(|e| io(&new, e))?;
    sync(dir)?;
    Ok(moved_to)
}

/// Makes a store of a backup in a directory that has none. Opening it verifies it, through the same path a server
/// uses.
fn prepare(from: &Path, dir: &Path, ahead: u64, progress: Progress<'_>) -> Result<(), OpenError> {
    let path = file(dir);
    copy(from, &path, progress)?;
    let mut disk = Disk::open(dir, None)?;
    let found = disk.load(0)?;
    if ahead > 0 {
        // Old events would carry revisions far below the new one; watches from there get 410 Gone instead.
        compact_all(&mut disk, found.revision, &path, &mut |_, _| {})?;
        let to = found.revision.saturating_add(ahead);
        disk.set_revision(to).map_err(|e| OpenError::sqlite(&path, e))?;
    }
    disk.close().map_err(|e| OpenError::sqlite(&path, e))
}

/// Makes the names of a directory's files durable.
fn sync(dir: &Path) -> Result<(), OpenError> {
    let synced = std::fs::File::open(dir).and_then(|d| d.sync_all());
    synced.map_err(|source| OpenError::Io {
        path: dir.to_path_buf(),
        source,
    })
}

fn compact_all(disk: &mut Disk, to: u64, path: &Path, progress: Progress<'_>) -> Result<(), OpenError> {
    let from = disk.compacted();
    // In steps: one transaction would grow the write-ahead log to the size of the whole history.
    while disk.compacted() < to {
        disk.compact(to, STEP).map_err(|e| OpenError::sqlite(path, e))?;
        progress(disk.compacted() - from, to - from);
    }
    Ok(())
}

/// Removes all history from a store that is not in use, and frees the space. Watches from before must list
/// again.
///
/// # Errors
/// [`OpenError`] if the store is missing, in use, damaged or inaccessible.
pub(crate) fn compact(dir: &Path, progress: Progress<'_>) -> Result<StoreStats, OpenError> {
    // Closed before `stats` measures the file, so that the log has been moved into it.
    {
        let path = existing_file(dir)?;
        let _lock = DirectoryLock::acquire(dir)?;
        let mut disk = Disk::open(dir, None)?;
        // Loading verifies the checksums; compacting a damaged store could remove the only good state.
        let found = disk.load(0)?;
        compact_all(&mut disk, found.revision, &path, progress)?;
        disk.vacuum().map_err(|e| OpenError::sqlite(&path, e))?;
        disk.close().map_err(|e| OpenError::sqlite(&path, e))?;
    }
    stats(dir)
}
