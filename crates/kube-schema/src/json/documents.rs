//! The order of members in documents that have no OpenAPI definition.

use super::Shape::{self, Document, Listed, Sorted};

/// The members of an object, in the order of Go's struct. For an array, those of its elements.
#[derive(Debug)]
pub struct Layout {
    pub(super) members: &'static [(&'static str, Shape)],
}

macro_rules! layout {
    ($($name:literal $(: $shape:expr)?),* $(,)?) => {
        Layout { members: &[$(($name, layout!(@ $($shape)?))),*] }
    };
    (@) => { Sorted };
    (@ $shape:expr) => { $shape };
}

static LIST_META: Layout = layout![
    "selfLink",
    "resourceVersion",
    // As in Go's `ListMeta`, which is not alphabetical.
    "continue",
    "remainingItemCount",
    "shardInfo"
];

static COLUMN: Layout = layout!["name", "type", "format", "description", "priority"];

pub(super) static CONDITION: Layout = layout!["type", "status", "reason", "message"];

pub(super) static ROW: Layout = layout!["cells", "conditions": Listed(&CONDITION), "object": Document];

/// `meta.k8s.io` Table.
pub(super) static TABLE: Layout = layout![
    "kind",
    "apiVersion",
    "metadata": Listed(&LIST_META),
    "columnDefinitions": Listed(&COLUMN),
    "rows": Listed(&ROW),
];
