//! Serves a kind in several versions over one storage.
//!
//! A stored object may be in any version that was once the storage version. [`ConvertingStorage`] implements
//! the storage interface for one served version on top of the storage of the kind; [`KindVersions`] describes
//! the kind: its versions, which of them is stored, and the [`Conversion`] between them. Keys, revisions and
//! preconditions pass through.
//!
//! ```text
//! read:   stored bytes ─ in the served version and shape? ─────────────────► served as they are
//!                      └ decode ─ Shape::read ─ Conversion ─ Shape::converted ─► an entry, cached
//! write:  served object ─ Conversion to the storage version ─ Shape::converted ─► stored ─► read as above
//! ```
//!
//! A conversion is computed here or by a webhook ([`Converting`]); a list converts all objects that need it
//! in one call. [`Pair`] and [`ThroughHub`] are for built-in kinds with two versions, whose strategy belongs
//! to the stored one: autoscaling/v1 over v2, and events.k8s.io over core Events.

mod flights;
mod pair;
mod reader;
mod selection;
mod storage;
mod strategy;
#[cfg(test)]
mod tests;
mod watch;

pub(crate) use pair::{Pair, PairConversion};
pub(crate) use storage::ConvertingStorage;
pub(crate) use strategy::ThroughHub;

use super::selectable_fields::SelectableFields;
use crate::apimachinery::value::{Str, Value};
use futures_util::future::BoxFuture;
use std::sync::Arc;

/// Converts objects of one kind between its versions.
pub(crate) trait Conversion: Send + Sync + 'static {
    /// Starts to convert `objects` to version `to`. They may be of different versions, none of which is `to`.
    /// The result has as many objects in the same order. Called on the compute pool if the objects are large.
    fn convert(&self, objects: Vec<Value>, to: &KindVersion) -> Converting;

    /// True if no conversion changes labels, so that label selectors can be evaluated on stored objects.
    fn keeps_labels(&self) -> bool {
        true
    }

    /// True if conversions wait for another process, such as a webhook. Concurrent readers of an object then
    /// share one call.
    fn asks_others(&self) -> bool {
        false
    }

    /// True if conversions change nothing but `apiVersion`.
    fn changes_only_version(&self) -> bool {
        false
    }

    /// If storage extracts the selectable fields of the stored version: maps their names to those of the
    /// served one, `None` for fields it does not have. Otherwise fields are extracted from each object after
    /// its conversion.
    fn stored_fields(&self) -> Option<RenameField> {
        None
    }
}

/// Maps the name of a stored field to that of a served one.
pub(crate) type RenameField = fn(&str) -> Option<&str>;

/// The result of a conversion, now or later.
pub(crate) enum Converting {
    /// Computed.
    Done(Result<Vec<Value>, NotConverted>),
    /// Waits for another process, such as a webhook. Dropping the future cancels the conversion. The future
    /// must have a deadline of its own, because a watch has none.
    Pending(BoxFuture<'static, Result<Vec<Value>, NotConverted>>),
}

/// Why objects were not converted. The client receives the message as a 500 without reason, as upstream's
/// clients do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotConverted(pub String);

/// Normalisation of objects in one version. As upstream, an object gets the defaults of the version it is
/// stored in.
pub(crate) trait Shape: Send + Sync + 'static {
    /// Brings a stored object of this version into shape: removes unknown fields and sets defaults.
    /// Idempotent.
    fn read(&self, object: &mut Value);

    /// Brings the result of a conversion to this version into shape: removes unknown fields.
    fn converted(&self, object: &mut Value);

    /// Identifies the behaviour of the methods, for example by a hash of the schema: equal fingerprints
    /// promise equal results. Stored bytes that [`read`](Self::read) does not change are marked with it, and
    /// then served without reading them again. 0 disables that.
    fn fingerprint(&self) -> u64;
}

/// One version of a kind.
#[derive(Clone)]
pub(crate) struct KindVersion {
    /// `group/version`, or `v1` for core kinds.
    pub api_version: Str,
    /// The shape of its objects; `None` if conversions already return it.
    pub shape: Option<Arc<dyn Shape>>,
    /// The version's selectable fields.
    pub fields: Option<SelectableFields>,
}

pub(crate) struct KindVersions {
    /// All versions, served or not: stored objects may be in any of them.
    pub versions: Vec<KindVersion>,
    /// Index of the version in which objects are written.
    pub stored: usize,
    /// The conversion between them.
    pub conversion: Arc<dyn Conversion>,
}

impl KindVersions {
    /// The index of a version.
    pub(crate) fn index_of(&self, api_version: &str) -> Option<usize> {
        self.versions.iter().position(|v| v.api_version == api_version)
    }
}
