//! Whether a schema makes the validation of small objects costly. Time in validation is bounded by the
//! object's size times what the schema demands of each value; where that is more than usual, writes run on
//! the compute pool, which costs them some 20 µs.

use super::pattern::Pattern;
use super::{Additional, Node};
use crate::interrupt::checkpoint;
use std::collections::HashSet;
use std::ptr;

/// Bound on the checks of one value: schemas in junctors, names of properties, states of patterns. A body
/// of 8 KiB has at most some thousand values.
const PER_VALUE: usize = 64;
/// States of all patterns: the first object compiles them, in about a microsecond each.
const STATES: usize = 256;
/// Bytes of the largest `enum`, of which the first error makes a text.
const ENUMERATION: usize = 4 << 10;
/// Bytes of the defaults that an object gets once, and of those that every item of a list, or entry of a
/// map, gets.
const DEFAULTS: usize = 8 << 10;
const DEFAULTS_OF_ITEMS: usize = 256;

/// True if defaulting or validating an object of some kilobytes may take more than 200 µs.
pub(super) fn is_costly(root: &Node) -> bool {
    let mut demands = Demands::default();
    demands.node(root, false);
    demands.per_value > PER_VALUE
        || demands.states > STATES
        || demands.enumeration > ENUMERATION
        || demands.defaults > DEFAULTS
        || demands.defaults_of_items > DEFAULTS_OF_ITEMS
}

#[derive(Debug, Default)]
struct Demands {
    /// The most that one value is checked against.
    per_value: usize,
    states: usize,
    /// Fields of generated definitions share their patterns.
    counted: HashSet<*const Pattern>,
    enumeration: usize,
    defaults: usize,
    defaults_of_items: usize,
}

impl Demands {
    /// Returns what one value of the schema is checked against. `repeats` is true in items and entries.
    fn node(&mut self, node: &Node, repeats: bool) -> usize {
        checkpoint();
        // Looking up a name takes a fraction of checking a value.
        // Divided by about how many lookups take the time of one check.
        let mut own = 1 + node.properties.len() / 8 + node.required.len() / 4;
        if let Some(default) = &node.default {
            let total = match repeats {
                true => &mut self.defaults_of_items,
                false => &mut self.defaults,
            };
            *total += default.size;
        }
        if let Some(c) = node.checks.as_deref() {
            if let Some(pattern) = &c.pattern {
                let states = pattern.states() as usize;
                own += states / 8;
                // Each pattern is compiled once, however many fields use it.
                if self.counted.insert(ptr::from_ref(&**pattern)) {
                    self.states += states;
                }
            }
            if let Some(enumeration) = &c.enumeration {
                self.enumeration = self.enumeration.max(enumeration.bytes());
            }
            let branches = c.all_of.iter().chain(&c.any_of).chain(&c.one_of);
            for branch in branches.chain(c.not.as_deref()) {
                // Branches apply to the same value, so their demands add up; properties are values of their own.
                own += self.node(branch, repeats);
            }
        }
        for (_, property) in &node.properties {
            self.node(property, repeats);
        }
        let additional = match &node.additional {
            Additional::Schema(of) => Some(&**of),
            _ => None,
        };
        for of in node.items.as_deref().into_iter().chain(additional) {
            self.node(of, true);
        }
        self.per_value = self.per_value.max(own);
        own
    }
}

#[cfg(test)]
mod tests {
    use crate::apimachinery::value::Value;
    use crate::json;
    use crate::schema::StructuralSchema;

    fn is_costly(properties: Value) -> bool {
        let mut schema = json!({"type": "object"});
        schema.set(&["properties"], properties);
        StructuralSchema::compile(&schema).unwrap().is_costly()
    }

    #[test]
    fn schemas_that_are_expensive_for_small_objects_are_costly() {
        let quantity = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";
        let mut ordinary = json!({"size": {"anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": true}, "phase": {"type": "string", "enum": ["A", "B"], "default": "A"},
            "ports": {"type": "array", "items": {"type": "object", "required": ["port"], "properties": {
                "port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}}}}});
        ordinary.set(&["size", "pattern"], quantity);
        ordinary.set(&["other"], ordinary.get("size").clone());
        assert!(!is_costly(ordinary));
        let names = |n: usize| Value::from((0..n).map(|i| format!("f{i}")).collect::<Vec<_>>());
        let of = |word: &str, value: Value| {
            let mut x = json!({});
            x.set(&["x", word], value);
            x
        };
        let mut patterns = json!({});
        for i in 0..20 {
            patterns.set(&[&format!("p{i}"), "pattern"], format!("^[a-z]{{1,30}}{i}$"));
        }
        let costly = [
            of("anyOf", vec![json!({"minLength": 1}); 100].into()),
            of(
                "allOf",
                vec![json!({"anyOf": vec![json!({"maxLength": 1}); 10]}); 8].into(),
            ),
            of("required", names(1_000)),
            of("pattern", "^[a-z]{1,1000}$".into()),
            patterns,
            of("enum", names(1_000)),
            of("default", "x".repeat(10_000).into()),
            of("items", json!({"properties": {"a": {"default": "x".repeat(300)}}})),
            of("x-kubernetes-validations", json!([{"rule": "true"}])),
        ];
        for properties in costly {
            assert!(is_costly(properties.clone()), "{properties:?}");
        }
    }
}
