//! Objects in protobuf, read and written over the schema table.
//!
//! JSON and protobuf have the same fields, apart from embedded messages, which JSON inlines (`Field::through`), and a
//! few scalars that are messages. Written is what upstream's generated code writes: fields by number, values that are no
//! pointers even where they are zero, structs that are no pointers even where they are empty, maps by key. Read is
//! anything that keeps to the wire format; unknown fields are passed over, in every mode of field validation.

mod order;
mod read;
mod write;

pub use read::{message as decode_message, message_within as decode_message_within};
pub use write::message as encode_message;

use super::decode::DecodeError;
use super::{Field, TypeDef};
use crate::apimachinery::codec::budget::Budget;
use crate::apimachinery::codec::protobuf::envelope;
use crate::apimachinery::gvk::GroupVersion;
use crate::apimachinery::value::Value;

const SCHEMA: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

/// The definition by which a kind is read and written: its own, or that of `v1` for the two kinds that an older version
/// of the group has in the same form (`PartialObjectMetadata`, `Eviction`).
pub fn definition(api_version: &str, kind: &str) -> Option<&'static TypeDef> {
    // The documents of the core group's discovery name no version.
    let gv = match api_version {
        "" => GroupVersion::new("", "v1"),
        text => GroupVersion::parse(text)?,
    };
    super::by_gvk(&gv.group, &gv.version, kind).or_else(|| match (gv.version.as_str(), kind) {
        ("v1beta1", "PartialObjectMetadata" | "PartialObjectMetadataList" | "Eviction") => {
            super::by_gvk(&gv.group, "v1", kind)
        }
        _ => None,
    })
}

/// An object in its envelope. `None`: a kind without messages.
pub fn encode(object: &Value) -> Option<Vec<u8>> {
    let (api_version, kind) = (object.str_at(&["apiVersion"]), object.str_at(&["kind"]));
    let def = definition(api_version, kind)?;
    let mut out = Vec::with_capacity(512);
    envelope(&mut out, api_version, kind, |out| write::message(def, object, out));
    Some(out)
}

/// Reads a message and says what it is.
///
/// # Errors
/// The decoder's text.
pub fn decode(def: &'static TypeDef, api_version: &str, kind: &str, raw: &[u8]) -> Result<Value, DecodeError> {
    decode_within(def, api_version, kind, raw, &mut Budget::unlimited())
}

/// As [`decode`], for a tree that takes no more than a budget.
///
/// # Errors
/// The decoder's text.
pub fn decode_within(
    def: &'static TypeDef,
    api_version: &str,
    kind: &str,
    raw: &[u8],
    budget: &mut Budget,
) -> Result<Value, DecodeError> {
    let mut object = read::message_within(def, raw, budget)?;
    object.set(&["apiVersion"], api_version);
    object.set(&["kind"], kind);
    Ok(object)
}

/// The one list that is a message of its own outside of maps.
fn is_wrapped(def: &TypeDef, f: &Field) -> bool {
    f.name == "verbs" && def.name.ends_with(".meta.v1.APIResource")
}

#[cfg(test)]
mod tests;
