//! The text of `evanphx/json-patch` v4 for an operation that does not apply. PATCH requests hide it behind a
//! fixed one; admission webhooks and policies show it.

use super::{index, parent_get, unescape};
use crate::value::{Map, Value};

/// For limits of ours, which upstream's library does not have.
const TOO_MUCH: &str = "the patch moves, copies or nests too much";

/// Why `op` did not apply to `doc`.
pub(super) fn failure(doc: &Value, op: &Map) -> String {
    let kind = op.str("op");
    let Some(path) = op.get("path").and_then(Value::as_str) else {
        return match kind {
            "add" | "remove" => format!("{kind} operation failed to decode path: missing value"),
            _ => format!("{kind} operation failed to decode path: operation missing path field: missing value"),
        };
    };
    match kind {
        "add" | "remove" => match container(doc, path) {
            None => format!("{kind} operation does not apply: doc is missing path: \"{path}\": missing value"),
            // The container exists, so the failure is about the last token.
            Some(at) => format!("error in {kind} for path: '{path}': {}", access(at, kind == "add")),
        },
        "replace" if path.is_empty() => "replace operation value must be object or array".to_owned(),
        "replace" => match container(doc, path) {
            None => format!("replace operation does not apply: doc is missing path: {path}: missing value"),
            Some(_) => format!("replace operation does not apply: doc is missing key: {path}: missing value"),
        },
        "test" => match container(doc, path) {
            None if !path.is_empty() => {
                format!("test operation does not apply: is missing path: {path}: missing value")
            }
            Some(at @ (Value::Array(_), _)) if get(at).is_none() => {
                format!("error in test for path: '{path}': {}", access(at, false))
            }
            // The value differs, or an absent member was compared with something other than null.
            _ => format!("testing value {path} failed: test failed"),
        },
        "move" | "copy" => transfer(doc, kind, op, path),
        other => format!("Unexpected kind: {other}"),
    }
}

fn transfer(doc: &Value, kind: &str, op: &Map, path: &str) -> String {
    let Some(from) = op.get("from").and_then(Value::as_str) else {
        return format!("{kind} operation failed to decode from: operation, missing from field: missing value");
    };
    let Some(at) = container(doc, from) else {
        return format!("{kind} operation does not apply: doc is missing from path: {from}: missing value");
    };
    // The source is missing its last token.
    if get(at).is_none() {
        let (_, key) = at;
        return match kind {
            "move" => format!("error in move for path: '{}': {}", unescape(key), access(at, false)),
            _ => format!("error in copy for from: '{from}': {}", access(at, false)),
        };
    }
    // The source exists, so the destination is invalid.
    match container(doc, path) {
        None => format!("{kind} operation does not apply: doc is missing destination path: {path}: missing value"),
        Some(at) => match kind {
            "move" => format!("error in move for path: '{path}': {}", access(at, true)),
            _ => format!("error while adding value during copy: {}", access(at, true)),
        },
    }
}

/// The container of a pointer's last token, and that token.
type Position<'a> = (&'a Value, &'a str);

fn container<'a>(doc: &'a Value, path: &'a str) -> Option<Position<'a>> {
    let (_, rest) = path.split_once('/')?;
    // A pointer with a single token has the document itself as container.
    let (parents, last) = rest.rsplit_once('/').map_or((None, rest), |(p, last)| (Some(p), last));
    let mut at = doc;
    for token in parents.into_iter().flat_map(|p| p.split('/')) {
        at = parent_get(at, &unescape(token))?;
    }
    matches!(at, Value::Object(_) | Value::Array(_)).then_some((at, last))
}

fn get<'a>((container, key): Position<'a>) -> Option<&'a Value> {
    parent_get(container, &unescape(key))
}

/// Why an element cannot be accessed; `inserting` also allows the position after the last one.
fn access((container, key): Position<'_>, inserting: bool) -> String {
    let key = unescape(key);
    let Value::Array(items) = container else {
        // Nothing else prevents the insertion of a member.
        if inserting {
            return TOO_MUCH.to_owned();
        }
        return format!("Unable to remove nonexistent key: {key}: missing value");
    };
    match key.parse::<i64>() {
        Err(_) if inserting => {
            format!("value was not a proper array index: '{key}': strconv.Atoi: parsing {key:?}: invalid syntax")
        }
        Err(_) => format!("strconv.Atoi: parsing {key:?}: invalid syntax"),
        // The index is valid, so only a limit of ours can have stopped the operation.
        Ok(_) if index(&key, items.len() + usize::from(inserting)).is_some() => TOO_MUCH.to_owned(),
        Ok(i) => format!("Unable to access invalid index: {i}: invalid index referenced"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Decoding, JsonPatch};
    use crate::codec::json;
    use crate::json;

    #[test]
    fn failures_have_the_librarys_texts() {
        let doc = json!({"a": {"b": 1}, "l": [1, 2]});
        for (op, text) in [
            (
                json!({"op": "replace", "path": "/spec/none", "value": 1}),
                "replace operation does not apply: doc is missing path: /spec/none: missing value",
            ),
            (
                json!({"op": "add", "path": "/x/y", "value": 1}),
                "add operation does not apply: doc is missing path: \"/x/y\": missing value",
            ),
            (
                json!({"op": "add", "path": "/l/7", "value": 1}),
                "error in add for path: '/l/7': Unable to access invalid index: 7: invalid index referenced",
            ),
            (
                json!({"op": "add", "path": "/l/x", "value": 1}),
                "error in add for path: '/l/x': value was not a proper array index: 'x': strconv.Atoi: parsing \"x\": \
                 invalid syntax",
            ),
            (
                json!({"op": "remove", "path": "/a/c"}),
                "error in remove for path: '/a/c': Unable to remove nonexistent key: c: missing value",
            ),
            (
                json!({"op": "test", "path": "/a/b", "value": 2}),
                "testing value /a/b failed: test failed",
            ),
            (
                json!({"op": "copy", "from": "/x/y", "path": "/z"}),
                "copy operation does not apply: doc is missing from path: /x/y: missing value",
            ),
            (
                json!({"op": "add"}),
                "add operation failed to decode path: missing value",
            ),
            (json!({"op": "none", "path": "/a"}), "Unexpected kind: none"),
        ] {
            let patch = JsonPatch::decode(&json::to_vec(&json!([op.clone()])), Decoding::Strict).unwrap();
            let failed = patch.apply_explained(doc.clone()).unwrap_err();
            assert_eq!(failed.text, text, "{op:?}");
        }
    }
}
