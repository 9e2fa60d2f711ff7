//! Encodings of stored objects that are made once and shared by GET, LIST and WATCH, while there is room for them
//! ([`crate::storage::forms`]). JSON is not among them: it is what is stored.

use crate::api::TypeDef;
use crate::api::protobuf::encode_message;
use crate::apimachinery::codec::protobuf::{envelope_head, envelope_tail, put_bytes};
use crate::apimachinery::codec::{cbor, yaml};
use crate::endpoints::negotiate::Media;
use crate::registry::Resource;
use crate::storage::{Budget, Entry, EventType, Form};
use bytes::Bytes;
use std::sync::Arc;

/// The message of an object, without its envelope.
const MESSAGE: Form = Form::Object(0);
/// That of its metadata alone.
const METADATA: Form = Form::Object(1);
const YAML: Form = Form::Object(2);
const CBOR: Form = Form::Object(3);

/// What a watch frame holds, beside its media type: the object, or its metadata by their version of `meta.k8s.io`.
pub fn frame(t: EventType, media: Media, metadata: Option<&str>) -> Form {
    let shape = match metadata {
        None => 0,
        Some("v1") => 1,
        Some(_) => 2,
    };
    let media = match media {
        Media::Json | Media::Yaml => 0,
        Media::Protobuf => 1,
        Media::Cbor => 2,
    };
    Form::Frame(t, shape * 3 + media)
}

/// The message of an entry of this kind.
pub fn message(entry: &Entry, def: &'static TypeDef, budget: Option<&Arc<Budget>>) -> Bytes {
    entry.forms.bytes(budget, MESSAGE, || {
        let mut out = Vec::with_capacity(entry.json.len());
        encode_message(def, &entry.decode(), &mut out);
        Bytes::from(out.into_boxed_slice())
    })
}

/// The message of an entry's metadata, which `make` makes. It is the same in all versions.
pub fn metadata(entry: &Entry, budget: Option<&Arc<Budget>>, make: impl FnOnce() -> Bytes) -> Bytes {
    entry.forms.bytes(budget, METADATA, make)
}

/// A message in its envelope.
pub fn enveloped(api_version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + api_version.len() + kind.len() + 32);
    envelope_head(&mut out, api_version, kind);
    put_bytes(&mut out, 2, message);
    envelope_tail(&mut out);
    out
}

/// The answer to a GET in another media type than JSON; `None`: it is not kept, or the kind has no messages.
pub fn whole(entry: &Entry, resource: &Resource, media: Media, budget: Option<&Arc<Budget>>) -> Option<Bytes> {
    let make = |form, encode: fn(&crate::apimachinery::value::Value) -> Vec<u8>| {
        let bytes = entry.forms.bytes(budget, form, || encode(&entry.decode()).into());
        Some(bytes)
    };
    match media {
        Media::Json => None,
        Media::Yaml => make(YAML, yaml::to_vec),
        Media::Cbor => make(CBOR, cbor::to_vec),
        Media::Protobuf => {
            let message = message(entry, resource.schema.definition()?, budget);
            let gvk = resource.gvk();
            Some(enveloped(&gvk.api_version(), &gvk.kind, &message).into())
        }
    }
}
