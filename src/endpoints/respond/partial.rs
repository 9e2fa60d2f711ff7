//! PartialObjectMetadata: an object's metadata and nothing else.

use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::{Map, Value};

/// Annotations that upstream's internal objects hold as fields: they are not there where metadata is taken from the
/// internal object (`recordings/verbs-read/daemonsets.apps-v1`).
const FIELDS: &[(&str, &str, &str)] = &[
    ("apps/v1", "DaemonSet", "deprecated.daemonset.template.generation"),
    ("apps/v1", "Deployment", "deprecated.deployment.rollback.to"),
];

/// The metadata of an object, as kind PartialObjectMetadata of this version of `meta.k8s.io`.
pub fn of(object: &Value, version: &str) -> Value {
    let mut m = Map::new();
    m.insert("kind", "PartialObjectMetadata");
    m.insert("apiVersion", format!("meta.k8s.io/{version}"));
    m.insert("metadata", object.get("metadata").clone());
    let mut out = Value::Object(m);
    for (api_version, kind, key) in FIELDS {
        if object.kind() == *kind && object.api_version() == *api_version {
            out.unset(&["metadata", "annotations", key]);
            if out.at(&["metadata", "annotations"]).is_empty_value() {
                out.unset(&["metadata", "annotations"]);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn an_annotation_that_is_a_field_is_not_metadata() {
        let of_kind = |kind: &str| {
            let mut v = json!({"apiVersion": "apps/v1", "kind": kind});
            v.set(&["metadata", "annotations", FIELDS[0].2], "1");
            of(&v, "v1").at(&["metadata"]).clone()
        };
        assert_eq!(of_kind("DaemonSet"), json!({}));
        assert_eq!(of_kind("ReplicaSet").at(&["annotations", FIELDS[0].2]), &"1".into());
    }
}
