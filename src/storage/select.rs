//! [`Select`] and [`Predicate`]: filters over entries, and what an evaluation costs.
//!
//! Watches evaluate filters on threads that serve everybody: the thread that dispatches events, and the
//! reactors. The methods about cost let them stop in time, or move the work to the compute pool.

use super::entry::Entry;
use crate::apimachinery::value::Str;
use std::hash::Hasher;
use std::sync::Arc;

/// Steps that a watch may spend per poll: about 200 µs.
pub(crate) const STEPS_PER_POLL: usize = 8192;
/// Steps to visit one object of a snapshot.
pub(crate) const STEPS_PER_OBJECT: usize = 8;

/// A filter over entries. Implemented for any `Fn(&Entry) -> bool`.
pub trait Select: Send + Sync {
    /// True if the entry is selected.
    fn matches(&self, entry: &Entry) -> bool;

    /// As [`matches`](Self::matches), as if the entry had these selectable fields.
    fn matches_with(&self, entry: &Entry, fields: &[(Str, Str)]) -> bool {
        self.matches(&Entry {
            fields: fields.into(),
            ..entry.clone()
        })
    }

    /// If every selected entry must have one particular value of the selectable field, returns that value, so
    /// that an index lookup can replace the scan.
    fn requires(&self, field: &str) -> Option<&str> {
        let _ = field;
        None
    }

    /// False if the result does not depend on fields other than `metadata.name` and `metadata.namespace`.
    fn reads_fields(&self) -> bool {
        true
    }

    /// Number of comparisons of an evaluation, at most.
    fn terms(&self) -> usize {
        1
    }

    /// True if an evaluation has to extract fields from the object's bytes, which takes about a nanosecond
    /// per byte. They are kept with the entry, so that the next evaluation only compares strings.
    fn extracts(&self, entry: &Entry) -> bool {
        let _ = entry;
        false
    }

    /// Extracts those fields now.
    fn prepare(&self, entry: &Entry) {
        let _ = entry;
    }

    /// Writes to the hasher what the filter selects, so that filters which write the same select the same
    /// entries and one can be evaluated in place of the other. False if the filter cannot tell.
    fn identify(&self, hasher: &mut dyn Hasher) -> bool {
        let _ = hasher;
        false
    }
}

impl<F: Fn(&Entry) -> bool + Send + Sync> Select for F {
    fn matches(&self, entry: &Entry) -> bool {
        self(entry)
    }
}

/// The cost of an evaluation in steps of some 20 ns.
pub(crate) fn steps(select: &dyn Select, entry: &Entry) -> usize {
    /// Bytes that are read in the time of a step.
    const BYTES: usize = 16;
    let read = match select.extracts(entry) {
        true => entry.json.len() / BYTES,
        false => 0,
    };
    select.terms() + read
}

/// A filter that several readers of the same entries evaluate.
pub(crate) type SharedSelect = Arc<dyn Select>;

/// An optional filter; `None` selects everything.
#[derive(Clone, Default)]
pub struct Predicate(pub Option<SharedSelect>);

impl Predicate {
    /// True if the entry is selected.
    pub fn matches(&self, e: &Entry) -> bool {
        self.0.as_ref().is_none_or(|f| f.matches(e))
    }

    /// See [`Select::requires`].
    pub fn requires(&self, field: &str) -> Option<&str> {
        self.0.as_ref().and_then(|f| f.requires(field))
    }

    /// True if there is no filter.
    pub fn is_everything(&self) -> bool {
        self.0.is_none()
    }

    /// The cost of [`matches`](Self::matches) in steps of some 20 ns.
    pub(crate) fn steps(&self, e: &Entry) -> usize {
        self.0.as_ref().map_or(0, |f| steps(&**f, e))
    }
}
