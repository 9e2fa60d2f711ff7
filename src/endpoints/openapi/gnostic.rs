//! OpenAPI documents in the protobuf messages of `gnostic-models`, the encoding kubectl requests from
//! `/openapi/v2`.
//!
//! Entry point: [`encode`], which walks a document along a table of messages. The tables in `v2` and `v3` map
//! JSON keys to fields. Keys without a field are dropped, as upstream does.

mod common;
mod v2;
mod v3;

#[cfg(test)]
mod tests;

use crate::api::openapi::Dialect;
use crate::apimachinery::codec::yaml;
use crate::apimachinery::value::{Map, Value};

/// The encoding of a message.
struct Message {
    fields: &'static [(&'static str, u32, Form)],
    /// Repeated fields of `(name = 1, value = 2)` for the keys that are not in `fields`, chosen by the first
    /// matching prefix.
    named: &'static [(&'static str, u32, Form)],
}

/// The encoding of a JSON value as a field.
#[derive(Clone, Copy)]
enum Form {
    Text,
    Bool,
    Int,
    Double,
    /// A message that holds the value as YAML in its field 2.
    Any,
    Message(&'static Message),
    /// A repeated field: one entry per item of an array.
    Each(&'static Form),
    /// A message with a single repeated field 1: the items of an array, or a single value.
    List(&'static Form),
    /// A oneof: a message with the field of the first test that passes.
    Choice(&'static [(Test, u32, Form)]),
}

/// The condition of a [`Form::Choice`].
#[derive(Clone, Copy)]
enum Test {
    Has(&'static str),
    Is(&'static str, &'static str),
    Boolean,
    Number,
    String,
    Object,
    Otherwise,
}

/// Encodes a document as `openapi.v2.Document` or `openapi.v3.Document`.
pub(crate) fn encode(document: &Value, dialect: Dialect) -> Vec<u8> {
    let message = match dialect {
        Dialect::V2 => &v2::DOCUMENT,
        Dialect::V3 => &v3::DOCUMENT,
    };
    let mut out = Vec::new();
    if let Some(m) = document.as_object() {
        message.write(m, &mut out);
    }
    out
}

// === impl Message ===

impl Message {
    fn write(&self, value: &Map, out: &mut Vec<u8>) {
        for &(key, number, form) in self.fields {
            if let Some(v) = value.get(key) {
                form.write(number, v, Presence::Implicit, out);
            }
        }
        for &(prefix, number, form) in self.named {
            for (key, v) in value.iter() {
                // One pass over the keys per field: fields are grouped as Go's generated code writes them. Protobuf
                // itself requires no order.
                if self.takes(key) == Some(prefix) {
                    nested(number, out, |out| {
                        text(1, key, out);
                        form.write(2, v, Presence::Explicit, out);
                    });
                }
            }
        }
    }

    /// The prefix that classifies this key as a named field.
    fn takes(&self, key: &str) -> Option<&'static str> {
        if self.fields.iter().any(|f| f.0 == key) {
            return None;
        }
        self.named.iter().map(|n| n.0).find(|p| key.starts_with(p))
    }
}

// === impl Form ===

/// Whether zero values are written: not for implicit presence, as in proto3.
#[derive(Clone, Copy, PartialEq)]
enum Presence {
    Implicit,
    Explicit,
}

impl Form {
    fn write(self, number: u32, value: &Value, presence: Presence, out: &mut Vec<u8>) {
        let always = presence == Presence::Explicit;
        match self {
            Self::Text => {
                if let Some(s) = value.as_str().filter(|s| always || !s.is_empty()) {
                    text(number, s, out);
                }
            }
            Self::Bool => {
                if let Some(b) = value.as_bool().filter(|b| always || *b) {
                    tag(number, 0, out);
                    varint(b.into(), out);
                }
            }
            Self::Int => {
                if let Some(i) = value.as_i64().filter(|i| always || *i != 0) {
                    tag(number, 0, out);
                    varint(i.cast_unsigned(), out);
                }
            }
            Self::Double => {
                if let Some(f) = value.as_f64().filter(|f| always || *f != 0.0) {
                    tag(number, 1, out);
                    // Wire type 1: eight bytes in little-endian order.
                    out.extend_from_slice(&f.to_le_bytes());
                }
            }
            Self::Any => nested(number, out, |out| {
                text(2, &yaml::to_string(value), out);
            }),
            Self::Message(message) => {
                if let Some(m) = value.as_object() {
                    nested(number, out, |out| message.write(m, out));
                }
            }
            Self::Each(form) => {
                for item in value.items() {
                    form.write(number, item, Presence::Explicit, out);
                }
            }
            Self::List(form) => nested(number, out, |out| match value {
                Value::Array(items) => items.iter().for_each(|v| form.write(1, v, Presence::Explicit, out)),
                one => form.write(1, one, Presence::Explicit, out),
            }),
            Self::Choice(choices) => {
                if let Some(&(_, n, form)) = choices.iter().find(|c| c.0.passes(value)) {
                    nested(number, out, |out| form.write(n, value, Presence::Explicit, out));
                }
            }
        }
    }
}

// === impl Test ===

impl Test {
    fn passes(self, value: &Value) -> bool {
        match self {
            Self::Has(key) => value.as_object().is_some_and(|m| m.contains_key(key)),
            Self::Is(key, text) => value.get(key).as_str() == Some(text),
            Self::Boolean => value.as_bool().is_some(),
            Self::Number => matches!(value, Value::Int(_) | Value::Float(_)),
            Self::String => value.as_str().is_some(),
            Self::Object => value.as_object().is_some(),
            Self::Otherwise => true,
        }
    }
}

fn text(number: u32, s: &str, out: &mut Vec<u8>) {
    tag(number, 2, out);
    varint(s.len() as u64, out);
    out.extend_from_slice(s.as_bytes());
}

fn tag(number: u32, wire: u32, out: &mut Vec<u8>) {
    varint((number << 3 | wire).into(), out);
}

fn varint(mut n: u64, out: &mut Vec<u8>) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Writes a length-delimited field. The content is written first; then the length is appended and rotated in
/// front of it.
fn nested(number: u32, out: &mut Vec<u8>, content: impl FnOnce(&mut Vec<u8>)) {
    tag(number, 2, out);
    let start = out.len();
    content(out);
    let end = out.len();
    varint((end - start) as u64, out);
    out[start..].rotate_left(end - start);
}
