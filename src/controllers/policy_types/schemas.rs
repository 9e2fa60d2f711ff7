//! The schemas of kinds, built-in, custom and aggregated ones alike, from the OpenAPI documents that this
//! gateway serves (upstream: `apiserver/pkg/cel/openapi/resolver`), as types of expressions
//! (`apiserver/pkg/cel/common/schemas.go`).

use super::kinds::{self, Gvk, Served};
use crate::apimachinery::value::{Map, Str, Value};
use crate::controllers::loopback::{Failure, Loopback};
use crate::interrupt::checkpoint;
use crate::sync::Mutex;
use crate::tasks::off_thread;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};
use torana_cel::{Field, ObjectType, Schema, Type, escape};

/// Maximum number of cached kinds.
const MAX_KNOWN: usize = 64;
/// Maximum number of schemas of a kind once references are followed. Built-in kinds have some thousand; a chain
/// of a few schemas that each refer to the next one twice would have millions.
const MAX_SCHEMAS: usize = 100_000;
const REFERENCES: &str = "#/components/schemas/";

static UNTYPED: LazyLock<Schema> = LazyLock::new(Schema::any);
/// The stand-in for a reference to a schema that contains it.
static CIRCULAR: LazyLock<Value> = LazyLock::new(|| crate::json!({"type": "object"}));

/// The declared type of the objects of a kind; `None` if expressions cannot use any of its fields.
#[derive(Clone, Debug, Default)]
pub(super) struct Shape(Option<Schema>);

impl Shape {
    pub(super) fn schema(&self) -> &Schema {
        self.0.as_ref().unwrap_or(&UNTYPED)
    }
}

/// Reads schemas, and remembers those of the last kinds for as long as their document is the same.
pub(super) struct Schemas {
    api: Loopback,
    /// With the address of the document, which has a hash of it.
    known: Mutex<HashMap<Gvk, (Str, Option<Shape>)>>,
}

impl Schemas {
    pub(super) fn new(api: Loopback) -> Self {
        Self {
            api,
            known: Mutex::default(),
        }
    }

    pub(super) async fn served(&self) -> Result<Vec<Served>, Failure> {
        kinds::discover(&self.api).await
    }

    /// The type of each kind; `None` if no document describes it.
    ///
    /// # Errors
    /// The gateway itself does not answer. A document that cannot be read describes nothing.
    pub(super) async fn find(&self, wanted: &[Gvk]) -> Result<Vec<Option<Shape>>, Failure> {
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        // Read each time: by the hashes in its addresses, documents that have changed are noticed.
        let index = self.api.get("/openapi/v3").await?;
        let address = |of: &Gvk| -> Option<Str> {
            let at = index.at(&["paths", &of.document(), "serverRelativeURL"]).as_str()?;
            Some(at.into())
        };
        let mut found: Vec<Option<Shape>> = vec![None; wanted.len()];
        // Each document is read once.
        let mut missing: BTreeMap<Str, Vec<usize>> = BTreeMap::new();
        for (i, kind) in wanted.iter().enumerate() {
            let Some(address) = address(kind) else { continue };
            match self.known.lock().get(kind).filter(|(of, _)| *of == address) {
                Some((_, shape)) => found[i] = shape.clone(),
                None => missing.entry(address).or_default().push(i),
            }
        }
        for (address, indexes) in missing {
            let document = match self.api.get(&address).await {
                Ok(document) => document,
                Err(e) => {
                    tracing::debug!(document = address.as_str(), error = %e, "an OpenAPI document cannot be read");
                    continue;
                }
            };
            let kinds: Vec<Gvk> = indexes.iter().map(|i| wanted[*i].clone()).collect();
            let shapes = off_thread(0, move || -> Vec<_> {
                kinds
                    .into_iter()
                    .map(|kind| (declared(&document, &kind), kind))
                    .collect()
            });
            let shapes = shapes.await;
            let shapes = shapes.ok_or_else(|| Failure::unreadable("the schemas could not be read in time"))?;
            let mut known = self.known.lock();
            if known.len() + shapes.len() > MAX_KNOWN {
                // Everything at once is simpler than an eviction order, and rare: few policies match so many kinds.
                known.clear();
            }
            for (i, (shape, kind)) in indexes.into_iter().zip(shapes) {
                found[i].clone_from(&shape);
                known.insert(kind, (address.clone(), shape));
            }
        }
        Ok(found)
    }
}

/// The type of a kind from a document; `None` if the document does not describe it in a usable way.
pub(super) fn declared(document: &Value, kind: &Gvk) -> Option<Shape> {
    let schemas = document.at(&["components", "schemas"]).as_object()?;
    let describes = |v: &Value| {
        let mut kinds = v.get("x-kubernetes-group-version-kind").items().iter();
        kinds.any(|k| {
            let text = |key: &str| k.str_at(&[key]);
            (text("group"), text("version"), text("kind")) == (&kind.group, &kind.version, &kind.kind)
        })
    };
    // The name starts `within`, so that a schema which contains itself is found to be circular.
    let (name, schema) = schemas.iter().find(|(_, v)| describes(v))?;
    let mut reader = Reader {
        schemas,
        within: vec![name],
        count: 0,
    };
    // Upstream appends a random number to make the names of types unique.
    reader.declare(schema, &kind.kind, true).ok().map(Shape)
}

/// The document is not one that can be read: a reference leads nowhere, or there are too many.
struct Unusable;

struct Reader<'a> {
    schemas: &'a Map,
    /// The references that are being followed.
    within: Vec<&'a str>,
    count: usize,
}

impl<'a> Reader<'a> {
    /// Declares the values of a schema; `None` if they have no type in CEL. `root` is true for objects
    /// with metadata.
    fn declare(&mut self, schema: &'a Value, name: &str, root: bool) -> Result<Option<Schema>, Unusable> {
        checkpoint();
        self.count += 1;
        if self.count > MAX_SCHEMAS {
            return Err(Unusable);
        }
        let Some(reference) = reference(schema) else {
            return self.declare_resolved(schema, name, root);
        };
        let resolved = self.resolve(reference)?;
        self.within.push(reference);
        let declared = self.declare_resolved(resolved, name, root);
        self.within.pop();
        declared
    }

    fn resolve(&self, reference: &str) -> Result<&'a Value, Unusable> {
        if self.within.contains(&reference) {
            return Ok(&CIRCULAR);
        }
        self.schemas.get(reference).ok_or(Unusable)
    }

    fn declare_resolved(&mut self, v: &'a Value, name: &str, root: bool) -> Result<Option<Schema>, Unusable> {
        let format = v.str_at(&["format"]);
        // As upstream: CEL has no such type, so any value passes the check.
        if format == "int-or-string" || is_set(v, "x-kubernetes-int-or-string") {
            return Ok(Some(Schema::any()));
        }
        let scalar = |ty: Type| Ok(Some(Schema::scalar(ty, u64::MAX)));
        match type_of(v) {
            "array" => self.list(v, name),
            "object" => self.object(v, name, root),
            "string" => scalar(match format {
                "byte" => Type::Bytes,
                "duration" => Type::Duration,
                "date" | "date-time" => Type::Timestamp,
                _ => Type::String,
            }),
            "boolean" => scalar(Type::Bool),
            "number" => scalar(Type::Double),
            "integer" => scalar(Type::Int),
            _ => Ok(None),
        }
    }

    fn list(&mut self, v: &'a Value, name: &str) -> Result<Option<Schema>, Unusable> {
        let items = v.get("items");
        if items.is_null() {
            return Ok(None);
        }
        let of = self.declare(items, &format!("{name}.@idx"), is_embedded(items))?;
        Ok(of.map(|of| Schema::list(of, u64::MAX)))
    }

    fn object(&mut self, v: &'a Value, name: &str, root: bool) -> Result<Option<Schema>, Unusable> {
        let values = v.get("additionalProperties");
        if values.as_object().is_some() {
            let of = self.declare(values, &format!("{name}.@elem"), is_embedded(values))?;
            return Ok(of.map(|of| Schema::map(of, u64::MAX)));
        }
        // Structural schemas of custom resources usually leave `metadata` open; upstream then supplies these fields.
        let replaced = root && !self.has_type_and_name(v);
        let mut fields = Vec::new();
        for (key, property) in v.get("properties").as_object().into_iter().flat_map(|m| m.iter()) {
            if replaced && matches!(key, "apiVersion" | "kind" | "metadata") {
                continue;
            }
            // Names that cannot be CEL identifiers are not accessible to expressions.
            let Some(escaped) = escape(key) else { continue };
            let of = self.declare(property, &format!("{name}.{escaped}"), is_embedded(property))?;
            fields.extend(of.map(|of| field(&escaped, key, of)));
        }
        if replaced {
            let text = || Schema::scalar(Type::String, u64::MAX);
            let metadata = vec![("generateName", text()), ("name", text())];
            fields.push(field("apiVersion", "apiVersion", text()));
            fields.push(field("kind", "kind", text()));
            let metadata = Schema::record(&format!("{name}.metadata"), metadata);
            fields.push(field("metadata", "metadata", metadata));
        }
        Ok(Some(Schema::object(Arc::new(ObjectType::new(name, fields)))))
    }

    /// True if a schema declares the type and the names of its objects. Otherwise expressions see exactly
    /// these.
    fn has_type_and_name(&self, v: &'a Value) -> bool {
        let is = |of: &'a Value, key: &str, ty: &str| {
            let property = of.at(&["properties", key]);
            let resolved = reference(property).map_or(Ok(property), |r| self.resolve(r));
            resolved.ok().filter(|p| type_of(p) == ty)
        };
        let metadata = is(v, "metadata", "object");
        let named = metadata.is_some_and(|m| ["name", "generateName"].iter().all(|k| is(m, k, "string").is_some()));
        named && is(v, "kind", "string").is_some() && is(v, "apiVersion", "string").is_some()
    }
}

/// The name of the schema that another one refers to, directly or, to add a description, in `allOf`.
fn reference(v: &Value) -> Option<&str> {
    match v.get("$ref").as_str() {
        Some(text) => Some(text.strip_prefix(REFERENCES).unwrap_or(text)),
        None => v.get("allOf").items().iter().find_map(reference),
    }
}

fn type_of(v: &Value) -> &str {
    let ty = v.get("type");
    let first = || ty.items().first().and_then(Value::as_str);
    ty.as_str().or_else(first).unwrap_or("")
}

fn is_set(v: &Value, key: &str) -> bool {
    v.get(key).as_bool() == Some(true)
}

fn is_embedded(v: &Value) -> bool {
    is_set(v, "x-kubernetes-embedded-resource")
}

fn field(name: &str, key: &str, schema: Schema) -> Field {
    Field {
        name: name.into(),
        key: key.into(),
        schema,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    const META: &str = "ObjectMeta";

    /// The type of a path of fields in a kind `K` with these properties.
    fn type_at(properties: Value, path: &str) -> Option<String> {
        let gvk = json!([{"group": "", "version": "v1", "kind": "K"}]);
        let mut document = json!({"components": {"schemas": {
            (META): {"type": "object", "properties": {
                "name": {"type": "string"}, "generateName": {"type": "string"}, "uid": {"type": "string"}}},
            "Tree": {"type": "object", "properties": {
                "left": {"$ref": "#/components/schemas/Tree"}, "value": {"type": "integer"}}},
            "K": {"type": "object", "x-kubernetes-group-version-kind": (gvk)}}}});
        document.set(&["components", "schemas", "K", "properties"], properties);
        let shape = declared(&document, &Gvk::new("", "v1", "K"))?;
        let mut at = shape.schema().clone();
        for name in path.split('.').filter(|n| !n.is_empty()) {
            at = match (&at.ty, &at.items) {
                (Type::Object(of), _) => of.field(name)?.schema.clone(),
                (_, Some(of)) => Schema::clone(of),
                _ => return None,
            };
        }
        Some(at.ty.to_string())
    }

    #[test]
    fn schemas_are_types_of_expressions() {
        let all = || {
            json!({"spec": {"type": "object", "properties": {
                "text": {"type": "string"}, "time": {"type": "string", "format": "date-time"},
                "bytes": {"type": "string", "format": "byte"}, "number": {"type": "number"},
                "port": {"oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string"},
                "any": {"x-kubernetes-preserve-unknown-fields": true},
                "list": {"type": "array", "items": {"type": "object"}},
                "map": {"type": "object", "additionalProperties": {"type": "object"}},
                "anyMap": {"type": "object", "additionalProperties": {}},
                "x-y": {"type": "boolean"}}}})
        };
        for (path, ty) in [
            ("", Some("K")),
            ("spec", Some("K.spec")),
            ("spec.text", Some("string")),
            ("spec.time", Some("timestamp")),
            ("spec.bytes", Some("bytes")),
            ("spec.number", Some("double")),
            ("spec.port", Some("dyn")),
            ("spec.any", None),
            ("spec.list", Some("list(K.spec.list.@idx)")),
            ("spec.map", Some("map(string, K.spec.map.@elem)")),
            ("spec.anyMap", None),
            ("spec.x__dash__y", Some("bool")),
        ] {
            assert_eq!(type_at(all(), path).as_deref(), ty, "{path}");
        }
    }

    #[test]
    fn references_are_followed_until_they_repeat() {
        let all = || {
            json!({"apiVersion": {"type": "string"}, "kind": {"type": "string"},
                "metadata": {"allOf": [{"$ref": "#/components/schemas/ObjectMeta"}], "default": {}},
                "tree": {"$ref": "#/components/schemas/Tree"}})
        };
        for (path, ty) in [
            ("metadata.uid", Some("string")),
            ("tree.value", Some("int")),
            ("tree.left", Some("K.tree.left")),
            ("tree.left.value", None),
        ] {
            assert_eq!(type_at(all(), path).as_deref(), ty, "{path}");
        }
        let nowhere = json!({"tree": {"$ref": "#/components/schemas/Nothing"}});
        assert_eq!(type_at(nowhere, ""), None);
    }

    #[test]
    fn metadata_always_has_a_name() {
        for (path, ty) in [
            ("metadata.name", Some("string")),
            ("metadata.uid", None),
            ("kind", Some("string")),
        ] {
            let properties = json!({"metadata": {"type": "object", "properties": {"uid": {"type": "string"}}}});
            assert_eq!(type_at(properties, path).as_deref(), ty, "{path}");
        }
    }

    #[test]
    fn exponential_references_are_bounded() {
        let mut document = json!({"components": {"schemas": {"n40": {"type": "string"}}}});
        for i in 0..40 {
            let next = format!("#/components/schemas/n{}", i + 1);
            let schema = json!({"type": "object", "properties": {"a": {"$ref": (next.as_str())}, "b": {"$ref": (next.as_str())}},
                "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": (format!("K{i}"))}]});
            document.set(&["components", "schemas", &format!("n{i}")], schema);
        }
        assert!(declared(&document, &Gvk::new("", "v1", "K30")).is_some());
        assert!(declared(&document, &Gvk::new("", "v1", "K0")).is_none());
    }
}
