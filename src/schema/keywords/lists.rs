//! `x-kubernetes-list-type` and `x-kubernetes-list-map-keys`.

use super::Checker;
use crate::apimachinery::value::Value;
use crate::schema::path::At;
use std::collections::HashSet;

/// For a set whose items are not atomic, the invalid keyword of the items.
pub(super) fn non_atomic_item(s: &Value) -> Option<&'static str> {
    let items = s.get("items");
    if s.str_at(&["x-kubernetes-list-type"]) != "set" {
        return None;
    }
    // Scalars are always atomic.
    match items.str_at(&["type"]) {
        // Lists are atomic by default, objects only if declared so.
        "array" => {
            let list_type = items.get("x-kubernetes-list-type").as_str();
            list_type
                .is_some_and(|t| t != "atomic")
                .then_some("x-kubernetes-list-type")
        }
        "object" => {
            let map_type = items.str_at(&["x-kubernetes-map-type"]);
            (map_type != "atomic").then_some("x-kubernetes-map-type")
        }
        _ => None,
    }
}

impl Checker<'_> {
    pub(super) fn list_type(&mut self, s: &Value, at: &At<'_>) {
        let list_type = s.get("x-kubernetes-list-type").as_str();
        let items_at = at.name("items");
        if let Some(list_type) = list_type {
            let why = "must be array if x-kubernetes-list-type is specified";
            // The type is reported first; items of another type are not examined.
            if self.requires_type(s, at, "array", why)
                && self.options.atomic_sets
                && let Some(word) = non_atomic_item(s)
            {
                // Upstream shows the list type of the items for both keywords.
                let shown = s.at(&["items", "x-kubernetes-list-type"]).clone();
                let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
                self.invalid(&items_at, word, shown, why);
            }
            if !matches!(list_type, "atomic" | "set" | "map") {
                self.not_supported(at, "x-kubernetes-list-type", list_type, &["atomic", "set", "map"]);
            }
        }
        let keys = s.get("x-kubernetes-list-map-keys");
        if !keys.items().is_empty() {
            let why = "must be map if x-kubernetes-list-map-keys is non-empty";
            // Reported at the list type, since the keys alone have no meaning.
            match list_type {
                None => self.required(at, "x-kubernetes-list-type", why),
                Some("map") => {}
                Some(other) => self.invalid(at, "x-kubernetes-list-type", other, why),
            }
        }
        if list_type == Some("map") {
            self.map(s, keys, at);
        }
    }

    fn map(&mut self, s: &Value, keys: &Value, at: &At<'_>) {
        const KEYS: &str = "x-kubernetes-list-map-keys";
        if keys.items().is_empty() {
            self.required(at, KEYS, "must not be empty if x-kubernetes-list-type is map");
        }
        let items = s.get("items");
        match items {
            Value::Null => self.required(at, "items", "must have a schema if x-kubernetes-list-type is map"),
            Value::Array(_) => {
                let why = "must only have a single schema if x-kubernetes-list-type is map";
                self.invalid_whole(at, "items", items, why);
            }
            _ => {}
        }
        // Upstream continues only with a proper schema for the items.
        if items.as_object().is_none() {
            return;
        }
        let items_at = at.name("items");
        let ty = items.str_at(&["type"]);
        if ty != "object" {
            let why = "must be object if parent array's x-kubernetes-list-type is map";
            return self.invalid(&items_at, "type", ty, why);
        }
        let properties_at = items_at.name("properties");
        let mut seen = HashSet::new();
        for key in keys.items().iter().filter_map(Value::as_str) {
            match items.get("properties").as_object().and_then(|p| p.get(key)) {
                Some(property) if matches!(property.str_at(&["type"]), "array" | "object") => {
                    // Upstream shows the type of the item, not that of the key.
                    let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                    self.invalid(&properties_at.key(key), "type", ty, why);
                }
                Some(_) => {}
                // Repeated for each missing key, as upstream.
                None => self.invalid_whole(at, KEYS, keys, "entries must all be names of item properties"),
            }
            // A repeated key is reported in addition to what is wrong with it.
            if !seen.insert(key) {
                self.invalid_whole(at, KEYS, keys, "must not contain duplicate entries");
            }
        }
    }

    /// Keys of lists of type map must always be present, and items of maps and sets must not be null.
    pub(super) fn map_keys(&mut self, s: &Value, at: &At<'_>) {
        let (items, list_type) = (s.get("items"), s.str_at(&["x-kubernetes-list-type"]));
        if items.as_object().is_none() || !matches!(list_type, "set" | "map") {
            return;
        }
        let items_at = at.name("items");
        let nullable = |s: &Value| s.get("nullable").as_bool() == Some(true);
        if nullable(items) {
            let why = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
            self.forbidden(&items_at, "nullable", &why);
        }
        if list_type != "map" {
            return;
        }
        let required: HashSet<&str> = items.get("required").items().iter().filter_map(Value::as_str).collect();
        let properties_at = items_at.name("properties");
        for key in s
            .get("x-kubernetes-list-map-keys")
            .items()
            .iter()
            .filter_map(Value::as_str)
        {
            // Keys that are not properties are reported by `map`.
            let Some(property) = items.get("properties").as_object().and_then(|p| p.get(key)) else {
                continue;
            };
            let key_at = properties_at.key(key);
            // A default makes the key present in every item, so that identities are complete.
            if !required.contains(key) && property.get("default").is_null() {
                let why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
                self.required(&key_at, "default", why);
            }
            if nullable(property) {
                let why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
                self.forbidden(&key_at, "nullable", why);
            }
        }
    }
}
