//! A bounded cache with expiry for the verdicts of remote authorizers.

use super::{Decision, Verdict};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Maximum number of entries. When the cache is full of unexpired entries, new verdicts are not cached.
const MAX_ENTRIES: usize = 8192;
/// Maximum length of a key. Clients control names and extra attributes, so longer keys are not cached.
const MAX_KEY: usize = 10_000;

/// Verdicts by serialized review.
pub(super) struct VerdictCache {
    /// How long an allow is cached; zero: not at all.
    allow: Duration,
    /// How long any other verdict is cached; zero: not at all.
    deny: Duration,
    known: Mutex<HashMap<String, (Verdict, Instant)>>,
}

impl VerdictCache {
    pub(super) fn new(allow: Duration, deny: Duration) -> Self {
        Self {
            allow,
            deny,
            known: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, (Verdict, Instant)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cached verdict, if it has not expired.
    pub(super) fn get(&self, question: &str) -> Option<Verdict> {
        let known = self.lock();
        let (verdict, until) = known.get(question)?;
        (*until > Instant::now()).then(|| verdict.clone())
    }

    /// Caches a verdict.
    pub(super) fn insert(&self, question: String, verdict: &Verdict) {
        let ttl = match verdict.decision {
            Decision::Allow => self.allow,
            _ => self.deny,
        };
        if ttl.is_zero() || question.len() > MAX_KEY {
            return;
        }
        let now = Instant::now();
        let mut known = self.lock();
        if known.len() >= MAX_ENTRIES {
            known.retain(|_, (_, until)| *until > now);
        }
        if known.len() < MAX_ENTRIES {
            known.insert(question, (verdict.clone(), now + ttl));
        }
    }
}
