//! Encodings of stored objects that are cached and shared by GET, LIST and WATCH, as far as the budget
//! permits ([`crate::storage::encoding_cache`]). JSON needs no cache: it is the stored form.

use crate::api::TypeDef;
use crate::api::protobuf::encode_message;
use crate::apimachinery::codec::protobuf::{envelope_head, envelope_tail, put_bytes};
use crate::apimachinery::codec::{cbor, yaml};
use crate::endpoints::negotiate::Media;
use crate::registry::Resource;
use crate::storage::{Budget, EncodingKey, Entry, EventType};
use bytes::Bytes;
use std::sync::Arc;

/// The protobuf message of an object, without its envelope.
const MESSAGE: EncodingKey = EncodingKey::Object(0);
/// The protobuf message of the object's metadata.
const METADATA: EncodingKey = EncodingKey::Object(1);
const YAML: EncodingKey = EncodingKey::Object(2);
const CBOR: EncodingKey = EncodingKey::Object(3);

/// The cache key of a watch frame: media type, and object or metadata (by `meta.k8s.io` version).
pub(crate) fn frame(t: EventType, media: Media, metadata: Option<&str>) -> EncodingKey {
    let shape = match metadata {
        None => 0,
        Some("v1") => 1,
        Some(_) => 2,
    };
    let media = match media {
        // Watches are never YAML: it does not delimit events.
        Media::Json | Media::Yaml => 0,
        Media::Protobuf => 1,
        Media::Cbor => 2,
    };
    // Three media types per shape; the type of the event is part of the key because it is part of the frame.
    EncodingKey::Frame(t, shape * 3 + media)
}

/// The protobuf message of an entry.
pub(crate) fn message(entry: &Entry, def: &'static TypeDef, budget: Option<&Arc<Budget>>) -> Bytes {
    entry.encodings.bytes(budget, MESSAGE, || {
        let mut out = Vec::with_capacity(entry.json.len());
        encode_message(def, &entry.decode(), &mut out);
        // Cached for as long as the object lives, so without spare capacity.
        Bytes::from(out.into_boxed_slice())
    })
}

/// The protobuf message of an entry's metadata, built by `make`. It is the same for all `meta.k8s.io`
/// versions.
pub(crate) fn metadata(entry: &Entry, budget: Option<&Arc<Budget>>, make: impl FnOnce() -> Bytes) -> Bytes {
    entry.encodings.bytes(budget, METADATA, make)
}

/// Wraps a message in its envelope.
pub(crate) fn enveloped(api_version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + api_version.len() + kind.len() + 32);
    envelope_head(&mut out, api_version, kind);
    put_bytes(&mut out, 2, message);
    envelope_tail(&mut out);
    out
}

/// The body of a GET in a media type other than JSON; `None` if it is not cached, or if the kind has no
/// protobuf message.
pub(crate) fn whole(entry: &Entry, resource: &Resource, media: Media, budget: Option<&Arc<Budget>>) -> Option<Bytes> {
    let make = |form, encode: fn(&crate::apimachinery::value::Value) -> Vec<u8>| {
        let bytes = entry.encodings.bytes(budget, form, || encode(&entry.decode()).into());
        Some(bytes)
    };
    match media {
        Media::Json => None,
        Media::Yaml => make(YAML, yaml::to_vec),
        Media::Cbor => make(CBOR, cbor::to_vec),
        Media::Protobuf => {
            // The envelope is not cached: it costs a copy, but list and watch need the bare message.
            let message = message(entry, resource.schema.definition()?, budget);
            let gvk = resource.gvk();
            Some(enveloped(&gvk.api_version(), &gvk.kind, &message).into())
        }
    }
}
