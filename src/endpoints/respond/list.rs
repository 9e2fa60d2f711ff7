//! List responses.
//!
//! Entry point: [`list`]. Plain JSON lists are spliced together from stored bytes and sent in chunks; other
//! representations convert one item at a time (`streamed`, `protobuf`). Items of built-in lists carry neither
//! `kind` nor `apiVersion`, with which stored objects begin, so that removing them takes one comparison
//! instead of a scan.

mod protobuf;
mod streamed;

use super::stored::{self, Rows};
use super::{encoded, gzip, list_type, not_acceptable, partial, table};
use crate::api::json::Shape;
use crate::apimachinery::codec::json::to_string;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::{Map, Value};
use crate::endpoints::negotiate::{Media, Negotiated, OBJECT_TYPES, Transform};
use crate::endpoints::options::Query;
use crate::registry::Resource;
use crate::request::body::BoxError;
use crate::request::{Body, OnDemandBody, Response};
use crate::storage::{Budget, Entry, Listing};
use crate::telemetry::request_parts;
use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;
use std::collections::VecDeque;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Approximate size of a chunk.
const CHUNK: usize = 64 * 1024;
/// Objects of at least this size are sent as slices of their stored bytes instead of being copied.
const SHARED: usize = 32 * 1024;
/// Estimated size of a table row or metadata item.
const ITEM: usize = 1024;
/// Extra capacity, in bytes, for the item that completes a chunk and exceeds its size.
const SPARE: usize = 16 * 1024;

/// The metadata of a list.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListMeta {
    /// `resourceVersion`
    pub version: String,
    /// `continue`, encoded; empty for none.
    pub token: String,
    /// `remainingItemCount`
    pub remaining: Option<usize>,
}

impl ListMeta {
    fn to_map(&self) -> Map {
        let mut m = Map::new();
        if !self.version.is_empty() {
            m.insert("resourceVersion", self.version.as_str());
        }
        if !self.token.is_empty() {
            m.insert("continue", self.token.as_str());
        }
        if let Some(n) = self.remaining.filter(|n| *n > 0) {
            m.insert("remainingItemCount", n as i64);
        }
        m
    }
}

/// Responds with a list in the negotiated representation.
///
/// # Errors
/// 406 for a single-object representation; 400 for invalid table options.
pub(crate) fn list(
    listing: Listing,
    meta: &ListMeta,
    resource: &Arc<Resource>,
    negotiated: Negotiated,
    headers: &HeaderMap,
    query: &Query,
    budget: Option<&Arc<Budget>>,
) -> Result<Response> {
    // Only building the response: chunks that are produced later are measured where the body is polled.
    let _timing = request_parts::timing(super::part_of(negotiated.transform));
    let list = ListResponse {
        entries: listing.entries,
        meta,
        resource,
        negotiated,
        headers,
    };
    match negotiated.transform {
        Transform::None => list.objects(budget),
        Transform::Table(version) => list.table(version, table::Include::parse(query)?),
        Transform::PartialList(version) => list.partial(version, budget),
        Transform::Partial(_) => Err(not_acceptable(format!(
            "you requested PartialObjectMetadata, but the requested object is a list (*{})",
            list_type(resource)
        ))),
    }
}

/// A list that is about to be sent.
struct ListResponse<'a> {
    entries: Vec<Arc<Entry>>,
    meta: &'a ListMeta,
    resource: &'a Arc<Resource>,
    negotiated: Negotiated,
    headers: &'a HeaderMap,
}

impl ListResponse<'_> {
    /// True if the stored bytes can be sent as they are.
    fn is_plain(&self) -> bool {
        self.negotiated.media == Media::Json && !self.negotiated.pretty
    }

    /// The list without its items, which [`streamed::respond`] puts at the mark.
    fn around(&self, kind: &str, api_version: String) -> Value {
        let mut m = Map::new();
        m.insert("kind", kind);
        m.insert("apiVersion", api_version);
        m.insert("metadata", self.meta.to_map());
        m.insert("items", streamed::mark());
        Value::Object(m)
    }

    /// Responds with whole objects.
    fn objects(self, budget: Option<&Arc<Budget>>) -> Result<Response> {
        let (resource, meta, negotiated) = (self.resource, self.meta, self.negotiated);
        if self.is_plain() {
            return Ok(spliced(self.entries, meta, resource, self.headers));
        }
        let kind = resource.list_kind.to_string();
        if negotiated.media == Media::Protobuf {
            let Some(def) = resource.schema.definition() else {
                return Err(Status::not_acceptable(&OBJECT_TYPES));
            };
            // Owned by the body, which outlives this call.
            let budget = budget.cloned();
            let item = Box::new(move |e: &Entry| encoded::message(e, def, budget.as_ref()));
            let of = (&*resource.gvk().api_version(), &*kind);
            return Ok(protobuf::list(self.entries, meta, of, item, self.headers));
        }
        let mut document = self.around(&kind, resource.gvk().api_version());
        let typed = !resource.unstructured;
        // Upstream's list of custom resources is unstructured, and sets `continue` even if it is empty.
        if !typed && meta.token.is_empty() {
            document.set(&["metadata", "continue"], "");
        }
        let item = streamed::item(negotiated, move |e| {
            let mut v = e.decode();
            // Taken before `kind` is removed, which determines the order of the members.
            let shape = Shape::of(&v);
            if typed {
                v.unset(&["kind"]);
                v.unset(&["apiVersion"]);
            }
            (v, shape)
        });
        streamed::respond(self.entries, document, "items", negotiated, item, self.headers)
    }

    /// A row for each object.
    fn table(self, version: &'static str, include: table::Include) -> Result<Response> {
        let (entries, resource, negotiated) = (&self.entries, self.resource, self.negotiated);
        let columns = table::columns(resource);
        // Upstream's default columns append rows to a nil slice.
        if entries.is_empty() && resource.columns.is_none() && !resource.unstructured {
            let document = table::around(version, self.meta.to_map(), columns, Value::Null);
            return Ok(super::value(200, &document, negotiated, self.headers));
        }
        // Owned by the body, which outlives this call.
        let row = resource.clone();
        if self.is_plain() {
            let head = table::head(version, self.meta.to_map(), columns);
            let size: usize = entries.iter().map(|e| e.json.len()).sum();
            // A response below the gzip threshold is sent with its length, so nothing may be left to
            // stream.
            let shared = if size > gzip::THRESHOLD as usize {
                SHARED
            } else {
                usize::MAX
            };
            let write = move |entry: &Entry, out: &mut Vec<u8>, pieces: &mut VecDeque<Bytes>| {
                Rows {
                    resource: &row,
                    version,
                    include,
                }
                .write_sharing(entry, out, pieces, shared);
            };
            let body = ListBody::new(head, self.entries, write, table::END);
            return Ok(written(body, self.headers));
        }
        let document = table::around(version, self.meta.to_map(), columns, streamed::mark());
        let item = streamed::item(negotiated, move |e| {
            let rows = Rows {
                resource: &row,
                version,
                include,
            };
            (rows.tree(e), Shape::table_row())
        });
        streamed::respond(self.entries, document, "rows", negotiated, item, self.headers)
    }

    /// The metadata of each object.
    fn partial(self, version: &'static str, budget: Option<&Arc<Budget>>) -> Result<Response> {
        const KIND: &str = "PartialObjectMetadataList";
        let api_version = format!("meta.k8s.io/{version}");
        // Owned by the body, which outlives this call.
        let (row, budget) = (self.resource.clone(), budget.cloned());
        // An empty list is nothing special here: protobuf encodes nil and empty slices alike.
        if self.negotiated.media == Media::Protobuf {
            let item = Box::new(move |e: &Entry| partial::message(&row, e, version, budget.as_ref()));
            let of = (&*api_version, KIND);
            return Ok(protobuf::list(self.entries, self.meta, of, item, self.headers));
        }
        let mut document = self.around(KIND, api_version);
        // An empty list has null items here: upstream appends the items to a nil slice.
        if self.entries.is_empty() {
            document.set(&["items"], Value::Null);
            return Ok(super::value(200, &document, self.negotiated, self.headers));
        }
        if self.is_plain() {
            let item = move |entry: &Entry, out: &mut Vec<u8>, _: &mut VecDeque<Bytes>| {
                stored::write_partial(&row, entry, version, out);
            };
            let body = ListBody::new(streamed::before_items(&document), self.entries, item, b"]}");
            return Ok(written(body, self.headers));
        }
        let item = streamed::item(self.negotiated, move |e| {
            (partial::of_entry(&row, e, version), Shape::Document)
        });
        streamed::respond(self.entries, document, "items", self.negotiated, item, self.headers)
    }
}

/// Compact JSON of the objects, out of their stored bytes.
fn spliced(entries: Vec<Arc<Entry>>, meta: &ListMeta, resource: &Resource, headers: &HeaderMap) -> Response {
    let api_version = resource.gvk().api_version();
    let mut head = format!(
        "{{\"kind\":\"{}\",\"apiVersion\":\"{api_version}\",\"metadata\":",
        resource.list_kind
    );
    // Members in the order in which Go writes them, which is not sorted.
    head.push('{');
    if !meta.version.is_empty() {
        head.push_str(&format!("\"resourceVersion\":\"{}\"", meta.version));
    }
    if !meta.token.is_empty() || resource.unstructured {
        head.push_str(",\"continue\":");
        head.push_str(&to_string(&Value::from(meta.token.as_str())));
    }
    if let Some(n) = meta.remaining.filter(|n| *n > 0) {
        head.push_str(&format!(",\"remainingItemCount\":{n}"));
    }
    head.push_str("},\"items\":[");
    let size: usize = head.len() + entries.iter().map(|e| e.json.len() + 1).sum::<usize>();
    let first = format!("\"kind\":\"{}\",", resource.kind).into_bytes();
    let second = format!("\"apiVersion\":\"{api_version}\",").into_bytes();
    // A response that fits into one chunk copies everything, so that its length is known.
    let shared = if size <= CHUNK { usize::MAX } else { SHARED };
    let typed = !resource.unstructured;
    let item = move |entry: &Entry, chunk: &mut Vec<u8>, pending: &mut VecDeque<Bytes>| {
        let json = entry.json();
        let span = typed.then(|| left_out(&json, entry.version_span.0 as usize, &first, &second));
        let parts = match span.flatten() {
            Some([a, b]) => [0..a.start, a.end..b.start, b.end..json.len()],
            None => [0..json.len(), 0..0, 0..0],
        };
        for part in parts {
            // Once a slice is queued, everything after it must be queued too, or it would be sent before it.
            if part.len() >= shared || !pending.is_empty() {
                pending.push_back(json.slice(part));
            } else {
                chunk.extend_from_slice(&json[part]);
            }
        }
    };
    let mut body = ListBody::new(head, entries, item, b"]}");
    body.chunk.reserve(size.min(CHUNK + SHARED));
    let media = Media::Json.content_type();
    if size <= CHUNK {
        // Everything fits into one chunk, so its length is known.
        body.fill(usize::MAX);
        return super::bytes(200, media, Body::full(std::mem::take(&mut body.chunk)));
    }
    sent(
        super::bytes(200, media, Body::stream(body)),
        size as u64 > gzip::THRESHOLD,
        headers,
    )
}

/// Sends a list of unknown size. Writes up to the gzip threshold first, and streams the rest if it is larger.
fn written<W: Write>(mut body: ListBody<W>, headers: &HeaderMap) -> Response {
    let media = Media::Json.content_type();
    // One byte more than the threshold decides whether the response is compressed.
    let size = gzip::THRESHOLD as usize + 1;
    body.chunk.reserve((body.entries.len() * ITEM).min(size + SPARE));
    body.fill(size);
    if body.ended {
        return gzip::maybe(super::bytes(200, media, Body::full(body.chunk)), headers);
    }
    sent(super::bytes(200, media, Body::stream(body)), true, headers)
}

/// Streams a list from the compute pool; a large one is compressed for clients that accept it.
fn sent(response: Response, is_big: bool, headers: &HeaderMap) -> Response {
    if is_big && gzip::accepted(headers) {
        gzip::always(response)
    } else {
        when_read(response.map(Body::computed))
    }
}

/// Marks a response as generated on demand: it advances only as fast as the client reads.
fn when_read(mut response: Response) -> Response {
    response.extensions_mut().insert(OnDemandBody);
    response
}

/// Appends an item to a chunk. Slices of a large object, and what follows them, are queued to be sent after
/// the chunk.
trait Write: FnMut(&Entry, &mut Vec<u8>, &mut VecDeque<Bytes>) + Send + Unpin + 'static {}

impl<W: FnMut(&Entry, &mut Vec<u8>, &mut VecDeque<Bytes>) + Send + Unpin + 'static> Write for W {}

/// A list body that is generated while it is sent.
struct ListBody<W> {
    entries: std::vec::IntoIter<Arc<Entry>>,
    write: W,
    tail: Vec<u8>,
    chunk: Vec<u8>,
    pending: VecDeque<Bytes>,
    started: bool,
    ended: bool,
}

impl<W: Write> ListBody<W> {
    fn new(head: impl Into<Vec<u8>>, entries: Vec<Arc<Entry>>, write: W, tail: &[u8]) -> Self {
        Self {
            entries: entries.into_iter(),
            write,
            tail: [tail, b"\n"].concat(),
            chunk: head.into(),
            pending: VecDeque::new(),
            started: false,
            ended: false,
        }
    }

    /// Appends items until the chunk reaches `size`, a large object is pending, or the list ends.
    fn fill(&mut self, size: usize) {
        while !self.ended && self.chunk.len() < size && self.pending.is_empty() {
            let Some(entry) = self.entries.next() else {
                self.chunk.append(&mut self.tail);
                self.ended = true;
                return;
            };
            if std::mem::replace(&mut self.started, true) {
                self.chunk.push(b',');
            }
            (self.write)(&entry, &mut self.chunk, &mut self.pending);
        }
    }
}

/// Locates `kind` and `apiVersion` at the top level, each with its trailing comma: `[first, second]` in the
/// order in which they are found. `version_at` is an offset inside of `metadata`.
fn left_out(json: &[u8], version_at: usize, kind: &[u8], api_version: &[u8]) -> Option<[Range<usize>; 2]> {
    // Both members precede `metadata` in every stored object, so only the bytes before it are searched.
    let head = json.get(..version_at)?;
    if head[1..].starts_with(kind) && head[1 + kind.len()..].starts_with(api_version) {
        let middle = 1 + kind.len();
        return Some([1..middle, middle..middle + api_version.len()]);
    }
    // Objects that an earlier release stored are sorted.
    let (a, b) = (find_member(head, api_version)?, find_member(head, kind)?);
    Some(if a.start < b.start { [a, b] } else { [b, a] })
}

/// Locates a complete member at the top level of the beginning of an object.
fn find_member(head: &[u8], member: &[u8]) -> Option<Range<usize>> {
    let (mut depth, mut i) = (0usize, 0usize);
    while i < head.len() {
        match head[i] {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                if depth == 1 && head[i..].starts_with(member) {
                    return Some(i..i + member.len());
                }
                i += 1;
                while head.get(i).is_some_and(|b| *b != b'"') {
                    // Skips the escaped byte: an escaped quote does not end the string.
                    i += if head[i] == b'\\' { 2 } else { 1 };
                }
            }
            _ => {}
        }
        i += 1;
    }
    None
}

impl<W: Write> http_body::Body for ListBody<W> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        // Pending slices follow the chunk that was filled before them.
        if this.chunk.is_empty()
            && let Some(slice) = this.pending.pop_front()
        {
            return Poll::Ready(Some(Ok(Frame::data(slice))));
        }
        this.fill(CHUNK);
        if this.chunk.is_empty() {
            return Poll::Ready(None);
        }
        let next = if this.chunk.len() > CHUNK + SPARE {
            // The chunk was filled up to the gzip threshold before streaming began.
            this.chunk.split_off(CHUNK)
        } else if this.ended {
            Vec::new()
        } else {
            Vec::with_capacity(CHUNK + SPARE)
        };
        let chunk = std::mem::replace(&mut this.chunk, next);
        Poll::Ready(Some(Ok(Frame::data(chunk.into()))))
    }
}

#[cfg(test)]
mod tests;
