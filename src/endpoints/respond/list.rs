//! Lists: the bytes of stored objects, spliced behind each other and sent in chunks.
//!
//! Items of built-in lists carry neither `kind` nor `apiVersion`. Both stand before `metadata` in a stored object,
//! mostly first and last of what does, so that leaving them out is two comparisons and not a scan.

mod protobuf;
mod streamed;

use super::{gzip, internal_package, kept, not_acceptable, partial, table};
use crate::apimachinery::codec::json;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::{Map, Value};
use crate::endpoints::negotiate::{Media, Negotiated, OBJECT_TYPES, Transform};
use crate::endpoints::options::Query;
use crate::registry::Resource;
use crate::request::body::BoxError;
use crate::request::{Body, Response};
use crate::storage::{Budget, Entry, Listing};
use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Chunks grow to about this size.
const CHUNK: usize = 64 * 1024;
/// Objects from this size on are sent as slices of their own bytes.
const SHARED: usize = 32 * 1024;

/// The list's own facts, encoded.
#[derive(Clone, Debug, Default)]
pub struct ListMeta {
    /// `resourceVersion`
    pub version: String,
    /// `continue`, encoded; empty: none.
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

/// Answers with a list in the negotiated form.
///
/// # Errors
/// 406 for the form of one object, 400 for wrong table options.
pub fn list(
    listing: Listing,
    meta: &ListMeta,
    resource: &Arc<Resource>,
    negotiated: Negotiated,
    headers: &HeaderMap,
    query: &Query,
    budget: Option<&Arc<Budget>>,
) -> Result<Response> {
    let Listing { entries, .. } = listing;
    let around = |kind: String, api_version: String, member| {
        let mut m = Map::new();
        m.insert("kind", kind);
        m.insert("apiVersion", api_version);
        m.insert("metadata", meta.to_map());
        m.insert(member, streamed::mark());
        Value::Object(m)
    };
    let kind = format!("{}List", resource.kind);
    let (row, budget) = (resource.clone(), budget.cloned());
    match (negotiated.transform, negotiated.media) {
        (Transform::None, Media::Json) if !negotiated.pretty => Ok(spliced(entries, meta, resource, headers)),
        (Transform::None, Media::Protobuf) => {
            let Some(def) = resource.schema.definition() else {
                return Err(Status::not_acceptable(&OBJECT_TYPES));
            };
            let item = Box::new(move |e: &Entry| kept::message(e, def, budget.as_ref()));
            let of = (&*resource.gvk().api_version(), &*kind);
            Ok(protobuf::list(entries, meta, of, item, headers))
        }
        (Transform::None, _) => {
            let document = around(kind, resource.gvk().api_version(), "items");
            let item = streamed::item(negotiated, |e| {
                let mut v = e.decode();
                v.unset(&["kind"]);
                v.unset(&["apiVersion"]);
                v
            });
            streamed::respond(entries, document, "items", negotiated, item, headers)
        }
        (Transform::Table(version), _) => {
            let include = table::Include::parse(query)?;
            let document = table::around(version, meta.to_map(), table::columns(resource), streamed::mark());
            let item = streamed::item(negotiated, move |e| table::row(&row, &e.decode(), version, include));
            streamed::respond(entries, document, "rows", negotiated, item, headers)
        }
        (Transform::PartialList(version), Media::Protobuf) => {
            let item = Box::new(move |e: &Entry| partial::message(&row, e, version, budget.as_ref()));
            let of = (&*format!("meta.k8s.io/{version}"), "PartialObjectMetadataList");
            Ok(protobuf::list(entries, meta, of, item, headers))
        }
        (Transform::PartialList(version), _) => {
            let (kind, group) = ("PartialObjectMetadataList".to_owned(), format!("meta.k8s.io/{version}"));
            let item = streamed::item(negotiated, move |e| partial::of(&row, &e.decode(), version));
            streamed::respond(
                entries,
                around(kind, group, "items"),
                "items",
                negotiated,
                item,
                headers,
            )
        }
        (Transform::Partial(_), _) => Err(not_acceptable(format!(
            "you requested PartialObjectMetadata, but the requested object is a list (*{}.{}List)",
            internal_package(resource),
            resource.kind
        ))),
    }
}

fn spliced(entries: Vec<Arc<Entry>>, meta: &ListMeta, resource: &Resource, headers: &HeaderMap) -> Response {
    let api_version = resource.gvk().api_version();
    let mut head = format!(
        "{{\"kind\":\"{}List\",\"apiVersion\":\"{api_version}\",\"metadata\":",
        resource.kind
    );
    // Members in the order Go writes them, not sorted.
    head.push('{');
    if !meta.version.is_empty() {
        head.push_str(&format!("\"resourceVersion\":\"{}\"", meta.version));
    }
    if !meta.token.is_empty() {
        head.push_str(",\"continue\":");
        head.push_str(&json::to_string(&Value::from(meta.token.as_str())));
    }
    if let Some(n) = meta.remaining.filter(|n| *n > 0) {
        head.push_str(&format!(",\"remainingItemCount\":{n}"));
    }
    head.push_str("},\"items\":[");
    let size: usize = head.len() + entries.iter().map(|e| e.json.len() + 1).sum::<usize>();
    let mut body = ListBody {
        first: format!("\"apiVersion\":\"{api_version}\",").into_bytes(),
        second: format!("\"kind\":\"{}\",", resource.kind).into_bytes(),
        entries: entries.into_iter(),
        chunk: Vec::with_capacity(size.min(CHUNK + SHARED)),
        pending: None,
        shared: if size <= CHUNK { usize::MAX } else { SHARED },
        started: false,
        ended: false,
    };
    body.chunk.extend_from_slice(head.as_bytes());
    let media = Media::Json.content_type();
    if size <= CHUNK {
        // One chunk holds it all, and its length is known.
        body.fill();
        return super::bytes(200, media, Body::full(std::mem::take(&mut body.chunk)));
    }
    let response = super::bytes(200, media, Body::stream(body));
    if size as u64 > gzip::THRESHOLD && gzip::accepted(headers) {
        return gzip::always(response);
    }
    response
}

struct ListBody {
    first: Vec<u8>,
    second: Vec<u8>,
    entries: std::vec::IntoIter<Arc<Entry>>,
    chunk: Vec<u8>,
    /// A slice of a big object that goes out after the chunk.
    pending: Option<Bytes>,
    /// From this size on an object's bytes are shared.
    shared: usize,
    started: bool,
    ended: bool,
}

impl ListBody {
    /// Appends items until the chunk is full, a big object comes, or the list ends.
    fn fill(&mut self) {
        while !self.ended && self.chunk.len() < CHUNK && self.pending.is_none() {
            let Some(entry) = self.entries.next() else {
                self.chunk.extend_from_slice(b"]}\n");
                self.ended = true;
                return;
            };
            if std::mem::replace(&mut self.started, true) {
                self.chunk.push(b',');
            }
            let json = &entry.json;
            match left_out(json, entry.version_span.0 as usize, &self.first, &self.second) {
                Some([a, b]) => {
                    self.chunk.extend_from_slice(&json[..a.start]);
                    self.chunk.extend_from_slice(&json[a.end..b.start]);
                    if json.len() - b.end >= self.shared {
                        self.pending = Some(json.slice(b.end..));
                    } else {
                        self.chunk.extend_from_slice(&json[b.end..]);
                    }
                }
                None => self.chunk.extend_from_slice(json),
            }
        }
    }
}

/// Where `apiVersion` and `kind` stand at the top level, each with the comma after it. `version_at` is where the
/// members of `metadata` begin.
fn left_out(json: &[u8], version_at: usize, first: &[u8], second: &[u8]) -> Option<[Range<usize>; 2]> {
    let metadata = version_at.checked_sub(br#""metadata":{"#.len())?;
    let head = json.get(..metadata)?;
    let a = if head[1..].starts_with(first) {
        1..1 + first.len()
    } else {
        find_member(head, first)?
    };
    let b = if head.len() >= a.end + second.len() && head.ends_with(second) {
        head.len() - second.len()..head.len()
    } else {
        find_member(head, second)?
    };
    Some([a, b])
}

/// The place of a whole member at the top level of an object's beginning.
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
                    i += if head[i] == b'\\' { 2 } else { 1 };
                }
            }
            _ => {}
        }
        i += 1;
    }
    None
}

impl http_body::Body for ListBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        if this.chunk.is_empty()
            && let Some(slice) = this.pending.take()
        {
            return Poll::Ready(Some(Ok(Frame::data(slice))));
        }
        this.fill();
        if this.chunk.is_empty() {
            return Poll::Ready(None);
        }
        let next = if this.ended {
            Vec::new()
        } else {
            Vec::with_capacity(CHUNK + 4096)
        };
        let chunk = std::mem::replace(&mut this.chunk, next);
        Poll::Ready(Some(Ok(Frame::data(chunk.into()))))
    }
}

#[cfg(test)]
mod tests;
