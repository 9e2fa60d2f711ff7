//! When each document of each backend was last had, and what has kept it from being had since.

use super::shelf::Document;
use crate::apimachinery::value::Str;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use time::OffsetDateTime;

/// Shared by those who fetch and those who tell.
#[derive(Clone, Default)]
pub struct Freshness(Arc<Mutex<HashMap<Str, [Seen; Document::KINDS]>>>);

/// What is known of one document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// When the backend last said what it is, or that it is the same.
    pub had: Option<OffsetDateTime>,
    /// What a process before this one had is served meanwhile.
    pub kept: bool,
    /// Since when that fails, and why it last did.
    pub failing: Option<(OffsetDateTime, String)>,
}

impl Freshness {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// How an attempt to have a document of an APIService ended.
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

    /// What a process before this one had of an APIService was found.
    pub fn keep(&self, name: &Str, what: Document) {
        self.lock().entry(name.clone()).or_default()[what as usize].kept = true;
    }

    /// The APIService is gone, or served in this process now.
    pub fn remove(&self, name: &str) {
        self.lock().remove(name);
    }

    /// What is known.
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
    fn a_failure_keeps_its_beginning_and_a_success_ends_it() {
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
