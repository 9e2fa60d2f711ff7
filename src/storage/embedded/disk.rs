//! The SQLite file. Only the committer thread touches it after it was opened; reads never do.
//!
//! ```text
//! log    revision → key, prev, value, sum   every write; value is null for a deletion, prev the write before it
//! live   key → revision, expires, sum       the present objects; their bytes are in the log
//! marks  revision → at                      when a revision was current, so that history is kept by time
//! meta   one row: revision, compacted, objects, sum
//! room   empty; written to, and emptied, to see whether the disk has space again
//! ```
//! Compaction up to C takes each write r ≤ C, removes the state it replaced, and r itself if it is a deletion. So the
//! state before every write after C is still there, and a watch from C on can be answered after a restart.

use super::OpenError;
use super::faults::{Faults, Step};
use super::format::{APPLICATION, FORMAT, SCHEMA, checksum, checksum_of, expiry_sum, upgrade};
use super::space::{self, PAGE};
use super::wal;
use crate::storage::cacher::Digest;
use bytes::Bytes;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Pages in the write-ahead log before they are moved into the database by a busy store: 8 MiB.
const CHECKPOINT_PAGES: i64 = 2048;

/// A write as it is stored.
pub(super) struct Row {
    pub revision: u64,
    /// The whole key.
    pub key: String,
    /// Revision of the state it replaced, 0 for none.
    pub prev: u64,
    /// `None`: a deletion.
    pub value: Option<Bytes>,
    /// When the object goes by itself, in milliseconds since 1970.
    pub expires: Option<i64>,
}

/// An object as it was found.
#[derive(Clone)]
pub(super) struct Raw {
    pub revision: u64,
    pub value: Bytes,
    pub expires: Option<i64>,
}

/// A past write as it was found.
pub(super) struct RawEvent {
    pub revision: u64,
    pub value: Option<Bytes>,
    /// Revision and bytes of the state before.
    pub previous: Option<(u64, Bytes)>,
}

/// All that a store held when it was opened.
pub(super) struct Contents {
    pub revision: u64,
    pub objects: Vec<(String, Raw)>,
    /// Writes after this revision are in `events`.
    pub base: u64,
    pub events: Vec<(String, RawEvent)>,
    pub marks: Vec<(u64, i64)>,
}

pub(super) struct Disk {
    db: Connection,
    path: PathBuf,
    revision: u64,
    compacted: u64,
    objects: u64,
    faults: Option<Arc<dyn Faults>>,
    /// Something was written since the last checkpoint of a quiet time.
    dirty: bool,
}

/// Looks at the structure of the file.
fn quick_check(path: &Path) -> Result<(), OpenError> {
    let sql = |e| OpenError::sqlite(path, e);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags).map_err(sql)?;
    let found: String = db.query_row("PRAGMA quick_check(1)", [], |r| r.get(0)).map_err(sql)?;
    match found.as_str() {
        "ok" => Ok(()),
        _ => Err(OpenError::damaged(path, found)),
    }
}

impl Disk {
    /// Opens or makes `store.db` in the directory, which is locked.
    ///
    /// # Errors
    /// [`OpenError::Damaged`], [`OpenError::Version`], [`OpenError::Sqlite`], [`OpenError::Io`].
    pub fn open(dir: &Path, max_bytes: Option<u64>) -> Result<Self, OpenError> {
        let path = dir.join("store.db");
        let looked = wal::check(&path).map_err(|source| OpenError::Io {
            path: path.with_extension("db-wal"),
            source,
        })?;
        looked.map_err(|why| OpenError::damaged(&path, why))?;
        let io = |source| OpenError::Io {
            path: path.clone(),
            source,
        };
        match std::fs::metadata(&path) {
            // SQLite would take it for a new database.
            Ok(found) if found.len() < PAGE => {
                return Err(OpenError::damaged(&path, "it ends within its first page"));
            }
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::NotFound => {
                if path.with_extension("db-wal").exists() {
                    return Err(OpenError::damaged(&path, "only its write-ahead log is there"));
                }
                Self::make(dir, &path)?;
            }
            Err(e) => return Err(io(e)),
        }
        let mut disk = Self::connect(&path)?;
        disk.prepare(max_bytes)?;
        Ok(disk)
    }

    /// Makes an empty store under another name first: the file is whole from the moment it is there.
    fn make(dir: &Path, path: &Path) -> Result<(), OpenError> {
        let new = dir.join("store.new");
        let io = |path: &Path, source| OpenError::Io {
            path: path.to_path_buf(),
            source,
        };
        for leftover in ["store.new", "store.new-wal", "store.new-shm"].map(|f| dir.join(f)) {
            match std::fs::remove_file(&leftover) {
                Err(e) if e.kind() != ErrorKind::NotFound => return Err(io(&leftover, e)),
                _ => {}
            }
        }
        let mut disk = Self::connect(&new)?;
        disk.prepare(None)?;
        disk.close().map_err(|e| OpenError::sqlite(&new, e))?;
        std::fs::rename(&new, path).map_err(|e| io(path, e))?;
        let synced = std::fs::File::open(dir).and_then(|d| d.sync_all());
        synced.map_err(|e| io(dir, e))
    }

    fn connect(path: &Path) -> Result<Self, OpenError> {
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

    /// Lets steps fail on purpose.
    pub fn inject(&mut self, faults: Option<Arc<dyn Faults>>) {
        self.faults = faults;
    }

    fn strike(&self, step: Step) -> rusqlite::Result<()> {
        match self.faults.as_ref().and_then(|f| f.strike(step)) {
            None => Ok(()),
            Some(fault) => Err(fault.error()),
        }
    }

    fn meta_sum(revision: u64, compacted: u64, objects: u64) -> i64 {
        checksum_of(&[revision, compacted, objects])
    }

    fn prepare(&mut self, max_bytes: Option<u64>) -> Result<(), OpenError> {
        let sql = |e| OpenError::sqlite(&self.path, e);
        let db = &self.db;
        db.set_prepared_statement_cache_capacity(32);
        db.pragma_update(None, "page_size", PAGE.cast_signed()).map_err(sql)?;
        db.pragma_update(None, "auto_vacuum", "INCREMENTAL").map_err(sql)?;
        db.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))
            .map_err(sql)?;
        db.pragma_update(None, "synchronous", "FULL").map_err(sql)?;
        db.pragma_update(None, "temp_store", "MEMORY").map_err(sql)?;
        db.pragma_update(None, "cache_size", -8192).map_err(sql)?;
        db.pragma_update_and_check(None, "wal_autocheckpoint", CHECKPOINT_PAGES, |_| Ok(()))
            .map_err(sql)?;
        db.pragma_update_and_check(None, "journal_size_limit", 64 << 20, |_| Ok(()))
            .map_err(sql)?;
        if let Some(bytes) = max_bytes {
            let pages = bytes.div_ceil(PAGE).cast_signed();
            db.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))
                .map_err(sql)?;
        }
        let number = |name| db.pragma_query_value(None, name, |r| r.get::<_, i64>(0)).map_err(sql);
        let (application, format) = (number("application_id")?, number("user_version")?);
        if (application, format) == (0, 0) {
            let tables: i64 = db
                .query_row("SELECT count(*) FROM sqlite_schema", [], |r| r.get(0))
                .map_err(sql)?;
            if tables > 0 {
                return Err(OpenError::damaged(&self.path, "it is a database of something else"));
            }
            let sum = Self::meta_sum(1, 0, 0);
            let create = format!(
                "BEGIN; {SCHEMA} INSERT INTO meta VALUES (1, 1, 0, 0, {sum}); PRAGMA application_id = {APPLICATION};
                 PRAGMA user_version = {FORMAT}; COMMIT;"
            );
            return db.execute_batch(&create).map_err(sql);
        }
        if application != APPLICATION {
            return Err(OpenError::damaged(&self.path, "it is a database of something else"));
        }
        if format == 1 {
            tracing::info!(path = %self.path.display(), "the store is brought to format {FORMAT}");
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

    /// Checks the file and reads all of it; at most `max_events` of history.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn load(&mut self, max_events: u64) -> Result<Contents, OpenError> {
        let sql = |e| OpenError::sqlite(&self.path, e);
        // Whatever would come up at the first write comes up now; nothing is written.
        self.db
            .execute_batch("BEGIN IMMEDIATE; ROLLBACK")
            .map_err(|e| match e.sqlite_error_code() {
                Some(rusqlite::ErrorCode::ReadOnly) => OpenError::damaged(&self.path, "it cannot be written"),
                _ => sql(e),
            })?;
        // The file's structure is looked at by a connection of its own while its contents are read and verified: either
        // may find damage, and nothing is served before both have found none.
        let path = self.path.clone();
        std::thread::scope(|threads| {
            let structure = threads.spawn(move || quick_check(&path));
            let contents = self.read(max_events);
            let structure = structure
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            structure.and(contents)
        })
    }

    fn read(&mut self, max_events: u64) -> Result<Contents, OpenError> {
        let sql = |e| OpenError::sqlite(&self.path, e);
        let meta = "SELECT revision, compacted, objects, sum FROM meta";
        let (revision, compacted, count, sum) = self
            .db
            .query_row(meta, [], |r| {
                Ok((
                    r.get::<_, i64>(0)?,
                    r.get::<_, i64>(1)?,
                    r.get::<_, i64>(2)?,
                    r.get::<_, i64>(3)?,
                ))
            })
            .optional()
            .map_err(sql)?
            .ok_or_else(|| OpenError::damaged(&self.path, "its meta row is missing"))?;
        let [revision, compacted, count] = [revision, compacted, count].map(i64::cast_unsigned);
        if Self::meta_sum(revision, compacted, count) != sum {
            return Err(OpenError::damaged(
                &self.path,
                "its meta row does not match its checksum",
            ));
        }
        let objects = self.load_objects()?;
        if objects.len() as u64 != count {
            let why = format!("it holds {} objects instead of {count}", objects.len());
            return Err(OpenError::damaged(&self.path, why));
        }
        (self.revision, self.compacted, self.objects) = (revision, compacted, count);
        let base = self.compacted.max(revision.saturating_sub(max_events));
        let known: HashMap<u64, &Bytes> = objects.iter().map(|(_, o)| (o.revision, &o.value)).collect();
        let events = self.load_events(base, &known)?;
        drop(known);
        let mut marks = self
            .db
            .prepare("SELECT revision, at FROM marks ORDER BY revision")
            .map_err(sql)?;
        let marks = marks
            .query_map([], |r| Ok((r.get::<_, i64>(0)?.cast_unsigned(), r.get(1)?)))
            .and_then(Iterator::collect)
            .map_err(sql)?;
        Ok(Contents {
            revision,
            objects,
            base,
            events,
            marks,
        })
    }

    fn verified(
        &self,
        key: &str,
        (revision, prev): (i64, i64),
        value: Option<&[u8]>,
        sum: i64,
    ) -> Result<Option<Bytes>, OpenError> {
        if checksum(key, revision.cast_unsigned(), prev.cast_unsigned(), value) != sum {
            let why = format!("revision {revision} of {key} does not match its checksum");
            return Err(OpenError::damaged(&self.path, why));
        }
        Ok(value.map(Bytes::copy_from_slice))
    }

    fn load_objects(&self) -> Result<Vec<(String, Raw)>, OpenError> {
        let sql = |e| OpenError::sqlite(&self.path, e);
        let all = "SELECT live.key, live.revision, live.expires, log.value, log.sum, log.prev, live.sum
            FROM live LEFT JOIN log ON log.revision = live.revision AND log.key = live.key";
        let mut all = self.db.prepare(all).map_err(sql)?;
        let mut rows = all.query([]).map_err(sql)?;
        let mut out = Vec::new();
        while let Some(row) = rows.next().map_err(sql)? {
            let key: String = row.get(0).map_err(sql)?;
            let revision: i64 = row.get(1).map_err(sql)?;
            let value = row.get_ref(3).map_err(sql)?.as_blob_or_null();
            let sum: Option<i64> = row.get(4).map_err(sql)?;
            let (Ok(Some(value)), Some(sum)) = (value, sum) else {
                return Err(OpenError::damaged(
                    &self.path,
                    format!("the bytes of {key} are missing"),
                ));
            };
            let prev = row.get(5).map_err(sql)?;
            let value = self
                .verified(&key, (revision, prev), Some(value), sum)?
                .unwrap_or_default();
            let expires: Option<i64> = row.get(2).map_err(sql)?;
            if expiry_sum(revision.cast_unsigned(), expires) != row.get(6).map_err(sql)? {
                let why = format!("the time to live of {key} does not match its checksum");
                return Err(OpenError::damaged(&self.path, why));
            }
            let raw = Raw {
                revision: revision.cast_unsigned(),
                value,
                expires,
            };
            out.push((key, raw));
        }
        Ok(out)
    }

    fn load_events(&self, base: u64, known: &HashMap<u64, &Bytes>) -> Result<Vec<(String, RawEvent)>, OpenError> {
        let sql = |e| OpenError::sqlite(&self.path, e);
        let find = |r: u64| -> Result<Bytes, OpenError> {
            if let Some(bytes) = known.get(&r) {
                return Ok((*bytes).clone());
            }
            let mut one = self
                .db
                .prepare_cached("SELECT key, value, sum, prev FROM log WHERE revision = ?1")
                .map_err(sql)?;
            type Found = (String, Option<Vec<u8>>, i64, i64);
            let found: Option<Found> = one
                .query_row([r.cast_signed()], |row| {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
                })
                .optional()
                .map_err(sql)?;
            let missing = || OpenError::damaged(&self.path, format!("revision {r} is missing from its history"));
            let (key, value, sum, prev) = found.ok_or_else(missing)?;
            self.verified(&key, (r.cast_signed(), prev), value.as_deref(), sum)?
                .ok_or_else(missing)
        };
        let tail = "SELECT revision, key, prev, value IS NULL, sum FROM log WHERE revision > ?1 ORDER BY revision";
        let mut tail = self.db.prepare(tail).map_err(sql)?;
        let mut rows = tail.query([base.cast_signed()]).map_err(sql)?;
        let mut out = Vec::new();
        while let Some(row) = rows.next().map_err(sql)? {
            let revision = row.get::<_, i64>(0).map_err(sql)?.cast_unsigned();
            let key: String = row.get(1).map_err(sql)?;
            let prev = row.get::<_, i64>(2).map_err(sql)?;
            let deletion: bool = row.get(3).map_err(sql)?;
            let value = if deletion {
                let sum = row.get(4).map_err(sql)?;
                self.verified(&key, (revision.cast_signed(), prev), None, sum)?
            } else {
                Some(find(revision)?)
            };
            let prev = prev.cast_unsigned();
            let previous = if prev == 0 { None } else { Some((prev, find(prev)?)) };
            out.push((
                key,
                RawEvent {
                    revision,
                    value,
                    previous,
                },
            ));
        }
        Ok(out)
    }

    /// Writes a batch, all or nothing; returns when it is durable. `objects`: how many there are then.
    ///
    /// # Errors
    /// Whatever SQLite says; the file must not be written to again.
    pub fn commit(&mut self, rows: &[Row], objects: u64) -> rusqlite::Result<()> {
        let Some(last) = rows.last() else {
            return Ok(());
        };
        self.strike(Step::Write)?;
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
        self.strike(Step::Sync)?;
        (self.revision, self.objects) = (last.revision, objects);
        Ok(())
    }

    /// The last revision that compaction has gone over.
    pub fn compacted(&self) -> u64 {
        self.compacted
    }

    /// Removes up to `step` writes of history up to `target`, and marks up to there.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn compact(&mut self, target: u64, step: usize) -> rusqlite::Result<()> {
        self.strike(Step::Upkeep)?;
        self.dirty = true;
        let tx = self.db.transaction()?;
        let done = {
            let mut past = tx.prepare_cached(
                "SELECT revision, prev, value IS NULL, key FROM log WHERE revision > ?1 AND revision <= ?2
                 ORDER BY revision LIMIT ?3",
            )?;
            let range = params![self.compacted.cast_signed(), target.cast_signed(), step as i64];
            let writes: Vec<(i64, i64, bool, String)> = past
                .query_map(range, |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?)))?
                .collect::<Result<_, _>>()?;
            let mut delete = tx.prepare_cached("DELETE FROM log WHERE revision = ?1 AND key = ?2")?;
            for (revision, prev, deletion, key) in &writes {
                if *prev != 0 {
                    delete.execute(params![prev, key])?;
                }
                if *deletion {
                    delete.execute(params![revision, key])?;
                }
            }
            let last = writes.last().map(|(revision, ..)| revision.cast_unsigned());
            let done = if writes.len() < step {
                target
            } else {
                last.unwrap_or(target)
            };
            tx.prepare_cached("DELETE FROM marks WHERE revision < ?1")?
                .execute([done.cast_signed()])?;
            let sum = Self::meta_sum(self.revision, done, self.objects);
            tx.prepare_cached("UPDATE meta SET compacted = ?1, sum = ?2")?
                .execute([done.cast_signed(), sum])?;
            done
        };
        tx.commit()?;
        self.compacted = done;
        Ok(())
    }

    /// Makes a revision, not before any that was written, the newest, and all history before it gone.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn stand_at(&mut self, revision: u64) -> rusqlite::Result<()> {
        self.db.execute(
            "UPDATE meta SET revision = ?1, compacted = ?1, sum = ?2",
            [revision.cast_signed(), Self::meta_sum(revision, revision, self.objects)],
        )?;
        (self.revision, self.compacted) = (revision, revision);
        Ok(())
    }

    /// Writes the file anew, without its free space.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn vacuum(&mut self) -> rusqlite::Result<()> {
        self.db.execute_batch("VACUUM")
    }

    /// Notes when a revision was current.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn mark(&mut self, revision: u64, at: i64) -> rusqlite::Result<()> {
        let mark = "INSERT OR REPLACE INTO marks VALUES (?1, ?2)";
        self.db
            .prepare_cached(mark)?
            .execute([revision.cast_signed(), at])
            .map(drop)
    }

    fn pages(&self) -> rusqlite::Result<(u64, u64)> {
        let number = |name| self.db.pragma_query_value(None, name, |r| r.get::<_, i64>(0));
        Ok((
            number("freelist_count")?.cast_unsigned(),
            number("page_count")?.cast_unsigned(),
        ))
    }

    /// True where history takes too much room beside objects that need `packed` bytes.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn is_crowded(&self, packed: u64) -> rusqlite::Result<bool> {
        let (free, all) = self.pages()?;
        Ok(space::is_crowded(all.saturating_sub(free) * PAGE, packed))
    }

    /// Gives some free pages back to the file system: where a fifth of the file or more is free, or, in a busy time,
    /// where it is too large for objects that need `packed` bytes. True: there is more.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn reclaim(&mut self, packed: u64, busy: bool) -> rusqlite::Result<bool> {
        const STEP: u64 = 256;
        let (free, all) = self.pages()?;
        let bloated = space::is_bloated(all * PAGE, packed);
        if free < STEP || !(bloated || (!busy && free * 5 >= all)) {
            return Ok(false);
        }
        self.dirty = true;
        let mut step = self.db.prepare(&format!("PRAGMA incremental_vacuum({STEP})"))?;
        let mut rows = step.query([])?;
        while rows.next()?.is_some() {}
        Ok(true)
    }

    /// Writes something large and takes it away again: it succeeds where there is space.
    ///
    /// # Errors
    /// As [`commit`](Self::commit); nothing of the store has changed.
    pub fn probe(&mut self) -> rusqlite::Result<()> {
        self.strike(Step::Upkeep)?;
        self.db.execute("INSERT INTO room VALUES (zeroblob(65536))", [])?;
        self.db.execute("DELETE FROM room", []).map(drop)
    }

    /// A digest of the keys and revisions under a prefix, in the order of the keys.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn digest(&self, prefix: &str) -> rusqlite::Result<Digest> {
        let mut all = self
            .db
            .prepare_cached("SELECT key, revision FROM live WHERE key >= ?1 AND key < ?2 ORDER BY key")?;
        let end = format!("{}0", prefix.trim_end_matches('/'));
        let mut rows = all.query([prefix, &end])?;
        let mut digest = Digest::default();
        while let Some(row) = rows.next()? {
            let key = row.get_ref(0)?.as_str()?;
            digest.add(&key[prefix.len()..], row.get::<_, i64>(1)?.cast_unsigned());
        }
        Ok(digest)
    }

    /// Moves what was written into the database file, so that a busy time begins with an empty write-ahead log.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn checkpoint(&mut self) -> rusqlite::Result<()> {
        if std::mem::take(&mut self.dirty) {
            self.db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
        }
        Ok(())
    }

    /// Moves everything into the database file and closes it.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn close(self) -> rusqlite::Result<()> {
        self.db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        self.db.close().map_err(|(_, e)| e)
    }
}
