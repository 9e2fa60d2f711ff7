//! Properties of arbitrary objects and configurations.

use super::apply::by;
use super::*;
use crate::apimachinery::apply::FieldSet;
use proptest::prelude::*;

fn tree() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-5i64..5).prop_map(Value::from),
        "[a-c]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let key = prop_oneof!["spec", "size", "colour", "parts", "k", "p", "status", "x"];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
            proptest::collection::vec((key, inner), 0..4)
                .prop_map(|m| Value::Object(m.into_iter().map(|(k, v)| (Str::from(k), v)).collect())),
        ]
    })
}

fn numbers() -> impl Strategy<Value = Value> {
    let leaf = || proptest::option::of(0i64..3);
    let inner = || {
        let of = |(a, b): (Option<i64>, Option<i64>)| {
            let pairs = [("a", a), ("b", b)].into_iter().filter_map(|(k, v)| Some((k, v?)));
            Value::Object(pairs.collect())
        };
        proptest::option::of((leaf(), leaf()).prop_map(of))
    };
    (inner(), inner(), leaf()).prop_map(|(a, b, n)| {
        let mut v = json!({"spec": {}});
        let members = [("a", a), ("b", b), ("n", n.map(Value::Int))];
        members
            .into_iter()
            .filter_map(|(k, v)| Some((k, v?)))
            .for_each(|(k, member)| v.set(&["spec", k], member));
        v
    })
}

/// A configuration of a gadget with declared, non-empty fields.
fn configuration() -> impl Strategy<Value = Value> {
    let colour = proptest::option::of("[a-c]");
    let parts = proptest::collection::btree_map("[a-d]", proptest::option::of("[x-z]"), 0..4);
    (0i64..3, colour, parts).prop_map(|(size, colour, parts)| {
        let mut o = json!({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "n"}, "spec": {"size": (size)}});
        colour.into_iter().for_each(|c| o.set(&["spec", "colour"], c));
        let part = |(k, v): (String, Option<String>)| {
            let mut part = json!({"k": (k), "p": "udp"});
            v.into_iter().for_each(|v| part.set(&["v"], v));
            part
        };
        let parts: Vec<Value> = parts.into_iter().map(part).collect();
        if !parts.is_empty() {
            o.set(&["spec", "parts"], parts);
        }
        o
    })
}

/// An object without its managed fields.
fn unmanaged(object: &Value) -> Value {
    let mut o = object.clone();
    o.unset(&["metadata", "managedFields"]);
    o
}

proptest! {
    /// The object has the values that a manager applies, independent of its earlier configuration; values of
    /// other managers remain.
    #[test]
    fn applied_configurations_round_trip(first in configuration(), second in configuration()) {
        let kind = gadget();
        let apply = |live: Option<&Value>, patch: &Value, manager: &str| {
            kind.apply(live, patch.clone(), &by(manager, true, &FieldSet::new())).unwrap()
        };
        let once = apply(None, &first, "a");
        prop_assert_eq!(unmanaged(&once), first.clone());
        prop_assert_eq!(apply(Some(&once), &first, "a"), once.clone(), "the same again changes nothing");
        let twice = apply(Some(&once), &second, "a");
        prop_assert_eq!(unmanaged(&twice), second.clone());
        prop_assert_eq!(apply(Some(&twice), &first, "a"), once.clone(), "and back");
        // Another manager takes everything that differs; when the first gives up all, its own fields are
        // left.
        let both = apply(Some(&once), &second, "b");
        let nothing = json!({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "n"}});
        prop_assert_eq!(unmanaged(&apply(Some(&both), &nothing, "a")), second);
    }

    #[test]
    fn pruning_and_defaulting_are_idempotent(mut v in tree()) {
        let kind = gadget();
        let s = kind.structural();
        s.prune(&mut v);
        s.default(&mut v);
        let once = v.clone();
        prop_assert!(s.is_defaulted(&v));
        prop_assert!(s.prune(&mut v).is_empty());
        s.default(&mut v);
        prop_assert_eq!(&v, &once);
        // Unchanged values are never invalid, except for items of a list of type map that cannot be told
        // apart.
        let listed = once.at(&["spec", "parts"]).as_array().is_some();
        prop_assert!(listed || s.validate(&v, Some(&once)).is_empty());
        s.validate(&v, None);
    }

    /// An error is reported if neither its value nor one around it is unchanged.
    #[test]
    fn ratcheting_equals_its_restatement(old in numbers(), new in numbers()) {
        let number = json!({"type": "integer", "maximum": 1});
        let inner = json!({"type": "object", "minProperties": 1, "properties": {"a": number, "b": number}});
        let s = schema(json!({"a": inner, "b": inner, "n": number}));
        let at = |v: &Value, path: &str| path.split('.').try_fold(v, |v, k| v.as_object()?.get(k)).cloned();
        let survives = |path: &str| {
            let ends = path.match_indices('.').map(|(i, _)| i).chain([path.len()]);
            ends.map(|end| &path[..end]).all(|p| at(&old, p).is_none() || at(&old, p) != at(&new, p))
        };
        let all = s.validate(&new, None);
        let expected: Vec<&String> = all.iter().map(|e| &e.field).filter(|f| survives(f)).collect();
        let actual = s.validate(&new, Some(&old));
        prop_assert_eq!(actual.iter().map(|e| &e.field).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn parsing_arbitrary_documents_does_not_panic(v in tree()) {
        let _ = StructuralSchema::parse(&v);
    }
}
