//! The schema of a version as the [`Shape`] of its objects: defaulting, pruning and repair of stored metadata.

use crate::api::{self, decode};
use crate::apimachinery::value::{Map, Value};
use crate::registry::Schema as _;
use crate::registry::converting::Shape;
use crate::schema::KindSchema;
use std::sync::Arc;

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

pub(super) struct SchemaShape {
    schema: Arc<KindSchema>,
    fingerprint: u64,
}

impl SchemaShape {
    pub(crate) fn new(schema: Arc<KindSchema>) -> Self {
        Self {
            // 0 would mean that nothing is to be remembered.
            fingerprint: schema.fingerprint().max(1),
            schema,
        }
    }
}

impl Shape for SchemaShape {
    fn read(&self, object: &mut Value) {
        // Also on objects in their stored version: the schema may have changed since.
        self.converted(object);
        // Very old objects have no generation.
        if matches!(object.at(&["metadata", "generation"]), Value::Null | Value::Int(0)) {
            object.set(&["metadata", "generation"], 1i64);
        }
        // After repair: defaults may depend on members that had the wrong type.
        self.schema.structural().default(object);
    }

    fn converted(&self, object: &mut Value) {
        if self.schema.normalize(object).is_err() {
            // Only metadata can be of the wrong type here. As upstream, stored objects lose what is, instead
            // of being unreadable.
            repair_metadata(object);
            // The remaining fields are well-typed.
            let _ = self.schema.normalize(object);
        }
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

/// Removes the members of `metadata` that are of the wrong type.
fn repair_metadata(object: &mut Value) {
    let def = api::by_name(OBJECT_META).expect("the schema table has ObjectMeta");
    let Some(Value::Object(metadata)) = object.as_object_mut().and_then(|m| m.get_mut("metadata")) else {
        object.set(&["metadata"], Value::object());
        return;
    };
    // Each member is checked on its own, so that one bad value does not cost the others.
    metadata.retain(|key, value| {
        let mut alone = Map::default();
        alone.insert(key, value.clone());
        decode::normalize_under("metadata", def, &mut Value::Object(alone)).is_ok()
    });
}
