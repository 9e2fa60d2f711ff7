//! Lists whose items are converted one by one while the response is sent, so that a list of any size needs
//! the memory of one chunk.
//!
//! The surrounding document is encoded with a placeholder for the items and split there. This works for every
//! media type without up-front lengths; protobuf is handled separately.

use super::{CHUNK, sent};
use crate::api::json::{self, Shape};
use crate::apimachinery::codec::json::indent;
use crate::apimachinery::codec::{cbor, yaml};
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use crate::endpoints::negotiate::Media;
use crate::endpoints::negotiate::Negotiated;
use crate::endpoints::respond::{self, gzip};
use crate::request::body::BoxError;
use crate::request::{Body, Response};
use crate::storage::Entry;
use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Placeholder for the items. None of its characters is escaped in any encoding.
const MARK: &str = "the-items-go-here-5f0c1e6b";

/// Appends an item to the chunk.
pub(super) type Item = Box<dyn Fn(&Entry, &mut Vec<u8>) + Send>;

/// The value of the items member: a list with only the placeholder.
pub(super) fn mark() -> Value {
    Value::Array(vec![Value::from(MARK)])
}

/// Builds the function that appends an item in the negotiated encoding. `make` gives its tree and the order
/// of its members.
pub(super) fn item(negotiated: Negotiated, make: impl Fn(&Entry) -> (Value, Shape) + Send + 'static) -> Item {
    match (negotiated.media, negotiated.pretty) {
        (Media::Yaml, _) => Box::new(move |e, out| {
            let item = yaml::to_item(&make(e).0);
            // The dash belongs to what precedes the item.
            out.extend_from_slice(item.strip_prefix("- ").unwrap_or(&item).as_bytes());
            // Newlines belong to the separator between items.
            out.pop_if(|b| *b == b'\n');
        }),
        (Media::Cbor, _) => Box::new(move |e, out| cbor::append(&make(e).0, out)),
        (_, pretty) => Box::new(move |e, out| {
            let (item, shape) = make(e);
            if !pretty {
                return json::encode_as(shape, &item, out);
            }
            let mut compact = Vec::with_capacity(e.json.len());
            json::encode_as(shape, &item, &mut compact);
            indent(&compact, 2, out);
        }),
    }
}

/// Responds with a document around the items of the entries. `document` has [`mark`] in their place.
///
/// # Errors
/// 406 for a media type the kind does not support.
pub(super) fn respond(
    entries: Vec<Arc<Entry>>,
    mut document: Value,
    member: &str,
    negotiated: Negotiated,
    item: Item,
    headers: &HeaderMap,
) -> Result<Response> {
    let Negotiated { media, pretty, .. } = negotiated;
    let content_type = media.content_type();
    // Without an item there is nothing at the mark: an empty list is written `[]`, not as lines.
    if entries.is_empty() || media == Media::Protobuf {
        // Encoding the empty document rejects kinds without protobuf messages up front.
        document.set(&[member], Value::Array(vec![]));
        let whole = respond::encode(&document, media, pretty)?;
        return Ok(respond::bytes(200, content_type, Body::full(whole)));
    }
    let size: usize = entries.iter().map(|e| e.json.len()).sum();
    let (head, between, tail) = cut(
        &respond::encode(&document, media, pretty)?,
        entries.len(),
        media,
        pretty,
    );
    let mut list = Streamed {
        entries: entries.into_iter(),
        item,
        between,
        chunk: head,
        tail: Some(tail),
        started: false,
    };
    if size <= CHUNK {
        list.fill(usize::MAX);
        let whole = std::mem::take(&mut list.chunk);
        return Ok(gzip::maybe(
            respond::bytes(200, content_type, Body::full(whole)),
            headers,
        ));
    }
    let response = respond::bytes(200, content_type, Body::stream(list));
    Ok(sent(response, size as u64 > gzip::THRESHOLD, headers))
}

/// The compact encoding of a document up to its first item.
pub(super) fn before_items(document: &Value) -> Vec<u8> {
    let mut text = json::to_vec(document);
    // The items are the last member.
    text.truncate(text.len() - MARK.len() - "\"\"]}".len());
    text
}

/// The bytes before the items, between two items, and after them.
fn cut(document: &[u8], items: usize, media: Media, pretty: bool) -> (Vec<u8>, &'static [u8], Vec<u8>) {
    let marked = match media {
        // In CBOR the placeholder is preceded by the heads of its array and its string.
        Media::Cbor => {
            let mut marked = Vec::new();
            cbor::append(&mark(), &mut marked);
            marked
        }
        Media::Yaml => MARK.into(),
        _ => format!("\"{MARK}\"").into_bytes(),
    };
    let at = document.windows(marked.len()).position(|w| w == marked);
    let at = at.expect("the document has the mark");
    let (mut head, tail) = (document[..at].to_vec(), document[at + marked.len()..].to_vec());
    let between: &[u8] = match (media, pretty) {
        (Media::Cbor, _) => {
            // Replaces the head of the array of one element that held the mark.
            cbor::append_array_head(items, &mut head);
            b""
        }
        // The item of the mark begins with `- ` and ends with the line, which are part of head and tail.
        (Media::Yaml, _) => b"\n- ",
        (_, true) => b",\n    ",
        (_, false) => b",",
    };
    (head, between, tail)
}

struct Streamed {
    entries: std::vec::IntoIter<Arc<Entry>>,
    item: Item,
    between: &'static [u8],
    chunk: Vec<u8>,
    /// Taken once everything before it has been appended.
    tail: Option<Vec<u8>>,
    started: bool,
}

impl Streamed {
    /// Appends items until the chunk reaches the size, or the items and the tail end.
    fn fill(&mut self, until: usize) {
        while self.chunk.len() < until {
            let Some(entry) = self.entries.next() else {
                self.chunk.append(&mut self.tail.take().unwrap_or_default());
                return;
            };
            if std::mem::replace(&mut self.started, true) {
                self.chunk.extend_from_slice(self.between);
            }
            (self.item)(&entry, &mut self.chunk);
        }
    }
}

impl http_body::Body for Streamed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, BoxError>>> {
        self.fill(CHUNK);
        if self.chunk.is_empty() {
            return Poll::Ready(None);
        }
        let next = Vec::with_capacity(if self.tail.is_some() { CHUNK + 4096 } else { 0 });
        let chunk = std::mem::replace(&mut self.chunk, next);
        Poll::Ready(Some(Ok(Frame::data(chunk.into()))))
    }
}
