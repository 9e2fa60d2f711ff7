//! PartialObjectMetadata: an object's metadata and nothing else.

use crate::apimachinery::value::{Map, Value};
use crate::registry::Resource;

/// The metadata of an object, as kind PartialObjectMetadata of this version of `meta.k8s.io`. Upstream makes it from its
/// internal object, where annotations that stand for fields are fields (`recordings/verbs-read/daemonsets`).
pub fn of(resource: &Resource, object: &Value, version: &str) -> Value {
    let mut m = Map::new();
    m.insert("kind", "PartialObjectMetadata");
    m.insert("apiVersion", format!("meta.k8s.io/{version}"));
    let mut metadata = object.get("metadata").clone();
    let fields = resource.strategy.wire_annotations();
    if !fields.is_empty()
        && let Some(all) = metadata.at_mut(&["annotations"]).and_then(Value::as_object_mut)
    {
        all.retain(|key, _| !fields.contains(&key));
        if all.is_empty() {
            metadata.unset(&["annotations"]);
        }
    }
    m.insert("metadata", metadata);
    Value::Object(m)
}
