//! What the committer does beside writing: history, room, a disk that was full, and the comparison of caches with the disk.

use super::committer::{Committer, now};
use super::{lock, space};
use crate::storage::cacher::{Comparison as Outcome, Digest};
use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often the thread looks after history and space.
pub(super) const MAINTENANCE: Duration = Duration::from_secs(1);
/// Writes of history that one step of compaction goes over.
const COMPACTION_STEP: usize = 2000;
/// Such steps at once where history takes too much room.
const CROWDED_STEPS: usize = 4;
/// Time between marks: how exactly history is kept by time.
const MARK_EVERY: i64 = 30;

/// Which resource is compared next, and when.
pub(super) struct Comparison {
    every: Duration,
    round: Instant,
    /// The prefix compared last in this round.
    last: Option<String>,
}

impl Comparison {
    pub fn new(every: Duration) -> Self {
        Self {
            every,
            round: Instant::now() + every,
            last: None,
        }
    }
}

impl Committer {
    /// What is due after a batch; `idle`: there was none.
    pub(super) fn maintain(&mut self, idle: bool) {
        if self.shared.failed.get().is_some() {
            return;
        }
        let due = self.maintained.elapsed() >= MAINTENANCE;
        if !due && self.written < COMPACTION_STEP / 2 {
            return;
        }
        self.written = 0;
        if due {
            self.maintained = Instant::now();
            self.shared.trim_caches();
            self.compare();
        }
        let outcome = if !self.shared.full.load(Ordering::Acquire) {
            self.keep_house(idle, due)
        } else if due {
            self.make_room()
        } else {
            Ok(())
        };
        if let Err(e) = outcome {
            self.fail(&e);
        }
    }

    fn keep_house(&mut self, idle: bool, due: bool) -> rusqlite::Result<()> {
        let now = now() / 1000;
        if due {
            let (marked, at) = self.marks.back().copied().unwrap_or((1, 0));
            if self.revision > marked && now - at >= MARK_EVERY {
                self.disk.mark(self.revision, now)?;
                self.marks.push_back((self.revision, now));
            }
        }
        let old = now.saturating_sub(i64::try_from(self.options.history.as_secs()).unwrap_or(i64::MAX));
        let mut target = self.revision.saturating_sub(self.options.max_history);
        let crowded = self.disk.is_crowded(self.packed)?;
        if crowded {
            let next = self.disk.compacted() + (CROWDED_STEPS * COMPACTION_STEP) as u64;
            target = target.max(next.min(self.revision.saturating_sub(space::MIN_HISTORY)));
        }
        while let Some((revision, at)) = self.marks.front()
            && (*at <= old || *revision < target)
        {
            target = target.max(*revision);
            self.marks.pop_front();
        }
        self.compact_to = self.compact_to.max(target);
        if self.disk.compacted() < self.compact_to {
            let step = if crowded {
                CROWDED_STEPS * COMPACTION_STEP
            } else {
                COMPACTION_STEP
            };
            self.disk.compact(self.compact_to, step)?;
        } else if idle && due {
            self.disk.reclaim(self.packed, false)?;
            self.disk.checkpoint()?;
            return Ok(());
        }
        if due {
            self.disk.reclaim(self.packed, true)?;
        }
        Ok(())
    }

    /// The disk was full: gives up all history that is on it, and sees whether there is space now.
    fn make_room(&mut self) -> rusqlite::Result<()> {
        self.disk.checkpoint()?;
        self.compact_to = self.revision;
        if self.disk.compacted() < self.compact_to {
            self.disk.compact(self.compact_to, COMPACTION_STEP)?;
        }
        self.disk.probe()?;
        self.shared.full.store(false, Ordering::Release);
        tracing::warn!("the disk has space again, writes are taken");
        Ok(())
    }

    /// Compares the cache of one resource with the disk, if that is due. Here nothing is under way: they must agree.
    fn compare(&mut self) {
        let c = &mut self.comparison;
        if Instant::now() < c.round {
            return;
        }
        let from = c.last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let next = {
            let catalog = lock(&self.shared.catalog);
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
            // What of it could not be decrypted is not in the cache.
            Ok(digest) if digest == of_cache || resource.broken.is_some() => Outcome::Equal,
            Ok(digest) => {
                tracing::error!(
                    prefix,
                    cache = of_cache.objects,
                    disk = digest.objects,
                    "the watch cache is not what the disk has"
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
