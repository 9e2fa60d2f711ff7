//! Conversion of a schema to the form published in OpenAPI v3.

use crate::apimachinery::gvk::GroupVersionKind;
use crate::apimachinery::value::Value;
use crate::json;

const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const METADATA: &str = "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// The OpenAPI component of a kind with this schema.
pub(super) fn component(schema: &Value, gvk: &GroupVersionKind) -> Value {
    let mut out = schema.clone();
    publish(&mut out, true);
    out.set(
        &["x-kubernetes-group-version-kind"],
        json!([{"group": gvk.group.as_str(), "kind": gvk.kind.as_str(), "version": gvk.version.as_str()}]),
    );
    out
}

fn publish(schema: &mut Value, root: bool) {
    let Some(m) = schema.as_object_mut() else { return };
    let embedded = m.get("x-kubernetes-embedded-resource").and_then(Value::as_bool) == Some(true);
    if m.get("x-kubernetes-int-or-string").and_then(Value::as_bool) == Some(true) {
        int_or_string(schema);
    }
    for word in ["items", "additionalProperties", "not"] {
        if let Some(below) = schema.at_mut(&[word]) {
            publish(below, false);
        }
    }
    for word in ["allOf", "anyOf", "oneOf"] {
        if let Some(all) = schema.at_mut(&[word]).and_then(Value::as_array_mut) {
            all.iter_mut().for_each(|s| publish(s, false));
        }
    }
    if let Some(properties) = schema.at_mut(&["properties"]).and_then(Value::as_object_mut) {
        properties.iter_mut().for_each(|(_, s)| publish(s, false));
    }
    if root || embedded {
        let reference = json!({"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"});
        schema.set(
            &["properties", "apiVersion"],
            json!({"type": "string", "description": API_VERSION}),
        );
        schema.set(&["properties", "kind"], json!({"type": "string", "description": KIND}));
        let mut metadata = json!({"description": METADATA});
        metadata.set(&["allOf"], vec![reference]);
        schema.set(&["properties", "metadata"], metadata);
    }
    if embedded {
        let mut required = schema.get("required").items().to_vec();
        for name in ["apiVersion", "kind", "metadata"] {
            if !required.iter().any(|r| r.as_str() == Some(name)) {
                required.push(name.into());
            }
        }
        schema.set(&["required"], required);
    }
}

/// Expresses `x-kubernetes-int-or-string` in plain OpenAPI, unless the schema already does.
fn int_or_string(schema: &mut Value) {
    let idiom = json!([{"type": "integer"}, {"type": "string"}]);
    let first = schema.get("allOf").items().first().map(|s| s.get("anyOf").clone());
    if *schema.get("anyOf") == idiom || first.as_ref() == Some(&idiom) {
        return;
    }
    if schema.get("anyOf").is_null() {
        schema.set(&["anyOf"], idiom);
        return;
    }
    let mut all = schema.get("allOf").items().to_vec();
    let mut any = Value::object();
    any.set(&["anyOf"], idiom);
    all.insert(0, any);
    schema.set(&["allOf"], all);
}
