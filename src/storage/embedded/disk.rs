//! The SQLite file. Only the committer thread touches it after it was opened; reads never do.
//!
//! ```text
//! log    revision → key, prev, value, sum   every write; value is null for a deletion, prev the write before it
//! live   key → revision, expires            the present objects; their bytes are in the log
//! marks  revision → at                      when a revision was current, so that history is kept by time
//! meta   one row: revision, compacted, objects, clean
//! ```
//! Compaction up to C takes each write r ≤ C, removes the state it replaced, and r itself if it is a deletion. So the
//! state before every write after C is still there, and a watch from C on can be answered after a restart.

use super::OpenError;
use bytes::Bytes;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use std::collections::HashMap;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const FORMAT: i64 = 1;
/// "Tora", so that `file` and SQLite's tools can tell whose database it is.
pub(super) const APPLICATION: i64 = 0x546f_7261;
const PAGE: u64 = 4096;
/// Pages in the write-ahead log before they are moved into the database by a busy store: 8 MiB.
const CHECKPOINT_PAGES: i64 = 2048;

const SCHEMA: &str = "
CREATE TABLE log(revision INTEGER PRIMARY KEY, key TEXT NOT NULL, prev INTEGER NOT NULL, value BLOB, sum INTEGER NOT NULL);
CREATE TABLE live(key TEXT PRIMARY KEY, revision INTEGER NOT NULL, expires INTEGER) WITHOUT ROWID;
CREATE TABLE marks(revision INTEGER PRIMARY KEY, at INTEGER NOT NULL);
CREATE TABLE meta(id INTEGER PRIMARY KEY CHECK (id = 1), revision INTEGER NOT NULL, compacted INTEGER NOT NULL,
  objects INTEGER NOT NULL, clean INTEGER NOT NULL);
INSERT INTO meta VALUES (1, 1, 0, 0, 1);
";

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
    compacted: u64,
    /// Something was written since the last checkpoint of a quiet time.
    dirty: bool,
}

/// A checksum of a write: changed bytes on the disk are found when they are read, before anybody is told them.
pub(super) fn checksum(key: &str, revision: u64, value: Option<&[u8]>) -> i64 {
    const K: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut sum = revision.wrapping_mul(K) ^ (value.map_or(u64::MAX, |v| v.len() as u64));
    let mut mix = |word: u64| sum = (sum ^ word).wrapping_mul(K).rotate_left(29);
    for part in [key.as_bytes(), value.unwrap_or_default()] {
        let (words, rest) = part.as_chunks::<8>();
        words.iter().for_each(|w| mix(u64::from_le_bytes(*w)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        mix(u64::from_le_bytes(last) ^ ((rest.len() as u64) << 56));
    }
    (sum ^ (sum >> 31)).cast_signed()
}

impl Disk {
    /// Opens or makes `store.db` in the directory, which is locked.
    ///
    /// # Errors
    /// [`OpenError::Damaged`], [`OpenError::Version`], [`OpenError::Sqlite`], [`OpenError::Io`].
    pub fn open(dir: &Path, max_bytes: Option<u64>) -> Result<Self, OpenError> {
        let path = dir.join("store.db");
        let mut create = OpenOptions::new();
        create
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(|source| OpenError::Io {
                path: path.clone(),
                source,
            })?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(&path, flags).map_err(|e| OpenError::sqlite(&path, e))?;
        let mut disk = Self {
            db,
            path,
            compacted: 0,
            dirty: false,
        };
        disk.prepare(max_bytes)?;
        Ok(disk)
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
            let create = format!(
                "BEGIN; {SCHEMA} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {FORMAT}; COMMIT;"
            );
            return db.execute_batch(&create).map_err(sql);
        }
        if application != APPLICATION {
            return Err(OpenError::damaged(&self.path, "it is a database of something else"));
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
        let meta = "SELECT revision, compacted, objects, clean FROM meta";
        let (revision, compacted, count, clean) = self
            .db
            .query_row(meta, [], |r| {
                Ok((
                    r.get::<_, i64>(0)?,
                    r.get::<_, i64>(1)?,
                    r.get::<_, i64>(2)?,
                    r.get::<_, bool>(3)?,
                ))
            })
            .optional()
            .map_err(sql)?
            .ok_or_else(|| OpenError::damaged(&self.path, "its meta row is missing"))?;
        if !clean {
            let found: String = self
                .db
                .query_row("PRAGMA quick_check(1)", [], |r| r.get(0))
                .map_err(sql)?;
            if found != "ok" {
                return Err(OpenError::damaged(&self.path, found));
            }
        }
        let objects = self.load_objects()?;
        if objects.len() as i64 != count {
            let why = format!("it holds {} objects instead of {count}", objects.len());
            return Err(OpenError::damaged(&self.path, why));
        }
        let revision = revision.cast_unsigned();
        self.compacted = compacted.cast_unsigned();
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
        // From now on a crash leaves the mark that asks for a check.
        self.db.execute("UPDATE meta SET clean = 0", []).map_err(sql)?;
        Ok(Contents {
            revision,
            objects,
            base,
            events,
            marks,
        })
    }

    fn verified(&self, key: &str, revision: i64, value: Option<&[u8]>, sum: i64) -> Result<Option<Bytes>, OpenError> {
        if checksum(key, revision.cast_unsigned(), value) != sum {
            let why = format!("revision {revision} of {key} does not match its checksum");
            return Err(OpenError::damaged(&self.path, why));
        }
        Ok(value.map(Bytes::copy_from_slice))
    }

    fn load_objects(&self) -> Result<Vec<(String, Raw)>, OpenError> {
        let sql = |e| OpenError::sqlite(&self.path, e);
        let all = "SELECT live.key, live.revision, live.expires, log.value, log.sum
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
            let value = self.verified(&key, revision, Some(value), sum)?.unwrap_or_default();
            let raw = Raw {
                revision: revision.cast_unsigned(),
                value,
                expires: row.get(2).map_err(sql)?,
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
                .prepare_cached("SELECT key, value, sum FROM log WHERE revision = ?1")
                .map_err(sql)?;
            let found: Option<(String, Option<Vec<u8>>, i64)> = one
                .query_row([r.cast_signed()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
                .optional()
                .map_err(sql)?;
            let missing = || OpenError::damaged(&self.path, format!("revision {r} is missing from its history"));
            let (key, value, sum) = found.ok_or_else(missing)?;
            self.verified(&key, r.cast_signed(), value.as_deref(), sum)?
                .ok_or_else(missing)
        };
        let tail = "SELECT revision, key, prev, value IS NULL, sum FROM log WHERE revision > ?1 ORDER BY revision";
        let mut tail = self.db.prepare(tail).map_err(sql)?;
        let mut rows = tail.query([base.cast_signed()]).map_err(sql)?;
        let mut out = Vec::new();
        while let Some(row) = rows.next().map_err(sql)? {
            let revision = row.get::<_, i64>(0).map_err(sql)?.cast_unsigned();
            let key: String = row.get(1).map_err(sql)?;
            let prev = row.get::<_, i64>(2).map_err(sql)?.cast_unsigned();
            let deletion: bool = row.get(3).map_err(sql)?;
            let value = if deletion {
                self.verified(&key, revision.cast_signed(), None, row.get(4).map_err(sql)?)?
            } else {
                Some(find(revision)?)
            };
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
        self.dirty = true;
        let tx = self.db.transaction()?;
        {
            let mut log = tx.prepare_cached("INSERT INTO log VALUES (?1, ?2, ?3, ?4, ?5)")?;
            let mut put = tx.prepare_cached("INSERT OR REPLACE INTO live VALUES (?1, ?2, ?3)")?;
            let mut gone = tx.prepare_cached("DELETE FROM live WHERE key = ?1")?;
            for row in rows {
                let sum = checksum(&row.key, row.revision, row.value.as_deref());
                let (revision, prev) = (row.revision.cast_signed(), row.prev.cast_signed());
                log.execute(params![revision, row.key, prev, row.value.as_deref(), sum])?;
                if row.value.is_some() {
                    put.execute(params![row.key, revision, row.expires])?;
                } else {
                    gone.execute(params![row.key])?;
                }
            }
            tx.prepare_cached("UPDATE meta SET revision = ?1, objects = ?2")?
                .execute(params![last.revision.cast_signed(), objects.cast_signed()])?;
        }
        tx.commit()
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
        self.dirty = true;
        let tx = self.db.transaction()?;
        let done = {
            let mut past = tx.prepare_cached(
                "SELECT revision, prev, value IS NULL FROM log WHERE revision > ?1 AND revision <= ?2
                 ORDER BY revision LIMIT ?3",
            )?;
            let range = params![self.compacted.cast_signed(), target.cast_signed(), step as i64];
            let writes: Vec<(i64, i64, bool)> = past
                .query_map(range, |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?)))?
                .collect::<Result<_, _>>()?;
            let mut delete = tx.prepare_cached("DELETE FROM log WHERE revision = ?1")?;
            for (revision, prev, deletion) in &writes {
                if *prev != 0 {
                    delete.execute([prev])?;
                }
                if *deletion {
                    delete.execute([revision])?;
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
            tx.prepare_cached("UPDATE meta SET compacted = ?1")?
                .execute([done.cast_signed()])?;
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
            "UPDATE meta SET revision = ?1, compacted = ?1",
            [revision.cast_signed()],
        )?;
        self.compacted = revision;
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

    /// Gives some free pages back to the file system, where a fifth of the file or more is free. True: there is more.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn reclaim(&mut self) -> rusqlite::Result<bool> {
        const STEP: i64 = 256;
        let number = |name| self.db.pragma_query_value(None, name, |r| r.get::<_, i64>(0));
        let (free, all) = (number("freelist_count")?, number("page_count")?);
        if free < STEP || free * 5 < all {
            return Ok(false);
        }
        let mut step = self.db.prepare(&format!("PRAGMA incremental_vacuum({STEP})"))?;
        let mut rows = step.query([])?;
        while rows.next()?.is_some() {}
        Ok(true)
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

    /// Moves everything into the database file and notes that it was closed in order.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn close(self) -> rusqlite::Result<()> {
        self.db.execute("UPDATE meta SET clean = 1", [])?;
        self.db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        self.db.close().map_err(|(_, e)| e)
    }
}
