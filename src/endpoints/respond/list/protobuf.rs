//! Lists in protobuf. The length of the whole stands at the beginning, so that nothing can go out before everything is
//! encoded; it is encoded in pieces all the same, for others to run in between.

use super::{CHUNK, ListMeta};
use crate::api::TypeDef;
use crate::api::protobuf::encode_message;
use crate::apimachinery::codec::protobuf::{
    CONTENT_TYPE, envelope_head, envelope_tail, put_bytes, put_length, put_message, put_number, varint_len,
};
use crate::apimachinery::status::{Result, Status};
use crate::endpoints::negotiate::OBJECT_TYPES;
use crate::endpoints::respond::{bytes, gzip};
use crate::registry::Resource;
use crate::request::body::BoxError;
use crate::request::{Body, Response};
use crate::storage::Entry;
use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// From this many bytes of JSON on, encoding makes room for others.
const BIG: usize = 4 * CHUNK;

pub(super) fn list(
    entries: Vec<Arc<Entry>>,
    meta: &ListMeta,
    resource: &Resource,
    headers: &HeaderMap,
) -> Result<Response> {
    let Some(def) = resource.schema.definition() else {
        return Err(Status::not_acceptable(&OBJECT_TYPES));
    };
    let mut head = Vec::with_capacity(128);
    envelope_head(
        &mut head,
        &resource.gvk().api_version(),
        &format!("{}List", resource.kind),
    );
    let size: usize = entries.iter().map(|e| e.json.len()).sum();
    let mut message = Vec::with_capacity(size + 64);
    put_message(&mut message, 1, |out| list_meta(meta, out));
    let mut list = Encoding {
        head,
        message,
        entries: entries.into_iter(),
        def,
    };
    if size < BIG {
        while list.step() {}
        let mut whole = list.opening();
        whole.append(&mut list.message);
        return Ok(gzip::maybe(bytes(200, CONTENT_TYPE, Body::full(whole)), headers));
    }
    let response = bytes(200, CONTENT_TYPE, Body::stream(ListBody::Encoding(list)));
    Ok(if gzip::accepted(headers) {
        gzip::always(response)
    } else {
        response
    })
}

fn list_meta(meta: &ListMeta, out: &mut Vec<u8>) {
    put_bytes(out, 1, b"");
    put_bytes(out, 2, meta.version.as_bytes());
    put_bytes(out, 3, meta.token.as_bytes());
    if let Some(n) = meta.remaining.filter(|n| *n > 0) {
        put_number(out, 4, n as u64);
    }
}

struct Encoding {
    /// The envelope up to the message.
    head: Vec<u8>,
    message: Vec<u8>,
    entries: std::vec::IntoIter<Arc<Entry>>,
    def: &'static TypeDef,
}

impl Encoding {
    /// Encodes about a chunk; false: that was all.
    fn step(&mut self) -> bool {
        let until = self.message.len() + CHUNK;
        while self.message.len() < until {
            let Some(entry) = self.entries.next() else {
                return false;
            };
            let object = entry.decode();
            put_message(&mut self.message, 2, |out| encode_message(self.def, &object, out));
        }
        true
    }

    /// What stands before the message, whose end is known; the envelope is closed behind it.
    fn opening(&mut self) -> Vec<u8> {
        let length = self.message.len();
        let mut head = std::mem::take(&mut self.head);
        head.reserve(varint_len(length as u64) + 1 + length);
        put_length(&mut head, 2, length);
        envelope_tail(&mut self.message);
        head
    }
}

enum ListBody {
    Encoding(Encoding),
    Sending(Bytes),
}

impl http_body::Body for ListBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut *self {
            Self::Encoding(list) => {
                if list.step() {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                let head = list.opening();
                let message = std::mem::take(&mut list.message);
                *self = Self::Sending(message.into());
                Poll::Ready(Some(Ok(Frame::data(head.into()))))
            }
            Self::Sending(rest) if rest.is_empty() => Poll::Ready(None),
            Self::Sending(rest) => {
                let n = rest.len().min(CHUNK);
                Poll::Ready(Some(Ok(Frame::data(rest.split_to(n)))))
            }
        }
    }
}
