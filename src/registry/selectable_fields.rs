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
    /// `None` if the values are stored with each entry. Otherwise `extract` is called whenever a selector
    /// needs them, with the parts of the object that the mask selects. That is slower, but follows a change
    /// of the fields at once.
    pub reads: Option<Mask>,
}
