//! Converts an OpenAPI v2 document to v3, for backends that publish no v3. Entry point: [`v3_of`]. Lossy
//! where v3 differs (form data, security schemes other than API keys), but complete for what kubectl and code
//! generators read of API servers.

use crate::apimachinery::value::{Map, Str, Value};
use std::cell::Cell;

const METHODS: [&str; 7] = ["get", "put", "post", "delete", "options", "head", "patch"];
/// Members of a v2 parameter or header that move into its v3 schema.
const SCHEMA: [&str; 16] = [
    "type",
    "format",
    "items",
    "default",
    "enum",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "multipleOf",
];

/// Limit of growth relative to the source. Shared parameters are inlined and schemas repeated per media type,
/// so a small malicious document could otherwise become huge.
const MAX_GROWTH: usize = 4;
/// Growth that any document may have, in values.
const FREE_GROWTH: usize = 10_000;

/// Remaining budget for repeated values.
struct Growth(Cell<usize>);

impl Growth {
    fn of(document: &Value) -> Self {
        Self(Cell::new(weight(document).saturating_mul(MAX_GROWTH) + FREE_GROWTH))
    }

    /// Takes this weight from the budget. False once it is used up.
    fn takes(&self, weight: usize) -> bool {
        let left = self.0.get().saturating_sub(weight);
        self.0.set(left);
        left > 0
    }
}

/// Number of values in a tree; long texts count several times.
fn weight(v: &Value) -> usize {
    let text = |s: &str| 1 + s.len() / 64;
    match v {
        Value::Object(m) => 1 + m.iter().map(|(k, v)| text(k) + weight(v)).sum::<usize>(),
        Value::Array(a) => 1 + a.iter().map(weight).sum::<usize>(),
        Value::String(s) => text(s),
        _ => 1,
    }
}

/// The document being converted, and the budget for repetitions.
struct Source<'a> {
    document: &'a Value,
    parameters: &'a Value,
    growth: Growth,
}

/// Converts a v2 document; `None` if the result would be many times as large.
pub fn v3_of(document: &Value) -> Option<Value> {
    let from = Source {
        document,
        parameters: document.get("parameters"),
        growth: Growth::of(document),
    };
    let mut out = Map::new();
    out.insert("openapi", "3.0.0");
    out.insert("info", document.get("info").clone());
    let paths = map(document.get("paths"), |item| path_item(item, &from));
    out.insert("paths", paths);
    let mut components = Map::new();
    // Schemas of API servers look alike in both versions, apart from their references.
    components.insert("schemas", map(document.get("definitions"), Value::clone));
    // Only API keys have the same form in both versions.
    let keys = document.get("securityDefinitions").as_object();
    let keys: Map = keys
        .into_iter()
        .flat_map(Map::iter)
        .filter(|(_, v)| v.str_at(&["type"]) == "apiKey")
        .map(|(k, v)| (k.to_owned(), v.clone()))
        .collect();
    if !keys.is_empty() {
        components.insert("securitySchemes", keys);
    }
    out.insert("components", components);
    let mut out = Value::Object(out);
    redirect(&mut out);
    // Once the budget is used up, parts are missing; an incomplete document is worse than none.
    from.growth.takes(0).then_some(out)
}

fn map(all: &Value, f: impl Fn(&Value) -> Value) -> Map {
    let all = all.as_object();
    all.into_iter()
        .flat_map(Map::iter)
        .map(|(k, v)| (k.to_owned(), f(v)))
        .collect()
}

fn path_item<'a>(item: &'a Value, from: &Source<'a>) -> Value {
    let mut out = Map::new();
    for (key, value) in item.as_object().into_iter().flat_map(Map::iter) {
        if METHODS.contains(&key) {
            out.insert(key, operation(value, from));
        } else if key == "parameters" {
            let of = value.items().iter().map(|p| from.resolved(p));
            let of: Vec<Value> = of.filter(|p| !is_body(p)).map(parameter).collect();
            out.insert(key, of);
        } else {
            out.insert(key, value.clone());
        }
    }
    Value::Object(out)
}

impl<'a> Source<'a> {
    /// Resolves a reference to a shared parameter, which v3 inlines.
    fn resolved(&self, p: &'a Value) -> &'a Value {
        let Some(name) = p.str_at(&["$ref"]).strip_prefix("#/parameters/") else {
            return p;
        };
        let shared = self.parameters.get(name);
        // Charged per use: this is what a malicious document multiplies.
        match self.growth.takes(weight(shared)) {
            true => shared,
            false => &Value::Null,
        }
    }

    fn content(&self, media: &[Str], schema: &Value) -> Map {
        if media.len() > 1 && !self.growth.takes(weight(schema).saturating_mul(media.len())) {
            return Map::new();
        }
        let mut one = Map::new();
        one.insert("schema", schema.clone());
        media.iter().map(|m| (m.clone(), Value::Object(one.clone()))).collect()
    }
}

fn is_body(p: &Value) -> bool {
    // Without `in` it is the `null` of a reference that could not be resolved.
    matches!(p.str_at(&["in"]), "body" | "formData" | "")
}

fn operation<'a>(op: &'a Value, from: &Source<'a>) -> Value {
    let media = |key: &str| -> Vec<Str> {
        let of = [op.get(key), from.document.get(key)];
        let named = of.into_iter().map(Value::items).find(|m| !m.is_empty());
        // The operation's own list wins over that of the document, even if shorter.
        let named = named.filter(|m| from.growth.takes(m.len()));
        let named: Vec<Str> = named
            .into_iter()
            .flatten()
            .filter_map(|m| Some(m.as_str()?.into()))
            .collect();
        if named.is_empty() { vec!["*/*".into()] } else { named }
    };
    let mut out = Map::new();
    for (key, value) in op.as_object().into_iter().flat_map(Map::iter) {
        match key {
            // v3 states media types with each body instead.
            "consumes" | "produces" | "schemes" => {}
            "parameters" => {
                let all: Vec<&Value> = value.items().iter().map(|p| from.resolved(p)).collect();
                let plain: Vec<Value> = all.iter().filter(|p| !is_body(p)).map(|p| parameter(p)).collect();
                if !plain.is_empty() {
                    out.insert("parameters", plain);
                }
                if let Some(body) = all.iter().find(|p| p.str_at(&["in"]) == "body") {
                    let mut request = Map::new();
                    for field in ["description", "required"] {
                        if !body.get(field).is_null() {
                            request.insert(field, body.get(field).clone());
                        }
                    }
                    request.insert("content", from.content(&media("consumes"), body.get("schema")));
                    out.insert("requestBody", request);
                }
            }
            "responses" => {
                let produces = media("produces");
                out.insert("responses", map(value, |r| response(r, &produces, from)));
            }
            _ => drop(out.insert(key, value.clone())),
        }
    }
    Value::Object(out)
}

fn parameter(p: &Value) -> Value {
    let mut out = Map::new();
    let mut schema = Map::new();
    for (key, value) in p.as_object().into_iter().flat_map(Map::iter) {
        match key {
            key if SCHEMA.contains(&key) => drop(schema.insert(key, value.clone())),
            "collectionFormat" | "allowEmptyValue" => {}
            _ => drop(out.insert(key, value.clone())),
        }
    }
    if !schema.is_empty() {
        out.insert("schema", schema);
    }
    Value::Object(out)
}

fn response(r: &Value, produces: &[Str], from: &Source<'_>) -> Value {
    let mut out = Map::new();
    // Required, in both versions.
    out.insert("description", r.str_at(&["description"]));
    if !r.get("schema").is_null() {
        out.insert("content", from.content(produces, r.get("schema")));
    }
    if !r.get("headers").is_null() {
        out.insert("headers", map(r.get("headers"), parameter));
    }
    Value::Object(out)
}

fn redirect(v: &mut Value) {
    if let Some(m) = v.as_object_mut() {
        if let Some(name) = m.str("$ref").strip_prefix("#/definitions/") {
            let reference = format!("#/components/schemas/{name}");
            m.insert("$ref", reference);
        }
        // The recursion is bounded by the depth that the parser allows.
        // Collected, because the members change while they are visited.
        let keys: Vec<Str> = m.keys().map(Str::from).collect();
        for key in keys {
            if let Some(inner) = m.get_mut(&key) {
                redirect(inner);
            }
        }
    } else if let Some(all) = v.as_array_mut() {
        all.iter_mut().for_each(redirect);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn a_document_that_would_grow_excessively_is_not_converted() {
        let uses = |n: usize| -> Map {
            let one = || json!({"parameters": [{"$ref": "#/parameters/p"}]});
            (0..n).map(|i| (format!("/apis/g/v1/{i}"), one())).collect()
        };
        let of = |n: usize, parameter: &str| {
            let mut d = json!({"parameters": {"p": {"name": "p", "in": "query", "description": (parameter)}}});
            d.set(&["paths"], uses(n));
            d
        };
        assert!(v3_of(&of(1_000, "short")).is_some());
        assert!(v3_of(&of(1_000, &"long ".repeat(1_000))).is_none());
        let media: Vec<String> = (0..1_000).map(|i| format!("application/{i}")).collect();
        let responses: Map = (0..1_000)
            .map(|i| (i.to_string(), json!({"schema": {"type": "object"}})))
            .collect();
        let mut many = json!({"paths": {"/a": {"get": {}}}});
        many.set(&["produces"], media);
        many.set(&["paths", "/a", "get", "responses"], responses);
        assert!(v3_of(&many).is_none());
    }

    #[test]
    fn everything_clients_read_is_converted() {
        let document = json!({
            "swagger": "2.0",
            "info": {"title": "T", "version": "1"},
            "parameters": {"pretty": {"name": "pretty", "in": "query", "type": "string", "uniqueItems": true}},
            "paths": {"/apis/g/v1/things": {
                "parameters": [{"$ref": "#/parameters/pretty"}],
                "post": {"operationId": "createThing", "consumes": ["application/json"], "produces": ["application/json"],
                    "parameters": [
                        {"name": "body", "in": "body", "required": true, "schema": {"$ref": "#/definitions/Thing"}},
                        {"name": "dryRun", "in": "query", "type": "string"}],
                    "responses": {"200": {"description": "OK", "schema": {"$ref": "#/definitions/Thing"}},
                                  "401": {"description": "Unauthorized"}},
                    "x-kubernetes-action": "post"}}},
            "definitions": {"Thing": {"type": "object", "properties": {"next": {"$ref": "#/definitions/Thing"}}}}
        });
        let thing = || json!({"$ref": "#/components/schemas/Thing"});
        assert_eq!(
            v3_of(&document).unwrap(),
            json!({
                "openapi": "3.0.0",
                "info": {"title": "T", "version": "1"},
                "paths": {"/apis/g/v1/things": {
                    "parameters": [{"name": "pretty", "in": "query", "schema": {"type": "string", "uniqueItems": true}}],
                    "post": {"operationId": "createThing",
                        "parameters": [{"name": "dryRun", "in": "query", "schema": {"type": "string"}}],
                        "requestBody": {"required": true, "content": {"application/json": {"schema": (thing())}}},
                        "responses": {"200": {"description": "OK",
                                              "content": {"application/json": {"schema": (thing())}}},
                                      "401": {"description": "Unauthorized"}},
                        "x-kubernetes-action": "post"}}},
                "components": {"schemas": {"Thing": {"type": "object", "properties": {"next": (thing())}}}}
            })
        );
    }
}
