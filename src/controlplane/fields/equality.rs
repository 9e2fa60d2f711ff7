//! Comparison of stored and updated fields. Entry point: [`same`].

use crate::apimachinery::quantity::Quantity;
use crate::apimachinery::value::Value;

/// Go's `equality.Semantic.DeepEqual` for `omitempty` fields: absent and empty are equal, except for
/// booleans, and quantities are compared by value.
pub(in crate::controlplane) fn same(a: &Value, b: &Value) -> bool {
    a == b
        || (a.is_empty_value() && b.is_empty_value() && !matches!((a, b), (Value::Bool(_), _) | (_, Value::Bool(_))))
        || equal_by_value(a, b, false)
}

/// The members of specs that are quantities, or objects of quantities.
const AMOUNTS: [&str; 7] = [
    "capacity",
    "counters",
    "divisor",
    "limits",
    "overhead",
    "requests",
    "sizeLimit",
];

/// Other members that are maps; most objects are structs.
const MAPS: [&str; 7] = [
    "annotations",
    "attributes",
    "labels",
    "matchLabels",
    "nodeSelector",
    "options",
    "volumeAttributes",
];

/// True if Go has no value for a member, or an empty list or map. An empty object is otherwise a struct, to which there
/// is a pointer.
fn is_unset(key: &str, v: &Value) -> bool {
    match v {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty() && (MAPS.contains(&key) || AMOUNTS.contains(&key)),
        _ => false,
    }
}

/// Compares two trees, and the strings below [`AMOUNTS`] as quantities: the server keeps `1000m` as it was written.
fn equal_by_value(a: &Value, b: &Value, amount: bool) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let mut a = a.iter().filter(|(k, v)| !is_unset(k, v));
            let mut b = b.iter().filter(|(k, v)| !is_unset(k, v));
            // Both are sorted by name.
            let same_member = |((k, a), (l, b)): ((&str, &Value), (&str, &Value))| {
                k == l && equal_by_value(a, b, amount || AMOUNTS.contains(&k))
            };
            a.all(|member| b.next().is_some_and(|other| same_member((member, other)))) && b.next().is_none()
        }
        // Not the elements of lists: the requests of a ResourceClaim are a list of objects with names.
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal_by_value(a, b, false))
        }
        (Value::String(x), Value::String(y)) if amount && x != y => {
            let parsed = |text: &str| Quantity::parse(text).ok();
            parsed(x).is_some_and(|x| parsed(y) == Some(x))
        }
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn quantities_are_compared_by_value_and_nothing_else_is() {
        let container = |cpu: &str, name: &str| {
            json!({"containers": [{"name": (name), "resources": {"limits": {"cpu": (cpu)}}}],
                "volumes": [{"emptyDir": {"sizeLimit": (cpu)}}]})
        };
        assert!(same(&container("1", "a"), &container("1000m", "a")));
        assert!(!same(&container("1", "a"), &container("1001m", "a")));
        assert!(!same(&container("1", "1k"), &container("1", "1000")));
        let claim = |name: &str| json!({"devices": {"requests": [{"name": (name)}]}});
        assert!(!same(&claim("1k"), &claim("1000")));
    }

    #[test]
    fn empty_lists_and_maps_equal_absent_ones_at_any_depth() {
        let bare = json!({"containers": [{"name": "a", "resources": {}}]});
        let full = json!({"volumes": [], "nodeSelector": {},
            "containers": [{"name": "a", "ports": [], "resources": {"limits": {}, "claims": []}}]});
        assert!(same(&bare, &full) && same(&full, &bare));
        let pointer = json!({"containers": [{"name": "a", "resources": {}, "lifecycle": {}}]});
        assert!(!same(&bare, &pointer) && !same(&pointer, &bare));
    }
}
