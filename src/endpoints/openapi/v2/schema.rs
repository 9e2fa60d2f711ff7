//! Schemas of other kinds than the built-in ones, said in the smaller language of Swagger 2.0.

use crate::apimachinery::value::{Map, Value};

const EXTENSION_PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

/// Rewrites an OpenAPI v3 component; as upstream's `controller/openapi/v2/conversion.go` in what is left out: what
/// Swagger has no word for, and what kubectl's validation would take for more than is meant.
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
    if nullable || preserve {
        m.remove("items");
        m.remove("properties");
    }
    let endless = m.str("type") == "array" && !m.contains_key("items");
    if nullable || endless || (preserve && m.str("type") == "object") {
        m.remove("type");
    }
}

/// `allOf` around one reference is how v3 puts words beside it.
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
    fn what_swagger_has_no_word_for_is_left_out() {
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
    fn a_kind_that_takes_everything_says_no_more_than_that() {
        let mut s = json!({
            "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"a": {}},
            "x-kubernetes-group-version-kind": []});
        definition(&mut s);
        let text = crate::apimachinery::codec::json::to_string(&s);
        assert_eq!(text, r#"{"type":"object","x-kubernetes-group-version-kind":[]}"#);
    }
}
