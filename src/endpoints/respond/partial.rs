//! PartialObjectMetadata: an object's metadata and nothing else.

use crate::apimachinery::value::{Map, Value};

/// The metadata of an object, as kind PartialObjectMetadata of this version of `meta.k8s.io`.
pub fn of(object: &Value, version: &str) -> Value {
    let mut m = Map::new();
    m.insert("kind", "PartialObjectMetadata");
    m.insert("apiVersion", format!("meta.k8s.io/{version}"));
    m.insert("metadata", object.get("metadata").clone());
    Value::Object(m)
}
