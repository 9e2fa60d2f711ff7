//! Conversion of a schema to the form published in OpenAPI (upstream's
//! `k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder`).
//!
//! Entry point: [`component`].

mod v2;

use crate::api::openapi::{API_VERSION, Dialect, KIND};
use crate::apimachinery::gvk::GroupVersionKind;
use crate::apimachinery::value::{Map, Value};
use crate::json;

const METADATA: &str = "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
const EMBEDDED_API_VERSION: &str = "apiVersion defines the versioned schema of this representation of an object. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const EMBEDDED_KIND: &str = "kind is a string value representing the type of this object. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";

const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

/// Keywords that Go leaves out if they are false.
const FLAGS: [&str; 7] = [
    EMBEDDED,
    INT_OR_STRING,
    PRESERVE,
    "exclusiveMaximum",
    "exclusiveMinimum",
    "nullable",
    "uniqueItems",
];

/// The OpenAPI component of a kind with this schema, which is null for a kind without one.
pub(super) fn component(schema: Value, gvk: &GroupVersionKind, dialect: Dialect) -> Value {
    let v2 = dialect == Dialect::V2;
    // v2 cannot express an object with unknown fields beside declared ones.
    let open = schema.as_object().is_none_or(|m| v2 && flag(m, PRESERVE));
    // With any declared property, kubectl would take all others for unknown.
    let mut out = if open { json!({"type": "object"}) } else { schema };
    if !open {
        // Before simplification, which removes what this adds in v2.
        unfold(&mut out);
        if v2 {
            v2::simplify(&mut out);
        }
        // The root gets its own metadata, whatever the schema declares there.
        set_type_meta(&mut out, API_VERSION, KIND, dialect);
        // After the root: embedded resources are below it.
        below(&mut out, &mut |s| embed(s, dialect));
    }
    out.set(
        &["x-kubernetes-group-version-kind"],
        json!([{"group": gvk.group.as_str(), "kind": gvk.kind.as_str(), "version": gvk.version.as_str()}]),
    );
    out
}

fn flag(m: &Map, word: &str) -> bool {
    m.get(word).and_then(Value::as_bool) == Some(true)
}

/// Calls `f` for every schema below this one, innermost first, without those of `allOf` and the like.
fn below(schema: &mut Value, f: &mut dyn FnMut(&mut Value)) {
    let Some(m) = schema.as_object_mut() else { return };
    // Innermost first, so that a schema is complete when its parent is examined.
    if let Some(Value::Object(properties)) = m.get_mut("properties") {
        for (_, property) in properties.iter_mut() {
            below(property, f);
            f(property);
        }
    }
    for word in ["items", "additionalProperties"] {
        if let Some(schema) = m.get_mut(word) {
            below(schema, f);
            f(schema);
        }
    }
}

/// Removes fields that Go omits, and expands `x-kubernetes-int-or-string`.
fn unfold(schema: &mut Value) {
    let mut one = |schema: &mut Value| {
        let Some(m) = schema.as_object_mut() else { return };
        // Go's `omitempty` drops false flags, but keeps true ones.
        m.retain(|key, v| !(FLAGS.contains(&key) && v.as_bool() == Some(false)));
        if flag(m, INT_OR_STRING) {
            int_or_string(schema);
        }
    };
    below(schema, &mut one);
    one(schema);
}

fn set_type_meta(schema: &mut Value, api_version: &str, kind: &str, dialect: Dialect) {
    for (name, description) in [("apiVersion", api_version), ("kind", kind)] {
        schema.set(
            &["properties", name],
            json!({"type": "string", "description": description}),
        );
    }
    let of = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    let metadata = match dialect {
        Dialect::V2 => json!({"description": METADATA, "$ref": (format!("#/definitions/{of}"))}),
        Dialect::V3 => json!({"description": METADATA, "allOf": [{"$ref": (format!("#/components/schemas/{of}"))}]}),
    };
    schema.set(&["properties", "metadata"], metadata);
}

/// Adds the fields of every embedded resource.
fn embed(schema: &mut Value, dialect: Dialect) {
    let Some(m) = schema.as_object() else { return };
    // In v2, properties would make kubectl refuse unknown fields.
    if !flag(m, EMBEDDED) || (dialect == Dialect::V2 && flag(m, PRESERVE)) {
        return;
    }
    set_type_meta(schema, EMBEDDED_API_VERSION, EMBEDDED_KIND, dialect);
    // Order of the declared names is kept; missing ones are appended in upstream's order.
    let mut required = schema.get("required").items().to_vec();
    for name in ["kind", "apiVersion"] {
        if !required.iter().any(|r| r.as_str() == Some(name)) {
            required.push(name.into());
        }
    }
    schema.set(&["required"], required);
}

/// Expresses `x-kubernetes-int-or-string` in plain OpenAPI, unless the schema already does.
fn int_or_string(schema: &mut Value) {
    let idiom = json!([{"type": "integer"}, {"type": "string"}]);
    // The schema may spell out the idiom itself, in either of two places.
    let first = schema.get("allOf").items().first().map(|s| s.get("anyOf").clone());
    if *schema.get("anyOf") == idiom || first.as_ref() == Some(&idiom) {
        return;
    }
    if schema.get("anyOf").is_null() {
        schema.set(&["anyOf"], idiom);
        return;
    }
    // The schema has an `anyOf` of its own, so the idiom goes into `allOf`, in front.
    let mut all = schema.get("allOf").items().to_vec();
    let mut any = Value::object();
    any.set(&["anyOf"], idiom);
    all.insert(0, any);
    schema.set(&["allOf"], all);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published(schema: &Value, dialect: Dialect) -> Value {
        component(schema.clone(), &GroupVersionKind::new("g", "v1", "K"), dialect)
    }

    #[test]
    fn kinds_without_a_schema_are_plain_objects() {
        let bare = json!({"type": "object",
            "x-kubernetes-group-version-kind": [{"group": "g", "kind": "K", "version": "v1"}]});
        assert_eq!(published(&Value::Null, Dialect::V3), bare);
        assert_eq!(published(&Value::Null, Dialect::V2), bare);
        let open = json!({"type": "object", PRESERVE: true});
        assert_eq!(published(&open, Dialect::V2), bare);
        let v3 = published(&open, Dialect::V3);
        assert_eq!(v3.get(PRESERVE), &Value::Bool(true));
        assert!(!v3.at(&["properties", "metadata", "allOf"]).is_null());
    }

    #[test]
    fn embedded_resources_get_their_type() {
        let schema = json!({"type": "object", "properties": {
            "template": {"type": "object", EMBEDDED: true, "required": ["apiVersion"], "nullable": false},
            "free": {"type": "object", EMBEDDED: true, PRESERVE: true}}});
        for dialect in [Dialect::V2, Dialect::V3] {
            let out = published(&schema, dialect);
            let template = out.at(&["properties", "template"]);
            assert_eq!(template.get("required"), &json!(["apiVersion", "kind"]));
            assert_eq!(
                template.at(&["properties", "kind", "description"]).as_str(),
                Some(EMBEDDED_KIND)
            );
            assert!(template.get("nullable").is_null());
            let open = out.at(&["properties", "free", "properties"]);
            assert_eq!(open.is_null(), dialect == Dialect::V2);
        }
    }

    #[test]
    fn int_or_string_is_spelled_out_once() {
        let idiom = json!([{"type": "integer"}, {"type": "string"}]);
        let one = |extra: Value| {
            let mut schema = json!({INT_OR_STRING: true});
            extra
                .as_object()
                .into_iter()
                .flat_map(Map::iter)
                .for_each(|(k, v)| schema.set(&[k], v.clone()));
            let mut root = json!({"type": "object"});
            root.set(&["properties", "x"], schema);
            published(&root, Dialect::V3).at(&["properties", "x"]).clone()
        };
        assert_eq!(one(json!({})).get("anyOf"), &idiom);
        let mut given = Value::object();
        given.set(&["anyOf"], idiom.clone());
        assert!(one(given).get("allOf").is_null());
        let other = one(json!({"anyOf": [{"minimum": 1}]}));
        assert_eq!(other.get("allOf").items()[0].get("anyOf"), &idiom);
        assert_eq!(other.get("anyOf"), &json!([{"minimum": 1}]));
    }
}
