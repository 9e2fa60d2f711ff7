//! Shows that the comparison can fail: a changed status code, header or field of a recorded response is a
//! difference.

use crate::case::{Compare, Step};
use crate::compare::compare;
use crate::details;
use crate::normalise::Normaliser;
use crate::recordings;
use serde_json::{Value, json};

/// Fields that are changed in each response.
const FIELDS: usize = 5;

/// The paths of the differences.
fn found(step: &Step, want: &Value, got: &Value) -> Vec<String> {
    compare(step, want, got).into_iter().map(|d| d.path).collect()
}

/// JSON pointers to all leaves.
fn leaves(value: &Value, at: &str, into: &mut Vec<String>) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            for (key, value) in members {
                let key = key.replace('~', "~0").replace('/', "~1");
                leaves(value, &format!("{at}/{key}"), into);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (i, item) in items.iter().enumerate() {
                leaves(item, &format!("{at}/{i}"), into);
            }
        }
        _ => into.push(at.to_owned()),
    }
}

#[test]
fn a_changed_status_header_or_field_is_a_difference() {
    let mut changed = 0;
    for recording in &recordings::load(&recordings::directory()) {
        let id = recording.case.id();
        for (step, want) in recording.case.steps.iter().zip(&recording.recorded) {
            let at = format!("{id} {}", step.id);
            assert!(found(step, want, want).is_empty(), "{at}: a response equals itself");
            let mut got = want.clone();
            got["status"] = json!(999);
            assert_eq!(found(step, want, &got), ["status"], "{at}");
            if step.compare == Compare::Everything {
                headers(step, want, &at);
                changed += fields(step, want, &at);
            }
        }
    }
    assert!(changed > 10_000, "only {changed} fields were changed");
}

fn headers(step: &Step, want: &Value, at: &str) {
    for name in want["headers"].as_object().into_iter().flat_map(|h| h.keys()) {
        let expected = [format!("header {name}")];
        let mut got = want.clone();
        got["headers"][name] = json!("other");
        assert_eq!(found(step, want, &got), expected, "{at}: changed");
        got["headers"].as_object_mut().unwrap().remove(name);
        assert_eq!(found(step, want, &got), expected, "{at}: removed");
    }
    let mut got = want.clone();
    got["headers"]["X-New"] = json!("v");
    assert_eq!(found(step, want, &got), ["header X-New"], "{at}: added");
}

/// Changes some leaves of the body or events, one at a time.
fn fields(step: &Step, want: &Value, at: &str) -> usize {
    let mut pointers = Vec::new();
    for part in ["body", "events", "calls"] {
        if let Some(value) = want.get(part) {
            leaves(value, &format!("/{part}"), &mut pointers);
        }
    }
    // For some messages only the presence is compared; the next test shows which.
    pointers.retain(|p| !p.ends_with("/message") && p != "/events");
    let stride = (pointers.len() / FIELDS).max(1);
    let chosen = pointers.iter().step_by(stride);
    chosen
        .map(|pointer| {
            let mut got = want.clone();
            *got.pointer_mut(pointer).unwrap() = json!("something else");
            assert!(!found(step, want, &got).is_empty(), "{at}: {pointer} changed");
        })
        .count()
}

#[test]
fn an_added_or_missing_field_is_a_difference() {
    let step = Step::default();
    let want = json!({"status": 200, "headers": {}, "body": {"kind": "Pod", "spec": {"a": [1, 2]}}});
    let with = |pointer: &str, value: Value| {
        let mut got = want.clone();
        *got.pointer_mut(pointer).unwrap() = value;
        found(&step, &want, &got)
    };
    assert_eq!(with("/body/spec", json!({"a": [1, 2], "b": null})), ["spec.b"]);
    assert_eq!(with("/body/spec", json!({})), ["spec.a"]);
    assert_eq!(with("/body/spec/a", json!([1])), ["spec.a[1]"]);
    assert_eq!(with("/body/spec/a", json!([1, 2, 3])), ["spec.a[2]"]);
    assert_eq!(with("/body/spec/a", json!([2, 1])), ["spec.a[0]", "spec.a[1]"]);
    assert_eq!(with("/body/spec/a/0", json!(1.0)), ["spec.a[0]"]);
    assert_eq!(with("/body", json!("text")), ["."]);
    assert_eq!(found(&step, &want, &json!({"status": 200, "headers": {}})), ["."]);
    let superset = Step {
        superset: true,
        ..Step::default()
    };
    let more = json!({"status": 200, "headers": {}, "body": {"kind": "Pod", "spec": {"a": [1, 2], "b": 1}}});
    assert_eq!(found(&superset, &want, &more), [""; 0]);
    assert_eq!(found(&superset, &more, &want), ["spec.b"]);
}

#[test]
fn messages_are_compared_unless_they_show_the_implementation() {
    let step = Step::default();
    let status = |message: &str| {
        let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message});
        json!({"status": 400, "headers": {}, "body": body})
    };
    let differ = |a: &str, b: &str| !found(&step, &status(a), &status(b)).is_empty();
    assert!(differ("pods \"a\" not found", "pods \"b\" not found"));
    assert!(differ("invalid: [first, second]", "invalid: [first, third]"));
    assert!(!differ("invalid: [first, second]", "invalid: [second, first]"));
    assert!(!differ(
        "json: cannot unmarshal string into Go value",
        "expected a number"
    ));
    assert!(differ("json: cannot unmarshal string into Go value", ""));
    for plain in [
        "not found",
        "apps/v1.Deployment is required",
        "bitmap[0]",
        "no kind \"X\"",
    ] {
        assert!(!details::is_implementation(plain), "{plain}");
    }
    for detail in [
        "v1.Pod{Name:a}",
        "got map[a:b]",
        "no kind \"X\" is registered for version \"v1\"",
    ] {
        assert!(details::is_implementation(detail), "{detail}");
    }
}

#[test]
fn normalised_values_still_show_whether_they_changed() {
    let (one, two) = (
        "8c5a3b7e-0d5c-4f6e-9a3e-1b2c3d4e5f60",
        "8c5a3b7e-0d5c-4f6e-9a3e-1b2c3d4e5f61",
    );
    let object = |uid: &str, version: &str| json!({"uid": uid, "resourceVersion": version});
    let mut n = Normaliser::default();
    let first = n.document(&object(one, "7"), "create");
    assert_eq!(
        first,
        json!({"uid": "<uid:create.uid>", "resourceVersion": "<rv:create.resourceVersion>"})
    );
    assert_eq!(n.document(&object(one, "7"), "get"), first);
    let later = n.document(&object(two, "8"), "get");
    assert_eq!(
        later,
        json!({"uid": "<uid:get.uid>", "resourceVersion": "<rv:get.resourceVersion>"})
    );
    n.sent(&json!({"time": "2031-01-01T00:00:00Z", "uid": two.replace('8', "9"), "nodePort": 30001}));
    let kept = json!({"time": "2031-01-01T00:00:00Z", "uid": two.replace('8', "9"), "nodePort": 30001});
    assert_eq!(n.document(&kept, "get"), kept, "what the case sent stays");
    let made = json!({"generateName": "a-", "name": "a-bcdfg", "nodePort": 30002, "continue": "x"});
    let expected = json!({"generateName": "a-", "name": "a-<generated>", "nodePort": "<nodeport:get.nodePort>",
                          "continue": "<continue>"});
    assert_eq!(n.document(&made, "get"), expected);
    let wrong = json!({"generateName": "b-", "name": "b-aeiou"});
    assert_eq!(n.document(&wrong, "get")["name"], "b-<bad-generated>");
    let text = n.document(
        &json!("10.0.0.7 and 10.0.0.0/24, a-ghjkl at 2001-01-01T00:00:00Z"),
        "get",
    );
    assert_eq!(text, "<ip> and 10.0.0.0/24, a-ghjkl at 2001-01-01T00:00:00Z");
}
