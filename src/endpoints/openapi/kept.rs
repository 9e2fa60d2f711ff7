//! Documents that are built once, kept compressed, and answered with validators.

use super::gnostic;
use crate::api::openapi::Dialect;
use crate::apimachinery::codec::json;
use crate::apimachinery::value::Value;
use crate::endpoints::discovery::aggregated::hash;
use crate::endpoints::negotiate::{Clause, accept_line, clauses};
use crate::endpoints::respond::gzip;
use crate::request::{Body, Response, WhenRead};
use crate::tasks::off_thread;
use bytes::{Buf as _, Bytes};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use http::StatusCode;
use http::header::{
    CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH, LOCATION, VARY,
};
use http_body::{Frame, SizeHint};
use std::io::{Read as _, Write as _};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

/// Bytes that are unpacked at a time.
const CHUNK: usize = 64 << 10;
/// About what packing or unpacking a document holds.
pub const MEMORY: usize = 1 << 20;

/// What a document is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// JSON.
    Json,
    /// The messages of gnostic.
    Protobuf,
}

/// An encoded document at rest.
#[derive(Debug, Clone)]
pub struct Kept {
    /// Upper-hex SHA-512 of the JSON.
    pub hash: String,
    dialect: Dialect,
    packed: Bytes,
    /// Made when it is asked for first.
    protobuf: Arc<OnceLock<Bytes>>,
}

impl Kept {
    /// Encodes and compresses. Takes tens of milliseconds for a big one: not for the threads that serve.
    pub fn new(document: &Value, dialect: Dialect) -> Self {
        let json = json::to_vec(document);
        Self {
            hash: hash(&json),
            dialect,
            packed: pack(&json),
            protobuf: Arc::default(),
        }
    }

    /// The quoted hash.
    pub fn etag(&self) -> String {
        format!("\"{}\"", self.hash)
    }

    /// The JSON. Takes milliseconds for a big one.
    pub fn json(&self) -> Vec<u8> {
        unpack(&self.packed)
    }

    /// The compressed document. Takes tens of milliseconds for a big one the first time.
    fn packed(&self, encoding: Encoding) -> &Bytes {
        match encoding {
            Encoding::Json => &self.packed,
            Encoding::Protobuf => self.protobuf.get_or_init(|| {
                let document = json::decode(&self.json()).expect("this JSON was written by this crate");
                pack(&gnostic::encode(&document, self.dialect))
            }),
        }
    }

    /// What a client takes of this document; `None`: nothing of it.
    pub fn negotiate(&self, headers: &HeaderMap) -> Option<Encoding> {
        let offers = [Encoding::Json, Encoding::Protobuf];
        let clauses = clauses(accept_line(headers));
        let best = |c: &Clause<'_>| {
            offers
                .into_iter()
                .find(|e| e.spellings(self.dialect).iter().any(|t| c.takes(t)))
        };
        clauses.iter().find_map(best)
    }

    /// 200 with the document, 304, or 406. Does not hold up the thread, however big the document is.
    pub async fn respond(&self, headers: &HeaderMap) -> Response {
        let Some(encoding) = self.negotiate(headers) else {
            return bare(StatusCode::NOT_ACCEPTABLE);
        };
        let etag = self.etag();
        let known = headers.get(IF_NONE_MATCH).and_then(|v| v.to_str().ok());
        let fresh = known.is_some_and(|k| {
            k.split(',')
                .any(|t| t.trim().trim_start_matches("W/") == etag || t.trim() == "*")
        });
        let zipped = gzip::accepted(headers);
        let mut response = if fresh {
            bare(StatusCode::NOT_MODIFIED)
        } else {
            let me = self.clone();
            let packed = off_thread(MEMORY, move || me.packed(encoding).clone()).await;
            match packed {
                Some(packed) if zipped => Response::new(Body::full(packed)),
                Some(packed) => unpacked(packed),
                None => return bare(StatusCode::SERVICE_UNAVAILABLE),
            }
        };
        if !fresh {
            set(&mut response, CONTENT_TYPE, encoding.spellings(self.dialect)[0]);
            if zipped {
                set(&mut response, CONTENT_ENCODING, "gzip");
            }
        }
        self.mark(&mut response);
        response
    }

    /// What every answer about this document says: which one it is and what it depends on. Upstream compresses no document
    /// of v3; who does not ask for compression sees no difference.
    fn mark(&self, response: &mut Response) {
        set(response, ETAG, &self.etag());
        if self.dialect == Dialect::V2 || response.headers().contains_key(CONTENT_ENCODING) {
            response
                .headers_mut()
                .append(VARY, HeaderValue::from_static("Accept-Encoding"));
        }
        response.headers_mut().append(VARY, HeaderValue::from_static("Accept"));
    }

    /// 301 to where the document as it is now may be cached for ever, or 406.
    pub(super) fn moved(&self, headers: &HeaderMap, location: &str) -> Response {
        let Some(encoding) = self.negotiate(headers) else {
            return bare(StatusCode::NOT_ACCEPTABLE);
        };
        let mut response = bare(StatusCode::MOVED_PERMANENTLY);
        set(&mut response, CONTENT_TYPE, encoding.spellings(self.dialect)[0]);
        set(&mut response, LOCATION, location);
        self.mark(&mut response);
        response
    }
}

impl Encoding {
    /// The media types it is asked for with; the first is what is answered.
    const fn spellings(self, dialect: Dialect) -> &'static [&'static str] {
        match (self, dialect) {
            (Self::Json, _) => &["application/json"],
            (Self::Protobuf, Dialect::V2) => &[
                "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
                "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
            ],
            (Self::Protobuf, Dialect::V3) => &[
                "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
                "application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
            ],
        }
    }
}

fn pack(bytes: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 8), Compression::new(5));
    let packed = encoder.write_all(bytes).and_then(|()| encoder.finish());
    packed.expect("writing to a Vec cannot fail").into()
}

/// An answer that is unpacked while it is sent: a client that does not read it holds one chunk of it.
fn unpacked(packed: Bytes) -> Response {
    // What gzip writes last is the length of what it packed.
    let length = packed.last_chunk().map_or(0, |tail| u32::from_le_bytes(*tail));
    let unpacking = Unpacking {
        decoder: GzDecoder::new(packed.reader()),
        left: u64::from(length),
    };
    let mut response = Response::new(Body::stream(unpacking).computed());
    response.extensions_mut().insert(WhenRead);
    response
}

struct Unpacking {
    decoder: GzDecoder<bytes::buf::Reader<Bytes>>,
    left: u64,
}

impl http_body::Body for Unpacking {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let mut chunk = Vec::with_capacity(CHUNK);
        let read = (&mut self.decoder).take(CHUNK as u64).read_to_end(&mut chunk)?;
        self.left = self.left.saturating_sub(read as u64);
        Poll::Ready((read > 0).then(|| Ok(Frame::data(chunk.into()))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

fn unpack(packed: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(packed.len() * 8);
    let read = GzDecoder::new(packed).read_to_end(&mut out);
    read.expect("these bytes were compressed by this crate");
    out
}

/// Sets a header to a text that is known to be one.
pub(super) fn set(response: &mut Response, name: HeaderName, value: &str) {
    if let Ok(v) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, v);
    }
}

/// A code without a body.
pub(super) fn bare(code: StatusCode) -> Response {
    let mut r = Response::new(Body::empty());
    *r.status_mut() = code;
    r
}

#[cfg(test)]
mod tests;
