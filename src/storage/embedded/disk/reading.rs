//! Loading the whole file when a store is opened ([`Disk::load`]), verifying structure and checksums.

use super::Disk;
use crate::storage::embedded::OpenError;
use crate::storage::embedded::format::{checksum, expiry_sum};
use bytes::Bytes;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use std::collections::HashMap;
use std::path::Path;

/// The current state of an object.
#[derive(Clone)]
pub(in super::super) struct Raw {
    pub revision: u64,
    pub value: Bytes,
    pub expires: Option<i64>,
}

/// A write of the history.
pub(in super::super) struct RawEvent {
    pub revision: u64,
    pub value: Option<Bytes>,
    /// Revision and value of the previous state.
    pub previous: Option<(u64, Bytes)>,
}

/// Everything a store contained when it was opened.
pub(in super::super) struct Contents {
    pub revision: u64,
    pub objects: Vec<(String, Raw)>,
    /// `events` holds all writes after this revision.
    pub base: u64,
    pub events: Vec<(String, RawEvent)>,
    pub marks: Vec<(u64, i64)>,
}

/// Checks the structure of the file with SQLite's `quick_check`.
fn quick_check(path: &Path) -> Result<(), OpenError> {
    let sql = |e| OpenError::sqlite(path, e);
    // Read-write, because a read-only connection cannot take part in WAL recovery.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags).map_err(sql)?;
    let found: String = db.query_row("PRAGMA quick_check(1)", [], |r| r.get(0)).map_err(sql)?;
    match found.as_str() {
        "ok" => Ok(()),
        _ => Err(OpenError::damaged(path, found)),
    }
}

impl Disk {
    /// Verifies the file and loads it, with at most `max_events` of history.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) fn load(&mut self, max_events: u64) -> Result<Contents, OpenError> {
        let sql = |e| OpenError::sqlite(&self.path, e);
        // Provokes the errors of a first write now, without writing anything.
        self.db
            .execute_batch("BEGIN IMMEDIATE; ROLLBACK")
            .map_err(|e| match e.sqlite_error_code() {
                Some(rusqlite::ErrorCode::ReadOnly) => OpenError::damaged(&self.path, "it cannot be written"),
                _ => sql(e),
            })?;
        // A second connection checks the structure while this one reads the contents. Either may find damage;
        // nothing is served before both have succeeded.
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
        // The count comes from the checksummed meta row, so a lost row of `live` is noticed although each
        // remaining row is valid.
        let objects = self.load_objects()?;
        if objects.len() as u64 != count {
            let why = format!("it holds {} objects instead of {count}", objects.len());
            return Err(OpenError::damaged(&self.path, why));
        }
        (self.revision, self.compacted, self.objects) = (revision, compacted, count);
        // History beyond what is replayed stays on disk and is compacted there; only memory and start time
        // are saved.
        let base = self.compacted.max(revision.saturating_sub(max_events));
        // Values of current objects are shared with their last event instead of being read and held twice.
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
        // Reading everything has filled the page cache, and nothing reads the file again.
        self.db.execute_batch("PRAGMA shrink_memory").map_err(sql)?;
        Ok(Contents {
            revision,
            objects,
            base,
            events,
            marks,
        })
    }

    /// Reads the value of an object, by its full key and its revision.
    ///
    /// # Errors
    /// Any SQLite error; also if there is no such value.
    pub(crate) fn value(&self, key: &str, revision: u64) -> rusqlite::Result<Bytes> {
        self.db
            .prepare_cached("SELECT value FROM log WHERE revision = ?1 AND key = ?2")?
            .query_row(params![revision.cast_signed(), key], |row| row.get::<_, Vec<u8>>(0))
            .map(Bytes::from)
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
        // LEFT JOIN, so that an object whose bytes are missing is reported instead of skipped.
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
        // The value is not read in the scan: `find` shares the buffer that the current object or an earlier
        // event already holds.
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
}
