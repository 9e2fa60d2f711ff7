//! Reduces a schema to the keywords of Swagger 2.0 that kubectl's validation supports (upstream's
//! `controller/openapi/v2/conversion.go`).

use super::{PRESERVE, flag};
use crate::apimachinery::value::{Map, Value};

/// Rewrites a schema and all those below it.
pub(super) fn simplify(schema: &mut Value) {
    let Some(m) = schema.as_object_mut() else { return };
    for word in ["allOf", "oneOf", "anyOf", "not", "default"] {
        m.remove(word);
    }
    let preserve = flag(m, PRESERVE);
    // Removed in any case: Swagger 2.0 does not have the keyword.
    let nullable = m.remove("nullable") == Some(Value::Bool(true));
    // Swagger can express neither null nor additional unknown fields: accept anything instead.
    if nullable || preserve {
        m.remove("items");
        m.remove("properties");
    }
    // kubectl would reject an array without items.
    let of_anything = m.str("type") == "array" && !m.contains_key("items");
    if nullable || of_anything || (preserve && m.str("type") == "object") {
        m.remove("type");
    }
    // Before the properties are simplified, which removes their `nullable`.
    drop_nullable_from_required(m);
    if let Some(Value::Object(properties)) = m.get_mut("properties") {
        properties.iter_mut().for_each(|(_, s)| simplify(s));
    }
    for word in ["items", "additionalProperties"] {
        if let Some(below) = m.get_mut(word) {
            simplify(below);
        }
    }
}

fn drop_nullable_from_required(m: &mut Map) {
    let nullable = |s: &Value| s.get("nullable").as_bool() == Some(true);
    // Upstream treats a nullable map value like a nullable property.
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
    // An empty list is invalid in Swagger.
    if kept.is_empty() {
        m.remove("required");
    } else {
        m.insert("required", kept);
    }
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
            "properties": {
                "a": {"type": "string", "nullable": true},
                "b": {"type": "integer", "default": 1, "minimum": 0, "not": {"type": "string"}},
                "any": {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true},
                "free": {"type": "object", PRESERVE: true, "required": ["x"], "properties": {"x": {"nullable": true}}},
                "list": {"type": "array"}}});
        simplify(&mut s);
        let expected = json!({
            "type": "object",
            "required": ["b"],
            "properties": {
                "a": {},
                "b": {"type": "integer", "minimum": 0},
                "any": {"x-kubernetes-int-or-string": true},
                "free": {PRESERVE: true, "required": ["x"]},
                "list": {}}});
        assert_eq!(s, expected);
    }
}
