//! JSON merge patch (RFC 7386).
//!
//! Follows `evanphx/json-patch` in that nulls inside newly added values are dropped, too.
//!
//! ```
//! use torana_apimachinery::json;
//! use torana_apimachinery::patch::{Decoding, merge};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (patch, duplicates) = merge::decode(br#"{"data": {"a": null, "c": "3"}}"#, Decoding::Strict)?;
//! let mut object = json!({"data": {"a": "1", "b": "2"}});
//! merge::apply(&mut object, patch);
//! assert_eq!(object, json!({"data": {"b": "2", "c": "3"}}));
//! assert!(duplicates.is_empty());
//! # Ok(())
//! # }
//! ```

use super::{Decoding, decode_object};
use crate::codec::json as codec;
use crate::interrupt::checkpoint;
use crate::status::Status;
use crate::value::{Map, Str, Value};

/// Decodes a merge patch; also returns its duplicate keys (`metadata.labels.a`).
///
/// # Errors
/// 400 for anything but an object if it is decoded strictly; otherwise for anything but an object or an array.
pub fn decode(body: &[u8], decoding: Decoding) -> Result<(Value, Vec<String>), Status> {
    let bad = || Status::bad_request("Invalid JSON Patch");
    if decoding == Decoding::Lenient {
        return match codec::decode_with_duplicates(body) {
            Ok((v @ (Value::Object(_) | Value::Array(_)), notes)) => Ok((v, notes.duplicates)),
            _ => Err(bad()),
        };
    }
    match decode_object(body) {
        Ok((Some(m), duplicates)) => Ok((Value::Object(m), duplicates)),
        Ok((None, _)) => Err(bad()),
        Err(e) => Err(Status::bad_request(format!("error decoding patch: {e}"))),
    }
}

/// Merges `patch` into `doc`.
pub fn apply(doc: &mut Value, patch: Value) {
    match (doc, patch) {
        (Value::Object(doc), Value::Object(patch)) => members(doc, patch),
        (doc @ Value::Object(_), other) => *doc = other,
        // A patch that is not an object replaces the document as it is when the document is an object, nulls
        // included.
        (doc, mut other) => {
            prune_nulls(&mut other);
            *doc = other;
        }
    }
}

fn members(doc: &mut Map, patch: Map) {
    // Collected and applied in one pass: inserting one by one into a sorted map is quadratic for large patches.
    let mut changes: Vec<(Str, Option<Value>)> = Vec::new();
    for (k, mut v) in patch {
        checkpoint();
        if v.is_null() {
            changes.push((k, None));
        } else if let Some(old) = doc.get_mut(&k) {
            apply(old, v);
        } else {
            prune_nulls(&mut v);
            changes.push((k, Some(v)));
        }
    }
    doc.change(changes);
}

/// Removes null members recursively, also from objects in arrays; null elements of arrays stay.
pub(super) fn prune_nulls(v: &mut Value) {
    match v {
        Value::Object(m) => m.retain(|_, v| {
            prune_nulls(v);
            !v.is_null()
        }),
        Value::Array(a) => a.iter_mut().for_each(prune_nulls),
        _ => {}
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::json;
    use proptest::prelude::*;

    #[test]
    fn rfc_7386_examples_hold() {
        for (doc, patch, want) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ] {
            let mut got = doc.clone();
            apply(&mut got, patch);
            assert_eq!(got, want);
        }
    }

    #[test]
    fn non_objects_are_rejected() {
        let e = |b: &[u8]| decode(b, Decoding::Strict).unwrap_err().message;
        assert_eq!(e(b"null"), "Invalid JSON Patch");
        assert_eq!(e(b""), "error decoding patch: unexpected end of JSON input");
        assert_eq!(
            e(b"[1]"),
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
        );
        // Without strict decoding, an array replaces the document.
        for bad in ["null", "false", "1", "\"a\"", "{"] {
            let refused = decode(bad.as_bytes(), Decoding::Lenient).unwrap_err();
            assert_eq!(refused.message, "Invalid JSON Patch", "{bad}");
        }
        assert_eq!(decode(b"[1]", Decoding::Lenient).unwrap().0, json!([1]));
    }

    /// Any JSON value without null members.
    pub(crate) fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[ -~é\n]{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::vec(("[a-d]", inner), 0..4).prop_map(|p| Value::Object(p.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn batched_members_merge_like_single_ones(a in "[a-p]{0,40}", b in "[a-p]{0,40}", gone in "[a-p]{0,10}") {
            let object = |keys: &str, v: i64| keys.chars().map(|k| (k.to_string(), Value::Int(v))).collect::<Map>();
            let doc = object(&a, 1);
            let mut patch = object(&b, 2);
            gone.chars().for_each(|k| drop(patch.insert(k.to_string(), Value::Null)));
            let mut want = doc.clone();
            for (k, v) in patch.iter() {
                match v {
                    Value::Null => drop(want.remove(k)),
                    v => drop(want.insert(k, v.clone())),
                }
            }
            let mut got = Value::Object(doc);
            apply(&mut got, Value::Object(patch));
            prop_assert_eq!(got, Value::Object(want));
        }

        #[test]
        fn applying_a_patch_again_changes_nothing(doc in any_value(), patch in any_value(), gone in "[a-d]") {
            let mut once = Value::object();
            once.set(&["v"], doc);
            let mut patch = json!({"v": serde_json::Value::from(patch)});
            patch.set(&["v", &gone], Value::Null);
            apply(&mut once, patch.clone());
            let mut twice = once.clone();
            apply(&mut twice, patch);
            prop_assert_eq!(twice, once);
        }
    }
}
