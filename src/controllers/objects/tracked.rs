//! [`Tracked`]: the metadata that the garbage collector and the quota loop keep of every object of the cluster,
//! hence as little as possible.

use crate::apimachinery::codec::json::projection::Mask;
use crate::apimachinery::object::ObjectView as _;
use crate::apimachinery::value::{Str, Value};
use crate::json;
use crate::storage::{Entry, Revision};
use std::sync::{Arc, LazyLock};

/// The finalizer of an object that waits for its dependents to be deleted.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an object whose dependents are to lose their reference to it.
pub(crate) const ORPHAN: &str = "orphan";

// Shared, since informers, graph and queues hold the same UID many times.
pub(crate) type Uid = Arc<str>;

/// The informers' record of an object of any kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tracked {
    pub uid: Uid,
    pub revision: Revision,
    // Not a `Vec`, whose capacity would cost a word for every object of the cluster.
    pub owners: Box<[OwnerReference]>,
    /// Has a deletion timestamp.
    pub deleting: bool,
    /// Has the finalizer [`ORPHAN`].
    pub orphans: bool,
    /// Has the finalizer [`FOREGROUND`].
    pub foreground: bool,
}

/// An element of `metadata.ownerReferences`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OwnerReference {
    pub uid: Uid,
    pub api_version: Str,
    pub kind: Str,
    pub name: Str,
    pub controller: Option<bool>,
    pub blocks: Option<bool>,
}

static PARTS: LazyLock<Mask> =
    LazyLock::new(|| Mask::of(&["metadata.{uid,ownerReferences,finalizers,deletionTimestamp}"]));

impl OwnerReference {
    fn from_value(reference: &Value) -> Self {
        Self {
            uid: reference.str_at(&["uid"]).into(),
            api_version: reference.str_at(&["apiVersion"]).into(),
            kind: reference.str_at(&["kind"]).into(),
            name: reference.str_at(&["name"]).into(),
            controller: reference.get("controller").as_bool(),
            blocks: reference.get("blockOwnerDeletion").as_bool(),
        }
    }

    pub(crate) fn to_value(&self) -> Value {
        let mut v = json!({"apiVersion": (self.api_version.as_str()), "kind": (self.kind.as_str()),
            "name": (self.name.as_str()), "uid": (&*self.uid)});
        for (key, flag) in [("controller", self.controller), ("blockOwnerDeletion", self.blocks)] {
            if let Some(flag) = flag {
                v.set(&[key], flag);
            }
        }
        v
    }

    /// Whether the owner's foreground deletion waits for the object.
    pub(crate) fn is_blocking(&self) -> bool {
        self.blocks == Some(true)
    }

    /// The group of the owner's kind.
    pub(crate) fn group(&self) -> &str {
        // Versions are ignored: a reference holds, in whichever version its kind is served.
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }
}

impl Tracked {
    pub(crate) fn from_entry(entry: &Entry) -> Self {
        Self::from_value(&entry.decode_parts(&PARTS), entry.revision)
    }

    pub(crate) fn from_value(object: &Value, revision: Revision) -> Self {
        // Reduced to two flags: other finalizers belong to other controllers.
        let finalizers = object.finalizers();
        let owners = object.at(&["metadata", "ownerReferences"]).items().iter();
        Self {
            uid: object.uid().into(),
            revision,
            owners: owners.map(OwnerReference::from_value).collect(),
            deleting: object.is_being_deleted(),
            orphans: finalizers.contains(&ORPHAN),
            foreground: finalizers.contains(&FOREGROUND),
        }
    }

    /// Being deleted, after its dependents.
    pub(crate) fn waits_for_dependents(&self) -> bool {
        self.deleting && self.foreground
    }

    /// Being deleted, after its dependents have lost their references.
    pub(crate) fn waits_for_orphans(&self) -> bool {
        self.deleting && self.orphans
    }

    /// Whether the graph needs a node for the object.
    pub(crate) fn is_node(&self) -> bool {
        !self.owners.is_empty() || self.waits_for_dependents() || self.waits_for_orphans()
    }
}
