//! Limits on the cost of a schema. Upstream has none; they are far above what real definitions contain.

use super::CompileError;
use crate::apimachinery::value::Value;
use crate::interrupt::checkpoint;

/// Maximum nesting depth of a schema; bounds every recursion over schemas and over values.
pub(super) const MAX_DEPTH: usize = 200;
/// Maximum number of schemas in `allOf`, `anyOf`, `oneOf` and `not` of one node, at any depth: all of them
/// are evaluated for each value.
const MAX_BRANCHES: usize = 5_000;
/// Maximum number of steps that validating one object may take; an object of a megabyte takes about 200,000.
/// They take up to a second.
pub(super) const MAX_STEPS: u64 = 5_000_000;
/// Maximum memory in bytes that defaults may add to one object. An object that lacks defaults because of it
/// is invalid.
pub(super) const MAX_DEFAULTS: usize = 1 << 20;

/// Approximate memory of a value in bytes.
pub(super) fn size(value: &Value) -> usize {
    /// A node with its place in the parent, and its key.
    const NODE: usize = 64;
    checkpoint();
    let below = match value {
        Value::String(s) => s.len(),
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(m) => m.iter().map(|(key, v)| key.len() + size(v)).sum(),
        _ => 0,
    };
    NODE + below
}

/// Checks the depth of a schema and the number of schemas nested in logical junctors.
pub(super) fn check(schema: &Value) -> Result<(), CompileError> {
    walk(schema, 0).map(drop)
}

/// Returns the number of schemas in junctors at `s`.
fn walk(s: &Value, depth: usize) -> Result<usize, CompileError> {
    checkpoint();
    if depth > MAX_DEPTH {
        return Err(CompileError::TooDeep);
    }
    // Only children that apply to the same value add up; properties and items apply to parts of it.
    let children = s.get("properties").as_object().into_iter().flat_map(|m| m.values());
    for child in children.chain([s.get("items"), s.get("additionalProperties")]) {
        if child.as_object().is_some() {
            // Depth grows through every kind of child, since all walks recurse.
            walk(child, depth + 1)?;
        }
    }
    let mut branches = 0;
    let lists = ["allOf", "anyOf", "oneOf"]
        .into_iter()
        .flat_map(|word| s.get(word).items());
    for child in lists.chain([s.get("not")]).filter(|c| c.as_object().is_some()) {
        // The branch itself counts, and all branches in it.
        branches += 1 + walk(child, depth + 1)?;
        // Checked in the loop, so that counting stops early for hostile schemas.
        if branches > MAX_BRANCHES {
            return Err(CompileError::TooManyBranches);
        }
    }
    Ok(branches)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn deep_and_wide_schemas_are_refused() {
        let mut deep = json!({"type": "string"});
        for _ in 0..MAX_DEPTH {
            deep = json!({"type": "array", "items": deep});
        }
        assert_eq!(check(&deep), Ok(()));
        assert_eq!(check(&json!({"items": deep})), Err(CompileError::TooDeep));
        let mut wide = json!({"type": "string"});
        wide.set(&["anyOf"], vec![json!({"minLength": 1}); MAX_BRANCHES]);
        assert_eq!(check(&wide), Ok(()));
        let mut properties = json!({"type": "object"});
        properties.set(&["properties"], json!({"a": wide, "b": wide}));
        assert_eq!(check(&properties), Ok(()));
        let mut both = json!({});
        both.set(&["allOf"], vec![wide.clone(), wide]);
        assert_eq!(check(&both), Err(CompileError::TooManyBranches));
    }
}
