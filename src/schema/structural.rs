//! The rules of structural schemas (upstream's
//! `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/validation.go`). The entry point is [`check`].

mod complete;
mod nested;

use super::path::At;
use super::pattern;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::value::{Map, Value};
use crate::interrupt::checkpoint;
use crate::json;

/// The position of a schema within its parent.
#[derive(Clone, Copy, PartialEq)]
enum Position {
    Root,
    Property,
    Item,
}

/// The errors of a schema at `path`, sorted by their text, as upstream does because it iterates over Go maps.
pub(super) fn check(schema: &Value, path: &FieldPath) -> ErrorList {
    let mut checker = Checker {
        base: path,
        errors: ErrorList::new(),
    };
    checker.node(schema, Position::Root, &At::ROOT);
    complete::check(&mut checker, schema);
    let mut errors = checker.errors;
    // Cached, since each key is a formatted error.
    errors.sort_by_cached_key(ToString::to_string);
    errors
}

struct Checker<'p> {
    base: &'p FieldPath,
    errors: ErrorList,
}

fn flag(s: &Value, name: &str) -> bool {
    s.get(name).as_bool() == Some(true)
}

fn is_set(s: &Value, name: &str) -> bool {
    !s.get(name).is_null()
}

/// True if `branches` is the idiom for int-or-string. Types are allowed in it, although it is a junctor.
fn is_int_or_string(branches: &Value) -> bool {
    // The exact idiom of kube-openapi: order and content must match.
    *branches == json!([{"type": "integer"}, {"type": "string"}])
}

impl Checker<'_> {
    fn path(&self, at: &At<'_>) -> FieldPath {
        at.below(self.base)
    }

    fn required(&mut self, at: &At<'_>, word: &str, why: &str) {
        let path = self.path(at).child(word);
        self.errors.push_with(|| FieldError::required(&path, why));
    }

    fn forbidden(&mut self, at: &At<'_>, word: &str, why: &str) {
        let path = self.path(at).child(word);
        self.errors.push_with(|| FieldError::forbidden(&path, why));
    }

    fn invalid(&mut self, at: &At<'_>, word: &str, value: impl Into<Value>, why: &str) {
        let path = self.path(at).child(word);
        self.errors.push(FieldError::invalid(&path, value, why));
    }

    fn node(&mut self, s: &Value, position: Position, at: &At<'_>) {
        checkpoint();
        let ty = s.str_at(&["type"]);
        let items = s.get("items");
        // Reported here, because an array without items has no schema for them below. An empty list of schemas is none.
        if ty == "array" && items.as_object().is_none() {
            self.required(at, "items", "must be specified");
        }
        if items.as_object().is_some() {
            self.node(items, Position::Item, &at.name("items"));
        }
        let properties = s.get("properties").as_object();
        let properties_at = at.name("properties");
        for (name, property) in properties.into_iter().flat_map(Map::iter) {
            self.node(property, Position::Property, &properties_at.key(name));
        }
        let additional = s.get("additionalProperties");
        if !additional.is_null() {
            if position == Position::Root {
                self.forbidden(at, "additionalProperties", "must not be used at the root");
            }
            if additional.as_object().is_some() {
                self.node(additional, Position::Property, &at.name("additionalProperties"));
            }
        }
        self.int_or_string(s, at);
        self.constraints(s, at, true);
        self.types(s, position, at);
        let embedded = flag(s, "x-kubernetes-embedded-resource");
        // After the checks of this node, though errors are sorted in the end: the order decides which ones fit the
        // limit.
        if let Some(properties) = properties {
            self.object_keys(properties, position == Position::Root, embedded, &properties_at);
        }
        if embedded && !flag(s, "x-kubernetes-preserve-unknown-fields") && properties.is_none_or(Map::is_empty) {
            let why = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
            self.required(at, "properties", why);
        }
    }

    fn int_or_string(&mut self, s: &Value, at: &At<'_>) {
        if !flag(s, "x-kubernetes-int-or-string") {
            return;
        }
        for word in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
            if flag(s, word) {
                self.invalid(at, word, true, "must be false if x-kubernetes-int-or-string is true");
            }
        }
    }

    fn types(&mut self, s: &Value, position: Position, at: &At<'_>) {
        let ty = s.str_at(&["type"]);
        let embedded = flag(s, "x-kubernetes-embedded-resource");
        if embedded && ty != "object" {
            let why = "must be object if x-kubernetes-embedded-resource is true";
            match ty {
                "" => self.required(at, "type", why),
                ty => self.invalid(at, "type", ty, why),
            }
        } else if ty.is_empty()
            && !flag(s, "x-kubernetes-int-or-string")
            && !flag(s, "x-kubernetes-preserve-unknown-fields")
        {
            let why = match position {
                Position::Root => "must not be empty at the root",
                Position::Item => "must not be empty for specified array items",
                Position::Property => "must not be empty for specified object fields",
            };
            self.required(at, "type", why);
        }
        if embedded && is_set(s, "additionalProperties") {
            let why = "must not be used if x-kubernetes-embedded-resource is set";
            self.forbidden(at, "additionalProperties", why);
        }
        if position == Position::Root && !ty.is_empty() && ty != "object" {
            self.invalid(at, "type", ty, "must be object at the root");
        }
    }

    /// Restricts the schemas of `apiVersion`, `kind` and `metadata`, which every object has.
    fn object_keys(&mut self, properties: &Map, is_root: bool, embedded: bool, at: &At<'_>) {
        let keys = [
            ("kind", "string", "must be string"),
            ("apiVersion", "string", "must be string"),
            ("metadata", "object", "must be object"),
        ];
        for (name, ty, why) in keys {
            // Only where the object has these fields by nature.
            let Some(schema) = properties.get(name).filter(|_| is_root || embedded) else {
                continue;
            };
            let actual = schema.str_at(&["type"]);
            if actual != ty {
                self.invalid(&at.key(name), "type", actual, why);
            }
        }
        let Some(metadata) = properties.get("metadata").filter(|_| is_root) else {
            return;
        };
        // Other members of metadata are validated as ObjectMeta, so a schema for them would be ignored.
        let named = |m: &Map| m.keys().all(|k| matches!(k, "name" | "generateName"));
        let allowed = |(key, v): (&str, &Value)| match key {
            "type" | "default" => true,
            "properties" => v.as_object().is_some_and(named),
            // Upstream does not compare these.
            "$schema" | "id" => true,
            // Pointers in Go, which count as set even to an empty value.
            "additionalProperties" | "not" | "externalDocs" | "example" => v.is_null(),
            "x-kubernetes-list-type" | "x-kubernetes-map-type" => v.is_null(),
            // An empty list of schemas is none.
            "items" => v.as_object().is_none(),
            // Numbers are pointers in Go, so a zero counts as set.
            _ => v.is_empty_value() && v.as_f64().is_none(),
        };
        if metadata.as_object().is_some_and(|m| !m.iter().all(allowed)) {
            let path = self.path(&at.key("metadata"));
            let why =
                "must not specify anything other than name and generateName, but metadata is implicitly specified";
            self.errors.push(FieldError::forbidden(&path, why));
        }
    }

    /// Checks junctors and the pattern. `idioms` is true where int-or-string may be spelled out.
    fn constraints(&mut self, s: &Value, at: &At<'_>, idioms: bool) {
        if !(idioms && is_int_or_string(s.get("anyOf"))) {
            self.branches(s, "anyOf", at);
        }
        let all_of = s.get("allOf").items();
        let first = all_of
            // The second spelling of int-or-string: the idiom within the first branch of `allOf`.
            .first()
            .filter(|first| idioms && is_int_or_string(first.get("anyOf")));
        let all_of_at = at.name("allOf");
        for (i, branch) in all_of.iter().enumerate() {
            self.nested(branch, &all_of_at.index(i), i == 0 && first.is_some());
        }
        self.branches(s, "oneOf", at);
        if s.get("not").as_object().is_some() {
            self.nested(s.get("not"), &at.name("not"), false);
        }
        let source = s.str_at(&["pattern"]);
        if !source.is_empty()
            && let Err(e) = pattern::check(source)
        {
            let why = format!("must be a valid regular expression, but isn't: {e}");
            self.invalid(at, "pattern", source, &why);
        }
    }

    fn branches(&mut self, s: &Value, word: &str, at: &At<'_>) {
        let at = at.name(word);
        for (i, branch) in s.get(word).items().iter().enumerate() {
            self.nested(branch, &at.index(i), false);
        }
    }
}
