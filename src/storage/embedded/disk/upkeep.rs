//! What a file needs from time to time: history that goes, space that is given back, a look at whether all is as it was
//! written. Errors are as of [`Disk::commit`].

use super::Disk;
use crate::storage::cacher::Digest;
use crate::storage::embedded::faults::Step;
use crate::storage::embedded::space::{self, PAGE};
use rusqlite::params;

impl Disk {
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
}
