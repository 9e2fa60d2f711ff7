//! Fields of custom resources that field selectors may name, as a version of a CustomResourceDefinition
//! declares them.
//!
//! Entry point: [`of_version`].

use crate::apimachinery::codec::json::projection::Mask;
use crate::apimachinery::jsonpath::JsonPath;
use crate::apimachinery::patch::go_print;
use crate::apimachinery::value::{Str, Value};
use crate::registry::selectable_fields::SelectableFields;
use crate::schema::StructuralSchema;
use std::sync::Arc;

/// The selectable fields of an element of `spec.versions`. `schema` is that version's, whose defaults
/// selectors see even in objects that were stored without them.
pub(crate) fn of_version(version: &Value, schema: Option<Arc<StructuralSchema>>) -> SelectableFields {
    let declared = version.get("selectableFields").items().iter();
    let mut reads = Mask::default();
    let fields: Vec<(Str, JsonPath)> = declared
        .filter_map(|field| {
            let path = field.str_at(&["jsonPath"]);
            // Validation accepts only paths of fields.
            let parsed = JsonPath::parse(path).ok()?;
            parsed.add_reads(&mut reads);
            Some((Str::new(path.strip_prefix('.').unwrap_or(path)), parsed))
        })
        .collect();
    let names = fields.iter().map(|(name, _)| name.clone()).collect();
    let extract = move |object: &Value| {
        let mut values: Vec<_> = fields
            .iter()
            .map(|(name, path)| (name.clone(), value(path, object)))
            .collect();
        if let (Some(schema), true) = (&schema, values.iter().any(|(_, v)| v.is_empty())) {
            let mut object = object.clone();
            schema.default(&mut object);
            for ((_, path), (_, found)) in fields.iter().zip(&mut values) {
                *found = value(path, &object);
            }
        }
        values
    };
    SelectableFields {
        names,
        extract: Arc::new(extract),
        reads: Some(reads),
    }
}

/// The text that selectors compare; empty for null and for absent fields.
fn value(path: &JsonPath, object: &Value) -> Str {
    let found = path.first(object).ok().flatten().and_then(|found| found.value());
    match found {
        None | Some(Value::Null) => Str::default(),
        Some(Value::String(text)) => text.clone(),
        Some(v) => Str::from(go_print(v)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn values_are_texts_and_defaults_are_visible() {
        let version = json!({"selectableFields": [
            {"jsonPath": ".spec.color"}, {"jsonPath": ".spec.on"}, {"jsonPath": ".spec.n"}, {"jsonPath": ".spec.size"}]});
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "default": {}, "properties": {
            "color": {"type": "string"}, "on": {"type": "boolean"}, "n": {"type": "integer"},
            "size": {"type": "string", "default": "small"}}}}});
        let schema = Arc::new(StructuralSchema::parse(&schema).expect("a structural schema"));
        let fields = of_version(&version, Some(schema));
        let names: Vec<&str> = fields.names.iter().map(|n| n.as_str()).collect();
        assert_eq!(names, ["spec.color", "spec.on", "spec.n", "spec.size"]);
        assert_eq!(fields.reads, Some(Mask::of(&["spec.{color,on,n,size}"])));
        let values = |object: Value| -> Vec<String> {
            (fields.extract)(&object)
                .into_iter()
                .map(|(_, v)| v.to_string())
                .collect()
        };
        assert_eq!(
            values(json!({"spec": {"color": "red", "on": false, "n": 7, "size": "big"}})),
            ["red", "false", "7", "big"]
        );
        assert_eq!(values(json!({"spec": {"color": null}})), ["", "", "", "small"]);
        assert_eq!(values(json!({})), ["", "", "", "small"]);
    }
}
