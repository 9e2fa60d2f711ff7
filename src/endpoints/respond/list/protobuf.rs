//! Lists in protobuf.
//!
//! Protobuf needs the total length up front. A large list is therefore walked twice, once to measure and once
//! to write, so that only one chunk is in memory at a time. Messages cached with the objects (usually all of
//! them) are not encoded twice.

use super::{CHUNK, ListMeta, SHARED, sent};
use crate::apimachinery::codec::protobuf::{
    CONTENT_TYPE, envelope_head, envelope_tail, put_bytes, put_length, put_message, put_number, varint_len,
};
use crate::endpoints::respond::{bytes, gzip};
use crate::request::body::BoxError;
use crate::request::{Body, Response};
use crate::storage::Entry;
use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Lists of at least this many bytes of JSON are sent in chunks. Smaller ones are built in one piece, which saves the
/// second walk.
const BIG: usize = 4 * CHUNK;

/// Returns the message of an item.
pub(super) type Item = Box<dyn Fn(&Entry) -> Bytes + Send>;

pub(super) fn list(
    entries: Vec<Arc<Entry>>,
    meta: &ListMeta,
    (api_version, kind): (&str, &str),
    item: Item,
    headers: &HeaderMap,
) -> Response {
    // The v1beta1 list is the only one with different field numbers.
    let (metadata, items) = match (api_version, kind) {
        ("meta.k8s.io/v1beta1", "PartialObjectMetadataList") => (2, 1),
        _ => (1, 2),
    };
    let mut head = Vec::with_capacity(128);
    envelope_head(&mut head, api_version, kind);
    let mut first = Vec::with_capacity(64);
    put_message(&mut first, metadata, |out| list_meta(meta, out));
    let size: usize = entries.iter().map(|e| e.json.len()).sum();
    if size < BIG {
        let mut message = first;
        message.reserve(size);
        entries.iter().for_each(|e| put_bytes(&mut message, items, &item(e)));
        put_bytes(&mut head, 2, &message);
        envelope_tail(&mut head);
        return gzip::maybe(bytes(200, CONTENT_TYPE, Body::full(head)), headers);
    }
    let list = ListBody {
        head,
        length: first.len(),
        first,
        items,
        entries,
        item,
        next: 0,
        shared: None,
        stage: Stage::Measuring,
    };
    sent(bytes(200, CONTENT_TYPE, Body::stream(list)), true, headers)
}

fn list_meta(meta: &ListMeta, out: &mut Vec<u8>) {
    // Go's generated code writes strings without `omitempty`, so empty ones are on the wire, too.
    put_bytes(out, 1, b"");
    put_bytes(out, 2, meta.version.as_bytes());
    put_bytes(out, 3, meta.token.as_bytes());
    if let Some(n) = meta.remaining.filter(|n| *n > 0) {
        put_number(out, 4, n as u64);
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Measuring,
    Sending,
    Sent,
}

struct ListBody {
    /// The envelope up to the message.
    head: Vec<u8>,
    /// The message up to its items.
    first: Vec<u8>,
    /// The length of the message as measured so far.
    length: usize,
    /// The field number of the items.
    items: u8,
    entries: Vec<Arc<Entry>>,
    item: Item,
    /// The index of the next entry in this stage.
    next: usize,
    /// The message of the item before `next`, whose tag and length were sent already.
    shared: Option<Bytes>,
    stage: Stage,
}

impl ListBody {
    /// Measures about one chunk; returns false at the end.
    fn measure(&mut self) -> bool {
        // In steps of a chunk, so that measuring a long list does not occupy a thread of the pool.
        let until = self.length + CHUNK;
        while self.length < until {
            let Some(entry) = self.entries.get(self.next) else {
                return false;
            };
            let item = (self.item)(entry).len();
            // One byte for the tag: the field numbers are below 16.
            self.length += 1 + varint_len(item as u64) + item;
            self.next += 1;
        }
        true
    }

    /// The bytes before the items, with the measured length.
    fn opening(&mut self) -> Vec<u8> {
        let mut out = std::mem::take(&mut self.head);
        put_length(&mut out, 2, self.length);
        out.append(&mut self.first);
        self.next = 0;
        out
    }

    fn fill(&mut self, chunk: &mut Vec<u8>) {
        while chunk.len() < CHUNK {
            let Some(entry) = self.entries.get(self.next) else {
                envelope_tail(chunk);
                self.stage = Stage::Sent;
                return;
            };
            let item = (self.item)(entry);
            self.next += 1;
            if item.len() >= SHARED {
                // Not copied: usually it is cached with the object, and every client that reads slowly would keep a
                // copy of its own.
                put_length(chunk, self.items, item.len());
                self.shared = Some(item);
                return;
            }
            put_bytes(chunk, self.items, &item);
        }
    }
}

impl http_body::Body for ListBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        if let Some(item) = this.shared.take() {
            return Poll::Ready(Some(Ok(Frame::data(item))));
        }
        let stage = this.stage;
        let mut chunk = match stage {
            Stage::Sent => return Poll::Ready(None),
            Stage::Measuring if this.measure() => {
                // Yield to other tasks between chunks.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Stage::Measuring => {
                this.stage = Stage::Sending;
                this.opening()
            }
            Stage::Sending => Vec::with_capacity(CHUNK + 4096),
        };
        this.fill(&mut chunk);
        Poll::Ready(Some(Ok(Frame::data(chunk.into()))))
    }
}
