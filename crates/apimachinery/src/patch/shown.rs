//! The text of a patched document as upstream's messages show it: [`merged`].
//!
//! Upstream patches texts (evanphx/json-patch): what a patch does not touch keeps the order of its members,
//! and numbers and strings are written as they came. Objects that it changes are maps of Go, whose members
//! are sorted.

use std::collections::BTreeMap;

/// Bytes of a document and its patch up to which the result is shown in upstream's order. Every member costs
/// memory here, and nobody reads more.
const LONGEST: usize = 256 << 10;

/// A part of a document.
enum Node<'t> {
    /// As it is written; strings with their quotes.
    Scalar(&'t str),
    List(Vec<Node<'t>>),
    /// Members in the order of the text, with their keys in quotes.
    Object(Vec<(&'t str, Node<'t>)>),
    /// An object that became a map: its keys decoded and sorted.
    Map(BTreeMap<String, Node<'t>>),
}

/// The result of a merge patch. `None` if one of the two texts is no JSON object, or if they are long.
pub fn merged(document: &str, patch: &str) -> Option<String> {
    if document.len() + patch.len() > LONGEST {
        return None;
    }
    let (mut document, patch) = (Reader::all(document)?, Reader::all(patch)?);
    if !document.is_object() || !patch.is_object() {
        return None;
    }
    document.merge(patch);
    let mut out = String::new();
    document.write(&mut out);
    Some(out)
}

impl<'t> Node<'t> {
    fn is_object(&self) -> bool {
        matches!(self, Self::Object(_) | Self::Map(_))
    }

    fn is_null(&self) -> bool {
        matches!(self, Self::Scalar("null"))
    }

    /// Makes an object a map. Of equal keys the last counts.
    fn members(&mut self) -> Option<&mut BTreeMap<String, Self>> {
        if let Self::Object(members) = self {
            let decoded = |(key, value): (&str, Self)| (serde_json::from_str(key).unwrap_or_default(), value);
            let map = std::mem::take(members).into_iter().map(decoded).collect();
            *self = Self::Map(map);
        }
        match self {
            Self::Map(map) => Some(map),
            _ => None,
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
            match document.get_mut(&key).filter(|old| old.is_object()) {
                Some(old) if value.is_object() => old.merge(value),
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

/// Reads a text that is known to be JSON; of another one it makes something, or nothing.
struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Reader<'t> {
    fn all(text: &'t str) -> Option<Node<'t>> {
        Self { text, at: 0 }.value()
    }

    /// The next byte that is no white space.
    fn peek(&mut self) -> Option<u8> {
        let rest = self.text.as_bytes().get(self.at..)?;
        self.at += rest.iter().position(|b| !b.is_ascii_whitespace())?;
        self.text.as_bytes().get(self.at).copied()
    }

    fn accept(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn value(&mut self) -> Option<Node<'t>> {
        match self.peek()? {
            b'{' => {
                self.at += 1;
                let mut members = Vec::new();
                while !self.accept(b'}') {
                    self.accept(b',');
                    self.peek()?;
                    let key = self.scalar()?;
                    self.accept(b':').then_some(())?;
                    members.push((key, self.value()?));
                }
                Some(Node::Object(members))
            }
            b'[' => {
                self.at += 1;
                let mut items = Vec::new();
                while !self.accept(b']') {
                    self.accept(b',');
                    items.push(self.value()?);
                }
                Some(Node::List(items))
            }
            _ => self.scalar().map(Node::Scalar),
        }
    }

    /// A string, number or word.
    fn scalar(&mut self) -> Option<&'t str> {
        let rest = self.text.get(self.at..)?;
        let bytes = rest.as_bytes();
        let length = if bytes.first() == Some(&b'"') {
            let mut escaped = false;
            let end = bytes.iter().skip(1).position(|b| {
                let is_end = *b == b'"' && !escaped;
                escaped = *b == b'\\' && !escaped;
                is_end
            })?;
            end + 2
        } else {
            let is_end =
                |b: &u8| b.is_ascii_whitespace() || matches!(b, b',' | b':' | b']' | b'}' | b'"' | b'[' | b'{');
            bytes.iter().position(is_end).unwrap_or(bytes.len())
        };
        let scalar = rest.get(..length).filter(|scalar| !scalar.is_empty())?;
        self.at += length;
        Some(scalar)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_patch_leaves_alone_keeps_its_order() {
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
        assert_eq!(merged(document, &format!("{}{{}}", " ".repeat(LONGEST))), None);
    }
}
