//! The `fieldsV1` encoding: [`FieldSet::encode`], [`FieldSet::decode`]. The keys of its objects, such as `f:name`, are
//! those of `path`.

use super::{Entry, FieldSet, MalformedFields, PathElement, push};
use crate::interrupt::{checkpoint, pause};
use crate::value::{Map, Str, Value};

impl FieldSet {
    /// Encodes the set as a `fieldsV1` object.
    pub fn encode(&self) -> Value {
        Value::Object(self.encode_map(false))
    }

    fn encode_map(&self, member: bool) -> Map {
        // Only a member that also has children needs the explicit `.`.
        let marker = member && !self.is_empty();
        let mut pairs = Vec::with_capacity(self.entries().len() + usize::from(marker));
        if marker {
            pairs.push((Str::const_new("."), Value::object()));
        }
        for e in self.entries() {
            // Managed fields can be megabytes; this lets other work run during a long encode.
            pause();
            pairs.push((e.element.encode(), Value::Object(e.children.encode_map(e.member))));
        }
        Map::from_pairs(pairs)
    }

    /// Decodes a `fieldsV1` object.
    ///
    /// # Errors
    /// A key is malformed.
    pub fn decode(v: &Value) -> Result<Self, MalformedFields> {
        Self::decode_level(v).map(|(set, _)| set)
    }

    fn decode_level(v: &Value) -> Result<(Self, bool), MalformedFields> {
        checkpoint();
        let map = v.as_object().ok_or(MalformedFields::NoObject)?;
        let mut entries = Vec::with_capacity(map.len());
        // An empty object stands for a member; `.` marks members that have children.
        let mut member = map.is_empty();
        for (k, v) in map.iter() {
            if k == "." {
                member = true;
                continue;
            }
            // `None` is an element kind we do not know; upstream drops those together with everything below them.
            if let Some(element) = PathElement::decode(k)? {
                let (children, member) = Self::decode_level(v)?;
                push(
                    &mut entries,
                    Entry {
                        element,
                        member,
                        children,
                    },
                );
            }
        }
        Ok((Self::of_entries(entries), member))
    }
}
