//! How upstream shows its internal structs: Go's field names in order, everything there, `null` for what is not; and
//! the difference of two of them, as a unified diff of their lines.

mod diff;
mod tables;

use crate::apimachinery::field::{quote, show};
use crate::apimachinery::value::Value;
use crate::interrupt::checkpoint;
pub(super) use tables::{
    BUDGET, CLAIM_SPEC, CONTEXT, EPHEMERAL_CONTAINER, FAILURE_POLICY, PERSISTENT, POD_SPEC, SCOPE_SELECTOR, SELECTOR,
    SET_ROLLING, SET_STRATEGY, STRATEGY, SUCCESS_POLICY, TOLERATION, VOLUME_NODES,
};

/// How a field is shown.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// A string that is never nil.
    Str,
    /// A number that is never nil.
    Int,
    /// A flag that is never nil.
    Bool,
    /// Anything else; nil where absent.
    Any,
    /// Anything else; left out where absent (`omitempty`).
    Said,
    /// A struct; nil where absent.
    Ptr(&'static [Field]),
    /// A struct that is always there.
    Struct(&'static [Field]),
    /// A list of structs.
    List(&'static [Field]),
}

/// Go's name, the wire's name, how it is shown.
pub(super) type Field = (&'static str, &'static str, Kind);

/// A value ready to be printed.
enum Tree {
    Leaf(String),
    Object(Vec<(String, Tree)>),
    List(Vec<Tree>),
}

/// How many values of one object are shown. A struct shows every field it has in Go, so that each `{}` a client sends
/// stands for dozens; nobody reads more than the first thousands.
struct Room(usize);

impl Room {
    /// For one line, of which an error keeps 16 KiB.
    const LINE: usize = 4_000;
    /// For each side of a difference.
    const DIFFERENCE: usize = 100_000;

    fn take(&mut self) -> bool {
        checkpoint();
        let free = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        free
    }

    /// Shows items while there is room.
    fn list<'v>(&mut self, items: &'v [Value], mut show: impl FnMut(&'v Value, &mut Self) -> Tree) -> Tree {
        let mut out = Vec::new();
        for item in items {
            if !self.take() {
                out.push(Tree::Leaf("...".to_owned()));
                break;
            }
            out.push(show(item, self));
        }
        Tree::List(out)
    }
}

fn any(v: &Value, room: &mut Room) -> Tree {
    match v {
        Value::Object(m) => {
            let entries = m
                .iter()
                .map_while(|(k, x)| room.take().then(|| (k.to_owned(), any(x, room))));
            Tree::Object(entries.collect())
        }
        Value::Array(a) => room.list(a, any),
        other => Tree::Leaf(show(other)),
    }
}

fn tree(v: &Value, fields: &[Field], room: &mut Room) -> Tree {
    Tree::Object(
        fields
            .iter()
            .filter(|(_, key, kind)| !matches!(kind, Kind::Said) || !v.get(key).is_null())
            .map(|(go, key, kind)| ((*go).to_owned(), member(v.get(key), *kind, room)))
            .collect(),
    )
}

fn member(v: &Value, kind: Kind, room: &mut Room) -> Tree {
    // A struct is shown whole; what it holds takes room.
    room.take();
    let nil = || Tree::Leaf("null".to_owned());
    match (kind, v.is_null()) {
        (Kind::Str, true) => Tree::Leaf("\"\"".to_owned()),
        (Kind::Int, true) => Tree::Leaf("0".to_owned()),
        (Kind::Bool, true) => Tree::Leaf("false".to_owned()),
        (Kind::Struct(fields), _) | (Kind::Ptr(fields), false) => tree(v, fields, room),
        (Kind::List(fields), false) => room.list(v.items(), |x, room| tree(x, fields, room)),
        (_, true) => nil(),
        (_, false) => any(v, room),
    }
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
                    .map(|(k, v)| format!("{}:{}", quote(k), v.compact()))
                    .collect();
                format!("{{{}}}", all.join(","))
            }
        }
    }

    /// Lines indented by one space per level; `head` stands before the first, `tail` behind the last.
    fn lines(&self, depth: usize, head: &str, tail: &str, out: &mut Vec<String>) {
        let pad = " ".repeat(depth);
        let (open, close, members): (_, _, Vec<(String, &Self)>) = match self {
            Self::Leaf(s) => return out.push(format!("{pad}{head}{s}{tail}")),
            Self::List(all) => ("[", "]", all.iter().map(|t| (String::new(), t)).collect()),
            Self::Object(all) => {
                let named = all.iter().map(|(k, t)| (format!("{}: ", quote(k)), t));
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

/// A pod's spec as the internal struct has it: what concerns the host stands in the security context.
pub(super) fn pod_spec(spec: &Value) -> Value {
    let mut spec = spec.clone();
    for key in [
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

/// The struct in one line.
pub(super) fn compact(v: &Value, fields: &[Field]) -> String {
    tree(v, fields, &mut Room(Room::LINE)).compact()
}

/// What changed from `old` to `new`, behind a newline.
pub(super) fn difference(old: &Value, new: &Value, fields: &[Field]) -> String {
    let lines = |v: &Value| {
        let mut out = Vec::new();
        tree(v, fields, &mut Room(Room::DIFFERENCE)).lines(0, "", "", &mut out);
        out
    };
    format!("\n{}", diff::unified(&lines(old), &lines(new)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn a_struct_shows_all_its_fields() {
        let fields: &[Field] = &[
            ("Name", "name", Kind::Str),
            ("Args", "args", Kind::Any),
            ("Ports", "ports", Kind::List(&[("Port", "port", Kind::Int)])),
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
