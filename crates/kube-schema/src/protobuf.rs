//! The protobuf codec of built-in kinds, driven by the schema table. Start at [`encode`] and [`decode`].
//!
//! JSON and protobuf share their fields, except that JSON inlines embedded structs (`Field::embedded_in`) and
//! that some scalars are messages. The encoder writes what upstream's generated marshallers write: fields by
//! number, non-pointer scalars even if zero, non-pointer structs even if empty, maps sorted by key. The
//! decoder accepts any valid wire encoding; it skips unknown fields in every field validation mode, as
//! upstream does.

mod order;
mod read;
mod write;

pub use read::{message as decode_message, message_with_budget as decode_message_within};
pub use write::message as encode_message;

use super::decode::DecodeError;
use super::{Field, TypeDef};
use torana_apimachinery::codec::budget::DecodeBudget;
use torana_apimachinery::codec::protobuf::envelope;
use torana_apimachinery::gvk::GroupVersion;
use torana_apimachinery::value::Value;

const SCHEMA: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

/// The definition that encodes a kind. The kinds that an older version of their group shares unchanged
/// (`PartialObjectMetadata`, `Eviction`) use that of `v1`.
pub fn definition(api_version: &str, kind: &str) -> Option<&'static TypeDef> {
    // `APIVersions`, the discovery document at `/api`, has no apiVersion.
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

/// Encodes an object in its `runtime.Unknown` envelope. `None` if the kind has no protobuf definition.
///
/// ```
/// use torana_apimachinery::codec::protobuf::open;
/// use torana_apimachinery::json;
/// use torana_kube_schema::protobuf::{decode, definition, encode};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"},
///     "metadata": {"name": "a", "namespace": "d", "creationTimestamp": "1970-01-01T00:00:07Z"}});
/// let bytes = encode(&object).expect("a built-in kind");
///
/// let message = open(&bytes)?;
/// let def = definition(&message.api_version, &message.kind).expect("a built-in kind");
/// assert_eq!(decode(def, &message.api_version, &message.kind, message.raw)?, object);
/// # Ok(())
/// # }
/// ```
pub fn encode(object: &Value) -> Option<Vec<u8>> {
    let (api_version, kind) = (object.str_at(&["apiVersion"]), object.str_at(&["kind"]));
    let def = definition(api_version, kind)?;
    let mut out = Vec::with_capacity(512);
    envelope(&mut out, api_version, kind, |out| write::message(def, object, out));
    Some(out)
}

/// Decodes a message without its envelope and sets `apiVersion` and `kind`.
///
/// # Errors
/// The message is malformed or nests too deep.
pub fn decode(def: &'static TypeDef, api_version: &str, kind: &str, raw: &[u8]) -> Result<Value, DecodeError> {
    // Unlimited: for values from the store, whose size was bounded when they were written.
    decode_with_budget(def, api_version, kind, raw, &mut DecodeBudget::unlimited())
}

/// As [`decode`], with a memory budget for the resulting tree.
///
/// # Errors
/// As of [`decode`], and if the budget is exhausted.
pub fn decode_with_budget(
    def: &'static TypeDef,
    api_version: &str,
    kind: &str,
    raw: &[u8],
    budget: &mut DecodeBudget,
) -> Result<Value, DecodeError> {
    let mut object = read::message_with_budget(def, raw, budget)?;
    // The envelope names them; messages have no fields for them.
    object.set(&["apiVersion"], api_version);
    object.set(&["kind"], kind);
    Ok(object)
}

/// `metav1.Verbs` is the only list, other than map values, that protobuf wraps in a message.
fn is_wrapped(def: &TypeDef, f: &Field) -> bool {
    f.name == "verbs" && def.name.ends_with(".meta.v1.APIResource")
}

#[cfg(test)]
mod tests;
