use super::*;
use crate::json;
use proptest::prelude::*;

fn patch(doc: Value, ops: Value) -> Option<Value> {
    JsonPatch::decode(&json::to_vec(&ops), Decoding::Strict)
        .unwrap()
        .apply(doc)
        .ok()
}

#[test]
fn operations_follow_upstreams_dialect() {
    let doc = json!({"a": {"b": 1}, "l": [1, 2, 3], "x/y": {"~": null}});
    for (ops, want) in [
        (
            json!([{"op": "add", "path": "/a/c", "value": 2}]),
            json!({"a": {"b": 1, "c": 2}, "l": [1, 2, 3], "x/y": {"~": null}}),
        ),
        (
            json!([{"op": "add", "path": "/l/-", "value": 4}, {"op": "remove", "path": "/l/-4"}]),
            json!({"a": {"b": 1}, "l": [2, 3, 4], "x/y": {"~": null}}),
        ),
        (
            json!([{"op": "add", "path": "/l/-1", "value": 4}]),
            json!({"a": {"b": 1}, "l": [1, 2, 3, 4], "x/y": {"~": null}}),
        ),
        (
            json!([{"op": "move", "from": "/l/0", "path": "/l/1"}]),
            json!({"a": {"b": 1}, "l": [2, 1, 3], "x/y": {"~": null}}),
        ),
        (
            json!([{"op": "copy", "from": "/a", "path": "/x~1y/~0"}]),
            json!({"a": {"b": 1}, "l": [1, 2, 3], "x/y": {"~": {"b": 1}}}),
        ),
        (
            json!([{"op": "test", "path": "/a/none", "value": null}, {"op": "replace", "path": "", "value": {}}]),
            json!({}),
        ),
        // An absent member of an object reads as null.
        (
            json!([{"op": "replace", "path": "/a/none", "value": 1}, {"op": "copy", "from": "/none", "path": "/l"}]),
            json!({"a": {"b": 1, "none": 1}, "l": null, "x/y": {"~": null}}),
        ),
        (
            json!([{"op": "test", "path": "/x~1y/~0", "value": null}, {"op": "replace", "path": "/l", "value": 0}]),
            json!({"a": {"b": 1}, "l": 0, "x/y": {"~": null}}),
        ),
    ] {
        assert_eq!(patch(doc.clone(), ops.clone()), Some(want), "{ops:?}");
    }
    for op in [
        json!({"op": "remove", "path": "/a/none"}),
        json!({"op": "replace", "path": "/l/3", "value": 1}),
        json!({"op": "copy", "from": "/l/3", "path": "/a/c"}),
        json!({"op": "replace", "path": "/none/x", "value": 1}),
        json!({"op": "add", "path": "/none/x", "value": 1}),
        json!({"op": "add", "path": "", "value": {}}),
        json!({"op": "add", "path": "/l/4", "value": 1}),
        json!({"op": "remove", "path": "/l/abc"}),
        json!({"op": "remove", "path": "/l/3"}),
        json!({"op": "test", "path": "/l/3", "value": null}),
        json!({"op": "test", "path": "/a/b", "value": 1.5}),
        json!({"op": "Add", "path": "/a/c", "value": 1}),
        json!({"op": "add", "value": 1}),
        json!({"op": "replace", "path": "", "value": 1}),
        json!({"op": "move", "path": "/a"}),
    ] {
        assert_eq!(patch(doc.clone(), json!([op])), None, "{op:?}");
    }
}

#[test]
fn copied_bytes_are_limited_like_upstream() {
    let text = "x".repeat(1 << 20);
    let copy = |i: usize| json!({"op": "copy", "from": "/a", "path": (format!("/{i}"))});
    let doc = json!({"a": text});
    let ops = |n| Value::Array((0..n).map(copy).collect());
    assert!(patch(doc.clone(), ops(2)).is_some());
    assert!(
        patch(doc, ops(3)).is_none(),
        "three copies of 1 MiB plus quotes exceed the limit"
    );
    let doubled = json!({"op": "copy", "from": "/a", "path": "/a/-"});
    assert!(patch(json!({"a": [1]}), Value::Array(vec![doubled; 100])).is_none());
}

#[test]
fn moved_bytes_are_limited() {
    let doc = Value::Object([("l", Value::Array(vec![Value::Null; 1 << 20]))].into_iter().collect());
    let op = json!({"op": "add", "path": "/l/0", "value": 1});
    let few = patch(doc.clone(), Value::Array(vec![op.clone(); 10])).map(|v| v.get("l").items().len());
    assert_eq!(few, Some((1 << 20) + 10));
    assert!(patch(doc, Value::Array(vec![op; 200])).is_none());
}

#[test]
fn oversized_and_malformed_patches_are_rejected() {
    let op = json!({"op": "add", "path": "/x", "value": "1"});
    let body = json::to_vec(&Value::Array(vec![op; MAX_OPERATIONS + 1]));
    let e = JsonPatch::decode(&body, Decoding::Strict).unwrap_err();
    assert_eq!(
        (e.code, e.message.as_str()),
        (
            413,
            "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
        )
    );
    let e = JsonPatch::decode(b"[", Decoding::Strict).unwrap_err();
    assert_eq!(
        (e.code, e.message.as_str()),
        (400, "error decoding patch: unexpected end of JSON input")
    );
    assert_eq!(
        JsonPatch::decode(b"{}", Decoding::Lenient).unwrap_err().message,
        "json: cannot unmarshal object into Go value of type jsonpatch.Patch"
    );
    let odd = br#"[{"op":"add","path":1}]"#;
    assert_eq!(
        JsonPatch::decode(odd, Decoding::Strict).unwrap_err().message,
        "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.path of type string"
    );
    // Without strict validation it is decoded, and does not apply.
    let patch = JsonPatch::decode(odd, Decoding::Lenient).unwrap();
    assert_eq!(patch.apply(json!({})).unwrap_err().code, 422);
    assert_eq!(
        JsonPatch::decode(br#"[{"op":"test","x":1}]"#, Decoding::Strict)
            .unwrap()
            .findings,
        [r#"json patch unknown field "[0].x""#]
    );
}

#[test]
fn exponential_copies_are_rejected() {
    let ops: Vec<Value> = (0..64)
        .map(|i| json!({"op": "copy", "from": "", "path": format!("/{i}")}))
        .collect();
    assert_eq!(patch(json!({"a": "x"}), Value::from(ops)), None);
    let ops: Vec<Value> = (0..64)
        .map(|i| json!({"op": "copy", "from": "/a", "path": format!("/a/{i}")}))
        .collect();
    assert_eq!(patch(json!({"a": {"x": 1}}), Value::from(ops)), None);
}

#[test]
fn copies_and_moves_do_not_nest_deeper_than_documents() {
    let nested = |levels: usize| (0..levels).fold(json!({}), |inner, _| json!({"a": inner}));
    let to_the_innermost = |levels: usize| format!("/x{}", "/a".repeat(levels));
    let (mut ops, mut levels) = (Vec::new(), 400);
    while levels < 100_000 {
        ops.push(json!({"op": "copy", "from": "/x", "path": to_the_innermost(levels + 1)}));
        levels = 2 * levels + 1;
    }
    let doc = || json!({"x": nested(400)});
    assert!(patch(doc(), Value::from(ops[..1].to_vec())).is_some());
    assert_eq!(patch(doc(), Value::from(ops)), None);
    // Moves, additions and replacements are limited in the same way.
    let two = || json!({"x": nested(600), "y": nested(600)});
    let path = to_the_innermost(601);
    for op in [
        json!({"op": "move", "from": "/y", "path": path}),
        json!({"op": "add", "path": path, "value": nested(600)}),
        json!({"op": "replace", "path": path, "value": nested(600)}),
    ] {
        assert_eq!(patch(two(), json!([op])), None);
    }
    let shallow = json!([{"op": "move", "from": "/y", "path": "/x/b"}]);
    assert!(patch(two(), shallow).is_some());
}

#[test]
fn moving_a_large_value_is_charged() {
    let op = || match json!({"op": "move", "from": "/a", "path": "/b"}) {
        Value::Object(op) => op,
        _ => unreachable!("an object"),
    };
    let mut doc = json!({"a": Value::from((0..100i64).collect::<Vec<_>>())});
    let mut spent = Spent::default();
    assert!(one(&mut doc, op(), &mut spent).is_some());
    assert!(spent.moved > 100 * size_of::<Value>() as u64, "{}", spent.moved);
}

proptest! {
    #[test]
    fn add_then_remove_restores_the_document(n in 0usize..6, at in 0usize..6, v in any::<i64>()) {
        let doc = Value::from((0..n as i64).collect::<Vec<_>>());
        let at = at.min(n);
        let path = format!("/l/{at}");
        let ops = json!([{"op": "add", "path": path, "value": v}, {"op": "test", "path": path, "value": v}, {"op": "remove", "path": path}]);
        let doc = json!({"l": serde_json::Value::from(doc)});
        prop_assert_eq!(patch(doc.clone(), ops), Some(doc));
    }
}
