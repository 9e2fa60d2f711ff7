//! Sync status of backends' documents: when each was last fetched, and why fetching has failed since. Written
//! by the fetchers, read by `/debug/aggregator`.

use super::documents::DocumentKind;
use crate::apimachinery::value::Str;
use crate::sync::{Mutex, MutexGuard};
use crate::tasks::shrink;
use std::collections::HashMap;
use std::sync::Arc;
use time::OffsetDateTime;

/// Sync status of all documents. Clones share the state.
#[derive(Clone, Default)]
pub(crate) struct SyncStatus(Arc<Mutex<HashMap<Str, [DocumentStatus; DocumentKind::KINDS]>>>);

/// Sync status of one document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DocumentStatus {
    /// When the backend last returned the document or confirmed that it is unchanged.
    pub last_success: Option<OffsetDateTime>,
    /// Whether a copy of a previous process, loaded from disk, is served meanwhile.
    pub restored_from_disk: bool,
    /// Start of the current series of failures, and the latest error.
    pub failing: Option<(OffsetDateTime, String)>,
}

impl SyncStatus {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Records the outcome of an attempt to fetch a document of an APIService.
    pub(crate) fn note(&self, name: &Str, what: DocumentKind, outcome: Result<(), &str>) {
        let now = OffsetDateTime::now_utc();
        let mut all = self.lock();
        let status = &mut all.entry(name.clone()).or_default()[what as usize];
        match outcome {
            Ok(()) => {
                *status = DocumentStatus {
                    last_success: Some(now),
                    ..DocumentStatus::default()
                };
            }
            Err(why) => {
                // The start of a series of failures is kept, its reason is replaced.
                let since = status.failing.take().map_or(now, |(since, _)| since);
                status.failing = Some((since, why.to_owned()));
            }
        }
    }

    /// Records that a copy was loaded from disk.
    pub(crate) fn restored(&self, name: &Str, what: DocumentKind) {
        self.lock().entry(name.clone()).or_default()[what as usize].restored_from_disk = true;
    }

    /// Forgets an APIService that was deleted or is now served in this process.
    pub(crate) fn remove(&self, name: &str) {
        let mut all = self.lock();
        all.remove(name);
        shrink(&mut all);
    }

    /// The sync status of a document.
    pub(crate) fn of(&self, name: &str, what: DocumentKind) -> DocumentStatus {
        self.lock()
            .get(name)
            .map_or_else(DocumentStatus::default, |all| all[what as usize].clone())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Str, [DocumentStatus; DocumentKind::KINDS]>> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_keeps_its_start_until_a_success() {
        let (f, name) = (SyncStatus::new(), Str::new("v1.g"));
        let status = || f.of("v1.g", DocumentKind::OpenApiV2);
        assert_eq!(status(), DocumentStatus::default());
        f.note(&name, DocumentKind::OpenApiV2, Err("refused"));
        let first = status().failing.unwrap().0;
        f.note(&name, DocumentKind::OpenApiV2, Err("timeout"));
        assert_eq!(status().failing, Some((first, "timeout".to_owned())));
        f.note(&name, DocumentKind::OpenApiV2, Ok(()));
        assert!(status().last_success.is_some() && status().failing.is_none());
        assert_eq!(f.of("v1.g", DocumentKind::Discovery), DocumentStatus::default());
        f.remove("v1.g");
        assert_eq!(status(), DocumentStatus::default());
    }
}
