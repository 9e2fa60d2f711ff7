//! Completeness: every field that a junctor restricts must be described outside of it. As upstream, only the
//! junctors of the root are followed (`k8s.io/apiextensions-apiserver/pkg/apiserver/schema/complete.go`).

use super::Checker;
use crate::apimachinery::field::FieldError;
use crate::apimachinery::value::{Map, Value};
use crate::interrupt::checkpoint;
use crate::schema::path::At;

pub(super) fn check(checker: &mut Checker<'_>, root: &Value) {
    // Starts from the root only, as upstream: junctors of nested nodes are not followed.
    junctors(checker, root, root, &At::ROOT, &At::ROOT);
}

/// `v` restricts values that `s` describes; `s` is at `at`, and `v` at `from`.
fn junctors(checker: &mut Checker<'_>, v: &Value, s: &Value, at: &At<'_>, from: &At<'_>) {
    if v.get("not").as_object().is_some() {
        nested(checker, v.get("not"), s, at, &from.name("not"));
    }
    for word in ["allOf", "anyOf", "oneOf"] {
        let from = from.name(word);
        for (i, branch) in v.get(word).items().iter().enumerate() {
            nested(checker, branch, s, at, &from.index(i));
        }
    }
}

fn nested(checker: &mut Checker<'_>, v: &Value, s: &Value, at: &At<'_>, from: &At<'_>) {
    checkpoint();
    // A branch may have junctors of its own, which restrict the same value.
    junctors(checker, v, s, at, from);
    if v.get("items").as_object().is_some() {
        let (at, from) = (at.name("items"), from.name("items"));
        match s.get("items") {
            // Follows both schemas in parallel; where the description ends, the restriction has nothing to refine.
            items @ Value::Object(_) => nested(checker, v.get("items"), items, &at, &from),
            _ => missing(checker, &at, &from),
        }
    }
    let (at, from) = (at.name("properties"), from.name("properties"));
    for (name, property) in v.get("properties").as_object().into_iter().flat_map(Map::iter) {
        let (at, from) = (at.key(name), from.key(name));
        match s.get("properties").as_object().and_then(|p| p.get(name)) {
            Some(declared) => nested(checker, property, declared, &at, &from),
            None => missing(checker, &at, &from),
        }
    }
}

fn missing(checker: &mut Checker<'_>, at: &At<'_>, from: &At<'_>) {
    let (path, from) = (checker.path(at), checker.path(from));
    let why = format!("because it is defined in {from}");
    checker.errors.push_with(|| FieldError::required(&path, why));
}
