//! Table columns of the built-in kinds (`kubectl get`): headings and cells, following upstream's
//! `pkg/printers/internalversion/printers.go`.
//!
//! Start at [`table`]. Each submodule has one function per kind that returns its [`Columns`]; building the
//! `Table` response is left to `endpoints::respond::table`.

pub(super) mod autoscaling;
pub(super) mod cells;
pub(super) mod core;
pub(super) mod devices;
pub(super) mod network;
pub(super) mod others;
pub(super) mod pods;
pub(super) mod storage;
pub(super) mod text;
pub(super) mod words;
pub(super) mod workloads;

use crate::apimachinery::codec::json::projection::Mask;
use crate::apimachinery::value::{Str, Value};
use crate::registry::resource::{Column, Columns};
use std::sync::Arc;

/// A heading: name, type, priority, description.
pub(super) type Heading = (&'static str, &'static str, i64, &'static str);

/// Builds the columns of one kind. `reads` lists the fields the cells use, besides the name and the creation
/// time, so that only these have to be decoded. The columns `Name` and `Attacher` get the format `name`, as
/// upstream.
pub(super) fn table(headings: &[Heading], reads: &[&str], cells: fn(&Value) -> Vec<Value>) -> Columns {
    let columns: Vec<Column> = headings
        .iter()
        .map(|(name, kind, priority, description)| Column {
            name: Str::const_new(name),
            kind: Str::const_new(kind),
            // The format `name` tells clients which column identifies the object.
            format: match *name {
                "Name" | "Attacher" => Str::const_new("name"),
                _ => Str::default(),
            },
            description: Str::const_new(description),
            priority: *priority,
        })
        .collect();
    Columns {
        columns: columns.into(),
        // Stored objects are decoded only as far as this mask: a field that it lacks reads as absent.
        reads: Mask::of(&[&["metadata.{name,creationTimestamp}"], reads].concat()),
        cells: Arc::new(cells),
        always_headed: false,
        conditions: |_| Value::Null,
    }
}
