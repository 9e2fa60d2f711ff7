//! The cache of the verdicts of remote authorizers.

use super::{Decision, Verdict};
use crate::cache::TtlCache;
use std::time::Duration;

/// Maximum size of all entries together: as many as upstream caches (8192) of 2 KiB each. Clients choose names and
/// extra attributes, and a webhook may repeat them in its reason, so a bound on the number would not bound the memory.
const MAX_BYTES: u64 = 16 << 20;
/// Number of entries that are expected; most take a kilobyte or two.
const EXPECTED_ENTRIES: usize = 8192;
/// Bytes of an entry beside its strings: the entry, its places in the cache's tables, and the allocations' overhead.
const OVERHEAD: usize = 256;
/// Maximum length of a key. Clients control names and extra attributes, so longer keys are not cached.
const MAX_KEY: usize = 10_000;

/// Verdicts by serialized review.
pub(super) struct VerdictCache {
    /// How long an allow is cached; zero: not at all.
    allow: Duration,
    /// How long any other verdict is cached; zero: not at all.
    deny: Duration,
    known: TtlCache<Box<str>, Verdict>,
}

impl VerdictCache {
    pub(super) fn new(allow: Duration, deny: Duration) -> Self {
        Self {
            allow,
            deny,
            known: TtlCache::weighted(EXPECTED_ENTRIES, MAX_BYTES, |question, verdict| size(question, verdict)),
        }
    }

    /// The cached verdict, if it has not expired.
    pub(super) fn get(&self, question: &str) -> Option<Verdict> {
        self.known.get(question)
    }

    pub(super) fn insert(&self, question: String, verdict: &Verdict) {
        let ttl = match verdict.decision {
            Decision::Allow => self.allow,
            _ => self.deny,
        };
        // Upstream bounds the client-controlled part of a key likewise (`shouldCache` in
        // `plugin/pkg/authorizer/webhook`): otherwise one client could fill memory with large keys.
        if question.len() <= MAX_KEY {
            // Boxed, and the verdict cloned: neither has spare capacity that `size` would not count.
            self.known.insert(question.into_boxed_str(), verdict.clone(), ttl);
        }
    }
}

/// The memory of an entry, in bytes.
fn size(question: &str, verdict: &Verdict) -> u64 {
    let error = verdict.error.as_ref().map_or(0, String::len);
    (OVERHEAD + question.len() + verdict.reason.len() + error) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_questions_and_reasons_count_towards_the_bound() {
        let cache = VerdictCache::new(Duration::from_secs(60), Duration::from_secs(60));
        let inserted: Vec<(String, Verdict)> = (0..4096)
            .map(|n| (format!("{n:09000}"), Verdict::deny("no".repeat(n))))
            .collect();
        for (question, verdict) in &inserted {
            cache.insert(question.clone(), verdict);
        }
        let kept = inserted.iter().filter(|(question, _)| cache.get(question).is_some());
        let texts = kept.map(|(question, verdict)| question.len() + verdict.reason.len());
        let bytes: usize = texts.sum();
        assert!(bytes as u64 <= MAX_BYTES && bytes > 1 << 20, "{bytes}");
    }
}
