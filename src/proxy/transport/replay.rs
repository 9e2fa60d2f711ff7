//! Replay buffer: a request's head, and its body while small, so that a request which the backend refused
//! unprocessed can be sent again on another connection.
//!
//! Entry points: [`Head::of`] and [`record`]. When a replay is allowed is decided in `exchange`.

use super::Outgoing;
use crate::request::Body;
use crate::request::body::BoxError;
use crate::request::headers::IdentityHeaders;
use crate::sync::{Mutex, MutexGuard};
use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use http_body::{Frame, SizeHint};
use http_body_util::StreamBody;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Bodies larger than this cannot be replayed. The buffer shares the chunks with the connection and copies
/// nothing.
const MAX_BODY: usize = 64 << 10;

/// A request's head, serialised into one allocation. A clone of the `HeaderMap` would cost one per header,
/// and hardly any request is ever replayed.
pub(super) struct Head {
    method: Method,
    target: PathAndQuery,
    headers: Vec<u8>,
}

/// Precedes each header: the lengths of its name and value, and whether the value is sensitive.
struct Prefix {
    name: usize,
    value: usize,
    sensitive: bool,
}

impl Prefix {
    const SIZE: usize = 8;

    /// Packed into one number and written at once. Names and values are shorter than 2^31 bytes.
    fn packed(&self) -> [u8; Self::SIZE] {
        ((self.name as u64) << 32 | (self.value as u64) << 1 | u64::from(self.sensitive)).to_le_bytes()
    }

    fn unpacked(packed: [u8; Self::SIZE]) -> Self {
        let packed = u64::from_le_bytes(packed);
        Self {
            name: (packed >> 32) as usize,
            value: (packed as u32 >> 1) as usize,
            sensitive: packed & 1 != 0,
        }
    }
}

impl Head {
    pub(super) fn of(out: &Outgoing) -> Self {
        // Measured first, so that the head takes a single allocation.
        let size = out
            .headers
            .iter()
            .map(|(n, v)| Prefix::SIZE + n.as_str().len() + v.len());
        let mut headers = Vec::with_capacity(size.sum());
        for (name, value) in &out.headers {
            let name = name.as_str().as_bytes();
            let prefix = Prefix {
                name: name.len(),
                value: value.len(),
                sensitive: value.is_sensitive(),
            };
            headers.extend_from_slice(&prefix.packed());
            headers.extend_from_slice(name);
            headers.extend_from_slice(value.as_bytes());
        }
        Self {
            method: out.method.clone(),
            target: out.target.clone(),
            headers,
        }
    }

    pub(super) fn method(&self) -> &Method {
        &self.method
    }

    /// Rebuilds the request, with this body.
    pub(super) fn into_request(self, body: Body) -> Outgoing {
        Outgoing {
            headers: parse_headers(&self.headers),
            method: self.method,
            target: self.target,
            body,
        }
    }
}

fn parse_headers(mut rest: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    while let Some((packed, after)) = rest.split_first_chunk() {
        let prefix = Prefix::unpacked(*packed);
        let (name, after) = after.split_at(prefix.name);
        let (value, after) = after.split_at(prefix.value);
        rest = after;
        // Always parses: the bytes come from a valid name and value.
        if let (Ok(name), Ok(mut value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
            value.set_sensitive(prefix.sensitive);
            headers.append(name, value);
        }
    }
    headers
}

/// The part of a body that was sent. Clones share the record.
#[derive(Clone, Default)]
pub(super) struct ReplayRecord(Arc<Mutex<Sent>>);

#[derive(Default)]
struct Sent {
    chunks: Vec<Bytes>,
    size: usize,
    complete: bool,
    lost: bool,
    /// Why reading the client's body failed.
    client_error: Option<String>,
}

struct RecordingBody {
    body: Body,
    record: ReplayRecord,
    identity: Arc<IdentityHeaders>,
}

/// Wraps a body to record its sent chunks, and strips trailers that claim an identity.
pub(super) fn record(body: Body, identity: Arc<IdentityHeaders>) -> (Body, ReplayRecord) {
    let record = ReplayRecord::default();
    let recording = RecordingBody {
        body,
        record: record.clone(),
        identity,
    };
    (Body::stream(recording), record)
}

impl ReplayRecord {
    /// The body to replay. `None` unless all of it was sent and buffered. Takes the buffer, so it works once.
    pub(super) fn take_body(&self) -> Option<Body> {
        let mut sent = self.lock();
        if !sent.complete || sent.lost {
            return None;
        }
        let mut chunks = std::mem::take(&mut sent.chunks);
        Some(match chunks.len() {
            0 => Body::empty(),
            1 => Body::full(chunks.swap_remove(0)),
            _ => {
                let frames = chunks.into_iter().map(|c| Ok::<_, BoxError>(Frame::data(c)));
                Body::stream(StreamBody::new(futures_util::stream::iter(frames)))
            }
        })
    }

    /// The error with which reading from the client failed. If there is one, a failed
    /// exchange is not the backend's fault.
    pub(super) fn client_error(&self) -> Option<String> {
        self.lock().client_error.clone()
    }

    /// Whether all of it was handed to the connection, buffered or not.
    pub(super) fn is_complete(&self) -> bool {
        self.lock().complete
    }

    fn lock(&self) -> MutexGuard<'_, Sent> {
        self.0.lock()
    }
}

impl Sent {
    fn discard(&mut self) {
        self.lost = true;
        // Not `clear`: the memory is freed now, not when the exchange ends.
        self.chunks = Vec::new();
    }
}

impl RecordingBody {
    fn cleaned(&self, frame: Frame<Bytes>) -> Frame<Bytes> {
        match frame.into_trailers() {
            Ok(mut trailers) => {
                self.identity.strip(&mut trailers);
                Frame::trailers(trailers)
            }
            Err(data) => data,
        }
    }
}

impl http_body::Body for RecordingBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let next = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let mut sent = self.record.lock();
        match &next {
            None => sent.complete = true,
            Some(Ok(frame)) => match frame.data_ref() {
                Some(data) if !sent.lost && sent.size + data.len() <= MAX_BODY => {
                    sent.size += data.len();
                    sent.chunks.push(data.clone());
                    sent.complete = self.body.is_end_stream();
                }
                // Too large, or trailers, which are too rare to be worth buffering.
                _ => {
                    sent.discard();
                    sent.complete = self.body.is_end_stream();
                }
            },
            Some(Err(why)) => {
                sent.discard();
                sent.client_error = Some(why.to_string());
            }
        }
        drop(sent);
        // Trailers are cleaned here and never recorded, so a replay cannot send those that claim an identity.
        Poll::Ready(next.map(|frame| Ok(self.cleaned(frame?))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use proptest::prelude::*;

    fn chunks(sizes: &[usize]) -> Body {
        let frames: Vec<_> = sizes
            .iter()
            .map(|n| Ok::<_, BoxError>(Frame::data(Bytes::from(vec![b'x'; *n]))))
            .collect();
        Body::stream(StreamBody::new(futures_util::stream::iter(frames)))
    }

    proptest! {
        #[test]
        fn a_head_survives_the_replay_buffer(fields in prop::collection::vec(("[a-z-]{1,20}", "[ -~]{0,40}", any::<bool>()), 0..20)) {
            let mut headers = HeaderMap::new();
            for (name, value, sensitive) in fields {
                let mut value = HeaderValue::from_str(&value).unwrap();
                value.set_sensitive(sensitive);
                headers.append(HeaderName::try_from(name).unwrap(), value);
            }
            let out = Outgoing {
                method: Method::PUT,
                target: PathAndQuery::from_static("/a?b=c"),
                headers: headers.clone(),
                body: Body::empty(),
            };
            let again = Head::of(&out).into_request(Body::empty());
            let marks = |h: &HeaderMap| h.values().map(HeaderValue::is_sensitive).collect::<Vec<_>>();
            prop_assert_eq!((&again.method, &again.target), (&out.method, &out.target));
            prop_assert_eq!(marks(&again.headers), marks(&headers));
            prop_assert_eq!(again.headers, headers);
        }
    }

    #[tokio::test]
    async fn a_small_body_can_be_replayed_once_it_is_sent() {
        let (mut body, sent) = record(chunks(&[3, 4]), Arc::default());
        body.frame().await.unwrap().unwrap();
        assert!(sent.take_body().is_none(), "not all of it was sent");
        assert_eq!(BodyExt::collect(body).await.unwrap().to_bytes().len(), 4);
        assert_eq!(sent.take_body().unwrap().collect(100).await.unwrap().len(), 7);
        let (body, sent) = record(chunks(&[MAX_BODY, 1]), Arc::default());
        assert_eq!(BodyExt::collect(body).await.unwrap().to_bytes().len(), MAX_BODY + 1);
        assert!(sent.take_body().is_none(), "too large");
        let (body, sent) = record(Body::full("whole"), Arc::default());
        assert_eq!(BodyExt::collect(body).await.unwrap().to_bytes(), "whole");
        assert_eq!(sent.take_body().unwrap().as_full(), Some(&b"whole"[..]));
    }
}
