//! JSON patch (RFC 6902) in the dialect of `evanphx/json-patch` v4.
//!
//! Start at [`JsonPatch`]. In this dialect negative indices count from the end, an absent member of an object
//! reads as null (`test` against null succeeds, `copy` makes a null) and can be replaced, and the whole
//! document can only be replaced or tested.

mod explain;

use super::{Decoding, go_syntax_error, json_type, rejected};
use crate::codec::json::{self, MAX_DEPTH};
use crate::codec::strict_errors::StrictErrors;
use crate::interrupt::checkpoint;
use crate::status::Status;
use crate::value::{Map, Str, Value};

/// Maximum operations per patch.
pub(crate) const MAX_OPERATIONS: usize = 10_000;

/// Maximum JSON bytes that all copies of a patch may produce: upstream's `JSONPatchMaxCopyBytes`.
const MAX_COPIED: usize = 3 << 20;

/// Maximum bytes of memory that all operations of a patch may move within lists and objects by inserting and
/// removing. Ten thousand insertions at the front of a list of half a million elements would move 160 GB.
const MAX_MOVED: u64 = 4 << 30;

/// The cost of the operations so far.
#[derive(Default)]
struct Spent {
    copied: usize,
    moved: u64,
    scratch: Vec<u8>,
}

impl Spent {
    /// Clones a value and charges its encoded size; `None` beyond the limit.
    fn copy(&mut self, v: &Value) -> Option<Value> {
        // The remaining budget bounds the encoding itself, so a copy that exceeds the limit is not encoded to its end.
        let left = MAX_COPIED - self.copied;
        // One buffer for all copies: a patch may contain ten thousand of them.
        self.scratch.clear();
        if !json::encode_within(v, left, &mut self.scratch) {
            return None;
        }
        self.copied += self.scratch.len();
        Some(v.clone())
    }

    /// Checks that the document stays within [`MAX_DEPTH`] with `v` at `path`: copies of an object into itself
    /// double its depth, and deeper trees overflow the stack of whatever walks them. The walk is charged,
    /// because each of many operations may move the same large value.
    fn nest(&mut self, path: &str, v: &Value) -> Option<()> {
        // Every slash is a level; escapes (`~1`) cannot add one.
        let above = path.bytes().filter(|b| *b == b'/').count();
        let mut nodes = 0;
        // Fails without a walk if the path alone is too deep.
        let fits = !is_deeper_than(v, MAX_DEPTH.checked_sub(above)?, &mut nodes);
        // Charged whether or not it fits: the walk has taken place.
        self.shift::<Value>(nodes)?;
        fits.then_some(())
    }

    /// Charges the move of elements of type `T` within a container; `None` beyond the limit.
    fn shift<T>(&mut self, elements: usize) -> Option<()> {
        // The product fits: a container in memory has at most `isize::MAX` bytes.
        self.moved = self.moved.saturating_add((elements * size_of::<T>()) as u64);
        (self.moved <= MAX_MOVED).then_some(())
    }
}

/// True if containers nest deeper than `levels`. Adds the nodes that it visited to `nodes`.
fn is_deeper_than(v: &Value, levels: usize, nodes: &mut usize) -> bool {
    // Not called at level 0, so the subtraction cannot underflow.
    let deeper = |v: &Value, nodes: &mut usize| is_deeper_than(v, levels - 1, nodes);
    *nodes += 1;
    match v {
        Value::Array(items) => levels == 0 || items.iter().any(|v| deeper(v, nodes)),
        Value::Object(map) => levels == 0 || map.values().any(|v| deeper(v, nodes)),
        _ => false,
    }
}

/// An operation that does not apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotApplied {
    /// The message of upstream's library.
    pub text: String,
    /// True if the operation is a `test`.
    pub test_failed: bool,
}

/// A decoded patch, ready to apply.
///
/// ```
/// use torana_apimachinery::json;
/// use torana_apimachinery::patch::{Decoding, json_patch::JsonPatch};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let body = br#"[
///     {"op": "test", "path": "/spec/replicas", "value": 1},
///     {"op": "replace", "path": "/spec/replicas", "value": 3}
/// ]"#;
/// let patched = JsonPatch::decode(body, Decoding::Lenient)?.apply(json!({"spec": {"replicas": 1}}))?;
/// assert_eq!(patched, json!({"spec": {"replicas": 3}}));
///
/// let refused = JsonPatch::decode(body, Decoding::Lenient)?.apply_explained(json!({"spec": {"replicas": 2}}));
/// assert!(refused.is_err_and(|why| why.test_failed));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct JsonPatch {
    operations: Vec<Map>,
    /// Problems of the patch itself for strict field validation, in document order:
    /// `json patch unknown field "[0].x"`.
    pub findings: Vec<String>,
}

impl JsonPatch {
    /// Decodes a patch.
    ///
    /// # Errors
    /// 400 if the body is not a list of operations, 413 for too many of them.
    pub fn decode(body: &[u8], decoding: Decoding) -> Result<Self, Status> {
        let strict = decoding == Decoding::Strict;
        let fail = |e: String| {
            Status::bad_request(if strict {
                format!("error decoding patch: {e}")
            } else {
                e
            })
        };
        let (v, notes) = json::decode_with_duplicates(body).map_err(|e| fail(go_syntax_error(&e.to_string())))?;
        let items = match v {
            Value::Array(a) => a,
            // A `null` body is an empty list in Go.
            Value::Null => Vec::new(),
            other => {
                let of = if strict {
                    "[]handlers.jsonPatchOp"
                } else {
                    "jsonpatch.Patch"
                };
                let t = json_type(&other);
                return Err(fail(format!("json: cannot unmarshal {t} into Go value of type {of}")));
            }
        };
        let mut patch = Self::default();
        let mut findings = StrictErrors::default();
        for d in &notes.duplicates {
            findings.add(|| format!("json patch duplicate field {d:?}"));
        }
        for (i, item) in items.into_iter().enumerate() {
            let m = match item {
                Value::Object(m) => m,
                // A `null` operation is an empty map; it fails later for its missing members.
                Value::Null => Map::new(),
                other => {
                    let of = if strict {
                        "handlers.jsonPatchOp"
                    } else {
                        "jsonpatch.Operation"
                    };
                    let t = json_type(&other);
                    return Err(fail(format!("json: cannot unmarshal {t} into Go value of type {of}")));
                }
            };
            for (k, v) in m.iter() {
                match k {
                    // Otherwise an operation with a member of another type does not apply.
                    "op" | "path" | "from" => {
                        if strict && !matches!(v, Value::String(_) | Value::Null) {
                            let t = json_type(v);
                            return Err(fail(format!(
                                "json: cannot unmarshal {t} into Go struct field jsonPatchOp.{k} of type string"
                            )));
                        }
                    }
                    "value" => {}
                    other => findings.add(|| format!("json patch unknown field \"[{i}].{other}\"")),
                }
            }
            patch.operations.push(m);
        }
        patch.findings = findings.into_texts();
        patch.bounded()
    }

    /// A patch of operations that have at least the string members `op` and `path`.
    ///
    /// # Errors
    /// 413 for too many operations.
    pub fn of(operations: Vec<Value>) -> Result<Self, Status> {
        let members = |operation| match operation {
            Value::Object(members) => members,
            _ => Map::new(),
        };
        Self {
            operations: operations.into_iter().map(members).collect(),
            findings: Vec::new(),
        }
        .bounded()
    }

    fn bounded(self) -> Result<Self, Status> {
        match self.operations.len() {
            n if n > MAX_OPERATIONS => Err(Status::too_large(&format!(
                "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {n}"
            ))),
            _ => Ok(self),
        }
    }

    /// Applies all operations in order.
    ///
    /// # Errors
    /// 422 with a fixed text for any failure, including exceeded copy and move limits.
    pub fn apply(self, doc: Value) -> Result<Value, Status> {
        self.apply_explained(doc).map_err(|_| rejected())
    }

    /// Applies all operations in order.
    ///
    /// # Errors
    /// The first operation that does not apply, in the words of upstream's library.
    pub fn apply_explained(self, mut doc: Value) -> Result<Value, NotApplied> {
        let mut spent = Spent::default();
        for op in self.operations {
            // Operations of one patch are bounded in number, but each may walk a large document.
            checkpoint();
            // The value is not part of any message, and may be large.
            let operation: Map = op
                .iter()
                .filter(|(k, _)| *k != "value")
                .map(|(k, v)| (Str::new(k), v.clone()))
                .collect();
            // Earlier operations have changed `doc` already; it is this function's own copy and is dropped.
            if one(&mut doc, op, &mut spent).is_none() {
                return Err(NotApplied {
                    test_failed: operation.str("op") == "test",
                    // Explained after the fact, against the document as the failed operation left it: operations fail
                    // before they write.
                    text: explain::failure(&doc, &operation),
                });
            }
        }
        Ok(doc)
    }

    /// True if an operation copies or moves values: the result can be much larger than the patch.
    pub fn has_copies(&self) -> bool {
        self.operations.iter().any(|op| matches!(op.str("op"), "copy" | "move"))
    }

    /// True if the patch changes nothing because it has no operations.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }
}

/// Applies one operation; `None` if it fails.
fn one(doc: &mut Value, mut op: Map, spent: &mut Spent) -> Option<()> {
    // A missing value counts as null.
    let value = op.remove("value").unwrap_or_default();
    let path = op.get("path")?.as_str()?;
    // Absent members of `op` compare as the empty string and fall through to `None`.
    match op.str("op") {
        "add" => add(doc, path, value, spent),
        "remove" => remove(doc, path, spent).map(drop),
        "replace" => {
            if path.is_empty() {
                // Upstream refuses a scalar as a whole document.
                return matches!(value, Value::Object(_) | Value::Array(_)).then(|| *doc = value);
            }
            spent.nest(path, &value)?;
            let (parent, key) = parent(doc, path)?;
            set(parent, &key, value, spent)
        }
        "move" => {
            // Removed even if the following `add` fails; the whole patch is then discarded.
            let v = remove(doc, op.get("from")?.as_str()?, spent)?;
            add(doc, path, v, spent)
        }
        "copy" => {
            let (from, key) = parent(doc, op.get("from")?.as_str()?)?;
            let v = match (&*from, parent_get(from, &key)) {
                (_, Some(v)) => {
                    // Depth before size: measuring the size encodes recursively.
                    spent.nest(path, v)?;
                    spent.copy(v)?
                }
                (Value::Object(_), None) => Value::Null,
                _ => return None,
            };
            add(doc, path, v, spent)
        }
        "test" => {
            if path.is_empty() {
                return (*doc == value).then_some(());
            }
            let (parent, key) = parent(doc, path)?;
            let equal = match (&*parent, parent_get(parent, &key)) {
                (_, Some(v)) => *v == value,
                // An absent member of an object equals null; an absent list element is an error.
                (Value::Object(_), None) => value.is_null(),
                _ => false,
            };
            equal.then_some(())
        }
        _ => None,
    }
}

/// A token of a JSON pointer without its escapes.
pub(super) fn unescape(token: &str) -> String {
    // `~1` first: `~01` stands for `~1`, not for a slash (RFC 6901).
    token.replace("~1", "/").replace("~0", "~")
}

/// Resolves a pointer to the container of its last token, and that token.
fn parent<'d>(doc: &'d mut Value, path: &str) -> Option<(&'d mut Value, String)> {
    // Upstream ignores anything before the first slash; a pointer without a slash has no parent.
    let (_, rest) = path.split_once('/')?;
    let mut tokens: Vec<&str> = rest.split('/').collect();
    let last = tokens.pop()?;
    let mut at = doc;
    for t in tokens {
        at = member(at, &unescape(t))?;
    }
    matches!(at, Value::Object(_) | Value::Array(_)).then(|| (at, unescape(last)))
}

/// Resolves an array index, which may be negative, against the length of the list.
pub(super) fn index(token: &str, len: usize) -> Option<usize> {
    let i: i64 = token.parse().ok()?;
    let i = if i < 0 { i + i64::try_from(len).ok()? } else { i };
    usize::try_from(i).ok().filter(|i| *i < len)
}

fn member<'d>(container: &'d mut Value, key: &str) -> Option<&'d mut Value> {
    match container {
        Value::Object(m) => m.get_mut(key),
        Value::Array(a) => {
            let i = index(key, a.len())?;
            a.get_mut(i)
        }
        // Scalars have no members: a pointer through one does not resolve.
        _ => None,
    }
}

fn parent_get<'d>(container: &'d Value, key: &str) -> Option<&'d Value> {
    match container {
        Value::Object(m) => m.get(key),
        Value::Array(a) => a.get(index(key, a.len())?),
        _ => None,
    }
}

/// Replaces a member: an existing element of a list, or any member of an object.
fn set(container: &mut Value, key: &str, value: Value, spent: &mut Spent) -> Option<()> {
    match container {
        Value::Object(m) => insert(m, key, value, spent),
        list => {
            *member(list, key)? = value;
            Some(())
        }
    }
}

fn insert(m: &mut Map, key: &str, value: Value, spent: &mut Spent) -> Option<()> {
    // Replacing in place moves nothing; only an insertion shifts what follows.
    if !m.contains_key(key) {
        spent.shift::<(Str, Value)>(m.keys_after(key))?;
    }
    m.insert(key, value);
    Some(())
}

fn add(doc: &mut Value, path: &str, value: Value, spent: &mut Spent) -> Option<()> {
    spent.nest(path, &value)?;
    let (container, key) = parent(doc, path)?;
    match container {
        Value::Object(m) => insert(m, &key, value, spent)?,
        // `-` appends, which moves nothing.
        Value::Array(a) if key == "-" => a.push(value),
        Value::Array(a) => {
            // The position after the last element is valid for insertion; negative indices count from it.
            let i = index(&key, a.len() + 1)?;
            spent.shift::<Value>(a.len() - i)?;
            a.insert(i, value);
        }
        _ => return None,
    }
    Some(())
}

fn remove(doc: &mut Value, path: &str, spent: &mut Spent) -> Option<Value> {
    let (container, key) = parent(doc, path)?;
    match container {
        Value::Object(m) => {
            // Charged before the removal, so that an exceeded limit leaves the document as it was.
            spent.shift::<(Str, Value)>(m.keys_after(&key))?;
            m.remove(&key)
        }
        Value::Array(a) => {
            let i = index(&key, a.len())?;
            spent.shift::<Value>(a.len() - i)?;
            Some(a.remove(i))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
