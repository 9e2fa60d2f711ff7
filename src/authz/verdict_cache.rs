//! The cache of the verdicts of remote authorizers.

use super::{Decision, Verdict};
use crate::cache::TtlCache;
use std::time::Duration;

/// Maximum number of entries.
const MAX_ENTRIES: usize = 8192;
/// Maximum length of a key. Clients control names and extra attributes, so longer keys are not cached.
const MAX_KEY: usize = 10_000;

/// Verdicts by serialized review.
pub(super) struct VerdictCache {
    /// How long an allow is cached; zero: not at all.
    allow: Duration,
    /// How long any other verdict is cached; zero: not at all.
    deny: Duration,
    known: TtlCache<String, Verdict>,
}

impl VerdictCache {
    pub(super) fn new(allow: Duration, deny: Duration) -> Self {
        Self {
            allow,
            deny,
            known: TtlCache::new(MAX_ENTRIES),
        }
    }

    /// The cached verdict, if it has not expired.
    pub(super) fn get(&self, question: &str) -> Option<Verdict> {
        self.known.get(question)
    }

    /// Caches a verdict.
    pub(super) fn insert(&self, question: String, verdict: &Verdict) {
        let ttl = match verdict.decision {
            Decision::Allow => self.allow,
            _ => self.deny,
        };
        // Upstream bounds the client-controlled part of a key likewise (`shouldCache` in
        // `plugin/pkg/authorizer/webhook`): otherwise one client could fill memory with large keys.
        if question.len() <= MAX_KEY {
            self.known.insert(question, verdict.clone(), ttl);
        }
    }
}
