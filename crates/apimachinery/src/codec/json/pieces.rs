//! [`Pieces`]: encodes large documents in pieces, so that they are never in memory as text, nor need be as
//! one tree.

use super::{encode, encode_str};
use crate::value::Value;

/// Size of a piece in bytes, exceeded by at most one value that is not an object.
const PIECE: usize = 64 << 10;

/// Encodes compactly and passes the text to a sink in pieces of about 64 KiB.
pub struct Pieces<'s> {
    text: Vec<u8>,
    sink: &'s mut dyn FnMut(&[u8]),
}

/// The members of an object that is being written. Nothing checks that keys are unique.
pub struct Members<'p, 's> {
    to: &'p mut Pieces<'s>,
    is_empty: bool,
}

impl<'s> Pieces<'s> {
    /// Passes to `sink` what `write` writes, which should be a single value.
    pub fn write(sink: &'s mut dyn FnMut(&[u8]), write: impl FnOnce(&mut Self)) {
        let text = Vec::new();
        let mut pieces = Self { text, sink };
        write(&mut pieces);
        // The last piece may be empty or short; sinks must accept both.
        (pieces.sink)(&pieces.text);
    }

    /// Writes a tree; a piece may end behind any member of its objects.
    pub fn value(&mut self, v: &Value) {
        match v {
            Value::Object(m) => self.object(|members| m.iter().for_each(|(k, v)| members.value(k, v))),
            // Only objects are split further: lists within objects are encoded whole, which is why a piece may exceed
            // its size.
            other => encode(other, &mut self.text),
        }
        if self.text.len() >= PIECE {
            (self.sink)(&self.text);
            self.text.clear();
        }
    }

    /// Writes an object whose members `write` writes.
    pub fn object(&mut self, write: impl FnOnce(&mut Members<'_, 's>)) {
        self.text.push(b'{');
        write(&mut Members {
            to: self,
            is_empty: true,
        });
        self.text.push(b'}');
    }
}

impl<'s> Members<'_, 's> {
    /// Writes a member whose value is a tree.
    pub fn value(&mut self, key: &str, v: &Value) {
        self.key(key).value(v);
    }

    /// Writes a member that is an object whose members `write` writes.
    pub fn object(&mut self, key: &str, write: impl FnOnce(&mut Members<'_, 's>)) {
        self.key(key).object(write);
    }

    fn key(&mut self, key: &str) -> &mut Pieces<'s> {
        if !std::mem::take(&mut self.is_empty) {
            self.to.text.push(b',');
        }
        encode_str(key, &mut self.to.text);
        self.to.text.push(b':');
        self.to
    }
}

#[cfg(test)]
mod tests {
    use super::super::{to_string, to_vec};
    use super::*;
    use crate::value::Map;

    #[test]
    fn pieces_add_up_to_the_encoding() {
        let members = (0..5_000).map(|i| {
            (
                format!("k{i:05}"),
                crate::json!({"a": [i, (("x").repeat(40))], "b": {}}),
            )
        });
        let v = crate::json!({"a": 1, "m": (Value::Object(members.collect::<Map>())), "z": null});
        let mut pieces: Vec<Vec<u8>> = Vec::new();
        Pieces::write(&mut |piece| pieces.push(piece.to_vec()), |to| to.value(&v));
        assert!(pieces.len() > 3 && pieces.iter().all(|p| p.len() < 70_000));
        assert_eq!(pieces.concat(), to_vec(&v));
    }

    #[test]
    fn objects_are_written_member_by_member() {
        let mut text = Vec::new();
        Pieces::write(&mut |piece| text.extend_from_slice(piece), |to| {
            to.object(|all| {
                all.value("a\n", &1.into());
                all.object("none", |_| {});
                all.object("some", |some| some.value("b", &Value::Null));
            });
        });
        assert_eq!(
            String::from_utf8(text).unwrap(),
            r#"{"a\n":1,"none":{},"some":{"b":null}}"#
        );
        assert_eq!(to_string(&Value::object()), "{}");
    }
}
