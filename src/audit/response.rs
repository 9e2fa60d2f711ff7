//! Decodes response bodies for audit events: [`decode`] yields the response object, [`status`] the
//! `responseStatus`.

use super::event::ResponseStatus;
use crate::api;
use crate::apimachinery::codec::{cbor, json, protobuf, yaml};
use crate::apimachinery::value::Value;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use std::io::Read;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum size of a recorded response body in bytes. The event of a larger one is marked as truncated.
pub(crate) const MAX_BYTES: usize = 10 << 20;

/// Maximum number of large responses that are decoded at the same time.
const MAX_DECODING: usize = 2;
/// Maximum size of all copies of streamed responses together, in kibibytes.
const MAX_COPIED_KB: usize = 64 << 10;

/// Bounds what recording response objects costs: a copy of a stream, and the tree that it is decoded to, take
/// many times its size.
pub(crate) struct ResponseLimits {
    decoding: Arc<Semaphore>,
    copied: Arc<Semaphore>,
}

impl Default for ResponseLimits {
    fn default() -> Self {
        Self {
            decoding: Arc::new(Semaphore::new(MAX_DECODING)),
            copied: Arc::new(Semaphore::new(MAX_COPIED_KB)),
        }
    }
}

impl ResponseLimits {
    /// Waits for a permit to decode a large response.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn decoding_permit(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        self.decoding.clone().acquire_owned().await.ok()
    }

    /// The share of a new copy, which is empty.
    pub(crate) fn copy(&self) -> CopiedBytes {
        CopiedBytes {
            copied: self.copied.clone(),
            permits: None,
        }
    }
}

/// The share of one copy in the limit on all copies. Released when dropped.
pub(crate) struct CopiedBytes {
    copied: Arc<Semaphore>,
    permits: Option<OwnedSemaphorePermit>,
}

impl CopiedBytes {
    /// Charges a copy of `bytes` bytes in all. False if all copies together would be too large.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> bool {
        let held = self.permits.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let Ok(more) = u32::try_from(bytes.div_ceil(1024).saturating_sub(held)) else {
            return false;
        };
        // Does not wait: the stream belongs to the client, which must not be delayed by the audit log.
        let Ok(more) = self.copied.clone().try_acquire_many_owned(more) else {
            return false;
        };
        match &mut self.permits {
            Some(permits) => permits.merge(more),
            none => *none = Some(more),
        }
        true
    }

    /// Gives the share back.
    pub(crate) fn release(&mut self) {
        self.permits = None;
    }
}

#[derive(Clone, Copy)]
enum Codec {
    Json,
    Yaml,
    Protobuf,
    Cbor,
}

fn codec(headers: &HeaderMap) -> Option<Codec> {
    let content_type = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    match content_type.split(';').next().unwrap_or("").trim() {
        "application/json" => Some(Codec::Json),
        "application/yaml" => Some(Codec::Yaml),
        protobuf::CONTENT_TYPE => Some(Codec::Protobuf),
        cbor::CONTENT_TYPE => Some(Codec::Cbor),
        _ => None,
    }
}

/// True if the response is an object in one of the API's encodings.
pub(crate) fn is_object(headers: &HeaderMap) -> bool {
    codec(headers).is_some()
}

/// Decodes the response object. `None` if the body is not an API object or cannot be decoded.
pub(crate) fn decode(headers: &HeaderMap, bytes: &[u8]) -> Option<Value> {
    let codec = codec(headers)?;
    let unpacked;
    let bytes = match headers.get(CONTENT_ENCODING).map(|v| v.as_bytes()) {
        None => bytes,
        Some(b"gzip") => {
            // The limit applies to the decompressed size, which a small body can inflate without bound.
            let mut out = Vec::new();
            // One byte more than allowed, which tells a body of exactly the limit from a longer one.
            let mut limited = flate2::read::GzDecoder::new(bytes).take(MAX_BYTES as u64 + 1);
            limited.read_to_end(&mut out).ok()?;
            if out.len() > MAX_BYTES {
                return None;
            }
            unpacked = out;
            &unpacked
        }
        Some(_) => return None,
    };
    let value = match codec {
        Codec::Json => json::decode(bytes).ok()?,
        Codec::Yaml => yaml::decode(bytes).ok()?,
        Codec::Cbor => cbor::decode(bytes).ok()?,
        Codec::Protobuf => {
            let unknown = protobuf::open(bytes).ok()?;
            let (api_version, kind) = (&*unknown.api_version, &*unknown.kind);
            let def = api::protobuf::definition(api_version, kind)?;
            api::protobuf::decode(def, api_version, kind, unknown.raw).ok()?
        }
    };
    // Documents without a kind (OpenAPI, version) are not recorded, as upstream.
    value.get("kind").as_str().is_some().then_some(value)
}

/// The `responseStatus` of an event: the fields of the Status if the response is one, the bare code
/// otherwise.
pub(crate) fn status(code: u16, object: Option<&Value>) -> ResponseStatus {
    match object {
        Some(object) if object.str_at(&["kind"]) == "Status" && object.str_at(&["apiVersion"]) == "v1" => {
            ResponseStatus::of_status(code, object)
        }
        _ => ResponseStatus::of(code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use std::io::Write;

    fn headers(of: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(of))])
    }

    #[test]
    fn a_status_is_decoded_from_every_encoding() {
        let refused = crate::apimachinery::status::Status::not_found(
            &crate::apimachinery::gvk::GroupResource::new("", "pods"),
            "p",
        );
        let value = refused.to_value();
        for (kind, bytes) in [
            ("application/json", json::to_vec(&value)),
            ("application/json;charset=utf-8", json::to_vec_pretty(&value)),
            ("application/yaml", yaml::to_vec(&value)),
            (protobuf::CONTENT_TYPE, api::protobuf::encode(&value).unwrap()),
        ] {
            let found = decode(&headers(kind), &bytes);
            let status = status(404, found.as_ref());
            assert_eq!(
                (status.reason.as_str(), status.status.as_str()),
                ("NotFound", "Failure"),
                "{kind}"
            );
            assert_eq!(status.details.str_at(&["name"]), "p", "{kind}");
        }
    }

    #[test]
    fn gzip_is_decompressed_and_non_objects_are_ignored() {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(b"{\"kind\":\"PodList\"}").unwrap();
        let packed = packed.finish().unwrap();
        let mut gzip = headers("application/json");
        gzip.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        assert!(decode(&gzip, &packed).is_some());
        assert!(decode(&gzip, b"rubbish").is_none());
        assert!(decode(&headers("text/plain"), b"{\"kind\":\"x\"}").is_none());
        assert!(decode(&headers("application/json"), b"{\"openapi\":\"3.0\"}").is_none());
    }

    #[test]
    fn copies_of_streams_share_one_limit() {
        let limits = ResponseLimits::default();
        let (mut first, mut second) = (limits.copy(), limits.copy());
        assert!(first.grow_to(1) && first.grow_to((MAX_COPIED_KB - 1) * 1024));
        assert!(second.grow_to(1000) && !second.grow_to(1025));
        first.release();
        assert!(second.grow_to(1025));
        drop(second);
        assert_eq!(limits.copied.available_permits(), MAX_COPIED_KB);
    }
}
