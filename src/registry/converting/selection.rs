//! Selectors on a served version, evaluated on stored entries as far as that is possible.
//!
//! ```text
//! everything                                              → passed on
//! name, namespace, and labels that no conversion changes  → passed on
//! fields that storage extracts, under other names         → passed on, renamed
//! anything else  → entries served as stored: tested before; others: pass, tested after conversion
//! ```

use super::reader::{Reader, renamed};
use super::{KindVersions, RenameField};
use crate::storage::{Entry, Predicate, Select};
use std::sync::Arc;

/// A predicate, and where it is evaluated.
pub(super) struct Selection {
    /// The part of the selector that the storage below evaluates. It never rejects a selected entry.
    pub before: Predicate,
    /// The part that is evaluated after conversion.
    pub after: Option<Arc<dyn Select>>,
}

impl Selection {
    pub(crate) fn new(kind: &KindVersions, reader: &Arc<Reader>, served: &Predicate) -> Self {
        let before = |predicate| Self {
            before: predicate,
            after: None,
        };
        let Some(test) = served.0.clone() else {
            return before(Predicate::default());
        };
        if let Some(names) = kind.conversion.stored_fields() {
            return before(Predicate(Some(Arc::new(Renamed { test, names }))));
        }
        if kind.conversion.keeps_labels() && !test.reads_fields() {
            return before(served.clone());
        }
        Self {
            before: Predicate(Some(Arc::new(Early {
                test: test.clone(),
                reader: reader.clone(),
            }))),
            after: Some(test),
        }
    }
}

/// Fields have other names in the served version.
struct Renamed {
    test: Arc<dyn Select>,
    names: RenameField,
}

impl Select for Renamed {
    fn matches(&self, entry: &Entry) -> bool {
        if !self.test.reads_fields() {
            return self.test.matches(entry);
        }
        self.test.matches(&Entry {
            fields: renamed(self.names, entry).into(),
            ..entry.clone()
        })
    }

    fn requires(&self, field: &str) -> Option<&str> {
        self.test.requires(field).filter(|_| field.starts_with("metadata."))
    }
}

/// The part of a selector that can be evaluated before conversion.
struct Early {
    test: Arc<dyn Select>,
    reader: Arc<Reader>,
}

impl Select for Early {
    fn matches(&self, entry: &Entry) -> bool {
        !self.reader.is_served_as_stored(entry) || self.reader.selects(&*self.test, entry)
    }

    fn requires(&self, field: &str) -> Option<&str> {
        self.test.requires(field).filter(|_| field.starts_with("metadata."))
    }
}
