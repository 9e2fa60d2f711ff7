//! Verdicts of somebody else, remembered for a while.

use super::{Decision, Verdict};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Answers kept at most. When all are fresh, new ones are not kept.
const MAX_ENTRIES: usize = 8192;
/// A question longer than this is not kept: names and extra are the caller's to choose.
const MAX_KEY: usize = 10_000;

/// Verdicts by question.
pub(super) struct Memory {
    /// How long a yes holds; zero: it is not kept.
    allow: Duration,
    /// How long a no holds; zero: it is not kept.
    deny: Duration,
    known: Mutex<HashMap<String, (Verdict, Instant)>>,
}

impl Memory {
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

    /// The verdict on a question, while it holds.
    pub(super) fn get(&self, question: &str) -> Option<Verdict> {
        let known = self.lock();
        let (verdict, until) = known.get(question)?;
        (*until > Instant::now()).then(|| verdict.clone())
    }

    /// Keeps a verdict from now on.
    pub(super) fn keep(&self, question: String, verdict: &Verdict) {
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
