//! Keywords that no structural schema can have (upstream's `NewStructural` in
//! `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/convert.go`). The entry point is [`unsupported`];
//! whether the rest of a schema is valid is for `structural` and `keywords`.

use crate::apimachinery::value::Value;
use crate::interrupt::checkpoint;

/// Why upstream cannot convert a schema: the first keyword that it does not support, in its order of
/// evaluation.
pub(super) fn unsupported(s: &Value) -> Option<String> {
    const KEYWORDS: [(&str, &str); 7] = [
        ("id", "id"),
        ("$schema", "schema"),
        ("$ref", "$ref"),
        ("patternProperties", "patternProperties"),
        ("dependencies", "dependencies"),
        ("additionalItems", "additionalItems"),
        ("definitions", "definitions"),
    ];
    s.as_object()?;
    checkpoint();
    // Depth-first in upstream's order, since only the first is reported.
    for (keyword, name) in KEYWORDS {
        let set = match s.get(keyword) {
            // An object or a boolean, even `false`.
            v if keyword == "additionalItems" => !v.is_null(),
            v => !v.is_empty_value(),
        };
        if set {
            return Some(format!("OpenAPIV3Schema '{name}' is not supported"));
        }
    }
    // Junctors before properties, as upstream's `newStructural` converts them.
    for child in std::iter::once(s.get("not")).chain(["allOf", "anyOf", "oneOf"].iter().flat_map(|w| s.get(w).items()))
    {
        if let Some(why) = unsupported(child) {
            return Some(why);
        }
    }
    if s.get("x-kubernetes-preserve-unknown-fields").as_bool() == Some(false) {
        return Some("internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined".to_owned());
    }
    if !s.get("items").items().is_empty() {
        return Some("OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned());
    }
    let properties = s.get("properties").as_object().into_iter().flat_map(|m| m.values());
    // Properties and items last, as in upstream.
    let mut children = std::iter::once(s.get("items"))
        .chain(properties)
        .chain([s.get("additionalProperties")]);
    children.find_map(unsupported)
}
