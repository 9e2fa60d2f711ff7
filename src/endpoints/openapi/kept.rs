//! Documents that are built once, kept compressed, and answered with validators.

use crate::apimachinery::codec::json;
use crate::apimachinery::value::Value;
use crate::endpoints::discovery::aggregated::hash;
use crate::endpoints::respond::gzip;
use crate::request::{Body, Response};
use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use http::StatusCode;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH, VARY};
use std::io::{Read as _, Write as _};

/// An encoded document at rest.
#[derive(Debug, Clone)]
pub struct Kept {
    /// Upper-hex SHA-512 of the JSON.
    pub hash: String,
    packed: Bytes,
}

impl Kept {
    /// Encodes and compresses. Takes tens of milliseconds for a big one: not for the threads that serve.
    pub fn new(document: &Value) -> Self {
        let json = json::to_vec(document);
        let mut encoder = GzEncoder::new(Vec::with_capacity(json.len() / 8), Compression::new(5));
        let packed = encoder.write_all(&json).and_then(|()| encoder.finish());
        Self {
            hash: hash(&json),
            packed: packed.expect("writing to a Vec cannot fail").into(),
        }
    }

    /// The quoted hash.
    pub fn etag(&self) -> String {
        format!("\"{}\"", self.hash)
    }

    /// The JSON.
    pub fn json(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.packed.len() * 8);
        let read = GzDecoder::new(&self.packed[..]).read_to_end(&mut out);
        read.expect("these bytes were compressed by this crate");
        out
    }

    /// 200 with the document, or 304. `accept_encoding` varies with the answer, as upstream's compressing handler has it.
    pub fn respond(&self, headers: &HeaderMap) -> Response {
        let etag = self.etag();
        let known = headers.get(IF_NONE_MATCH).and_then(|v| v.to_str().ok());
        let fresh = known.is_some_and(|k| {
            k.split(',')
                .any(|t| t.trim().trim_start_matches("W/") == etag || t.trim() == "*")
        });
        let mut response = if fresh {
            let mut r = Response::new(Body::empty());
            *r.status_mut() = StatusCode::NOT_MODIFIED;
            r
        } else if gzip::accepted(headers) {
            let mut r = Response::new(Body::full(self.packed.clone()));
            set(&mut r, CONTENT_ENCODING, "gzip");
            r
        } else {
            Response::new(Body::full(self.json()))
        };
        if !fresh {
            set(&mut response, CONTENT_TYPE, "application/json");
        }
        set(&mut response, ETAG, &etag);
        set(&mut response, VARY, "Accept-Encoding");
        response.headers_mut().append(VARY, HeaderValue::from_static("Accept"));
        response
    }
}

/// Sets a header to a text that is known to be one.
pub(super) fn set(response: &mut Response, name: HeaderName, value: &str) {
    if let Ok(v) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, v);
    }
}

/// What a client takes of an OpenAPI document.
pub(super) fn takes_json(headers: &HeaderMap) -> bool {
    use crate::endpoints::negotiate::{accept_line, clauses};
    clauses(accept_line(headers))
        .iter()
        .any(|c| c.takes("application/json"))
}

/// A code without a body.
pub(super) fn bare(code: StatusCode) -> Response {
    let mut r = Response::new(Body::empty());
    *r.status_mut() = code;
    r
}
