//! Parses a schema and rejects what is not structural (upstream's
//! `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/validation.go`). The entry point is [`root`].

use super::format::Format;
use super::pattern::Pattern;
use super::{Additional, Bound, Checks, ListKind, Node, Type, defaulting, prune, validate};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::value::{Str, Value};
use std::borrow::Cow;
use std::collections::HashSet;

/// Maximum nesting depth of a schema; bounds the recursion.
const MAX_DEPTH: usize = 200;

const UNSUPPORTED: [&str; 6] = [
    "$ref",
    "additionalItems",
    "definitions",
    "dependencies",
    "id",
    "patternProperties",
];

/// The position of a schema within its parent.
#[derive(Clone, Copy, PartialEq)]
enum Position {
    Root,
    Property,
    Item,
    /// Inside `allOf`, `anyOf`, `oneOf` or `not`. True if types are allowed there (the int-or-string idiom).
    Nested(bool),
}

struct Parser {
    errors: ErrorList,
    depth: usize,
}

/// Parses the schema of an object.
pub(super) fn root(schema: &Value, path: &FieldPath) -> Result<Node, ErrorList> {
    let mut p = Parser {
        errors: ErrorList::new(),
        depth: 0,
    };
    let node = p.node(schema, path, Position::Root, true);
    if p.errors.is_empty() {
        p.defaults(&node, path, true);
    }
    if p.errors.is_empty() { Ok(node) } else { Err(p.errors) }
}

impl Parser {
    fn invalid<'a>(&mut self, path: &FieldPath, value: impl Into<Value>, why: impl Into<Cow<'a, str>>) {
        self.errors.push(FieldError::invalid(path, value, why));
    }
    fn forbidden<'a>(&mut self, path: &FieldPath, why: impl Into<Cow<'a, str>>) {
        self.errors.push(FieldError::forbidden(path, why));
    }
    fn required(&mut self, path: &FieldPath, why: &str) {
        self.errors.push(FieldError::required(path, why));
    }

    fn flag(&mut self, s: &Value, name: &str, path: &FieldPath) -> bool {
        match s.get(name) {
            Value::Null => false,
            Value::Bool(b) => *b,
            other => {
                let other = other.clone();
                self.invalid(&path.child(name), other, "must be a boolean");
                false
            }
        }
    }

    fn count(&mut self, s: &Value, name: &str, path: &FieldPath) -> Option<usize> {
        match s.get(name) {
            Value::Null => None,
            v => {
                let n = v.as_i64().and_then(|n| usize::try_from(n).ok());
                if n.is_none() {
                    self.invalid(&path.child(name), v.clone(), "must be a non-negative integer");
                }
                n
            }
        }
    }

    fn number(&mut self, s: &Value, name: &str, path: &FieldPath) -> Option<f64> {
        let v = s.get(name);
        if !v.is_null() && v.as_f64().is_none() {
            self.invalid(&path.child(name), v.clone(), "must be a number");
        }
        v.as_f64()
    }

    fn node(&mut self, s: &Value, path: &FieldPath, position: Position, root_meta: bool) -> Node {
        let mut node = Node::default();
        if s.as_object().is_none() {
            self.invalid(path, s.clone(), "must be a schema object");
            return node;
        }
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            self.forbidden(path, "schemas must not be nested any deeper");
            self.depth -= 1;
            return node;
        }
        node.nullable = self.flag(s, "nullable", path);
        node.int_or_string = self.flag(s, "x-kubernetes-int-or-string", path);
        node.embedded = self.flag(s, "x-kubernetes-embedded-resource", path);
        node.preserve_unknown = self.flag(s, "x-kubernetes-preserve-unknown-fields", path);
        self.kind(s, &mut node, path, position);
        self.refused_words(s, path, position);
        self.properties(s, &mut node, path, position, root_meta);
        self.items(s, &mut node, path, position);
        node.required = s
            .get("required")
            .items()
            .iter()
            .filter_map(Value::as_str)
            .map(Str::new)
            .collect();
        node.default = Some(s.get("default"))
            .filter(|d| !d.is_null())
            .map(|d| Box::new(d.clone()));
        if !matches!(position, Position::Nested(_)) {
            self.extensions(s, &mut node, path);
        }
        let checks = self.checks(s, &node, path);
        node.checks = checks.map(Box::new);
        self.depth -= 1;
        node
    }

    fn kind(&mut self, s: &Value, node: &mut Node, path: &FieldPath, position: Position) {
        let at = path.child("type");
        let name = s.str_at(&["type"]);
        node.ty = Type::parse(name);
        if let Position::Nested(typed) = position {
            if !name.is_empty() && !typed {
                self.forbidden(&at, "must be empty to be structural");
            }
            return;
        }
        if name.is_empty() {
            if node.int_or_string || node.preserve_unknown && position != Position::Root {
                return;
            }
            let why = match position {
                Position::Root => "must not be empty at the root",
                Position::Item => "must not be empty for specified array items",
                _ => "must not be empty for specified object fields",
            };
            self.required(&at, why);
        } else if node.ty.is_none() {
            if name == "null" {
                self.forbidden(&at, "type cannot be set to null, use nullable as an alternative");
            }
            self.errors.push(FieldError::not_supported(&at, name, &Type::ALL));
        } else if position == Position::Root && node.ty != Some(Type::Object) {
            self.invalid(&at, name, "must be object at the root");
        }
        if position == Position::Root && node.nullable {
            self.forbidden(&path.child("nullable"), "nullable cannot be true at the root");
        }
    }

    fn refused_words(&mut self, s: &Value, path: &FieldPath, position: Position) {
        for word in UNSUPPORTED {
            if !s.get(word).is_null() {
                self.forbidden(&path.child(word), format!("{word} is not supported"));
            }
        }
        if s.get("uniqueItems").as_bool() == Some(true) {
            self.forbidden(
                &path.child("uniqueItems"),
                "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            );
        }
        if !s.get("x-kubernetes-validations").items().is_empty() {
            self.forbidden(
                &path.child("x-kubernetes-validations"),
                "is not evaluated here, check across fields in the kind's strategy",
            );
        }
        if s.get("x-kubernetes-preserve-unknown-fields").as_bool() == Some(false) {
            let at = path.child("x-kubernetes-preserve-unknown-fields");
            self.invalid(&at, false, "must be true or undefined");
        }
        if matches!(position, Position::Nested(_)) {
            for (words, why) in [
                (&["title", "description"][..], "must be empty to be structural"),
                (
                    &[
                        "default",
                        "additionalProperties",
                        "x-kubernetes-list-type",
                        "x-kubernetes-map-type",
                    ][..],
                    "must be undefined to be structural",
                ),
                (
                    &[
                        "nullable",
                        "x-kubernetes-preserve-unknown-fields",
                        "x-kubernetes-embedded-resource",
                        "x-kubernetes-int-or-string",
                    ][..],
                    "must be false to be structural",
                ),
                (&["x-kubernetes-list-map-keys"][..], "must be empty to be structural"),
            ] {
                for word in words {
                    if !s.get(word).is_empty_value() {
                        self.forbidden(&path.child(word), why);
                    }
                }
            }
        }
    }

    fn properties(&mut self, s: &Value, node: &mut Node, path: &FieldPath, position: Position, root_meta: bool) {
        let at = path.child("properties");
        if let Some(m) = s.get("properties").as_object() {
            for (name, schema) in m.iter() {
                let at = at.key(name);
                let inner = match position {
                    Position::Nested(_) => Position::Nested(false),
                    _ => Position::Property,
                };
                if (root_meta || node.embedded) && matches!(name, "apiVersion" | "kind" | "metadata") {
                    self.object_key(name, schema, &at, position);
                }
                let child = self.node(schema, &at, inner, false);
                node.properties.push((Str::new(name), child));
            }
        } else if !s.get("properties").is_null() {
            self.invalid(&at, s.get("properties").clone(), "must be an object of schemas");
        }
        let at = path.child("additionalProperties");
        node.additional = match s.get("additionalProperties") {
            Value::Null => return,
            Value::Bool(b) => Additional::Any(*b),
            schema => Additional::Schema(Box::new(self.node(schema, &at, Position::Property, false))),
        };
        if position == Position::Root {
            self.forbidden(&at, "must not be used at the root");
        }
        if !node.properties.is_empty() && !matches!(node.additional, Additional::Any(true)) {
            self.forbidden(&at, "additionalProperties and properties are mutual exclusive");
        }
    }

    fn object_key(&mut self, name: &str, schema: &Value, at: &FieldPath, position: Position) {
        if matches!(position, Position::Nested(_)) {
            if name == "metadata" {
                self.forbidden(at, "must not be specified in a nested context");
            }
            return;
        }
        let ty = schema.str_at(&["type"]);
        let (expected, why) = if name == "metadata" {
            ("object", "must be object")
        } else {
            ("string", "must be string")
        };
        if !ty.is_empty() && ty != expected {
            self.invalid(&at.child("type"), ty, why);
        }
        let only_names = |m: &crate::apimachinery::Map| m.keys().all(|k| matches!(k, "name" | "generateName"));
        if name == "metadata" && !schema.get("properties").as_object().is_none_or(only_names) {
            self.forbidden(
                at,
                "must not specify anything other than name and generateName, but metadata is implicitly specified",
            );
        }
    }

    fn items(&mut self, s: &Value, node: &mut Node, path: &FieldPath, position: Position) {
        let at = path.child("items");
        match s.get("items") {
            Value::Null => {
                if node.ty == Some(Type::Array) && !matches!(position, Position::Nested(_)) {
                    self.required(&at, "must be specified");
                }
            }
            Value::Array(_) => self.forbidden(&at, "items must be a schema object and not an array"),
            schema => {
                let inner = match position {
                    Position::Nested(_) => Position::Nested(false),
                    _ => Position::Item,
                };
                node.items = Some(Box::new(self.node(schema, &at, inner, false)));
            }
        }
    }

    fn extensions(&mut self, s: &Value, node: &mut Node, path: &FieldPath) {
        if node.embedded {
            if node.ty.is_some_and(|t| t != Type::Object) {
                let at = path.child("type");
                self.invalid(
                    &at,
                    s.str_at(&["type"]),
                    "must be object if x-kubernetes-embedded-resource is true",
                );
            }
            if !matches!(node.additional, Additional::Absent) {
                let why = "must not be used if x-kubernetes-embedded-resource is set";
                self.forbidden(&path.child("additionalProperties"), why);
            }
            if node.properties.is_empty() && !node.preserve_unknown {
                let why = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
                self.required(&path.child("properties"), why);
            }
        }
        if node.int_or_string {
            for (on, word) in [
                (node.preserve_unknown, "x-kubernetes-preserve-unknown-fields"),
                (node.embedded, "x-kubernetes-embedded-resource"),
            ] {
                if on {
                    self.invalid(
                        &path.child(word),
                        true,
                        "must be false if x-kubernetes-int-or-string is true",
                    );
                }
            }
        }
        match s.str_at(&["x-kubernetes-map-type"]) {
            "" | "granular" => {}
            "atomic" => node.atomic_map = true,
            other => {
                let at = path.child("x-kubernetes-map-type");
                self.errors
                    .push(FieldError::not_supported(&at, other, &["atomic", "granular"]));
            }
        }
        if !s.str_at(&["x-kubernetes-map-type"]).is_empty() && node.ty != Some(Type::Object) {
            let at = path.child("type");
            self.invalid(
                &at,
                s.str_at(&["type"]),
                "must be object if x-kubernetes-map-type is specified",
            );
        }
        self.list_type(s, node, path);
    }

    fn list_type(&mut self, s: &Value, node: &mut Node, path: &FieldPath) {
        let at = path.child("x-kubernetes-list-type");
        let keys_at = path.child("x-kubernetes-list-map-keys");
        let keys: Vec<Str> = s
            .get("x-kubernetes-list-map-keys")
            .items()
            .iter()
            .filter_map(Value::as_str)
            .map(Str::new)
            .collect();
        let list = s.str_at(&["x-kubernetes-list-type"]);
        if !list.is_empty() && node.ty != Some(Type::Array) {
            let why = "must be array if x-kubernetes-list-type is specified";
            self.invalid(&path.child("type"), s.str_at(&["type"]), why);
        }
        if !keys.is_empty() && list != "map" {
            self.invalid(
                &at,
                s.get("x-kubernetes-list-type").clone(),
                "must be map if x-kubernetes-list-map-keys is non-empty",
            );
        }
        let items_at = path.child("items");
        if matches!(list, "set" | "map") && node.items.as_ref().is_some_and(|i| i.nullable) {
            let why = format!("cannot be nullable when x-kubernetes-list-type is {list}");
            self.forbidden(&items_at.child("nullable"), why);
        }
        match list {
            "" | "atomic" => {}
            "set" => {
                node.list = ListKind::Set;
                let Some(item) = &node.items else { return };
                let owned_whole = match item.ty {
                    Some(Type::Array) => matches!(item.list, ListKind::Atomic),
                    Some(Type::Object) => item.atomic_map,
                    _ => true,
                };
                if !owned_whole {
                    let word = if item.ty == Some(Type::Array) { "list" } else { "map" };
                    let at = items_at.child(&format!("x-kubernetes-{word}-type"));
                    self.invalid(
                        &at,
                        Value::Null,
                        "must be atomic as item of a list with x-kubernetes-list-type=set",
                    );
                }
            }
            "map" => {
                self.map_keys(&keys, node, &items_at, &keys_at);
                node.list = ListKind::Map(keys.into());
            }
            other => self
                .errors
                .push(FieldError::not_supported(&at, other, &["atomic", "set", "map"])),
        }
    }

    fn map_keys(&mut self, keys: &[Str], node: &Node, items_at: &FieldPath, keys_at: &FieldPath) {
        if keys.is_empty() {
            self.required(keys_at, "must not be empty if x-kubernetes-list-type is map");
        }
        let Some(item) = &node.items else { return };
        if item.ty != Some(Type::Object) {
            let shown = item.ty.map_or("", Type::name);
            let why = "must be object if parent array's x-kubernetes-list-type is map";
            self.invalid(&items_at.child("type"), shown, why);
        }
        let mut seen: HashSet<&Str> = HashSet::new();
        let required: HashSet<&Str> = item.required.iter().collect();
        for (i, key) in keys.iter().enumerate() {
            let at = keys_at.index(i);
            if !seen.insert(key) {
                self.invalid(&at, key.as_str(), "must not contain duplicate entries");
            }
            let property_at = items_at.child("properties").key(key);
            let Some(property) = item.property(key) else {
                self.invalid(&at, key.as_str(), "entries must all be names of item properties");
                continue;
            };
            if matches!(property.ty, Some(Type::Array | Type::Object)) {
                let shown = item.ty.map_or("", Type::name);
                let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                self.invalid(&property_at.child("type"), shown, why);
            }
            if property.nullable {
                let why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
                self.forbidden(&property_at.child("nullable"), why);
            }
            if property.default.is_none() && !required.contains(key) {
                self.required(
                    &property_at.child("default"),
                    "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
                );
            }
        }
    }

    fn checks(&mut self, s: &Value, node: &Node, path: &FieldPath) -> Option<Checks> {
        const WORDS: [&str; 16] = [
            "enum",
            "minimum",
            "maximum",
            "multipleOf",
            "minLength",
            "maxLength",
            "pattern",
            "format",
            "minItems",
            "maxItems",
            "minProperties",
            "maxProperties",
            "allOf",
            "anyOf",
            "oneOf",
            "not",
        ];
        if WORDS.iter().all(|w| s.get(w).is_null()) {
            return None;
        }
        let bound = |p: &mut Self, word: &str, exclusive: &str| {
            let at = p.number(s, word, path)?;
            let exclusive = p.flag(s, exclusive, path);
            Some(Bound { at, exclusive })
        };
        let pattern = s.get("pattern").as_str().filter(|p| !p.is_empty());
        let pattern = pattern.and_then(|text| match Pattern::new(text) {
            Ok(p) => Some(p),
            Err(e) => {
                let why = format!("must be a valid regular expression, but isn't: error parsing regexp: {e}");
                self.invalid(&path.child("pattern"), text, why);
                None
            }
        });
        // The int-or-string idiom is allowed at the node itself or in its first `allOf`.
        let idiom = node.int_or_string;
        let list = |p: &mut Self, word: &str, idiom: bool| {
            let at = path.child(word);
            let all = s.get(word).items().iter().enumerate();
            all.map(|(i, s)| p.node(s, &at.index(i), Position::Nested(idiom), false))
                .collect::<Vec<_>>()
        };
        let any_of = list(self, "anyOf", idiom);
        let one_of = list(self, "oneOf", false);
        let all_of = if idiom {
            self.all_of_idiom(s, path)
        } else {
            list(self, "allOf", false)
        };
        let not = Some(s.get("not"))
            .filter(|n| !n.is_null())
            .map(|n| self.node(n, &path.child("not"), Position::Nested(false), false));
        Some(Checks {
            enumeration: s.get("enum").items().to_vec(),
            minimum: bound(self, "minimum", "exclusiveMinimum"),
            maximum: bound(self, "maximum", "exclusiveMaximum"),
            multiple_of: self.number(s, "multipleOf", path).filter(|n| *n > 0.0),
            min_length: self.count(s, "minLength", path),
            max_length: self.count(s, "maxLength", path),
            pattern,
            format: Format::parse(node.ty, s.str_at(&["format"])),
            min_items: self.count(s, "minItems", path),
            max_items: self.count(s, "maxItems", path),
            min_properties: self.count(s, "minProperties", path),
            max_properties: self.count(s, "maxProperties", path),
            all_of,
            any_of,
            one_of,
            not,
        })
    }

    fn all_of_idiom(&mut self, s: &Value, path: &FieldPath) -> Vec<Node> {
        let at = path.child("allOf");
        let all = s.get("allOf").items().iter().enumerate();
        all.map(|(i, nested)| {
            let at = at.index(i);
            if i == 0 && !nested.get("anyOf").is_null() {
                let any = nested.get("anyOf").items().iter().enumerate();
                let any_at = at.child("anyOf");
                let any_of = any
                    .map(|(j, n)| self.node(n, &any_at.index(j), Position::Nested(true), false))
                    .collect();
                let checks = Checks {
                    any_of,
                    ..Checks::default()
                };
                return Node {
                    checks: Some(Box::new(checks)),
                    ..Node::default()
                };
            }
            self.node(nested, &at, Position::Nested(false), false)
        })
        .collect()
    }

    /// Checks that every default is valid, without unknown fields, under the schema that it belongs to.
    fn defaults(&mut self, node: &Node, path: &FieldPath, root: bool) {
        if let Some(default) = &node.default {
            let at = path.child("default");
            let mut pruned = default.as_ref().clone();
            if !prune::unknown(node, &mut pruned, false).is_empty() {
                self.invalid(&at, default.as_ref().clone(), "must not have unknown fields");
            } else {
                prune::nulls(node, &mut pruned);
                defaulting::fill(node, &mut pruned, false);
                for mut e in validate::validate(node, &pruned, None) {
                    e.field = match e.field.as_str() {
                        "<nil>" => at.as_str().to_owned(),
                        below if below.starts_with('[') => format!("{at}{below}"),
                        below => format!("{at}.{below}"),
                    };
                    self.errors.push(e);
                }
            }
        }
        for (name, property) in &node.properties {
            let at = path.child("properties").key(name);
            let top = root && matches!(name.as_str(), "apiVersion" | "kind" | "metadata");
            if top && property.default.is_some() {
                let why = format!("must not be set in top-level {name}");
                self.forbidden(&at.child("default"), why);
                continue;
            }
            self.defaults(property, &at, false);
        }
        if let Some(items) = &node.items {
            self.defaults(items, &path.child("items"), false);
        }
    }
}
