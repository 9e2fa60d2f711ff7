//! Versions and schemas as upstream prints its internal types in errors: all fields by their names in Go, and absent
//! ones as zero values (`k8s.io/apiextensions-apiserver/pkg/apis/apiextensions`, `types.go` and `types_jsonschema.go`).

use crate::apimachinery::field::show_json;
use crate::apimachinery::value::Value;
use crate::interrupt::pause;

/// Where printing stops, in bytes: a printed schema is many times as long as it was sent, and errors show less than
/// this.
pub(super) const LIMIT: usize = 64 * 1024;

static NULL: Value = Value::Null;

/// How a field is printed.
#[derive(Clone, Copy)]
enum Shape {
    /// As it was sent; this text if it is absent.
    Plain(&'static str),
    /// An object that may be absent.
    Struct(&'static [Field]),
    /// A list of objects.
    Structs(&'static [Field]),
    Schema,
    Schemas,
    /// Schemas by name.
    Properties,
    /// `JSONSchemaPropsOrArray`
    SchemaOrArray,
    /// `JSONSchemaPropsOrBool`
    SchemaOrBool,
    /// `JSONSchemaPropsOrStringArray` by name.
    Dependencies,
}

/// A field's name in Go, in JSON, and its form.
type Field = (&'static str, &'static str, Shape);

const TEXT: Shape = Shape::Plain("\"\"");
const FLAG: Shape = Shape::Plain("false");
/// A pointer, a list of strings, or any JSON.
const MAYBE: Shape = Shape::Plain("null");

const DOCUMENTATION: &[Field] = &[("Description", "description", TEXT), ("URL", "url", TEXT)];

const RULE: &[Field] = &[
    ("Rule", "rule", TEXT),
    ("Message", "message", TEXT),
    ("MessageExpression", "messageExpression", TEXT),
    ("Reason", "reason", MAYBE),
    ("FieldPath", "fieldPath", TEXT),
    ("OptionalOldSelf", "optionalOldSelf", MAYBE),
];

const SCHEMA: &[Field] = &[
    ("ID", "id", TEXT),
    ("Schema", "$schema", TEXT),
    ("Ref", "$ref", MAYBE),
    ("Description", "description", TEXT),
    ("Type", "type", TEXT),
    ("Nullable", "nullable", FLAG),
    ("Format", "format", TEXT),
    ("Title", "title", TEXT),
    ("Default", "default", MAYBE),
    ("Maximum", "maximum", MAYBE),
    ("ExclusiveMaximum", "exclusiveMaximum", FLAG),
    ("Minimum", "minimum", MAYBE),
    ("ExclusiveMinimum", "exclusiveMinimum", FLAG),
    ("MaxLength", "maxLength", MAYBE),
    ("MinLength", "minLength", MAYBE),
    ("Pattern", "pattern", TEXT),
    ("MaxItems", "maxItems", MAYBE),
    ("MinItems", "minItems", MAYBE),
    ("UniqueItems", "uniqueItems", FLAG),
    ("MultipleOf", "multipleOf", MAYBE),
    ("Enum", "enum", MAYBE),
    ("MaxProperties", "maxProperties", MAYBE),
    ("MinProperties", "minProperties", MAYBE),
    ("Required", "required", MAYBE),
    ("Items", "items", Shape::SchemaOrArray),
    ("AllOf", "allOf", Shape::Schemas),
    ("OneOf", "oneOf", Shape::Schemas),
    ("AnyOf", "anyOf", Shape::Schemas),
    ("Not", "not", Shape::Schema),
    ("Properties", "properties", Shape::Properties),
    ("AdditionalProperties", "additionalProperties", Shape::SchemaOrBool),
    ("PatternProperties", "patternProperties", Shape::Properties),
    ("Dependencies", "dependencies", Shape::Dependencies),
    ("AdditionalItems", "additionalItems", Shape::SchemaOrBool),
    ("Definitions", "definitions", Shape::Properties),
    ("ExternalDocs", "externalDocs", Shape::Struct(DOCUMENTATION)),
    ("Example", "example", MAYBE),
    ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields", MAYBE),
    ("XEmbeddedResource", "x-kubernetes-embedded-resource", FLAG),
    ("XIntOrString", "x-kubernetes-int-or-string", FLAG),
    ("XListMapKeys", "x-kubernetes-list-map-keys", MAYBE),
    ("XListType", "x-kubernetes-list-type", MAYBE),
    ("XMapType", "x-kubernetes-map-type", MAYBE),
    ("XValidations", "x-kubernetes-validations", Shape::Structs(RULE)),
];

const VALIDATION: &[Field] = &[("OpenAPIV3Schema", "openAPIV3Schema", Shape::Schema)];

const SCALE: &[Field] = &[
    ("SpecReplicasPath", "specReplicasPath", TEXT),
    ("StatusReplicasPath", "statusReplicasPath", TEXT),
    ("LabelSelectorPath", "labelSelectorPath", MAYBE),
];

const SUBRESOURCES: &[Field] = &[
    ("Status", "status", Shape::Struct(&[])),
    ("Scale", "scale", Shape::Struct(SCALE)),
];

const COLUMN: &[Field] = &[
    ("Name", "name", TEXT),
    ("Type", "type", TEXT),
    ("Format", "format", TEXT),
    ("Description", "description", TEXT),
    ("Priority", "priority", Shape::Plain("0")),
    ("JSONPath", "jsonPath", TEXT),
];

const SELECTABLE: &[Field] = &[("JSONPath", "jsonPath", TEXT)];

/// The fields that a version declares itself or shares with all others, in the order of Go's fields.
const SENT: [Field; 5] = [
    ("Name", "name", TEXT),
    ("Served", "served", FLAG),
    ("Storage", "storage", FLAG),
    ("Deprecated", "deprecated", FLAG),
    ("DeprecationWarning", "deprecationWarning", MAYBE),
];
const PARTS: [(&str, Shape); 4] = [
    ("Schema", Shape::Struct(VALIDATION)),
    ("Subresources", Shape::Struct(SUBRESOURCES)),
    ("AdditionalPrinterColumns", Shape::Structs(COLUMN)),
    ("SelectableFields", Shape::Structs(SELECTABLE)),
];

/// A version. `parts` are its own schema, subresources, columns and selectable fields.
pub(super) fn version(sent: &Value, parts: [&Value; 4]) -> String {
    let mut printer = Printer { out: String::from("{") };
    for (i, (name, key, shape)) in SENT.into_iter().enumerate() {
        printer.member(i, name);
        printer.value(sent.get(key), shape);
    }
    for (i, ((name, shape), part)) in PARTS.into_iter().zip(parts).enumerate() {
        printer.member(SENT.len() + i, name);
        // The conversion to Go's internal type makes empty lists nil.
        let is_nil = matches!(shape, Shape::Structs(_)) && part.is_empty_value();
        let part = if is_nil { &Value::Null } else { part };
        printer.value(part, shape);
    }
    printer.out.push('}');
    printer.out
}

/// Prints a JSON schema as the value of an error, in the form of upstream's internal struct.
pub(super) fn schema(schema: &Value) -> String {
    let mut printer = Printer { out: String::new() };
    printer.value(schema, Shape::Schema);
    printer.out
}

struct Printer {
    out: String,
}

impl Printer {
    /// The name of a member, after a comma if it is not the first.
    fn member(&mut self, i: usize, name: &str) {
        self.comma(i);
        self.out.push('"');
        self.out.push_str(name);
        self.out.push_str("\":");
    }

    fn comma(&mut self, i: usize) {
        if i > 0 {
            self.out.push(',');
        }
    }

    fn value(&mut self, v: &Value, shape: Shape) {
        pause();
        // Also bounds the depth, since each level prints something.
        if self.out.len() > LIMIT {
            return;
        }
        match (shape, v) {
            (Shape::Plain(absent), Value::Null) => self.out.push_str(absent),
            (Shape::Plain(_), v) => self.out.push_str(&show_json(v)),
            (_, Value::Null) => self.out.push_str("null"),
            (Shape::Struct(fields), v) => self.object(v, fields),
            (Shape::Structs(fields), v) => self.list(v, Shape::Struct(fields)),
            (Shape::Schema, v) => self.object(v, SCHEMA),
            (Shape::Schemas, v) => self.list(v, Shape::Schema),
            (Shape::Properties, v) => self.map(v, Self::schema),
            (Shape::SchemaOrArray, v) => self.either("Schema", v, "JSONSchemas", Shape::Schemas),
            (Shape::SchemaOrBool, v) => {
                let (allows, schema) = match v {
                    Value::Bool(allows) => (*allows, &NULL),
                    schema => (true, schema),
                };
                self.out.push_str(if allows {
                    "{\"Allows\":true"
                } else {
                    "{\"Allows\":false"
                });
                self.member(1, "Schema");
                self.value(schema, Shape::Schema);
                self.out.push('}');
            }
            (Shape::Dependencies, v) => self.map(v, |printer, v| printer.either("Schema", v, "Property", MAYBE)),
        }
    }

    fn schema(&mut self, v: &Value) {
        self.value(v, Shape::Schema);
    }

    fn object(&mut self, v: &Value, fields: &[Field]) {
        self.out.push('{');
        for (i, (name, key, shape)) in fields.iter().enumerate() {
            if self.out.len() > LIMIT {
                return;
            }
            self.member(i, name);
            self.value(v.get(key), *shape);
        }
        self.out.push('}');
    }

    /// A schema in the first member, or a list in the second one.
    fn either(&mut self, schema: &str, v: &Value, list: &str, shape: Shape) {
        let (one, many) = match v {
            Value::Array(_) => (&NULL, v),
            v => (v, &NULL),
        };
        self.out.push('{');
        self.member(0, schema);
        self.value(one, Shape::Schema);
        self.member(1, list);
        self.value(many, shape);
        self.out.push('}');
    }

    fn list(&mut self, v: &Value, shape: Shape) {
        self.out.push('[');
        for (i, v) in v.items().iter().enumerate() {
            if self.out.len() > LIMIT {
                return;
            }
            self.comma(i);
            self.value(v, shape);
        }
        self.out.push(']');
    }

    fn map(&mut self, v: &Value, print: fn(&mut Self, &Value)) {
        self.out.push('{');
        for (i, (key, v)) in v.as_object().into_iter().flat_map(|m| m.iter()).enumerate() {
            if self.out.len() > LIMIT {
                return;
            }
            self.comma(i);
            self.out.push_str(&show_json(&Value::from(key)));
            self.out.push(':');
            print(self, v);
        }
        self.out.push('}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn schemas_are_printed_with_all_fields() {
        let empty = schema(&json!({}));
        assert!(
            empty.starts_with(
                "{\"ID\":\"\",\"Schema\":\"\",\"Ref\":null,\"Description\":\"\",\"Type\":\"\",\"Nullable\":false,"
            ) && empty.ends_with(",\"XListType\":null,\"XMapType\":null,\"XValidations\":null}"),
            "{empty}"
        );
        let part = |v: Value, shown: String| {
            let printed = schema(&v);
            assert!(printed.contains(&shown), "{printed}");
        };
        part(
            json!({"items": {}}),
            format!("\"Items\":{{\"Schema\":{empty},\"JSONSchemas\":null}}"),
        );
        part(
            json!({"items": [{}]}),
            format!("\"Items\":{{\"Schema\":null,\"JSONSchemas\":[{empty}]}}"),
        );
        part(
            json!({"additionalProperties": false}),
            "\"AdditionalProperties\":{\"Allows\":false,\"Schema\":null}".to_owned(),
        );
        part(
            json!({"additionalItems": {}}),
            format!("\"AdditionalItems\":{{\"Allows\":true,\"Schema\":{empty}}}"),
        );
        part(
            json!({"dependencies": {"a&": ["b"], "c": {}}}),
            format!(
                "\"Dependencies\":{{\"a\\u0026\":{{\"Schema\":null,\"Property\":[\"b\"]}},\
                 \"c\":{{\"Schema\":{empty},\"Property\":null}}}}"
            ),
        );
        part(
            json!({"default": {"a": 1}, "maximum": 2, "externalDocs": {"url": "u"}, "enum": ["x"]}),
            "\"Default\":{\"a\":1},\"Maximum\":2,".to_owned(),
        );
    }

    #[test]
    fn versions_are_printed_with_their_own_parts() {
        let none = &Value::Null;
        let sent = json!({"name": "v1", "served": true});
        let head =
            "{\"Name\":\"v1\",\"Served\":true,\"Storage\":false,\"Deprecated\":false,\"DeprecationWarning\":null,";
        assert_eq!(
            version(&sent, [none; 4]),
            format!(
                "{head}\"Schema\":null,\"Subresources\":null,\"AdditionalPrinterColumns\":null,\"SelectableFields\":null}}"
            )
        );
        let subresources = json!({"status": {"a": 1}, "scale": {"specReplicasPath": "p"}});
        let (columns, fields) = (json!([{"name": "c", "jsonPath": ".x"}]), json!([{"jsonPath": ".y"}]));
        assert_eq!(
            version(&sent, [none, &subresources, &columns, &fields]),
            format!(
                "{head}\"Schema\":null,\"Subresources\":{{\"Status\":{{}},\
                 \"Scale\":{{\"SpecReplicasPath\":\"p\",\"StatusReplicasPath\":\"\",\"LabelSelectorPath\":null}}}},\
                 \"AdditionalPrinterColumns\":[{{\"Name\":\"c\",\"Type\":\"\",\"Format\":\"\",\"Description\":\"\",\
                 \"Priority\":0,\"JSONPath\":\".x\"}}],\"SelectableFields\":[{{\"JSONPath\":\".y\"}}]}}"
            )
        );
    }

    #[test]
    fn a_printed_schema_is_bounded() {
        let mut wide = json!({});
        wide.set(&["allOf"], vec![json!({}); 10_000]);
        assert!(schema(&wide).len() < 2 * LIMIT);
        let mut deep = json!({});
        for _ in 0..1_000 {
            deep = json!({"not": (deep)});
        }
        assert!(schema(&deep).len() < 2 * LIMIT);
    }
}
