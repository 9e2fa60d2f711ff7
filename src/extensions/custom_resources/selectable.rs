//! Fields of custom resources that field selectors may name, as a version of a CustomResourceDefinition
//! declares them.
//!
//! Entry point: [`of_version`].

use crate::apimachinery::codec::json::projection::Mask;
use crate::apimachinery::jsonpath::JsonPath;
use crate::apimachinery::patch::go_print;
use crate::apimachinery::value::{Str, Value};
use crate::json;
use crate::registry::selectable_fields::{SelectableFields, UnstoredFields};
use crate::schema::StructuralSchema;
use crate::schema::definition::{ArrayNotation, resolve};
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
            // A path that does not parse was stored by another server; its field then has no value.
            let parsed = JsonPath::parse(path).ok()?;
            parsed.add_reads(&mut reads);
            Some((Str::new(path.strip_prefix('.').unwrap_or(path)), parsed))
        })
        .collect();
    let names = fields.iter().map(|(name, _)| name.clone()).collect();
    // All defaults of a schema may be a megabyte, and they are set for each object that is examined.
    // Falls back to the whole schema, which is only slower.
    let schema = schema.map(|all| only_selectable(version).map_or(all, Arc::new));
    let extract = move |object: &Value| {
        let mut values: Vec<_> = fields
            .iter()
            .map(|(name, path)| (name.clone(), value(path, object)))
            .collect();
        // Only if a value is missing: most objects have all of them, and then need no copy.
        if let (Some(schema), true) = (&schema, values.iter().any(|(_, v)| v.is_empty())) {
            let mut object = object.clone();
            schema.default(&mut object);
            // All values again: a default may also fill a part of a path that was found empty.
            for ((_, path), (_, found)) in fields.iter().zip(&mut values) {
                *found = value(path, &object);
            }
        }
        values
    };
    SelectableFields {
        names,
        extract: Arc::new(extract),
        unstored: Some(UnstoredFields::new(reads)),
    }
}

/// The part of the version's schema that sets the defaults of its selectable fields. `None` if a path is not
/// in the schema.
fn only_selectable(version: &Value) -> Option<StructuralSchema> {
    let schema = version.at(&["schema", "openAPIV3Schema"]);
    let declared = version.get("selectableFields").items().iter();
    // Resolved in the schema, so that keywords along the path are found, too.
    let paths = declared.map(|field| resolve(field.str_at(&["jsonPath"]), schema, ArrayNotation::Refused).ok());
    let paths: Vec<Vec<String>> = paths.map(|found| Some(found?.0)).collect::<Option<_>>()?;
    let paths: Vec<&[String]> = paths.iter().map(Vec::as_slice).collect();
    StructuralSchema::compile(&along(schema, &paths)).ok()
}

/// The schema reduced to the nodes on the paths.
fn along(schema: &Value, paths: &[&[String]]) -> Value {
    let mut out = Value::object();
    for keyword in [
        "type",
        "nullable",
        "x-kubernetes-int-or-string",
        "x-kubernetes-preserve-unknown-fields",
    ] {
        if !schema.get(keyword).is_null() {
            out.set(&[keyword], schema.get(keyword).clone());
        }
    }
    if !schema.get("default").is_null() {
        // Defaults are cut down as well: a default of a large object would be set just to read one member.
        out.set(&["default"], value_along(schema.get("default"), paths));
    }
    let members = schema.get("properties").as_object();
    for (name, property) in members.into_iter().flat_map(|m| m.iter()) {
        let below = below(name, paths);
        if !below.is_empty() {
            out.set(&["properties", name], along(property, &below));
        }
    }
    // Any name is one of these: they are shortened only if there is one path below.
    let additional = schema.get("additionalProperties");
    match paths {
        _ if additional.as_object().is_none() => {}
        [[_, rest @ ..]] => out.set(&["additionalProperties"], along(additional, &[rest])),
        _ => out.set(&["additionalProperties"], additional.clone()),
    }
    out
}

/// The value reduced to the members on the paths.
fn value_along(value: &Value, paths: &[&[String]]) -> Value {
    // A path that ends here selects the whole value.
    let Some(members) = value.as_object().filter(|_| paths.iter().all(|p| !p.is_empty())) else {
        return value.clone();
    };
    let mut out = json!({});
    for (name, member) in members.iter() {
        let below = below(name, paths);
        if !below.is_empty() {
            out.set(&[name], value_along(member, &below));
        }
    }
    out
}

/// The remainders of the paths that start with `name`.
fn below<'p>(name: &str, paths: &[&'p [String]]) -> Vec<&'p [String]> {
    let paths = paths.iter().filter_map(|path| path.split_first());
    paths
        .filter(|(first, _)| *first == name)
        .map(|(_, rest)| rest)
        .collect()
}

/// The text that selectors compare; empty for null and for absent fields.
fn value(path: &JsonPath, object: &Value) -> Str {
    // Errors count as absence: selectors must not fail for objects that validation accepted.
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

    #[test]
    fn only_the_defaults_of_selectable_fields_are_set() {
        let schema = json!({"type": "object", "properties": {
            "other": {"type": "object", "default": {"large": "x"}, "properties": {"large": {"type": "string"}}},
            "spec": {"type": "object", "default": {"a": {"size": "small"}, "large": "x"}, "properties": {
                "large": {"type": "string", "default": "x"},
                "a": {"type": "object", "properties": {
                    "size": {"type": "string"}, "n": {"type": "integer", "default": 3}, "large": {"type": "string", "default": "x"}}},
                "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {
                    "on": {"type": "boolean", "default": true}, "large": {"type": "string", "default": "x"}}}}}}}});
        let version = json!({"schema": {"openAPIV3Schema": schema.clone()}, "selectableFields": [
            {"jsonPath": ".spec.a.size"}, {"jsonPath": ".spec.a.n"}, {"jsonPath": ".spec.map.k.on"}]});
        let only = only_selectable(&version).expect("the paths exist");
        let whole = Arc::new(StructuralSchema::parse(&schema).expect("a structural schema"));
        let fields = of_version(&version, Some(whole));
        for (object, filled, values) in [
            (
                json!({}),
                json!({"spec": {"a": {"n": 3, "size": "small"}}}),
                ["small", "3", ""],
            ),
            (
                json!({"spec": {"a": {}, "map": {"k": {}}}}),
                json!({"spec": {"a": {"n": 3}, "map": {"k": {"on": true}}}}),
                ["", "3", "true"],
            ),
        ] {
            let found: Vec<String> = (fields.extract)(&object)
                .into_iter()
                .map(|(_, v)| v.to_string())
                .collect();
            assert_eq!(found, values);
            let mut object = object;
            only.default(&mut object);
            assert_eq!(object, filled);
        }
    }

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
        assert_eq!(
            fields.unstored.map(|of| of.reads),
            Some(Mask::of(&["spec.{color,on,n,size}"]))
        );
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
