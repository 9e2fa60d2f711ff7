//! [`Namespace`]: the fields of a namespace that the loops react to. One informer of them is shared by all loops
//! of a term ([`Term`](super::term::Term)).

use crate::apimachinery::codec::json::projection::Mask;
use crate::apimachinery::object::ObjectView as _;
use crate::apimachinery::value::Str;
use crate::storage::Entry;
use std::sync::LazyLock;

/// The informers' record of a Namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Namespace {
    pub name: Str,
    /// The phase is `Active`.
    pub active: bool,
    pub deleting: bool,
}

static PARTS: LazyLock<Mask> =
    LazyLock::new(|| Mask::of(&["metadata.name", "metadata.deletionTimestamp", "status.phase"]));

impl Namespace {
    pub(crate) fn from_entry(entry: &Entry) -> Self {
        let parts = entry.decode_parts(&PARTS);
        Self {
            name: entry.name().into(),
            active: parts.str_at(&["status", "phase"]) == "Active",
            deleting: parts.is_being_deleted(),
        }
    }
}
