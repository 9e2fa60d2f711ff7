//! PartialObjectMetadata: an object reduced to its metadata.

use super::encoded;
use crate::api::protobuf::{definition, encode_message};
use crate::apimachinery::codec::json::projection::Mask;
use crate::apimachinery::value::{Map, Value};
use crate::registry::Resource;
use crate::storage::{Budget, Entry};
use bytes::Bytes;
use std::sync::Arc;

/// The protobuf message of an entry's metadata, without its envelope.
pub(crate) fn message(resource: &Resource, entry: &Entry, version: &str, budget: Option<&Arc<Budget>>) -> Bytes {
    encoded::metadata(entry, budget, || {
        let mut out = Vec::with_capacity(512);
        if let Some(def) = definition("meta.k8s.io/v1", "PartialObjectMetadata") {
            encode_message(def, &of_entry(resource, entry, version), &mut out);
        }
        out.into()
    })
}

/// Reduces an object to PartialObjectMetadata of this `meta.k8s.io` version. Upstream builds it from its
/// internal type, in which some annotations are fields, so these annotations are missing.
pub(crate) fn of(resource: &Resource, object: &Value, version: &str) -> Value {
    let mut m = Map::new();
    m.insert("kind", "PartialObjectMetadata");
    m.insert("apiVersion", format!("meta.k8s.io/{version}"));
    let mut metadata = object.get("metadata").clone();
    let fields = resource.strategy.rules().wire_annotations;
    if !fields.is_empty()
        && let Some(all) = metadata.at_mut(&["annotations"]).and_then(Value::as_object_mut)
    {
        // Also drops the map when nothing is left: Go omits an empty one.
        all.retain(|key, _| !fields.contains(&key));
        if all.is_empty() {
            metadata.unset(&["annotations"]);
        }
    }
    m.insert("metadata", metadata);
    Value::Object(m)
}

/// The metadata of a stored object as a tree; see [`of`].
pub(crate) fn of_entry(resource: &Resource, entry: &Entry, version: &str) -> Value {
    of(resource, &entry.decode_parts(&Mask::of(&["metadata"])), version)
}
