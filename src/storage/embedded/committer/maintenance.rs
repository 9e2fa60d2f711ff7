//! Periodic work of the committer thread: compaction, free space, recovery from a full disk, and consistency
//! checks of the caches. Entry point: [`Committer::maintain`]; the SQL is in
//! [`disk`](crate::storage::embedded::disk).

use super::{Committer, now};
use crate::storage::Revision;
use crate::storage::cacher::{Comparison as Outcome, Digest};
use crate::storage::embedded::space;
use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Interval between maintenance runs.
pub(super) const MAINTENANCE: Duration = Duration::from_secs(1);
/// Time between two calls of [`Options::on_idle`](crate::storage::embedded::Options::on_idle).
const REST_EVERY: Duration = Duration::from_secs(5);
/// How long after the last write these calls continue: events live for 75 s by default, and their memory is
/// free afterwards.
const RESTLESS: Duration = Duration::from_secs(120);
/// Writes of history processed by one compaction step.
const COMPACTION_STEP: usize = 2000;
/// Number of steps combined into one while history takes too much space.
const CROWDED_STEPS: usize = 4;
/// Seconds between marks: the precision with which history is kept by age.
const MARK_EVERY: i64 = 30;

/// Schedule of the consistency checks: one resource per run, a round every `every`.
pub(super) struct Comparison {
    every: Duration,
    round: Instant,
    /// The prefix compared last in this round.
    last: Option<String>,
}

impl Comparison {
    pub(crate) fn new(every: Duration) -> Self {
        Self {
            every,
            round: Instant::now() + every,
            last: None,
        }
    }
}

impl Committer {
    /// Runs the maintenance that is due after a batch; `idle` if the batch was empty.
    pub(super) fn maintain(&mut self, idle: bool) {
        // After a failed transaction the file must not be touched again.
        if self.shared.failed.get().is_some() {
            return;
        }
        if !idle {
            self.busy = Instant::now();
        }
        let due = self.maintained.elapsed() >= MAINTENANCE;
        // A busy store also compacts between the intervals, so that history does not outgrow compaction.
        if !due && self.written < COMPACTION_STEP / 2 {
            return;
        }
        self.written = 0;
        if due {
            self.maintained = Instant::now();
            self.shared.trim_caches();
            self.compare();
            // Returning memory costs milliseconds of page faults afterwards; a busy store would pay them
            // again and again.
            if idle {
                self.rest();
            }
        }
        let outcome = if !self.shared.full.load(Ordering::Acquire) {
            self.maintain_file(idle, due)
        } else if due {
            self.recover_from_full()
        } else {
            Ok(())
        };
        if let Err(e) = outcome {
            self.fail(&e);
        }
    }

    /// Calls [`Options::on_idle`](crate::storage::embedded::Options::on_idle) now and then, until the history
    /// of the last writes has expired.
    fn rest(&mut self) {
        if let Some(call) = self.options.on_idle
            && self.busy.elapsed() < RESTLESS
            && self.rested.elapsed() >= REST_EVERY
        {
            call();
            self.rested = Instant::now();
        }
    }

    fn maintain_file(&mut self, idle: bool, due: bool) -> rusqlite::Result<()> {
        let now = now() / 1000;
        if due {
            // Revision 1 is the empty store, so nothing is marked until the first write.
            let (marked, at) = self.marks.back().copied().unwrap_or((1, 0));
            // The clock may step back; then marks pause until it has caught up, and history is kept longer
            // rather than lost.
            if self.revision > marked && now - at >= MARK_EVERY {
                self.disk.mark(self.revision, now)?;
                self.marks.push_back((self.revision, now));
            }
        }
        // History that is too long for the clock's range is kept for ever.
        let old = now.saturating_sub(i64::try_from(self.options.history.as_secs()).unwrap_or(i64::MAX));
        let mut target = self.revision.saturating_sub(self.options.max_history);
        let over_history_budget = self.disk.exceeds_history_budget(self.packed)?;
        if over_history_budget {
            let next = self.disk.compacted() + (CROWDED_STEPS * COMPACTION_STEP) as u64;
            // A minimum remains even then, or every reconnecting watch would have to list again.
            target = target.max(next.min(self.revision.saturating_sub(space::MIN_HISTORY)));
        }
        // Compaction by age ends at a mark, because only marks have a time.
        while let Some((revision, at)) = self.marks.front()
            && (*at <= old || *revision < target)
        {
            target = target.max(*revision);
            self.marks.pop_front();
        }
        // `max`: after a full disk it may be ahead already; compaction never goes back.
        self.compact_to = self.compact_to.max(target);
        self.shared.compaction.advance(Revision(self.compact_to));
        // One step per round, so that writers never wait behind the whole history.
        if self.disk.compacted() < self.compact_to {
            let step = if over_history_budget {
                CROWDED_STEPS * COMPACTION_STEP
            } else {
                COMPACTION_STEP
            };
            self.disk.compact(self.compact_to, step)?;
        } else if idle && due {
            // Only a store that is idle checkpoints by itself; a busy one does it by `wal_autocheckpoint`.
            self.disk.reclaim(self.packed, false)?;
            self.disk.checkpoint()?;
            return Ok(());
        }
        if due {
            self.disk.reclaim(self.packed, true)?;
        }
        Ok(())
    }

    /// The disk was full: discards all history and probes whether there is space now.
    fn recover_from_full(&mut self) -> rusqlite::Result<()> {
        self.disk.checkpoint()?;
        self.compact_to = self.revision;
        // One step is enough to free pages for the probe; the rest follows at the usual pace.
        if self.disk.compacted() < self.compact_to {
            self.disk.compact(self.compact_to, COMPACTION_STEP)?;
        }
        // Fails while the disk is full, and the flag stays set.
        self.disk.probe()?;
        self.shared.full.store(false, Ordering::Release);
        tracing::warn!("the disk has space again; writes are accepted");
        Ok(())
    }

    /// Compares the cache of one resource with the disk, if that is due. No write is in progress here, so
    /// they must agree.
    fn compare(&mut self) {
        // One resource per second at most: a digest reads all its keys, on the thread all writers wait for.
        let c = &mut self.comparison;
        if Instant::now() < c.round {
            return;
        }
        // By name and not by position, because resources come and go between two runs.
        let from = c.last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        // The catalog is locked only to choose; computing the digest under the lock would block requests for
        // resources.
        let next = {
            let catalog = self.shared.catalog.lock();
            let mut rest = catalog.resources.range::<str, _>((from, Bound::Unbounded));
            rest.next().map(|(prefix, resource)| (prefix.clone(), resource.clone()))
        };
        let Some((prefix, resource)) = next else {
            c.last = None;
            c.round = Instant::now() + c.every;
            return;
        };
        let of_disk = self.disk.digest(&prefix);
        let of_cache = Digest::of(&resource.cacher.snapshot());
        let outcome = match of_disk {
            // Values that could not be decrypted are not in the cache.
            Ok(digest) if digest == of_cache || resource.broken.is_some() => Outcome::Equal,
            Ok(digest) => {
                tracing::error!(
                    prefix,
                    cache = of_cache.objects,
                    disk = digest.objects,
                    "the watch cache differs from the disk"
                );
                Outcome::Different
            }
            Err(error) => {
                tracing::warn!(prefix, %error, "the watch cache could not be compared with the disk");
                Outcome::Impossible
            }
        };
        resource.cacher.counters().compared(outcome);
        c.last = Some(prefix);
    }
}
