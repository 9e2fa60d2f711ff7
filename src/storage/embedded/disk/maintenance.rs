//! Maintenance of the file: compaction of history, returning free space, checkpoints, and comparison with the
//! caches. Errors are as for [`Disk::commit`]. The schedule is in
//! [`committer::maintenance`](crate::storage::embedded::committer).

use super::Disk;
use crate::storage::cacher::Digest;
use crate::storage::embedded::faults::Step;
use crate::storage::embedded::space::{self, PAGE};
use rusqlite::params;

impl Disk {
    /// Compacts up to `step` writes of history, not beyond `target`, and removes the marks before them.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub(crate) fn compact(&mut self, target: u64, step: usize) -> rusqlite::Result<()> {
        self.inject_fault(Step::Upkeep)?;
        self.dirty = true;
        let tx = self.db.transaction()?;
        let done = {
            let mut past = tx.prepare_cached(
                "SELECT revision, prev, value IS NULL, key FROM log WHERE revision > ?1 AND revision <= ?2
                 ORDER BY revision LIMIT ?3",
            )?;
            let range = params![self.compacted.cast_signed(), target.cast_signed(), step as i64];
            // Collected first: deleting from a table while a statement iterates over it is undefined in
            // SQLite.
            let writes: Vec<(i64, i64, bool, String)> = past
                .query_map(range, |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?)))?
                .collect::<Result<_, _>>()?;
            // The key guards against a `prev` that does not belong to this object; such damage must not
            // delete another object's bytes.
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
            // Fewer than a full step: revisions up to the target without rows (already compacted) are done as
            // well.
            let done = if writes.len() < step {
                target
            } else {
                // `last` exists, because a full step is not empty; the fallback is never taken.
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
        // After the commit, so that memory never claims more than the disk holds.
        self.compacted = done;
        Ok(())
    }

    /// Sets the newest revision, which must not precede any write, and discards all history before it.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub(crate) fn set_revision(&mut self, revision: u64) -> rusqlite::Result<()> {
        // One statement and hence one transaction: the checksum always matches the row.
        self.db.execute(
            "UPDATE meta SET revision = ?1, compacted = ?1, sum = ?2",
            [revision.cast_signed(), Self::meta_sum(revision, revision, self.objects)],
        )?;
        (self.revision, self.compacted) = (revision, revision);
        Ok(())
    }

    /// Rewrites the file without free space.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub(crate) fn vacuum(&mut self) -> rusqlite::Result<()> {
        self.db.execute_batch("VACUUM")
    }

    /// Records the time at which a revision was current, in seconds since 1970.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub(crate) fn mark(&mut self, revision: u64, at: i64) -> rusqlite::Result<()> {
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

    /// True if history takes too much space compared to objects of `packed` bytes.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub(crate) fn exceeds_history_budget(&self, packed: u64) -> rusqlite::Result<bool> {
        let (free, all) = self.pages()?;
        // Pages in use and not the file's size: free pages are the business of `reclaim`.
        Ok(space::exceeds_history_budget(all.saturating_sub(free) * PAGE, packed))
    }

    /// Returns some free pages to the file system if at least a fifth of the file is free, or, while the
    /// store is busy, only if the file is too large for objects of `packed` bytes. Returns true if there may
    /// be more.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub(crate) fn reclaim(&mut self, packed: u64, busy: bool) -> rusqlite::Result<bool> {
        // 1 MiB per call, which holds up writers for a few milliseconds.
        const STEP: u64 = 256;
        let (free, all) = self.pages()?;
        let over_file_budget = space::exceeds_file_budget(all * PAGE, packed);
        // A file with a little free space is left alone: writes reuse it, and vacuuming moves pages for
        // nothing.
        if free < STEP || !(over_file_budget || (!busy && free * 5 >= all)) {
            return Ok(false);
        }
        self.dirty = true;
        let mut step = self.db.prepare(&format!("PRAGMA incremental_vacuum({STEP})"))?;
        let mut rows = step.query([])?;
        // The pragma frees one page per row that is stepped over.
        while rows.next()?.is_some() {}
        Ok(true)
    }

    /// Writes and removes 64 KiB to find out whether the disk has space.
    ///
    /// # Errors
    /// As [`commit`](Self::commit); the store's contents are unchanged.
    pub(crate) fn probe(&mut self) -> rusqlite::Result<()> {
        self.inject_fault(Step::Upkeep)?;
        // Each statement is a transaction of its own: space is certain only once the pages have been
        // committed.
        self.db.execute("INSERT INTO room VALUES (zeroblob(65536))", [])?;
        self.db.execute("DELETE FROM room", []).map(drop)
    }

    /// Computes the digest of the keys and revisions under a prefix, in key order.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub(crate) fn digest(&self, prefix: &str) -> rusqlite::Result<Digest> {
        let mut all = self
            .db
            .prepare_cached("SELECT key, revision FROM live WHERE key >= ?1 AND key < ?2 ORDER BY key")?;
        // '0' follows '/', so this is the first key behind the prefix.
        let end = format!("{}0", prefix.trim_end_matches('/'));
        let mut rows = all.query([prefix, &end])?;
        let mut digest = Digest::default();
        while let Some(row) = rows.next()? {
            let key = row.get_ref(0)?.as_str()?;
            digest.add(&key[prefix.len()..], row.get::<_, i64>(1)?.cast_unsigned());
        }
        Ok(digest)
    }

    /// Moves the write-ahead log into the database file, so that the next burst starts with an empty log, and
    /// frees the page cache: writes fill it with values, which nothing reads again.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub(crate) fn checkpoint(&mut self) -> rusqlite::Result<()> {
        if std::mem::take(&mut self.dirty) {
            // PASSIVE neither waits for readers (a running backup) nor blocks them.
            self.db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
            self.db.execute_batch("PRAGMA shrink_memory")?;
        }
        Ok(())
    }
}
