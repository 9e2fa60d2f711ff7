use super::*;
use crate::apimachinery::codec::json::to_string;
use crate::json;

fn names(document: &Value, section: &str) -> BTreeSet<Str> {
    let all = document.get(section).as_object();
    all.into_iter().flat_map(Map::keys).map(Str::from).collect()
}

fn document(path: &str, refers: &str, definitions: Value) -> Value {
    let mut d = json!({"paths": {}});
    d.set(
        &["paths", path, "get", "schema", "$ref"],
        format!("#/definitions/{refers}"),
    );
    d.set(&["definitions"], definitions);
    d
}

#[test]
fn definitions_used_only_by_dropped_paths_are_dropped() {
    let mut d = document(
        "/apis/g/v1/a",
        "a",
        json!({"a": {"p": {"$ref": "#/definitions/shared"}}, "b": {"p": {"$ref": "#/definitions/shared"}},
               "shared": {}, "loose": {}}),
    );
    d.set(&["paths", "/version", "get", "schema", "$ref"], "#/definitions/b");
    filter(&mut d, |p| p.starts_with("/apis/g/v1/"));
    let left = names(&d, "definitions");
    assert_eq!(left, ["a", "loose", "shared"].map(Str::from).into());
    assert_eq!(names(&d, "paths").len(), 1);
}

#[test]
fn the_first_document_with_a_path_wins() {
    let mut into = document("/a", "x", json!({"x": {"type": "string"}}));
    merge(&mut into, document("/a", "y", json!({"y": {"type": "object"}})));
    assert_eq!(
        to_string(&into),
        to_string(&document("/a", "x", json!({"x": {"type": "string"}})))
    );
}

#[test]
fn conflicting_definitions_are_renamed() {
    let mut into = document("/a", "x", json!({"x": {"type": "string"}}));
    merge(&mut into, document("/b", "x", json!({"x": {"type": "object"}})));
    merge(&mut into, document("/c", "x", json!({"x": {"type": "object"}})));
    merge(&mut into, document("/d", "x", json!({"x": {"type": "integer"}})));
    let all: Vec<_> = names(&into, "definitions").into_iter().collect();
    assert_eq!(all, ["x", "x_v2", "x_v3"]);
    let refers = |path: &str| into.str_at(&["paths", path, "get", "schema", "$ref"]).to_owned();
    assert_eq!(
        [refers("/a"), refers("/b"), refers("/c"), refers("/d")],
        ["x", "x_v2", "x_v2", "x_v3"].map(|n| format!("#/definitions/{n}"))
    );
}

#[test]
fn kinds_of_equal_definitions_are_united_in_order() {
    let kind = |group: &str| json!({"group": group, "kind": "K", "version": "v1"});
    let with = |groups: &[&str]| {
        let mut d = json!({"x": {"type": "object"}});
        d.set(&["x", KINDS], groups.iter().map(|g| kind(g)).collect::<Vec<_>>());
        d
    };
    let mut into = document("/a", "x", with(&["b", "c"]));
    merge(&mut into, document("/b", "x", with(&["a", "c"])));
    assert_eq!(to_string(into.at(&["definitions"])), to_string(&with(&["a", "b", "c"])));
}
