//! Schemas within `allOf`, `anyOf`, `oneOf` and `not`: they may only restrict values, not describe their
//! structure.

use super::{Checker, flag, is_int_or_string, is_set};
use crate::apimachinery::field::FieldError;
use crate::apimachinery::value::{Map, Value};
use crate::interrupt::checkpoint;
use crate::schema::path::At;

/// Keywords that must be absent, and the reason.
const ABSENT: [(&str, &str); 4] = [
    ("additionalProperties", "must be undefined to be structural"),
    ("default", "must be undefined to be structural"),
    ("x-kubernetes-list-type", "must be undefined to be structural"),
    ("x-kubernetes-map-type", "must be undefined to be structural"),
];
const EMPTY: [&str; 5] = [
    "type",
    "title",
    "description",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-validations",
];
const FALSE: [&str; 4] = [
    "nullable",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
];

impl Checker<'_> {
    /// `idiom` is true if the schema's `anyOf` is the one of int-or-string.
    pub(super) fn nested(&mut self, s: &Value, at: &At<'_>, idiom: bool) {
        checkpoint();
        if idiom && is_int_or_string(s.get("anyOf")) {
            // A copy without the idiom, so that the rest of the branch is still checked.
            let mut rest = s.clone();
            rest.unset(&["anyOf"]);
            self.constraints(&rest, at, false);
        } else {
            self.constraints(s, at, false);
        }
        if s.get("items").as_object().is_some() {
            self.nested(s.get("items"), &at.name("items"), false);
        }
        let properties = s.get("properties").as_object();
        let properties_at = at.name("properties");
        for (name, property) in properties.into_iter().flat_map(Map::iter) {
            self.nested(property, &properties_at.key(name), false);
        }
        for (word, why) in ABSENT {
            // `additionalProperties: false` is lost when upstream converts a nested schema.
            if is_set(s, word) && s.get(word).as_bool() != Some(false) {
                self.forbidden(at, word, why);
            }
        }
        // Fields with `omitempty` in Go: their zero values cannot be told from absence.
        for word in EMPTY {
            if !s.get(word).is_empty_value() {
                self.forbidden(at, word, "must be empty to be structural");
            }
        }
        for word in FALSE {
            if flag(s, word) {
                self.forbidden(at, word, "must be false to be structural");
            }
        }
        if properties.is_some_and(|p| p.contains_key("metadata")) {
            let path = self.path(&properties_at.key("metadata"));
            let why = "must not be specified in a nested context";
            self.errors.push(FieldError::forbidden(&path, why));
        }
    }
}
