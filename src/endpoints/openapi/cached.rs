//! [`CachedDocument`]: an OpenAPI document that is encoded once, cached in compressed form, and served with
//! an ETag.

use super::content::{Validators, Wanted, bare, content_range, set, unsatisfiable};
use super::gnostic;
use crate::api::openapi::Dialect;
use crate::apimachinery::codec::json;
use crate::apimachinery::codec::json::pieces::Pieces;
use crate::apimachinery::value::Value;
use crate::endpoints::discovery::aggregated::upper_hex;
use crate::endpoints::respond::gzip;
use crate::interrupt::pause;
use crate::request::accept::{Clause, accept_line, clauses};
use crate::request::headers::date;
use crate::request::{Body, OnDemandBody, Response};
use crate::tasks::off_thread;
use aws_lc_rs::digest;
use bytes::{Buf as _, Bytes};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use http::StatusCode;
use http::header::{
    ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue, LAST_MODIFIED,
    LOCATION, VARY,
};
use http_body::{Frame, SizeHint};
use std::io::{Read as _, Write as _};
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

/// Bytes decompressed per body frame.
const CHUNK: usize = 64 << 10;
/// Approximate memory for compressing or decompressing a document, in bytes.
pub(crate) const MEMORY: usize = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DocumentEncoding {
    Json,
    /// The protobuf messages of gnostic-models.
    Protobuf,
}

/// An encoded and compressed document. Cloning is cheap.
#[derive(Debug, Clone)]
pub(crate) struct CachedDocument {
    /// Upper-case hexadecimal SHA-512 of the JSON, or another string that changes with it.
    pub hash: String,
    dialect: Dialect,
    /// When it was built, which is also what upstream sends as `Last-Modified`.
    modified: time::OffsetDateTime,
    packed: Bytes,
    /// Compressed protobuf encoding, created on first use.
    protobuf: Arc<OnceLock<Bytes>>,
}

impl CachedDocument {
    /// Encodes and compresses a document. Takes tens of milliseconds for a large one, so do not call it on a
    /// reactor thread.
    pub(crate) fn new(document: &Value, dialect: Dialect) -> Self {
        Self::written(dialect, |to| to.value(document))
    }

    /// As [`new`](Self::new), for a document that is written part by part.
    pub(crate) fn written(dialect: Dialect, write: impl FnOnce(&mut Pieces<'_>)) -> Self {
        let mut sum = digest::Context::new(&digest::SHA512);
        let mut packer = Packer::new();
        let mut sink = |piece: &[u8]| {
            // The hash is of the JSON: the compressed bytes may differ between versions of the library.
            sum.update(piece);
            packer.add(piece);
        };
        Pieces::write(&mut sink, write);
        Self {
            hash: upper_hex(&sum.finish()),
            dialect,
            modified: time::OffsetDateTime::now_utc(),
            packed: packer.finish(),
            protobuf: Arc::default(),
        }
    }

    /// The size of the compressed encodings.
    pub(crate) fn packed_len(&self) -> usize {
        self.packed.len() + self.protobuf.get().map_or(0, Bytes::len)
    }

    /// The ETag: the quoted hash.
    pub(crate) fn etag(&self) -> String {
        format!("\"{}\"", self.hash)
    }

    /// Decompresses the JSON, which takes milliseconds for a large document.
    pub(crate) fn json(&self) -> Vec<u8> {
        unpack(&self.packed)
    }

    /// The compressed document. The first use of an encoding takes tens of milliseconds for a large document.
    fn packed(&self, encoding: DocumentEncoding) -> &Bytes {
        match encoding {
            DocumentEncoding::Json => &self.packed,
            // On the first request for it: many servers never get one.
            DocumentEncoding::Protobuf => self.protobuf.get_or_init(|| {
                let document = json::decode(&self.json()).expect("this JSON was written by this crate");
                pack(&gnostic::encode(&document, self.dialect))
            }),
        }
    }

    /// Selects the encoding by `Accept`; `None` if the client accepts neither.
    pub(crate) fn negotiate(&self, headers: &HeaderMap) -> Option<DocumentEncoding> {
        let offers = [DocumentEncoding::Json, DocumentEncoding::Protobuf];
        let clauses = clauses(accept_line(headers));
        let best = |c: &Clause<'_>| {
            offers
                .into_iter()
                .find(|e| e.spellings(self.dialect).iter().any(|t| c.takes(t)))
        };
        clauses.iter().find_map(best)
    }

    /// Responds with the document (200), a part of it (206), 304, 406, 412 or 416. Does not block the thread:
    /// large documents are encoded off the reactor. Cancel safe.
    pub(crate) async fn respond(&self, headers: &HeaderMap) -> Response {
        let Some(encoding) = self.negotiate(headers) else {
            return self.not_acceptable(headers);
        };
        let etag = self.etag();
        let validators = Validators {
            etag: &etag,
            modified: self.modified.unix_timestamp(),
        };
        // Conditions come before ranges (RFC 9110, section 13.2.2).
        let mut response = match validators.check(headers) {
            Some(StatusCode::NOT_MODIFIED) => {
                let mut response = bare(StatusCode::NOT_MODIFIED);
                self.mark(&mut response);
                return response;
            }
            Some(status) => bare(status),
            None => {
                // Cheap: the bytes are shared.
                let me = self.clone();
                let Some(packed) = off_thread(MEMORY, move || me.packed(encoding).clone()).await else {
                    return bare(StatusCode::SERVICE_UNAVAILABLE);
                };
                let length = unpacked_length(&packed);
                let wanted = validators
                    .range(headers)
                    .map_or(Wanted::Whole, |range| Wanted::of(range, length));
                match wanted {
                    Wanted::Unsatisfiable(why) => {
                        let mut response = unsatisfiable(why, length);
                        self.vary(&mut response);
                        return response;
                    }
                    // Ranges refer to the bytes that are sent. Compressed documents are sent as a whole.
                    _ if gzip::accepted(headers) => {
                        let mut response = Response::new(Body::full(packed));
                        set(&mut response, CONTENT_ENCODING, "gzip");
                        response
                    }
                    Wanted::Part(part) => partial(packed, part, length),
                    Wanted::Whole => unpacked(packed, 0..length),
                }
            }
        };
        // Go's `ServeContent` returns before it sets this header if a precondition fails.
        if response.status() != StatusCode::PRECONDITION_FAILED {
            set(&mut response, ACCEPT_RANGES, "bytes");
        }
        set(&mut response, CONTENT_TYPE, encoding.spellings(self.dialect)[0]);
        if let Some(date) = date(self.modified) {
            response.headers_mut().insert(LAST_MODIFIED, date);
        }
        self.mark(&mut response);
        response
    }

    /// 406 without a body. As upstream, v3 returns an empty 200 if `Accept` contains no media type.
    fn not_acceptable(&self, headers: &HeaderMap) -> Response {
        // Upstream's v3 handler returns without writing anything, which Go's server makes an empty 200.
        let is_empty = self.dialect == Dialect::V3 && clauses(accept_line(headers)).is_empty();
        let mut response = bare(if is_empty {
            StatusCode::OK
        } else {
            StatusCode::NOT_ACCEPTABLE
        });
        self.vary(&mut response);
        response
    }

    /// Sets the headers of every response about this document: ETag and `Vary`.
    fn mark(&self, response: &mut Response) {
        set(response, ETAG, &self.etag());
        self.vary(response);
    }

    /// Sets `Vary`. Upstream does not compress v3 documents; clients that do not request compression see no
    /// difference.
    fn vary(&self, response: &mut Response) {
        if self.dialect == Dialect::V2 || response.headers().contains_key(CONTENT_ENCODING) {
            response
                .headers_mut()
                .append(VARY, HeaderValue::from_static("Accept-Encoding"));
        }
        response.headers_mut().append(VARY, HeaderValue::from_static("Accept"));
    }

    /// 301 to the URL under which the current document may be cached forever, or 406.
    pub(super) fn moved(&self, headers: &HeaderMap, location: &str) -> Response {
        let Some(encoding) = self.negotiate(headers) else {
            return self.not_acceptable(headers);
        };
        let mut response = bare(StatusCode::MOVED_PERMANENTLY);
        set(&mut response, CONTENT_TYPE, encoding.spellings(self.dialect)[0]);
        set(&mut response, LOCATION, location);
        self.mark(&mut response);
        response
    }
}

impl DocumentEncoding {
    /// The media types that select this encoding; the first is used in responses.
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

/// Compresses what is added to it.
struct Packer(GzEncoder<Vec<u8>>);

impl Packer {
    fn new() -> Self {
        // Denser than level 1 of other responses: a document is compressed once and sent often.
        Self(GzEncoder::new(Vec::new(), Compression::new(5)))
    }

    fn add(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("writing to a Vec cannot fail");
    }

    fn finish(self) -> Bytes {
        let packed = self.0.finish().expect("writing to a Vec cannot fail");
        // The document is kept: without spare capacity.
        packed.into_boxed_slice().into()
    }
}

fn pack(bytes: &[u8]) -> Bytes {
    let mut packer = Packer::new();
    packer.add(bytes);
    packer.finish()
}

/// The last four bytes of a gzip stream are the length of its content.
fn unpacked_length(packed: &Bytes) -> u64 {
    u64::from(packed.last_chunk().map_or(0, |tail| u32::from_le_bytes(*tail)))
}

/// 206 with a part of the content.
fn partial(packed: Bytes, part: Range<u64>, length: u64) -> Response {
    let range = content_range(&part, length);
    let mut response = unpacked(packed, part);
    *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    set(&mut response, CONTENT_RANGE, &range);
    response
}

/// A response with a part of the content, decompressed while it is sent, so that a slow client only occupies
/// one chunk of memory.
fn unpacked(packed: Bytes, part: Range<u64>) -> Response {
    let unpacking = Unpacking {
        decoder: GzDecoder::new(packed.reader()),
        // gzip cannot seek, so the bytes before the part are decompressed and dropped.
        skip: part.start,
        left: part.end.saturating_sub(part.start),
    };
    let mut response = Response::new(Body::stream(unpacking).computed());
    response.extensions_mut().insert(OnDemandBody);
    response
}

struct Unpacking {
    decoder: GzDecoder<bytes::buf::Reader<Bytes>>,
    /// Bytes before the part that is sent.
    skip: u64,
    left: u64,
}

impl http_body::Body for Unpacking {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        // In pieces, between which other threads get the core: a client may ask for the end of a large
        // document.
        while self.skip > 0 {
            pause();
            let piece = self.skip.min(CHUNK as u64);
            std::io::copy(&mut (&mut self.decoder).take(piece), &mut std::io::sink())?;
            self.skip -= piece;
        }
        let size = self.left.min(CHUNK as u64);
        let mut chunk = Vec::with_capacity(CHUNK);
        let read = (&mut self.decoder).take(size).read_to_end(&mut chunk)?;
        self.left = self.left.saturating_sub(read as u64);
        Poll::Ready((read > 0).then(|| Ok(Frame::data(chunk.into()))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

fn unpack(packed: &[u8]) -> Vec<u8> {
    // A guess: a wrong one costs a reallocation.
    let mut out = Vec::with_capacity(packed.len() * 8);
    let read = GzDecoder::new(packed).read_to_end(&mut out);
    read.expect("these bytes were compressed by this crate");
    out
}

#[cfg(test)]
mod tests;
