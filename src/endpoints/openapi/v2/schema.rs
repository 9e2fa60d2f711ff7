//! Converts OpenAPI v3 schemas of custom kinds to the smaller vocabulary of Swagger 2.0.
//!
//! Entry point: [`definition`].

use crate::apimachinery::value::{Map, Value};

const EXTENSION_PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

/// Rewrites an OpenAPI v3 component. Like upstream's `controller/openapi/v2/conversion.go`, drops what Swagger cannot
/// express and what kubectl's validation would interpret too strictly.
pub fn definition(component: &mut Value) {
    if component.get(EXTENSION_PRESERVE).as_bool() == Some(true) {
        let kind = component.get("x-kubernetes-group-version-kind").clone();
        *component = crate::json!({"type": "object"});
        component.set(&["x-kubernetes-group-version-kind"], kind);
        return;
    }
    rewrite(component);
}

fn rewrite(schema: &mut Value) {
    let Some(m) = schema.as_object_mut() else { return };
    unwrap_reference(m);
    for word in ["allOf", "oneOf", "anyOf", "not", "default"] {
        m.remove(word);
    }
    drop_nullable_from_required(m);
    if let Some(Value::Object(properties)) = m.get_mut("properties") {
        properties.iter_mut().for_each(|(_, s)| rewrite(s));
    }
    for word in ["items", "additionalProperties"] {
        if let Some(below) = m.get_mut(word) {
            rewrite(below);
        }
    }
    let preserve = is(m, EXTENSION_PRESERVE);
    let nullable = m.remove("nullable") == Some(Value::Bool(true));
    // Swagger can express neither null nor additional unknown fields: accept anything instead.
    if nullable || preserve {
        m.remove("items");
        m.remove("properties");
    }
    let endless = m.str("type") == "array" && !m.contains_key("items");
    if nullable || endless || (preserve && m.str("type") == "object") {
        m.remove("type");
    }
}

/// In v3, `allOf` around a single reference serves to add a description to it; v2 allows both side by side.
fn unwrap_reference(m: &mut Map) {
    let wrapped = match m.get("allOf").map(Value::items) {
        Some([one]) => one.get("$ref").as_str(),
        _ => None,
    };
    if let Some(reference) = wrapped.or_else(|| m.get("$ref").and_then(Value::as_str)) {
        let name = reference.rsplit('/').next().unwrap_or(reference);
        let reference = format!("#/definitions/{name}");
        m.insert("$ref", reference);
    }
}

fn drop_nullable_from_required(m: &mut Map) {
    let nullable = |s: &Value| s.get("nullable").as_bool() == Some(true);
    if m.get("additionalProperties").is_some_and(nullable) {
        m.remove("required");
    }
    let Some(Value::Array(required)) = m.get("required") else {
        return;
    };
    let property = |name: &Value| m.get("properties")?.as_object()?.get(name.as_str()?);
    let kept: Vec<Value> = required
        .iter()
        .filter(|name| !property(name).is_some_and(nullable))
        .cloned()
        .collect();
    if kept.is_empty() {
        m.remove("required");
    } else {
        m.insert("required", kept);
    }
}

fn is(m: &Map, word: &str) -> bool {
    m.get(word).and_then(Value::as_bool) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn inexpressible_keywords_are_dropped() {
        let mut s = json!({
            "type": "object",
            "required": ["a", "b"],
            "x-kubernetes-group-version-kind": [{"group": "g", "kind": "K", "version": "v1"}],
            "properties": {
                "metadata": {"description": "m", "allOf": [{"$ref": "#/components/schemas/Meta"}]},
                "a": {"type": "string", "nullable": true},
                "b": {"type": "integer", "default": 1, "minimum": 0, "not": {"type": "string"}},
                "any": {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"x": {}}},
                "list": {"type": "array"}}});
        definition(&mut s);
        let expected = json!({
            "type": "object",
            "required": ["b"],
            "x-kubernetes-group-version-kind": [{"group": "g", "kind": "K", "version": "v1"}],
            "properties": {
                "metadata": {"description": "m", "$ref": "#/definitions/Meta"},
                "a": {},
                "b": {"type": "integer", "minimum": 0},
                "any": {"x-kubernetes-int-or-string": true},
                "free": {"x-kubernetes-preserve-unknown-fields": true},
                "list": {}}});
        assert_eq!(
            crate::apimachinery::codec::json::to_string(&s),
            crate::apimachinery::codec::json::to_string(&expected)
        );
    }

    #[test]
    fn preserve_unknown_fields_reduces_the_schema_to_an_object() {
        let mut s = json!({
            "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"a": {}},
            "x-kubernetes-group-version-kind": []});
        definition(&mut s);
        let text = crate::apimachinery::codec::json::to_string(&s);
        assert_eq!(text, r#"{"type":"object","x-kubernetes-group-version-kind":[]}"#);
    }
}
