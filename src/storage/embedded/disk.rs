//! [`Disk`]: the SQLite file. After opening, only the committer thread uses it; reads never do.
//!
//! ```text
//! log    revision → key, prev, value, sum   every write; value: null for a deletion, prev: previous revision
//! live   key → revision, expires, sum       the current objects; their bytes are in the log
//! marks  revision → at                      when a revision was current, to keep history by age
//! meta   one row: revision, compacted, objects, sum
//! room   always empty; written and cleared to probe for free disk space
//! ```
//! Compaction up to C removes, for every write r ≤ C, the state that r replaced, and r itself if it is a
//! deletion. The state before every write after C therefore remains, so that watches from C on can be served
//! after a restart.

mod maintenance;
mod reading;

use super::OpenError;
use super::faults::{Faults, Step};
use super::format::{APPLICATION, FORMAT, SCHEMA, checksum, checksum_of, expiry_sum, upgrade};
use super::space::PAGE;
use super::wal;
use bytes::Bytes;
use rusqlite::{Connection, OpenFlags, params};
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) use reading::{Contents, Raw, RawEvent};

/// Pages in the write-ahead log at which SQLite checkpoints during a commit: 8 MiB.
const CHECKPOINT_PAGES: i64 = 2048;

/// The file in which a restore keeps the new store while it moves the old one away.
pub(super) const RESTORED: &str = "store.db.restored";

/// Refuses a directory in which a restore was interrupted while it moved the old store's files away: whatever is
/// left of them would open as an old or an empty store.
///
/// # Errors
/// [`OpenError::HalfRestored`]
pub(super) fn refuse_half_restored(dir: &Path) -> Result<(), OpenError> {
    match dir.join(RESTORED).exists() {
        true => Err(OpenError::HalfRestored { dir: dir.to_path_buf() }),
        false => Ok(()),
    }
}

/// A write in its stored form.
pub(super) struct Row {
    pub revision: u64,
    /// With the prefix of its resource.
    pub key: String,
    /// Revision of the replaced state, 0 if there was none.
    pub prev: u64,
    /// `None` for a deletion.
    pub value: Option<Bytes>,
    /// Expiry time in milliseconds since 1970.
    pub expires: Option<i64>,
}

pub(super) struct Disk {
    db: Connection,
    path: PathBuf,
    revision: u64,
    compacted: u64,
    objects: u64,
    faults: Option<Arc<dyn Faults>>,
    /// True if something was written since the last explicit checkpoint.
    dirty: bool,
}

/// When SQLite syncs its writes.
#[derive(Clone, Copy)]
enum Durability {
    EachCommit,
    /// The caller syncs the file once it is complete.
    AtClose,
}

impl Disk {
    /// Opens or creates `store.db` in the directory, which the caller has locked.
    ///
    /// # Errors
    /// [`OpenError::Damaged`], [`OpenError::Version`], [`OpenError::Sqlite`], [`OpenError::Io`],
    /// [`OpenError::HalfRestored`].
    pub(crate) fn open(dir: &Path, max_bytes: Option<u64>) -> Result<Self, OpenError> {
        refuse_half_restored(dir)?;
        let path = dir.join("store.db");
        // Before SQLite opens it, because opening recovers the log and destroys the evidence.
        let checked = wal::check(&path).map_err(|source| OpenError::Io {
            path: path.with_extension("db-wal"),
            source,
        })?;
        checked.map_err(|damage| OpenError::damaged(&path, damage.to_string()))?;
        let io = |source| OpenError::Io {
            path: path.clone(),
            source,
        };
        match std::fs::metadata(&path) {
            // SQLite would treat it as a new, empty database.
            Ok(found) if found.len() < PAGE => {
                return Err(OpenError::damaged(&path, "it ends within its first page"));
            }
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::NotFound => {
                // SQLite would delete an orphaned log silently, and with it acknowledged writes.
                if path.with_extension("db-wal").exists() {
                    return Err(OpenError::damaged(&path, "only its write-ahead log exists"));
                }
                Self::make(dir, &path)?;
            }
            Err(e) => return Err(io(e)),
        }
        let mut disk = Self::connect(&path)?;
        disk.prepare(Durability::EachCommit, max_bytes)?;
        Ok(disk)
    }

    /// Creates an empty store under a temporary name and renames it, so that `store.db` is always complete.
    fn make(dir: &Path, path: &Path) -> Result<(), OpenError> {
        let new = dir.join("store.new");
        let io = |path: &Path, source| OpenError::Io {
            path: path.to_path_buf(),
            source,
        };
        // Left by a start that was interrupted while it created the store.
        for leftover in ["store.new", "store.new-wal", "store.new-shm"].map(|f| dir.join(f)) {
            match std::fs::remove_file(&leftover) {
                Err(e) if e.kind() != ErrorKind::NotFound => return Err(io(&leftover, e)),
                _ => {}
            }
        }
        let mut disk = Self::connect(&new)?;
        disk.prepare(Durability::AtClose, None)?;
        disk.close().map_err(|e| OpenError::sqlite(&new, e))?;
        // `synchronous` is off while it is built, so nothing has been synced before.
        let synced = std::fs::File::open(&new).and_then(|f| f.sync_all());
        synced.map_err(|e| io(&new, e))?;
        std::fs::rename(&new, path).map_err(|e| io(path, e))?;
        // The rename itself is durable only once the directory is synced.
        let synced = std::fs::File::open(dir).and_then(|d| d.sync_all());
        synced.map_err(|e| io(dir, e))
    }

    fn connect(path: &Path) -> Result<Self, OpenError> {
        // Created here rather than by SQLite, which would use the umask's permissions.
        let mut create = OpenOptions::new();
        create
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(|source| OpenError::Io {
                path: path.to_path_buf(),
                source,
            })?;
        // No mutex: only one thread at a time uses the connection.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(path, flags).map_err(|e| OpenError::sqlite(path, e))?;
        Ok(Self {
            db,
            path: path.to_path_buf(),
            revision: 1,
            compacted: 0,
            objects: 0,
            faults: None,
            dirty: false,
        })
    }

    pub(crate) fn inject(&mut self, faults: Option<Arc<dyn Faults>>) {
        self.faults = faults;
    }

    fn inject_fault(&self, step: Step) -> rusqlite::Result<()> {
        match self.faults.as_ref().and_then(|f| f.next_fault(step)) {
            None => Ok(()),
            Some(fault) => Err(fault.error()),
        }
    }

    fn meta_sum(revision: u64, compacted: u64, objects: u64) -> i64 {
        checksum_of(&[revision, compacted, objects])
    }

    fn prepare(&mut self, durability: Durability, max_bytes: Option<u64>) -> Result<(), OpenError> {
        let sql = |e| OpenError::sqlite(&self.path, e);
        let db = &self.db;
        db.set_prepared_statement_cache_capacity(32);
        let synchronous = match durability {
            // In WAL mode only FULL syncs the log at every commit; NORMAL would lose acknowledged writes on a
            // power failure.
            Durability::EachCommit => "FULL",
            Durability::AtClose => "OFF",
        };
        db.pragma_update(None, "synchronous", synchronous).map_err(sql)?;
        let number = |name| db.pragma_query_value(None, name, |r| r.get::<_, i64>(0)).map_err(sql);
        let (application, format) = (number("application_id")?, number("user_version")?);
        // Only here, because auto_vacuum is written, and synced, even if it is unchanged. The order matters:
        // both only take effect before the first table is created.
        if (application, format) == (0, 0) {
            db.pragma_update(None, "page_size", PAGE.cast_signed()).map_err(sql)?;
            db.pragma_update(None, "auto_vacuum", "INCREMENTAL").map_err(sql)?;
        }
        db.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))
            .map_err(sql)?;
        db.pragma_update(None, "temp_store", "MEMORY").map_err(sql)?;
        // Negative means KiB: 8 MiB, for compaction only; reads are served by the cachers.
        db.pragma_update(None, "cache_size", -8192).map_err(sql)?;
        db.pragma_update_and_check(None, "wal_autocheckpoint", CHECKPOINT_PAGES, |_| Ok(()))
            .map_err(sql)?;
        // A burst can grow the log; it is truncated to this size at the next checkpoint that resets it.
        db.pragma_update_and_check(None, "journal_size_limit", 64 << 20, |_| Ok(()))
            .map_err(sql)?;
        if let Some(bytes) = max_bytes {
            let pages = bytes.div_ceil(PAGE).cast_signed();
            db.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))
                .map_err(sql)?;
        }
        // Both numbers are 0 in a new file, but also in a database of another program.
        if (application, format) == (0, 0) {
            let tables: i64 = db
                .query_row("SELECT count(*) FROM sqlite_schema", [], |r| r.get(0))
                .map_err(sql)?;
            if tables > 0 {
                return Err(OpenError::damaged(&self.path, "it is a database of another program"));
            }
            let sum = Self::meta_sum(1, 0, 0);
            // One transaction, so that a crash leaves a file with both numbers still 0 and no tables.
            let create = format!(
                "BEGIN; {SCHEMA} INSERT INTO meta VALUES (1, 1, 0, 0, {sum}); PRAGMA application_id = {APPLICATION};
                 PRAGMA user_version = {FORMAT}; COMMIT;"
            );
            return db.execute_batch(&create).map_err(sql);
        }
        if application != APPLICATION {
            return Err(OpenError::damaged(&self.path, "it is a database of another program"));
        }
        if format == 1 {
            tracing::info!(path = %self.path.display(), "upgrading the store to format {FORMAT}");
            return upgrade(&mut self.db).map_err(|e| OpenError::sqlite(&self.path, e));
        }
        if format != FORMAT {
            return Err(OpenError::Version {
                path: self.path.clone(),
                found: format,
                known: FORMAT,
            });
        }
        Ok(())
    }

    /// Writes a batch atomically and returns when it is durable. `objects` is the number of objects
    /// afterwards.
    ///
    /// # Errors
    /// Any SQLite error; unless it is a full disk, the file must not be written again.
    pub(crate) fn commit(&mut self, rows: &[Row], objects: u64) -> rusqlite::Result<()> {
        // `rows` is in order of revision, so the last row has the newest one.
        let Some(last) = rows.last() else {
            return Ok(());
        };
        self.inject_fault(Step::Write)?;
        self.dirty = true;
        let tx = self.db.transaction()?;
        {
            let mut log = tx.prepare_cached("INSERT INTO log VALUES (?1, ?2, ?3, ?4, ?5)")?;
            let mut put = tx.prepare_cached("INSERT OR REPLACE INTO live VALUES (?1, ?2, ?3, ?4)")?;
            let mut gone = tx.prepare_cached("DELETE FROM live WHERE key = ?1")?;
            for row in rows {
                let sum = checksum(&row.key, row.revision, row.prev, row.value.as_deref());
                let (revision, prev) = (row.revision.cast_signed(), row.prev.cast_signed());
                log.execute(params![revision, row.key, prev, row.value.as_deref(), sum])?;
                if row.value.is_some() {
                    let sum = expiry_sum(row.revision, row.expires);
                    put.execute(params![row.key, revision, row.expires, sum])?;
                } else {
                    gone.execute(params![row.key])?;
                }
            }
            let sum = Self::meta_sum(last.revision, self.compacted, objects);
            tx.prepare_cached("UPDATE meta SET revision = ?1, objects = ?2, sum = ?3")?
                .execute(params![last.revision.cast_signed(), objects.cast_signed(), sum])?;
        }
        tx.commit()?;
        // Simulates an fsync that fails after the data was handed over: the caller must treat the transaction
        // as lost although it may be on disk.
        self.inject_fault(Step::Sync)?;
        // Only now: after a failure the numbers stay those on disk.
        (self.revision, self.objects) = (last.revision, objects);
        Ok(())
    }

    /// Returns the revision up to which history has been compacted.
    pub(crate) fn compacted(&self) -> u64 {
        self.compacted
    }

    /// Moves the write-ahead log into the database file and closes it.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub(crate) fn close(self) -> rusqlite::Result<()> {
        // With an empty log the file is complete by itself, as a copy of it should be.
        self.db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        self.db.close().map_err(|(_, e)| e)
    }
}
