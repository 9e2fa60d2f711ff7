use super::*;
use crate::apply::{Member, Scalar, Shape};
use crate::json;

/// A toy schema: `items` is a list keyed by `name`, `set` a set, `atomic` an atomic object; anything else is
/// unconstrained.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::apply) enum Toy {
    Object,
    Items,
    Set,
    Atomic,
    Text,
    Map,
}

impl ApplySchema for Toy {
    fn shape(self) -> Shape<Self> {
        match self {
            Self::Object | Self::Map => Shape::Object,
            Self::Items => Shape::Keyed(Self::Object),
            Self::Set => Shape::Set(Self::Text),
            Self::Atomic => Shape::AtomicObject,
            Self::Text => Shape::Scalar(Scalar::Untyped),
        }
    }
    fn member(self, name: &str) -> Option<Member<Self>> {
        let schema = match (self, name) {
            (Self::Map, _) => {
                return Some(Member {
                    schema: Self::Text,
                    declared: false,
                });
            }
            (_, "items") => Self::Items,
            (_, "set" | "finalizers") => Self::Set,
            (_, "atomic" | "managedFields") => Self::Atomic,
            (_, "metadata" | "spec" | "status") => Self::Object,
            (_, "labels" | "data") => Self::Map,
            (_, "bogus") => return None,
            _ => Self::Text,
        };
        Some(Member { schema, declared: true })
    }
    fn key(&self, i: usize) -> Option<&str> {
        (*self == Self::Items && i == 0).then_some("name")
    }
    fn key_default(self, _: &str) -> Option<Value> {
        None
    }
    fn empty(self) -> Value {
        json!({"metadata": {}, "spec": {}, "status": {}})
    }
}

pub(in crate::apply) fn writer<'a>(manager: &'a str, now: &'a str) -> Writer<'a> {
    Writer {
        manager,
        subresource: "",
        api_version: "v1",
        now,
    }
}

fn written(live: Option<&Value>, mut new: Value, manager: &str, now: &str) -> Value {
    update_managed_fields(
        Toy::Object,
        live,
        &mut new,
        &writer(manager, now),
        &FieldSet::of_fields(&[&["status"]]),
    );
    new
}

fn fields(v: &Value) -> Vec<(String, Value)> {
    v.at(&["metadata", "managedFields"])
        .items()
        .iter()
        .map(|e| (e.str_at(&["manager"]).to_owned(), e.get("fieldsV1").clone()))
        .collect()
}

#[test]
fn create_owns_set_fields_and_created_parents() {
    let v = written(
        None,
        json!({"apiVersion": "v1", "kind": "T", "metadata": {"name": "n", "labels": {"a": "b"}},
        "spec": {"x": 1, "items": [{"name": "i", "v": 1}], "set": ["s"], "atomic": {"p": {"q": 1}}}, "status": {"y": 1}}),
        "m",
        "T1",
    );
    assert_eq!(
        fields(&v),
        [(
            "m".to_owned(),
            json!({
                "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
                "f:spec": {"f:atomic": {}, "f:items": {".": {}, "k:{\"name\":\"i\"}": {".": {}, "f:name": {}, "f:v": {}}}, "f:set": {".": {}, "v:\"s\"": {}}, "f:x": {}},
            })
        )]
    );
    let e = &v.at(&["metadata", "managedFields"]).items()[0];
    assert_eq!(
        (e.str_at(&["operation"]), e.str_at(&["time"]), e.str_at(&["fieldsType"])),
        ("Update", "T1", "FieldsV1")
    );
}

#[test]
fn ownership_moves_with_changes_and_empty_entries_are_removed() {
    let a = written(None, json!({"spec": {"x": 1, "y": 1}}), "a", "2001-01-01T00:00:01Z");
    let mut change = a.clone();
    change.set(&["spec", "x"], 2i64);
    let b = written(Some(&a), change, "b", "2001-01-01T00:00:02Z");
    assert_eq!(
        fields(&b),
        [
            ("a".to_owned(), json!({"f:spec": {"f:y": {}}})),
            ("b".to_owned(), json!({"f:spec": {"f:x": {}}}))
        ]
    );
    let mut change = b.clone();
    change.unset(&["spec", "y"]);
    let c = written(Some(&b), change, "c", "2001-01-01T00:00:03Z");
    assert_eq!(fields(&c), [("b".to_owned(), json!({"f:spec": {"f:x": {}}}))]);
    assert_eq!(
        c.at(&["metadata", "managedFields"]).items()[0].str_at(&["time"]),
        "2001-01-01T00:00:02Z"
    );
}

#[test]
fn clients_can_reset_or_replace_but_not_corrupt_managed_fields() {
    let live = written(None, json!({"spec": {"x": 1}}), "a", "T");
    let send = |mf: Value, sub: &str| {
        let mut new = live.clone();
        new.set(&["metadata", "managedFields"], mf);
        let w = Writer {
            subresource: sub,
            ..writer("b", "T2")
        };
        update_managed_fields(Toy::Object, Some(&live), &mut new, &w, &FieldSet::new());
        new
    };
    assert!(fields(&send(json!([]), "")).is_empty() && fields(&send(json!([{}]), "")).is_empty());
    assert_eq!(fields(&send(json!([{"operation": "Nope"}]), "")), fields(&live));
    assert_eq!(fields(&send(Value::Null, "")), fields(&live));
    assert_eq!(fields(&send(json!([]), "status")), fields(&live));
    let mine = json!([{"manager": "z", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:x": {}}}}]);
    assert_eq!(
        fields(&send(mine, "")),
        [("z".to_owned(), json!({"f:spec": {"f:x": {}}}))]
    );
    let mut untracked = live.clone();
    untracked.unset(&["metadata", "managedFields"]);
    assert!(fields(&written(Some(&untracked), json!({"spec": {"x": 2}}), "b", "T")).is_empty());
}

#[test]
fn eleventh_updater_merges_the_two_oldest_entries() {
    let mut v = written(None, json!({"spec": {"f00": 0}}), "m00", "2001-01-01T00:00:00Z");
    for i in 1..12 {
        let mut new = v.clone();
        new.set(&["spec", &format!("f{i:02}")], i64::from(i));
        v = written(Some(&v), new, &format!("m{i:02}"), &format!("2001-01-01T00:00:{i:02}Z"));
    }
    let f = fields(&v);
    assert_eq!(f.len(), 10);
    assert_eq!(
        f[0],
        (
            ANCIENT.to_owned(),
            json!({"f:spec": {"f:f00": {}, "f:f01": {}, "f:f02": {}}})
        )
    );
    assert_eq!(
        v.at(&["metadata", "managedFields"]).items()[0].str_at(&["time"]),
        "2001-01-01T00:00:02Z"
    );
}

/// Version `v1` is the only one that managed fields can be converted to.
struct OneVersion;

impl Versions<Toy> for OneVersion {
    fn at(&self, _: &Value, _: &str) -> crate::apply::AtVersion<Toy> {
        crate::apply::AtVersion::Same
    }
    fn shape(&self, api_version: &str) -> Option<usize> {
        (api_version == "v1").then_some(0)
    }
}

#[test]
fn a_create_drops_entries_of_unknown_versions_and_all_if_a_version_is_malformed() {
    let entries_after = |version: &str| {
        let sent = json!([{"manager": "m", "operation": "Apply", "apiVersion": (version), "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:y": {}}}}]);
        let mut new = json!({"metadata": {"name": "a"}, "spec": {"x": 1}});
        new.set(&["metadata", "managedFields"], sent);
        update_managed_fields_across(
            Toy::Object,
            None,
            &mut new,
            &writer("w", "t"),
            &FieldSet::new(),
            &OneVersion,
        );
        new.at(&["metadata", "managedFields"]).items().len()
    };
    assert_eq!(entries_after("v1"), 2);
    assert_eq!(entries_after("v2"), 1);
    assert_eq!(entries_after("a/b/c"), 0);
}
