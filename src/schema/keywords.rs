//! Validation of the keywords of a schema, whether it is structural or not (upstream's
//! `ValidateCustomResourceDefinitionOpenAPISchema` in `pkg/apis/apiextensions/validation`). The entry point
//! is [`check`].

mod lists;
mod rules;

use super::Type;
use super::options::Options;
use super::path::At;
use super::prune::is_object_key;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::value::{Map, Value};
use crate::interrupt::checkpoint;

/// A rule that an update does not enforce if the stored definition violates it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ratcheted {
    /// Types are those of OpenAPI.
    ValidTypes,
    /// Items of sets are atomic.
    AtomicSets,
    /// Keys of lists of type map are always present.
    MapKeys,
}

/// The errors of a schema at `path`. `is_convertible`: neither it nor a schema in it has an unsupported keyword.
pub(super) fn check(schema: &Value, path: &FieldPath, options: &Options, is_convertible: bool) -> ErrorList {
    let mut checker = Checker {
        base: path,
        options,
        is_convertible,
        errors: ErrorList::new(),
    };
    checker.node(schema, &At::ROOT, Place::default());
    checker.errors
}

/// Where a schema is.
#[derive(Clone, Copy, Default)]
struct Place {
    /// Below `apiVersion`, `kind` or `metadata` of an object or embedded object.
    inside_metadata: bool,
    /// Why the schema may not have a default.
    no_default: Option<&'static str>,
}

struct Checker<'p> {
    base: &'p FieldPath,
    options: &'p Options,
    /// The whole schema has a structural form. Otherwise parts of it may have one.
    is_convertible: bool,
    errors: ErrorList,
}

/// True if `f` holds for the schema or one in it.
pub(crate) fn any(s: &Value, f: &mut dyn FnMut(&Value) -> bool) -> bool {
    checkpoint();
    f(s) || children(s).any(|c| any(c, f))
}

/// The schemas directly in a schema.
pub(crate) fn children(s: &Value) -> impl Iterator<Item = &Value> {
    // All places where upstream's `ValidateCustomResourceDefinitionOpenAPISchema` descends; order does not matter
    // here.
    let maps = ["properties", "patternProperties", "definitions", "dependencies"].into_iter();
    let maps = maps.flat_map(|w| s.get(w).as_object().into_iter().flat_map(Map::values));
    // `items` is listed twice because it may be a schema or, in unsupported schemas, a list of schemas.
    let lists = ["allOf", "anyOf", "oneOf", "items"]
        .into_iter()
        .flat_map(|w| s.get(w).items());
    let single = ["items", "not", "additionalProperties", "additionalItems"]
        .into_iter()
        .map(|w| s.get(w));
    maps.chain(lists).chain(single).filter(|s| s.as_object().is_some())
}

/// True if a schema, apart from those in it, violates a rule.
pub(super) fn violates(s: &Value, rule: Ratcheted) -> bool {
    match rule {
        Ratcheted::ValidTypes => {
            let ty = s.str_at(&["type"]);
            !ty.is_empty() && Type::parse(ty).is_none()
        }
        Ratcheted::AtomicSets => lists::non_atomic_item(s).is_some(),
        Ratcheted::MapKeys => {
            // Reuses the check itself, so that rule and ratchet cannot disagree.
            let mut checker = Checker {
                base: &FieldPath::default(),
                options: &Options::default(),
                is_convertible: true,
                errors: ErrorList::new(),
            };
            checker.map_keys(s, &At::ROOT);
            !checker.errors.is_empty()
        }
    }
}

impl Checker<'_> {
    fn path(&self, at: &At<'_>, word: &str) -> FieldPath {
        at.below(self.base).child(word)
    }

    fn required(&mut self, at: &At<'_>, word: &str, why: &str) {
        let path = self.path(at, word);
        self.errors.push_with(|| FieldError::required(&path, why));
    }

    fn forbidden(&mut self, at: &At<'_>, word: &str, why: &str) {
        let path = self.path(at, word);
        self.errors.push_with(|| FieldError::forbidden(&path, why));
    }

    fn invalid(&mut self, at: &At<'_>, word: &str, value: impl Into<Value>, why: &str) {
        let path = self.path(at, word);
        self.errors.push_with(|| FieldError::invalid(&path, value, why));
    }

    /// As [`invalid`](Self::invalid), for a value that may be large: it is not copied once the list of errors
    /// is full.
    fn invalid_whole(&mut self, at: &At<'_>, word: &str, value: &Value, why: &str) {
        let path = self.path(at, word);
        self.errors.push_with(|| FieldError::invalid(&path, value.clone(), why));
    }

    fn not_supported(&mut self, at: &At<'_>, word: &str, value: &str, supported: &[&str]) {
        let path = self.path(at, word);
        self.errors
            .push(FieldError::not_supported_string(&path, value, supported));
    }

    fn node(&mut self, s: &Value, at: &At<'_>, place: Place) {
        checkpoint();
        if s.as_object().is_none() {
            return;
        }
        // The order of these checks is upstream's and shows in the list of errors.
        self.allowed(s, at, place);
        if s.get("uniqueItems").as_bool() == Some(true) {
            let why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            self.forbidden(at, "uniqueItems", why);
        }
        self.additional(s, at, place);
        self.properties(s, at, place);
        self.node(s.get("not"), &at.name("not"), place);
        for word in ["allOf", "oneOf", "anyOf"] {
            let at = at.name(word);
            for (i, branch) in s.get(word).items().iter().enumerate() {
                self.node(branch, &at.index(i), place);
            }
        }
        for word in ["definitions", "dependencies"] {
            let at = at.name(word);
            for (name, schema) in s.get(word).as_object().into_iter().flat_map(Map::iter) {
                self.node(schema, &at.key(name), place);
            }
        }
        // Only one of the two has any effect: `items` is either an object or a list.
        let items_at = at.name("items");
        self.node(s.get("items"), &items_at, place);
        for (i, schema) in s.get("items").items().iter().enumerate() {
            self.node(schema, &items_at.index(i), place);
        }
        if s.get("x-kubernetes-preserve-unknown-fields").as_bool() == Some(false) {
            self.invalid(
                at,
                "x-kubernetes-preserve-unknown-fields",
                false,
                "must be true or undefined",
            );
        }
        self.map_type(s, at);
        self.list_type(s, at);
        // Ratcheted as a whole: a definition that violates the rule already is not checked at all.
        if self.options.map_keys {
            self.map_keys(s, at);
        }
        self.rules(s, at);
    }

    /// Keywords and values that are not supported at all.
    fn allowed(&mut self, s: &Value, at: &At<'_>, place: Place) {
        let ty = s.str_at(&["type"]);
        if self.options.valid_types && !ty.is_empty() && Type::parse(ty).is_none() {
            self.not_supported(at, "type", ty, &Type::ALL);
        }
        // Upstream reports a default that cannot apply here rather than ignoring it.
        if let Some(why) = place.no_default.filter(|_| !s.get("default").is_null()) {
            self.forbidden(at, "default", &format!("must not be set {why}"));
        }
        for word in [
            "id",
            "additionalItems",
            "patternProperties",
            "definitions",
            "dependencies",
            "$ref",
        ] {
            let v = s.get(word);
            // Pointers in Go count as set even when they are empty.
            let set = match word {
                "additionalItems" | "dependencies" | "$ref" => !v.is_null(),
                _ => !v.is_empty_value(),
            };
            if set {
                self.forbidden(at, word, &format!("{word} is not supported"));
            }
        }
        if ty == "null" {
            self.forbidden(at, "type", "type cannot be set to null, use nullable as an alternative");
        }
        if !s.get("items").items().is_empty() {
            self.forbidden(at, "items", "items must be a schema object and not an array");
        }
        let embedded = s.get("x-kubernetes-embedded-resource").as_bool() == Some(true);
        if place.inside_metadata && embedded {
            let why = "must not be used inside of resource meta";
            self.forbidden(at, "x-kubernetes-embedded-resource", why);
        }
    }

    fn additional(&mut self, s: &Value, at: &At<'_>, mut place: Place) {
        let additional = s.get("additionalProperties");
        if additional.is_null() {
            return;
        }
        // `additionalProperties: true` beside properties is tolerated, as upstream.
        if s.get("properties").as_object().is_some_and(|p| !p.is_empty()) && additional.as_bool() != Some(true) {
            let why = "additionalProperties and properties are mutual exclusive";
            self.forbidden(at, "additionalProperties", why);
        }
        // Keys of such a map would be defaulted inside of metadata, where nothing prunes them.
        if place.inside_metadata {
            place.no_default = Some("inside additionalProperties applying to object metadata");
        }
        self.node(additional, &at.name("additionalProperties"), place);
    }

    fn properties(&mut self, s: &Value, at: &At<'_>, place: Place) {
        let is_root = at.is_root();
        let embedded = s.get("x-kubernetes-embedded-resource").as_bool() == Some(true);
        let properties_at = at.name("properties");
        for (name, property) in s.get("properties").as_object().into_iter().flat_map(Map::iter) {
            // Shadowed per property: one property inside of metadata must not affect its siblings.
            let mut place = place;
            if (is_root || embedded) && is_object_key(name) {
                place.inside_metadata = true;
                // At the root the server sets these members itself; embedded objects may have defaults for them.
                if is_root {
                    place.no_default = Some(match name {
                        "metadata" => "in top-level metadata",
                        "kind" => "in top-level kind",
                        _ => "in top-level apiVersion",
                    });
                }
            }
            self.node(property, &properties_at.key(name), place);
        }
    }

    fn map_type(&mut self, s: &Value, at: &At<'_>) {
        // Absent and non-string values are left to decoding.
        let Some(map_type) = s.get("x-kubernetes-map-type").as_str() else {
            return;
        };
        self.requires_type(s, at, "object", "must be object if x-kubernetes-map-type is specified");
        if !matches!(map_type, "atomic" | "granular") {
            self.not_supported(at, "x-kubernetes-map-type", map_type, &["atomic", "granular"]);
        }
    }

    /// Returns true if the schema has the type.
    fn requires_type(&mut self, s: &Value, at: &At<'_>, expected: &str, why: &str) -> bool {
        match s.str_at(&["type"]) {
            "" => self.required(at, "type", why),
            ty if ty != expected => self.invalid(at, "type", ty, why),
            _ => return true,
        }
        false
    }
}
