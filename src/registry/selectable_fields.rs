//! [`SelectableFields`]: which fields of a kind field selectors may use.

use crate::apimachinery::codec::json::projection::Mask;
use crate::apimachinery::value::{Str, Value};
use std::sync::Arc;

/// Extracts the selectable fields of an object.
pub(crate) type ExtractFields = Arc<dyn Fn(&Value) -> Vec<(Str, Str)> + Send + Sync>;

/// The fields a field selector may use besides `metadata.name` and, for namespaced kinds,
/// `metadata.namespace`.
#[derive(Clone)]
pub(crate) struct SelectableFields {
    /// The supported field names.
    pub names: Arc<[Str]>,
    /// Extracts their values from an object, one pair per name.
    pub extract: ExtractFields,
    /// `None` if the values are stored with each entry. Otherwise `extract` is called when a selector first
    /// needs those of an entry. That is slower, but follows a change of the fields at once.
    pub unstored: Option<UnstoredFields>,
}

/// How to extract fields that are not stored with the entries.
#[derive(Clone, Debug)]
pub(crate) struct UnstoredFields {
    /// The parts of an object that [`SelectableFields::extract`] reads.
    pub reads: Mask,
    /// Distinguishes what was extracted from an entry by this definition of the fields from what was by
    /// others, such as a former one.
    pub extractor: usize,
}

impl UnstoredFields {
    /// Fields that are extracted from these parts of an object.
    pub(crate) fn new(reads: Mask) -> Self {
        Self {
            reads,
            // Random: a definition that is replaced gets new ids, so nothing extracted by the old one is
            // taken for its own.
            extractor: uuid::Uuid::new_v4().as_u128() as usize,
        }
    }
}
