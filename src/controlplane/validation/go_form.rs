//! Prints objects the way upstream's error messages print its internal Go structs: every field under its Go
//! name and in Go's order, absent ones as `null` or zero.
//!
//! Entry points: [`compact`] prints one line for a bad value, [`difference`] a unified diff for immutable pod
//! specs. `tables` has the fields of each struct. Output is bounded, since a small object can print as a
//! large one.

mod diff;
mod tables;

use crate::apimachinery::field::show_json;
use crate::apimachinery::value::Value;
use crate::interrupt::checkpoint;
pub(super) use tables::{
    BUDGET, CLAIM_SPEC, CONTEXT, EPHEMERAL_CONTAINER, FAILURE_POLICY, NODE_TERM, PERSISTENT, POD_SPEC, SCOPE_SELECTOR,
    SELECTOR, SET_ROLLING, SET_STRATEGY, STRATEGY, SUCCESS_POLICY, TOLERATION, VOLUME_NODES,
};
use tables::{META, PERSISTENT_REST};

/// How a field is printed.
#[derive(Clone, Copy)]
pub(super) enum Printing {
    /// A string; `""` if absent.
    Str,
    /// A number; `0` if absent.
    Int,
    /// A bool; `false` if absent.
    Bool,
    /// Any other value, printed as it is; `null` if absent.
    Any,
    /// Any other value; omitted if absent or an empty list or map (`omitempty`).
    OmitEmpty,
    /// Any other value; omitted if absent (a pointer with `omitempty`).
    OmitNil,
    /// A list of structs; omitted if absent or empty.
    OmitEmptyList(&'static [Field]),
    /// A pointer to a struct; `null` if absent.
    Ptr(&'static [Field]),
    /// A struct by value; printed with zero fields if absent.
    Struct(&'static [Field]),
    /// A pointer to a struct in which Go embeds object metadata before these fields; `null` if absent.
    Template(&'static [Field]),
    /// A list of structs; `null` if absent.
    List(&'static [Field]),
}

impl Printing {
    /// Whether a field with this value is left out.
    fn omits(self, v: &Value) -> bool {
        // A pointer to zero is printed, unlike a nil one.
        let is_empty = match v {
            Value::Null => true,
            Value::Array(items) => items.is_empty(),
            Value::Object(map) => map.is_empty(),
            _ => false,
        };
        match self {
            Self::OmitEmpty | Self::OmitEmptyList(_) => is_empty,
            Self::OmitNil => v.is_null(),
            _ => false,
        }
    }
}

/// A field: Go name, JSON name, and how it is printed.
pub(super) type Field = (&'static str, &'static str, Printing);

/// A value prepared for printing on one line or several.
enum Tree {
    Leaf(String),
    Object(Vec<(String, Tree)>),
    List(Vec<Tree>),
}

/// Budget of values printed per object. A struct prints all of its Go fields, so each `{}` in a request
/// expands to dozens of values; without a limit a client could make the server print far more than it sent.
struct PrintBudget(usize);

impl PrintBudget {
    /// Budget for one line; error messages are cut at 16 KiB anyway.
    const LINE: usize = 4_000;
    /// Budget for each side of a difference.
    const DIFFERENCE: usize = 100_000;

    fn take(&mut self) -> bool {
        // A large object takes long to print; the client may be gone.
        checkpoint();
        let free = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        free
    }

    /// Converts items until the budget is spent, then adds `...`.
    fn list<'v>(&mut self, items: &'v [Value], mut show: impl FnMut(&'v Value, &mut Self) -> Tree) -> Tree {
        let mut out = Vec::new();
        for item in items {
            // The list stays well-formed: the reader sees that something was left out.
            if !self.take() {
                out.push(Tree::Leaf("...".to_owned()));
                break;
            }
            out.push(show(item, self));
        }
        Tree::List(out)
    }
}

fn any(v: &Value, budget: &mut PrintBudget) -> Tree {
    match v {
        Value::Object(m) => {
            let entries = m
                .iter()
                // A map ends silently when the budget is spent; its values may still add the dots of a list.
                .map_while(|(k, x)| budget.take().then(|| (k.to_owned(), any(x, budget))));
            Tree::Object(entries.collect())
        }
        Value::Array(a) => budget.list(a, any),
        other => Tree::Leaf(show_json(other)),
    }
}

fn tree(v: &Value, fields: &[Field], budget: &mut PrintBudget) -> Tree {
    Tree::Object(members(v, fields, budget))
}

fn members(v: &Value, fields: &[Field], budget: &mut PrintBudget) -> Vec<(String, Tree)> {
    fields
        .iter()
        // Only shared API types inside internal ones have `omitempty`; internal fields are always
        // printed.
        .filter(|(_, key, kind)| !kind.omits(v.get(key)))
        .map(|(go, key, kind)| ((*go).to_owned(), member(v.get(key), *kind, budget)))
        .collect()
}

fn member(v: &Value, kind: Printing, budget: &mut PrintBudget) -> Tree {
    // The result is ignored: the fields of a struct are printed even if the budget is spent.
    budget.take();
    // Nil pointers, slices and maps all marshal as `null`.
    let nil = || Tree::Leaf("null".to_owned());
    match (kind, v.is_null()) {
        (Printing::Str, true) => Tree::Leaf("\"\"".to_owned()),
        (Printing::Int, true) => Tree::Leaf("0".to_owned()),
        (Printing::Bool, true) => Tree::Leaf("false".to_owned()),
        (Printing::Struct(fields), _) | (Printing::Ptr(fields), false) => tree(v, fields, budget),
        (Printing::List(fields) | Printing::OmitEmptyList(fields), false) => {
            budget.list(v.items(), |x, budget| tree(x, fields, budget))
        }
        (Printing::Template(fields), false) => {
            let mut all = members(v.get("metadata"), META, budget);
            all.extend(members(v, fields, budget));
            Tree::Object(all)
        }
        // After the kinds that have a zero value other than null.
        (_, true) => nil(),
        (_, false) => any(v, budget),
    }
}

/// The name of a member as JSON has it; keys of maps may need escapes.
fn name(key: &str) -> String {
    show_json(&Value::from(key))
}

impl Tree {
    fn compact(&self) -> String {
        match self {
            Self::Leaf(s) => s.clone(),
            Self::List(all) => {
                let all: Vec<String> = all.iter().map(Self::compact).collect();
                format!("[{}]", all.join(","))
            }
            Self::Object(all) => {
                let all: Vec<String> = all
                    .iter()
                    .map(|(k, v)| format!("{}:{}", name(k), v.compact()))
                    .collect();
                format!("{{{}}}", all.join(","))
            }
        }
    }

    /// Formats as lines, indented by one space per level, with `head` before the first and `tail` after the
    /// last.
    fn lines(&self, depth: usize, head: &str, tail: &str, out: &mut Vec<String>) {
        let pad = " ".repeat(depth);
        let (open, close, members): (_, _, Vec<(String, &Self)>) = match self {
            Self::Leaf(s) => return out.push(format!("{pad}{head}{s}{tail}")),
            Self::List(all) => ("[", "]", all.iter().map(|t| (String::new(), t)).collect()),
            Self::Object(all) => {
                let named = all.iter().map(|(k, t)| (format!("{}: ", name(k)), t));
                ("{", "}", named.collect())
            }
        };
        if members.is_empty() {
            return out.push(format!("{pad}{head}{open}{close}{tail}"));
        }
        out.push(format!("{pad}{head}{open}"));
        for (i, (head, t)) in members.iter().enumerate() {
            t.lines(depth + 1, head, if i + 1 < members.len() { "," } else { "" }, out);
        }
        out.push(format!("{pad}{close}{tail}"));
    }
}

/// Rearranges a pod's spec like the internal struct, whose security context holds the host namespace fields.
pub(super) fn pod_spec(spec: &Value) -> Value {
    let mut spec = spec.clone();
    for key in [
        // Absent flags are not copied: `POD_CONTEXT` prints them as false or null.
        "hostNetwork",
        "hostPID",
        "hostIPC",
        "shareProcessNamespace",
        "hostUsers",
    ] {
        let value = spec.get(key).clone();
        if !value.is_null() {
            spec.set(&["securityContext", key], value);
        }
    }
    spec
}

/// Prints an object on one line, as the bad value of an error; `fields` describe its Go struct.
pub(super) fn compact(v: &Value, fields: &[Field]) -> String {
    tree(v, fields, &mut PrintBudget(PrintBudget::LINE)).compact()
}

/// Prints `metav1.ObjectMeta` on one line.
pub(in crate::controlplane) fn object_meta(v: &Value) -> String {
    compact(v, META)
}

/// Prints a label selector, whose type in Go is the same in all versions; `null` if absent.
pub(super) fn selector(v: &Value) -> String {
    match v {
        Value::Null => "null".to_owned(),
        _ => compact(v, SELECTOR),
    }
}

/// Prints a template of objects: its metadata, which Go embeds, and a spec with these fields.
pub(super) fn template(metadata: &Value, spec: &Value, fields: &'static [Field]) -> String {
    let mut flat = match metadata {
        Value::Object(_) => metadata.clone(),
        _ => Value::object(),
    };
    flat.set(&["spec"], spec.clone());
    let own: &[Field] = &[("Spec", "spec", Printing::Struct(fields))];
    compact(&flat, &[META, own].concat())
}

/// Prints a `PersistentVolumeSpec`, in which Go embeds the source.
pub(super) fn persistent_volume_spec(v: &Value) -> String {
    let capacity: &[Field] = &[("Capacity", "capacity", Printing::Any)];
    compact(v, &[capacity, PERSISTENT, PERSISTENT_REST].concat())
}

/// As [`compact`], of a list of structs; `null` if it is absent.
pub(super) fn compact_list(v: &Value, fields: &'static [Field]) -> String {
    member(v, Printing::List(fields), &mut PrintBudget(PrintBudget::LINE)).compact()
}

/// A unified diff from `old` to `new`, preceded by a newline.
pub(super) fn difference(old: &Value, new: &Value, fields: &[Field]) -> String {
    let lines = |v: &Value| {
        // Each side has its own budget, or a large old object would hide the new one.
        let mut out = Vec::new();
        tree(v, fields, &mut PrintBudget(PrintBudget::DIFFERENCE)).lines(0, "", "", &mut out);
        out
    };
    format!("\n{}", diff::unified(&lines(old), &lines(new)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn selectors_print_like_gos_struct() {
        let expressions = json!([{"values": ["a"], "operator": "In", "key": "k"}, {"key": "x", "values": []}]);
        for (selector, want) in [
            (json!({"matchExpressions": [], "matchLabels": {}}), "{}"),
            (
                json!({"matchExpressions": (expressions), "matchLabels": {"a": "b"}}),
                r#"{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"k","operator":"In","values":["a"]},{"key":"x","operator":""}]}"#,
            ),
        ] {
            assert_eq!(super::selector(&selector), want);
        }
    }

    #[test]
    fn templates_print_metadata_under_wire_names_in_gos_order() {
        let metadata = json!({"annotations": {"a": "b"}, "labels": {"c": "d"}, "name": "n", "finalizers": [],
            "ownerReferences": [{"uid": "u", "kind": "K", "controller": false}]});
        assert_eq!(
            template(&metadata, &json!({"x": 1}), &[("X", "x", Printing::Int)]),
            r#"{"name":"n","labels":{"c":"d"},"annotations":{"a":"b"},"ownerReferences":[{"apiVersion":"","kind":"K","name":"","uid":"u","controller":false}],"Spec":{"X":1}}"#
        );
        let spec = template(&Value::Null, &Value::Null, &[("X", "x", Printing::Int)]);
        assert_eq!(spec, r#"{"Spec":{"X":0}}"#);
    }

    #[test]
    fn templates_of_claims_print_their_metadata_among_their_own_fields() {
        let with = |ephemeral: Value| compact(&json!({"volumes": [{"ephemeral": (ephemeral)}]}), POD_SPEC);
        let none = with(json!({}));
        assert!(none.contains(r#""Ephemeral":{"VolumeClaimTemplate":null},"#), "{none}");
        let full =
            with(json!({"volumeClaimTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {"volumeName": "v"}}}));
        let want = r#""Ephemeral":{"VolumeClaimTemplate":{"labels":{"a":"b"},"Spec":{"AccessModes":null,"Selector":null,"Resources":{"Limits":null,"Requests":null},"VolumeName":"v","#;
        assert!(full.contains(want), "{full}");
    }

    #[test]
    fn struct_prints_all_fields() {
        let fields: &[Field] = &[
            ("Name", "name", Printing::Str),
            ("Args", "args", Printing::Any),
            ("Ports", "ports", Printing::List(&[("Port", "port", Printing::Int)])),
        ];
        assert_eq!(
            compact(&json!({"name": "a", "ports": [{}]}), fields),
            r#"{"Name":"a","Args":null,"Ports":[{"Port":0}]}"#
        );
        let text = difference(&json!({"name": "a"}), &json!({"name": "a", "args": ["x"]}), fields);
        assert_eq!(
            text,
            "\n@@ -1,5 +1,7 @@\n {\n  \"Name\": \"a\",\n- \"Args\": null,\n+ \"Args\": [\n+  \"x\"\n+ ],\n  \"Ports\": null\n }\n"
        );
    }
}
