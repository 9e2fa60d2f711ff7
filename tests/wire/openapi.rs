//! Views of OpenAPI documents, versions 2 and 3.

use crate::paths;
use crate::views::{is_upstream, matches, sorted};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

const HASH: &str = "hash=";

/// The URLs of `/openapi/v3`, with their hashes only recognised.
pub(crate) fn index(doc: &Value) -> Value {
    let parsed = doc.as_str().and_then(|text| serde_json::from_str(text).ok());
    let doc = parsed.as_ref().unwrap_or(doc);
    let Some(all) = doc.get("paths").and_then(Value::as_object) else {
        return doc.clone();
    };
    let built_in = |path: &str| match path.strip_prefix("apis/") {
        Some(rest) => is_upstream(rest.split('/').next().unwrap_or_default()),
        None => true,
    };
    let url = |v: &Value| {
        let url = paths::text(v, "serverRelativeURL");
        match url.split_once(HASH) {
            Some((start, hash)) if is_sha512(hash) => json!(format!("{start}{HASH}<sha512>")),
            _ => json!(url),
        }
    };
    let kept = all
        .iter()
        .filter(|(p, _)| built_in(p))
        .map(|(p, v)| (p.clone(), url(v)));
    json!({"paths": kept.collect::<Map<_, _>>()})
}

fn is_sha512(hash: &str) -> bool {
    hash.len() == 128 && hash.bytes().all(|b| b.is_ascii_digit() || (b'A'..=b'F').contains(&b))
}

/// All fields of one kind, `version/Kind` or `group/version/Kind`, with references followed.
pub(crate) fn kind(doc: &Value, name: &str) -> Value {
    let Some(root) = doc.as_object() else {
        return doc.clone();
    };
    let parts: Vec<&str> = name.split('/').collect();
    let (group, version, kind) = match parts[..] {
        [version, kind] => ("", version, kind),
        [group, version, kind] => (group, version, kind),
        _ => panic!("{name} is no kind"),
    };
    let (schemas, prefix) = match root.contains_key("components") {
        true => (paths::get(doc, "components.schemas"), "#/components/schemas/"),
        false => (doc.get("definitions"), "#/definitions/"),
    };
    let schemas = schemas.and_then(Value::as_object);
    let wanted = json!({"group": group, "version": version, "kind": kind});
    let kinds = |schema: &Value| {
        schema
            .get("x-kubernetes-group-version-kind")
            .cloned()
            .unwrap_or_default()
    };
    let found = schemas.into_iter().flatten().find(|(_, schema)| {
        let kinds = kinds(schema);
        kinds.as_array().is_some_and(|k| k.contains(&wanted))
    });
    let Some((name, schema)) = found else {
        return json!({"missing": name});
    };
    // Options of requests carry the kinds of all groups.
    let mut all = vec![wanted];
    if let Value::Array(kinds) = kinds(schema)
        && kinds.len() < 3
    {
        all = kinds;
    }
    let mut all: Vec<String> = all.iter().map(quoted).collect();
    all.sort();
    let mut flat = Flattening {
        schemas: schemas.expect("it holds the kind"),
        prefix,
        fields: Map::new(),
    };
    flat.walk(schema, &Map::new(), "", &BTreeSet::from([name.as_str()]));
    json!({"gvk": all, "fields": flat.fields})
}

/// A group, version and kind as one text, as in the recordings.
fn quoted(kind: &Value) -> String {
    let text = |key| paths::text(kind, key);
    let (group, version, kind) = (text("group"), text("version"), text("kind"));
    format!(r#"{{"group": "{group}", "kind": "{kind}", "version": "{version}"}}"#)
}

/// The fields of a schema by path, without recursion.
struct Flattening<'a> {
    schemas: &'a Map<String, Value>,
    prefix: &'a str,
    fields: Map<String, Value>,
}

impl Flattening<'_> {
    /// `extra` holds the extensions beside the reference that led here.
    fn walk(&mut self, schema: &Value, extra: &Map<String, Value>, path: &str, seen: &BTreeSet<&str>) {
        let members = schema.as_object().expect("a schema is an object");
        let mut extensions: Map<String, Value> = members
            .iter()
            .filter(|(k, _)| k.starts_with("x-kubernetes-") && *k != "x-kubernetes-group-version-kind")
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        extensions.extend(extra.clone());
        let only = schema.get("allOf").and_then(Value::as_array).filter(|a| a.len() == 1);
        let reference = only.map_or(schema, |a| &a[0]).get("$ref").and_then(Value::as_str);
        if let Some(reference) = reference {
            let target = reference.strip_prefix(self.prefix).unwrap_or(reference);
            if seen.contains(target) {
                self.fields.insert(path.to_owned(), json!("recursive"));
                return;
            }
            let mut seen = seen.clone();
            seen.insert(target);
            let nothing = json!({});
            let schemas = self.schemas;
            self.walk(schemas.get(target).unwrap_or(&nothing), &extensions, path, &seen);
            return;
        }
        let mut constraints = Map::new();
        for key in ["type", "format", "enum", "required"] {
            match schema.get(key) {
                Some(list @ Value::Array(_)) => drop(constraints.insert(key.to_owned(), sorted(Some(list)))),
                Some(value) => drop(constraints.insert(key.to_owned(), value.clone())),
                None => {}
            }
        }
        constraints.append(&mut extensions);
        let constraints = match constraints.get("type") {
            Some(only) if constraints.len() == 1 => only.clone(),
            _ => Value::Object(constraints),
        };
        self.fields.insert(path.to_owned(), constraints);
        let none = Map::new();
        for (key, value) in schema.get("properties").and_then(Value::as_object).unwrap_or(&none) {
            let at = if path.is_empty() {
                key.clone()
            } else {
                format!("{path}.{key}")
            };
            self.walk(value, &none, &at, seen);
        }
        if let Some(items) = schema.get("items") {
            self.walk(items, &none, &format!("{path}[]"), seen);
        }
        if let Some(values @ Value::Object(_)) = schema.get("additionalProperties") {
            self.walk(values, &none, &format!("{path}{{}}"), seen);
        }
    }
}

/// The operations of the paths that match, with action, kind, parameters, bodies and status codes.
pub(crate) fn paths(doc: &Value, pattern: &str) -> Value {
    let Some(all) = doc.get("paths").and_then(Value::as_object) else {
        return doc.clone();
    };
    let wanted = |path: &str| {
        let group = path.strip_prefix("/apis/").and_then(|r| r.split('/').next());
        (pattern.is_empty() || matches(pattern, path)) && group.is_none_or(is_upstream)
    };
    let operations = |item: &Value| -> Map<String, Value> {
        let all = item.as_object().into_iter().flatten();
        let real = all.filter(|(_, op)| op.get("responses").is_some());
        real.map(|(method, op)| (method.clone(), operation(op))).collect()
    };
    let kept = all.iter().filter(|(p, _)| wanted(p));
    let kept: Map<String, Value> = kept.map(|(p, item)| (p.clone(), json!(operations(item)))).collect();
    json!({"paths": kept})
}

fn operation(op: &Value) -> Value {
    let keys = |path: &str| {
        let all = paths::get(op, path).and_then(Value::as_object);
        all.map(|m| m.keys().cloned().collect::<Vec<_>>()).unwrap_or_default()
    };
    let mut parameters: Vec<String> = op
        .get("parameters")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter(|p| p.get("name").is_some())
        .map(|p| format!("{}:{}", paths::text(p, "in"), paths::text(p, "name")))
        .collect();
    parameters.sort();
    json!({
        "action": op.get("x-kubernetes-action"),
        "gvk": op.get("x-kubernetes-group-version-kind"),
        "responses": keys("responses"),
        "parameters": parameters,
        "bodyTypes": keys("requestBody.content"),
    })
}
