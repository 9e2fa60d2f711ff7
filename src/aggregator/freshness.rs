//! Sync status of backends' documents: when each was last fetched, and why fetching has failed since. Written by the
//! fetchers, read by `/debug/aggregator`.

use super::shelf::Document;
use crate::apimachinery::value::Str;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use time::OffsetDateTime;

/// Sync status of all documents. Clones share the state.
#[derive(Clone, Default)]
pub struct Freshness(Arc<Mutex<HashMap<Str, [Seen; Document::KINDS]>>>);

/// Sync status of one document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// When the backend last returned the document or confirmed that it is unchanged.
    pub had: Option<OffsetDateTime>,
    /// Whether a copy of a previous process, loaded from disk, is served meanwhile.
    pub kept: bool,
    /// Start of the current series of failures, and the latest error.
    pub failing: Option<(OffsetDateTime, String)>,
}

impl Freshness {
    /// Without any document.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records the outcome of an attempt to fetch a document of an APIService.
    pub fn note(&self, name: &Str, what: Document, outcome: Result<(), &str>) {
        let now = OffsetDateTime::now_utc();
        let mut all = self.lock();
        let seen = &mut all.entry(name.clone()).or_default()[what as usize];
        match outcome {
            Ok(()) => {
                *seen = Seen {
                    had: Some(now),
                    ..Seen::default()
                };
            }
            Err(why) => {
                let since = seen.failing.take().map_or(now, |(since, _)| since);
                seen.failing = Some((since, why.to_owned()));
            }
        }
    }

    /// Records that a copy was loaded from disk.
    pub fn keep(&self, name: &Str, what: Document) {
        self.lock().entry(name.clone()).or_default()[what as usize].kept = true;
    }

    /// Forgets an APIService that was deleted or is now served in this process.
    pub fn remove(&self, name: &str) {
        self.lock().remove(name);
    }

    /// The sync status of a document.
    pub fn of(&self, name: &str, what: Document) -> Seen {
        self.lock()
            .get(name)
            .map_or_else(Seen::default, |all| all[what as usize].clone())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Str, [Seen; Document::KINDS]>> {
        self.0.lock().expect("no code panics while holding this lock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_keeps_its_start_until_a_success() {
        let (f, name) = (Freshness::new(), Str::new("v1.g"));
        let seen = || f.of("v1.g", Document::OpenApiV2);
        assert_eq!(seen(), Seen::default());
        f.note(&name, Document::OpenApiV2, Err("refused"));
        let first = seen().failing.unwrap().0;
        f.note(&name, Document::OpenApiV2, Err("timeout"));
        assert_eq!(seen().failing, Some((first, "timeout".to_owned())));
        f.note(&name, Document::OpenApiV2, Ok(()));
        assert!(seen().had.is_some() && seen().failing.is_none());
        assert_eq!(f.of("v1.g", Document::Discovery), Seen::default());
        f.remove("v1.g");
        assert_eq!(seen(), Seen::default());
    }
}
