use super::*;
use crate::json;
use proptest::prelude::*;

/// A toy schema: a field name has the same meaning everywhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct Toy;

impl PatchSchema for Toy {
    fn field(self, name: &str) -> Option<FieldPatch<Self>> {
        let f = |merge, replace, merge_key| {
            Some(FieldPatch {
                schema: self,
                merge,
                replace,
                merge_key,
            })
        };
        match name {
            "bogus" => None,
            "containers" | "env" | "volumes" => f(true, false, Some("name")),
            "ports" => f(true, false, Some("containerPort")),
            "finalizers" => f(true, false, None),
            "selector" => f(false, true, None),
            _ => f(false, false, None),
        }
    }
    fn type_name(self) -> &'static str {
        "Toy"
    }
}

fn patched(doc: Value, patch: Value) -> Result<Value, Status> {
    let mut doc = doc;
    let Value::Object(patch) = patch else {
        panic!("a patch is an object")
    };
    apply(&mut doc, patch, Toy).map(|()| doc)
}

#[test]
fn directives_have_the_documented_effects() {
    let doc = json!({
        "containers": [{"name": "a", "image": "1", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}, {"name": "b"}],
        "finalizers": ["1", "2"], "labels": {"x": "y"}, "selector": {"p": "q"}, "plain": [1, 2],
        "strategy": {"type": "R", "rolling": {"n": 1}},
    });
    for (patch, key, want) in [
        (
            json!({"containers": [{"name": "a", "image": "2"}]}),
            "containers",
            json!([{"name": "a", "image": "2", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}, {"name": "b"}]),
        ),
        (
            json!({"containers": [{"name": "n"}]}),
            "containers",
            json!([{"name": "n"}, {"name": "a", "image": "1", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}, {"name": "b"}]),
        ),
        (
            json!({"containers": [{"name": "b", "$patch": "delete"}, {"name": "a", "env": [{"name": "A", "$patch": "delete"}]}]}),
            "containers",
            json!([{"name": "a", "image": "1", "env": [{"name": "B", "value": "2"}]}]),
        ),
        (
            json!({"containers": [{"$patch": "replace"}, {"name": "solo"}]}),
            "containers",
            json!([{"name": "solo"}]),
        ),
        (
            json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}),
            "containers",
            json!([{"name": "b"}, {"name": "a", "image": "1", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}]),
        ),
        (json!({"finalizers": ["3", "1"]}), "finalizers", json!(["3", "1", "2"])),
        (
            json!({"$deleteFromPrimitiveList/finalizers": ["2", "none"]}),
            "finalizers",
            json!(["1"]),
        ),
        (
            json!({"$setElementOrder/finalizers": ["2", "1"], "finalizers": []}),
            "finalizers",
            json!(["2", "1"]),
        ),
        (
            json!({"labels": {"$patch": "replace", "only": "this"}}),
            "labels",
            json!({"only": "this"}),
        ),
        (json!({"labels": {"$patch": "delete"}}), "labels", json!({})),
        (json!({"labels": null}), "labels", Value::Null),
        (json!({"selector": {"r": "s"}}), "selector", json!({"r": "s"})),
        (json!({"plain": [3]}), "plain", json!([3])),
        (
            json!({"strategy": {"$retainKeys": ["type"], "type": "C"}}),
            "strategy",
            json!({"type": "C"}),
        ),
        (
            json!({"new": {"a": null, "b": {"$patch": "explode"}, "c": [{"$patch": "x"}, 1]}}),
            "new",
            json!({"c": [1]}),
        ),
        (json!({"new": {"$patch": "explode"}}), "new", Value::Null),
        (json!({"$deleteFromPrimitiveList/none": ["2"]}), "none", Value::Null),
    ] {
        assert_eq!(
            *patched(doc.clone(), patch.clone()).unwrap().get(key),
            want,
            "{patch:?}"
        );
    }
}

#[test]
fn elements_of_other_types_are_shown_with_the_stored_ones() {
    let e = patched(json!({"finalizers": ["x"]}), json!({"finalizers": [["y"]]})).unwrap_err();
    assert_eq!(e.message, "list element types are not identical: [[x] [[y]]]");
}

#[test]
fn errors_match_upstream() {
    let doc = json!({"containers": [{"name": "a", "ports": [{"containerPort": 80}]}], "labels": {"a": "b"}, "bogus": {"a": 1}, "s": {"type": "a"}, "finalizers": [["x"]]});
    for (patch, code, message) in [
        (
            json!({"containers": [{"image": "x"}]}),
            500,
            "map: map[image:x] does not contain declared merge key: name",
        ),
        (
            json!({"containers": [{"$patch": "delete"}]}),
            500,
            "map: map[$patch:delete] does not contain declared merge key: name",
        ),
        (
            json!({"containers": [{"name": "a", "$patch": "merge"}]}),
            500,
            "merging lists cannot yet be specified in the patch",
        ),
        (
            json!({"labels": {"$patch": "explode"}}),
            500,
            "unknown patch type: explode in map: map[$patch:explode]",
        ),
        (
            json!({"labels": {"$patch": 1}}),
            500,
            "unknown patch type: %!s(int64=1) in map: map[$patch:1]",
        ),
        (
            json!({"$setElementOrder/containers": {"x": "y"}}),
            500,
            "expected a []interface {}, but received a map[string]interface {}",
        ),
        (
            json!({"$setElementOrder": {"x": "y"}}),
            500,
            "expected a []interface {}, but received a map[string]interface {}",
        ),
        (
            json!({"$setElementOrder": []}),
            400,
            "invalid patch format of setElementOrder list",
        ),
        (
            json!({"bogus": {"a": 2}}),
            500,
            "unable to find api field in struct Toy for the json field \"bogus\"",
        ),
        (
            json!({"s": {"$retainKeys": ["type"], "other": 1}}),
            400,
            "invalid patch format of retainKeys",
        ),
        (
            json!({"s": {"$retainKeys": "type"}}),
            400,
            "invalid patch format of retainKeys",
        ),
        (
            json!({"$deleteFromPrimitiveList": ["x"]}),
            400,
            "invalid patch format of primitive list",
        ),
        (
            json!({"$setElementOrder/containers": "x"}),
            500,
            "expected a []interface {}, but received a string",
        ),
        (
            json!({"$setElementOrder/containers": null}),
            500,
            "expected a []interface {}, but received a %!s(<nil>)",
        ),
        (
            json!({"$setElementOrder/containers": [{"name": "a"}], "containers": null}),
            500,
            "expected a []interface {}, but received a %!s(<nil>)",
        ),
        (
            json!({"$setElementOrder/containers": [{"x": "y"}]}),
            500,
            "map: map[x:y] does not contain declared merge key: name",
        ),
        (
            json!({"$setElementOrder/bogus": [{"name": "a"}]}),
            500,
            "expected a []interface {}, but received a map[string]interface {}",
        ),
        (
            json!({"finalizers": ["x"]}),
            422,
            "the server rejected our request due to an error in our request",
        ),
        (
            json!({"$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "new", "image": "n:3"}]}),
            500,
            "The order in patch list:\n[map[image:n:3 name:new]]\n doesn't match $setElementOrder list:\n[map[name:a]]\n",
        ),
    ] {
        let e = patched(doc.clone(), patch.clone()).unwrap_err();
        assert_eq!((e.code, e.message.as_str()), (code, message), "{patch:?}");
    }
}

#[test]
fn inconsistent_element_orders_are_refused_as_upstream() {
    let doc = json!({"containers": [{"name": "a"}], "none": [], "volumes": []});
    for (patch, message) in [
        (
            json!({"$setElementOrder/containers": ["a"], "containers": [{"name": "a", "image": "1"}]}),
            "expected a map[string]interface {}, but received a string",
        ),
        (
            json!({"$setElementOrder/containers": [{"name": "a"}], "containers": ["a"]}),
            "expected a map[string]interface {}, but received a string",
        ),
        (
            json!({"$setElementOrder/containers": [{"name": "a"}], "containers": [{"image": "1"}]}),
            "map: map[image:1] does not contain declared merge key: name",
        ),
        (
            json!({"$setElementOrder/containers": [{"image": "1"}], "containers": [{"name": "a"}]}),
            "map: map[image:1] does not contain declared merge key: name",
        ),
        // Without a list in the patch, the live items are looked for.
        (
            json!({"$setElementOrder/containers": [{"name": "b"}, "a"]}),
            "value for key 1 is not a map.",
        ),
        (
            json!({"$setElementOrder/containers": [{"name": "a"}, "b"]}),
            "expected a map[string]interface {}, but received a string",
        ),
        (
            json!({"$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "a"}, {"$patch": "replace"}]}),
            "The order in patch list:\n[map[name:a] map[$patch:replace]]\n doesn't match $setElementOrder list:\n[map[name:a]]\n",
        ),
        (
            json!({"$setElementOrder/volumes": [{"name": "a"}]}),
            "no elements in any of the given slices",
        ),
        (
            json!({"$setElementOrder/env": [], "env": []}),
            "no elements in any of the given slices",
        ),
        (
            json!({"$setElementOrder/none": ["a", 1], "none": ["a", 1]}),
            "list element types are not identical: [[] [a 1]]",
        ),
        // Directives come before the items without one, which are looked at one by one.
        (
            json!({"containers": [{"image": "1"}, {"name": "a", "$patch": 1}]}),
            "unknown patch type: %!s(int64=1) in map: map[$patch:1 name:a]",
        ),
        (
            json!({"containers": [{"image": "1"}, {"name": "a", "$retainKeys": 1}]}),
            "map: map[image:1] does not contain declared merge key: name",
        ),
    ] {
        let e = patched(doc.clone(), patch.clone()).unwrap_err();
        assert_eq!((e.code, e.message.as_str()), (500, message), "{patch:?}");
    }
}

#[test]
fn element_orders_accept_directives_duplicates_and_unknown_names() {
    let doc = json!({"containers": [{"name": "a"}, {"name": "b"}, {"name": "s"}]});
    for (order, items, want) in [
        (
            json!([{"name": "b"}, {"name": "x"}, {"name": "a"}, {"name": "b"}]),
            Value::Null,
            "b a s",
        ),
        (
            json!([{"name": "n"}, {"name": "b"}]),
            json!([{"$patch": "replace"}, {"name": "n"}]),
            "n",
        ),
        (
            json!([{"name": "b"}, {"name": "a"}]),
            json!([{"name": "s", "$patch": "delete"}]),
            "b a",
        ),
        // New items are behind the remaining live ones if they take the place of deleted ones, otherwise in front.
        (json!([{"name": "n"}]), json!([{"name": "n"}]), "n a b s"),
        (
            json!([{"name": "n"}, {"name": "b"}]),
            json!([{"name": "n"}, {"name": "a", "$patch": "delete"}]),
            "s n b",
        ),
        (
            json!([{"name": "m"}, {"name": "n"}]),
            json!([{"name": "a", "$patch": "delete"}, {"name": "m"}, {"name": "n"}]),
            "b s m n",
        ),
        (
            json!([{"name": "n"}]),
            json!([{"name": "a", "$patch": "delete"}, {"name": "b", "$patch": "delete"}, {"name": "n"}]),
            "s n",
        ),
    ] {
        let mut patch = Value::object();
        patch.set(&["$setElementOrder/containers"], order);
        if !items.is_null() {
            patch.set(&["containers"], items);
        }
        let got = patched(doc.clone(), patch.clone()).unwrap();
        let names: Vec<&str> = (got.get("containers").items().iter())
            .map(|item| item.str_at(&["name"]))
            .collect();
        assert_eq!(names.join(" "), want, "{patch:?}");
    }
}

#[test]
fn integer_and_float_merge_keys_differ() {
    let got = patched(
        json!({"ports": [{"containerPort": 80}]}),
        json!({"ports": [{"containerPort": 80.0, "x": 1}]}),
    )
    .unwrap();
    assert_eq!(got.get("ports").items().len(), 2);
}

proptest! {
    #[test]
    fn batched_members_change_like_single_ones(
        before in proptest::collection::btree_map("[!a-h]{1,2}", 0i64..9, 0..30),
        patch in proptest::collection::btree_map(("[!a-h]{1,2}", any::<bool>()), proptest::option::of(0i64..9), 0..30),
    ) {
        let mut want: Map = before.into_iter().collect();
        let doc = Value::Object(want.clone());
        let member = |((name, directive), v): ((String, bool), Option<i64>)| match directive {
            true => (format!("$deleteFromPrimitiveList/{name}"), Value::Null),
            false => (name, Value::from(v)),
        };
        let patch: Map = patch.into_iter().map(member).collect();
        for (k, v) in patch.iter() {
            match v {
                Value::Null => drop(want.remove(k.rsplit('/').next().unwrap())),
                v => drop(want.insert(k, v.clone())),
            }
        }
        prop_assert_eq!(patched(doc, Value::Object(patch)), Ok(Value::Object(want)));
    }
}

proptest! {
    /// Without directives and keyed lists this equals RFC 7386, except for nulls in lists.
    #[test]
    fn schemaless_patch_equals_json_merge_patch(a in super::super::merge::tests::any_value(), b in super::super::merge::tests::any_value()) {
        let doc = json!({"v": serde_json::Value::from(a)});
        let patch = json!({"v": serde_json::Value::from(b)});
        let mut want = doc.clone();
        super::super::merge::apply(&mut want, patch.clone());
        prop_assert_eq!(patched(doc, patch).unwrap(), want);
    }

    #[test]
    fn apply_is_idempotent(
        live in proptest::collection::vec(("[a-e]", any::<u8>()), 0..5), change in proptest::collection::vec(("[a-e]", any::<u8>()), 0..5),
    ) {
        let list = |l: &[(String, u8)]| {
            let mut l = l.to_vec();
            l.sort();
            l.dedup_by(|a, b| a.0 == b.0);
            Value::from(l.iter().rev().map(|(n, v)| json!({"name": n, "v": v})).collect::<Vec<_>>())
        };
        let patch = Value::Object([("containers", list(&change))].into_iter().collect());
        let once = patched(Value::Object([("containers", list(&live))].into_iter().collect()), patch.clone()).unwrap();
        prop_assert_eq!(patched(once.clone(), patch).unwrap(), once);
    }
}
