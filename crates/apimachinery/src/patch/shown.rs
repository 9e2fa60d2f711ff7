//! The text of a patched document as upstream's messages show it: [`merged`] and [`operated`].
//!
//! Upstream patches texts (evanphx/json-patch): what a patch does not touch keeps the order of its members,
//! and numbers and strings are written as they came. Objects that it changes are maps of Go, whose members
//! are sorted.

use super::json_patch::{index, unescape};
use crate::codec::json::text::TextReader;
use crate::interrupt::pause;
use std::collections::BTreeMap;

/// Bytes of a document and its patch up to which the result is shown in upstream's order. Every member costs
/// memory here, and no reader needs more.
const MAX_BYTES: usize = 256 << 10;

/// The result of a JSON patch that is known to apply. `None` if a text is not JSON, if both together are longer
/// than 256 KiB, or if the operations copy or move more than 2^18 nodes.
pub fn operated(document: &str, patch: &str) -> Option<String> {
    if document.len() + patch.len() > MAX_BYTES {
        return None;
    }
    let (mut document, patch) = (Node::of(document)?, Node::of(patch)?);
    let operations = match patch {
        // A `null` patch has no operations.
        Node::List(operations) => operations,
        patch if patch.is_null() => Vec::new(),
        _ => return None,
    };
    let mut budget = COSTLIEST;
    // Upstream decodes the document into a map even if there are no operations, so its top level is sorted in any
    // case.
    document.members();
    for mut operation in operations {
        pause();
        document.operate(operation.members()?, &mut budget)?;
    }
    let mut out = String::new();
    document.write(&mut out);
    Some(out)
}

/// Nodes that the operations of a patch may copy or move.
const COSTLIEST: usize = 1 << 18;

fn spend(budget: &mut usize, cost: usize) -> Option<()> {
    *budget = budget.checked_sub(cost)?;
    Some(())
}

/// The text of a JSON string.
fn decoded(text: &str) -> String {
    // The key comes from a text that was read as JSON, so the default is never used.
    serde_json::from_str(text).unwrap_or_default()
}

/// The text is not JSON.
struct Broken;

/// A part of a document.
#[derive(Clone)]
enum Node<'t> {
    /// As it is written; strings with their quotes.
    Scalar(&'t str),
    List(Vec<Node<'t>>),
    /// Members in the order of the text, with their keys in quotes.
    Object(Vec<(&'t str, Node<'t>)>),
    /// An object that became a map: its keys decoded and sorted.
    Map(BTreeMap<String, Node<'t>>),
}

/// The result of a merge patch. `None` if one of the two texts is not a JSON object, or if together they exceed 256
/// KiB.
pub fn merged(document: &str, patch: &str) -> Option<String> {
    if document.len() + patch.len() > MAX_BYTES {
        return None;
    }
    let (mut document, patch) = (Node::of(document)?, Node::of(patch)?);
    if !document.is_object() || !patch.is_object() {
        return None;
    }
    document.merge(patch);
    let mut out = String::new();
    document.write(&mut out);
    Some(out)
}

impl<'t> Node<'t> {
    /// The whole document; `None` if the text is empty or broken.
    fn of(text: &'t str) -> Option<Self> {
        Self::read(&mut TextReader::new(text)).ok()
    }

    fn read(r: &mut TextReader<'t>) -> Result<Self, Broken> {
        match r.peek() {
            Some(b'{') => {
                let mut members = Vec::new();
                r.members(|r, key| {
                    members.push((key, Self::read(r)?));
                    Ok(())
                })?;
                Ok(Self::Object(members))
            }
            Some(b'[') => {
                let mut items = Vec::new();
                r.items(|r| {
                    items.push(Self::read(r)?);
                    Ok(())
                })?;
                Ok(Self::List(items))
            }
            _ => r.scalar().map(Self::Scalar).ok_or(Broken),
        }
    }

    fn is_object(&self) -> bool {
        matches!(self, Self::Object(_) | Self::Map(_))
    }

    fn is_null(&self) -> bool {
        matches!(self, Self::Scalar("null"))
    }

    /// Turns an object into a map. The last of several equal keys wins.
    fn members(&mut self) -> Option<&mut BTreeMap<String, Self>> {
        if let Self::Object(members) = self {
            let members = std::mem::take(members).into_iter();
            // Equal keys: `collect` keeps the last one, as Go's map does.
            *self = Self::Map(members.map(|(key, value)| (decoded(key), value)).collect());
        }
        match self {
            Self::Map(map) => Some(map),
            _ => None,
        }
    }

    /// Applies an operation of a JSON patch. Objects on its path become maps.
    fn operate(&mut self, operation: &BTreeMap<String, Self>, budget: &mut usize) -> Option<()> {
        let text = |name: &str| match operation.get(name) {
            Some(Self::Scalar(text)) => decoded(text),
            _ => String::new(),
        };
        let (path, from) = (text("path"), text("from"));
        let value = || operation.get("value").cloned().unwrap_or(Self::Scalar("null"));
        match text("op").as_str() {
            "test" => {
                // A comparison decodes both sides in upstream, which is why testing alone reorders the tested part.
                if let Some(tested) = self.at(&path) {
                    tested.open(budget)?;
                }
            }
            "replace" if path.is_empty() => *self = value(),
            "replace" => {
                let value = value();
                // Before the value is moved in; cloning it is bounded by the length of the patch.
                spend(budget, value.size())?;
                match self.at(&path) {
                    Some(old) => *old = value,
                    None => self.add(&path, value, budget)?,
                }
            }
            "add" => {
                let value = value();
                spend(budget, value.size())?;
                self.add(&path, value, budget)?;
            }
            // A failing removal cannot occur in a patch that is known to apply.
            "remove" => drop(self.remove(&path, budget)),
            "move" => {
                let moved = self.remove(&from, budget)?;
                self.add(&path, moved, budget)?;
            }
            "copy" => {
                // An absent source copies as null, as in upstream.
                let copied = self.at(&from).map_or(Self::Scalar("null"), |node| node.clone());
                spend(budget, copied.size())?;
                self.add(&path, copied, budget)?;
            }
            _ => {}
        }
        Some(())
    }

    /// The number of nodes.
    fn size(&self) -> usize {
        1 + match self {
            Self::Scalar(_) => 0,
            Self::List(items) => items.iter().map(Self::size).sum(),
            Self::Object(members) => members.iter().map(|(_, node)| node.size()).sum(),
            Self::Map(members) => members.values().map(Self::size).sum(),
        }
    }

    /// Turns all objects into maps, as a comparison does upstream.
    fn open(&mut self, budget: &mut usize) -> Option<()> {
        spend(budget, 1)?;
        if let Self::List(items) = self {
            return items.iter_mut().try_for_each(|item| item.open(budget));
        }
        // Scalars have no members and end the recursion.
        let mut members = self.members().into_iter().flat_map(BTreeMap::values_mut);
        members.try_for_each(|node| node.open(budget))
    }

    /// The node at a JSON pointer.
    fn at(&mut self, path: &str) -> Option<&mut Self> {
        let mut node = self;
        for token in path.split('/').skip(1) {
            node = match node {
                Self::List(items) => {
                    let at = index(token, items.len())?;
                    items.get_mut(at)?
                }
                _ => node.members()?.get_mut(&unescape(token))?,
            };
        }
        Some(node)
    }

    fn add(&mut self, path: &str, value: Self, budget: &mut usize) -> Option<()> {
        let (parent, token) = path.rsplit_once('/')?;
        // Resolving the parent turns every object on the way into a map, as upstream does.
        match self.at(parent)? {
            Self::List(items) => {
                // An index from the end counts the new item.
                let at = match token {
                    "-" => items.len(),
                    _ => index(token, items.len() + 1)?,
                };
                // `Vec::insert` moves what follows; without a charge, inserting at the front is quadratic.
                spend(budget, items.len().checked_sub(at)?)?;
                items.insert(at, value);
            }
            object => drop(object.members()?.insert(unescape(token), value)),
        }
        Some(())
    }

    fn remove(&mut self, path: &str, budget: &mut usize) -> Option<Self> {
        let (parent, token) = path.rsplit_once('/')?;
        match self.at(parent)? {
            Self::List(items) => {
                let at = index(token, items.len())?;
                spend(budget, items.len().checked_sub(at)?)?;
                Some(items.remove(at))
            }
            object => object.members()?.remove(&unescape(token)),
        }
    }

    /// Merges a patch, which is an object, into this object.
    fn merge(&mut self, mut patch: Self) {
        let (Some(document), Some(patch)) = (self.members(), patch.members()) else {
            return;
        };
        for (key, mut value) in std::mem::take(patch) {
            if value.is_null() {
                document.remove(&key);
                continue;
            }
            // A non-object is replaced rather than merged into.
            match document.get_mut(&key).filter(|old| old.is_object()) {
                Some(old) if value.is_object() => old.merge(value),
                // As in upstream, a value that replaces an object keeps its nulls.
                Some(old) => *old = value,
                None => {
                    value.prune();
                    document.insert(key, value);
                }
            }
        }
    }

    /// Removes the nulls in objects of a new value, which makes all of them maps.
    fn prune(&mut self) {
        if let Self::List(items) = self {
            items.iter_mut().for_each(Self::prune);
        } else if let Some(members) = self.members() {
            members.retain(|_, value| !value.is_null());
            members.values_mut().for_each(Self::prune);
        }
    }

    fn write(&self, out: &mut String) {
        let comma = |out: &mut String, i: usize| {
            if i > 0 {
                out.push(',');
            }
        };
        match self {
            Self::Scalar(text) => escape(text, out),
            Self::List(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    comma(out, i);
                    item.write(out);
                }
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                for (i, (key, value)) in members.iter().enumerate() {
                    comma(out, i);
                    escape(key, out);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
            Self::Map(members) => {
                out.push('{');
                for (i, (key, value)) in members.iter().enumerate() {
                    comma(out, i);
                    // Keys of maps are decoded, so they are encoded again; all other text is written as it came.
                    escape(&serde_json::Value::from(key.as_str()).to_string(), out);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
    }
}

/// Appends a scalar with the characters escaped that Go escapes for HTML.
fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_on_the_path_of_an_operation_are_sorted() {
        let document = r#"{"kind":"A","apiVersion":"v1","metadata":{"name":"a","labels":{"z":"1","b/c":"2"}},"spec":{"y":[{"d":1,"c":2},3],"x":1.50}}"#;
        for (patch, result) in [
            (
                "[]",
                r#"{"apiVersion":"v1","kind":"A","metadata":{"name":"a","labels":{"z":"1","b/c":"2"}},"spec":{"y":[{"d":1,"c":2},3],"x":1.50}}"#,
            ),
            (
                r#"[{"op":"replace","path":"/metadata/labels/b~1c","value":{"b":1.0,"a":2}}]"#,
                r#"{"apiVersion":"v1","kind":"A","metadata":{"labels":{"b/c":{"b":1.0,"a":2},"z":"1"},"name":"a"},"spec":{"y":[{"d":1,"c":2},3],"x":1.50}}"#,
            ),
            (
                r#"[{"op":"copy","from":"/spec/y/0","path":"/spec/y/-"},{"op":"move","from":"/spec/y/-2","path":"/q"},{"op":"remove","path":"/metadata"}]"#,
                r#"{"apiVersion":"v1","kind":"A","q":3,"spec":{"x":1.50,"y":[{"d":1,"c":2},{"d":1,"c":2}]}}"#,
            ),
            (
                r#"[{"op":"test","path":"/spec/y","value":[]},{"op":"add","path":"/spec/y/1","value":"é"},{"op":"remove","path":"/metadata"}]"#,
                r#"{"apiVersion":"v1","kind":"A","spec":{"x":1.50,"y":[{"c":2,"d":1},"é",3]}}"#,
            ),
        ] {
            assert_eq!(operated(document, patch).as_deref(), Some(result), "{patch}");
        }
        assert_eq!(operated(document, "{}"), None);
        let doubling = [r#"{"op":"copy","from":"/spec","path":"/spec/y/0"}"#; 60].join(",");
        assert_eq!(operated(document, &format!("[{doubling}]")), None);
    }

    #[test]
    fn unpatched_members_keep_their_order() {
        let document = r#"{"kind":"A","apiVersion":"v1","metadata":{"name":"a","labels":{"z":"1","b":"2"}},"spec":{"y":[{"d":1,"c":2}],"x":1.50}}"#;
        for (patch, result) in [
            (
                r#"{"metadata": {"name": 5}}"#,
                r#"{"apiVersion":"v1","kind":"A","metadata":{"labels":{"z":"1","b":"2"},"name":5},"spec":{"y":[{"d":1,"c":2}],"x":1.50}}"#,
            ),
            (
                r#"{"spec":{"n":{"q":1e400,"p":null,"a":[{"z":1,"b":null}]},"y":{"b":1,"a":"<"}},"metadata":null}"#,
                r#"{"apiVersion":"v1","kind":"A","spec":{"n":{"a":[{"z":1}],"q":1e400},"x":1.50,"y":{"a":"\u003c","b":1}}}"#,
            ),
            (
                r#"{"metadata":[{"z":1,"a":null}],"\u006bind":"\ud83d\ude00"}"#,
                r#"{"apiVersion":"v1","kind":"\ud83d\ude00","metadata":[{"z":1,"a":null}],"spec":{"y":[{"d":1,"c":2}],"x":1.50}}"#,
            ),
        ] {
            assert_eq!(merged(document, patch).as_deref(), Some(result), "{patch}");
        }
        assert_eq!(merged(document, "[]"), None);
        assert_eq!(merged(document, &format!("{}{{}}", " ".repeat(MAX_BYTES))), None);
    }
}
