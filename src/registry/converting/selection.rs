//! Selectors on a served version, evaluated on stored entries as far as that is possible.
//!
//! ```text
//! everything                                              → passed on
//! name, namespace, and labels that no conversion changes  → passed on
//! fields that storage extracts, under other names         → passed on, renamed
//! anything else  → entries served as stored: tested before; others: pass, tested after conversion
//!                  (watches: so do large entries whose fields have not been extracted yet)
//! ```

use super::reader::{Reader, renamed};
use super::{KindVersions, RenameField};
use crate::storage::{Entry, Predicate, Select};
use std::hash::{Hash as _, Hasher};
use std::sync::Arc;

/// A predicate, and where it is evaluated.
pub(super) struct Selection {
    /// The part of the selector that the storage below evaluates. It never rejects a selected entry.
    pub before: Predicate,
    /// The part that is evaluated after conversion.
    pub after: Option<Arc<dyn Select>>,
}

/// The reader that evaluates the first part of a selector.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Reading {
    /// A list, on the compute pool.
    List,
    /// A watch, on the thread that dispatches events to all watches, and on a reactor. Expensive checks are
    /// left to the second part.
    Watch,
}

impl Selection {
    pub(crate) fn new(kind: &KindVersions, reader: &Arc<Reader>, served: &Predicate, reading: Reading) -> Self {
        let before = |predicate| Self {
            before: predicate,
            after: None,
        };
        let Some(test) = served.0.clone() else {
            return before(Predicate::default());
        };
        if let Some(names) = kind.conversion.stored_fields() {
            // Storage has extracted the fields, so everything can be tested there.
            return before(Predicate(Some(Arc::new(Renamed { test, names }))));
        }
        // Labels, name and namespace are the same in every version then.
        if kind.conversion.keeps_labels() && !test.reads_fields() {
            return before(served.clone());
        }
        Self {
            before: Predicate(Some(Arc::new(Early {
                test: test.clone(),
                reader: reader.clone(),
                reading,
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
        self.test.matches_with(entry, &renamed(self.names, entry))
    }

    fn terms(&self) -> usize {
        self.test.terms()
    }

    fn requires(&self, field: &str) -> Option<&str> {
        // Other fields have other names below, so no index lookup is derived from them.
        self.test.requires(field).filter(|_| field.starts_with("metadata."))
    }

    fn identify(&self, mut hasher: &mut dyn Hasher) -> bool {
        // Its address: two functions that share one were merged because they do the same.
        ("renamed", self.names).hash(&mut hasher);
        self.test.identify(hasher)
    }
}

/// The part of a selector that can be evaluated before conversion.
struct Early {
    test: Arc<dyn Select>,
    reader: Arc<Reader>,
    reading: Reading,
}

impl Early {
    /// True if the test is left to the reader.
    fn passes(&self, entry: &Entry) -> bool {
        // Passing is always safe: the second part tests again.
        let deferred = self.reading == Reading::Watch && is_long(&*self.test, entry);
        deferred || !self.reader.is_served_as_stored(entry)
    }
}

impl Select for Early {
    fn matches(&self, entry: &Entry) -> bool {
        self.passes(entry) || self.reader.selects(&*self.test, entry)
    }

    fn requires(&self, field: &str) -> Option<&str> {
        self.test.requires(field).filter(|_| field.starts_with("metadata."))
    }

    fn terms(&self) -> usize {
        self.test.terms()
    }

    fn extracts(&self, entry: &Entry) -> bool {
        !self.passes(entry) && self.test.extracts(entry)
    }

    fn prepare(&self, entry: &Entry) {
        self.test.prepare(entry);
    }

    fn identify(&self, mut hasher: &mut dyn Hasher) -> bool {
        ("early", self.reader.id(), self.reading).hash(&mut hasher);
        self.test.identify(hasher)
    }
}

/// True if the evaluation has to read so much of the object that it does not run on a thread that serves
/// others.
pub(super) fn is_long(test: &dyn Select, entry: &Entry) -> bool {
    /// Stored bytes that are read within about 100 µs.
    const READ_IN_PLACE: usize = 16 << 10;
    entry.json.len() > READ_IN_PLACE && test.extracts(entry)
}
