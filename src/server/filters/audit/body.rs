//! Recording of streamed response bodies: the end of the body is an event, which may include the response
//! object.

use super::decoding;
use super::record::{Record, now};
use crate::audit::event::ResponseStatus;
use crate::audit::response::CopiedBytes;
use crate::audit::{PendingWrites, Stage, response};
use crate::request::body::BoxError;
use crate::request::{Body, FromBackend, Response};
use crate::telemetry::request_parts::{Part, RequestParts};
use bytes::Bytes;
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

/// Records the end of a streamed response. In the blocking modes the end of the body is delayed until the
/// event is stored.
pub(super) fn record(response: Response, record: Arc<Record>, status: ResponseStatus) -> Response {
    // Backends audit their own responses; see `decoding::recorded`.
    let own = FromBackend::of(&response).is_none();
    let worth = own && record.wants_responses();
    let copy = (worth && response::is_object(response.headers())).then(|| Copy {
        headers: response.headers().clone(),
        bytes: Vec::new(),
        charged: record.audit().response_limits().copy(),
        too_large: false,
    });
    // Not of streams without an end, whose pauses are no work of this server.
    let stopwatch = (own && !record.is_long_running()).then(|| Stopwatch::start(record.trail.parts()));
    response.map(|body| {
        Body::stream(Recorded {
            body,
            stopwatch,
            last: Some(Last { record, status, copy }),
            storing: None,
        })
    })
}

struct Copy {
    headers: HeaderMap,
    bytes: Vec<u8>,
    /// The share of `bytes` in the limit on all copies.
    charged: CopiedBytes,
    too_large: bool,
}

/// Measures the production of the pieces of a body ([`Part::Serialize`]), and the times between them
/// ([`Part::Write`]).
struct Stopwatch {
    parts: Arc<RequestParts>,
    since: Instant,
    /// The connection has a piece to write, or the head of the response.
    writing: bool,
}

impl Stopwatch {
    fn start(parts: Arc<RequestParts>) -> Self {
        Self {
            parts,
            since: now(),
            writing: true,
        }
    }

    /// The connection polls for the next frame.
    fn polled(&mut self) {
        if self.writing {
            self.lap(Part::Write);
            self.writing = false;
        }
    }

    /// The connection has been given a piece, or the end.
    fn given(&mut self) {
        self.lap(Part::Serialize);
        self.writing = true;
    }

    fn lap(&mut self, part: Part) {
        let now = now();
        self.parts.record(part, now.saturating_duration_since(self.since));
        self.since = now;
    }
}

struct Last {
    record: Arc<Record>,
    status: ResponseStatus,
    copy: Option<Copy>,
}

impl Last {
    /// Whether submitting the event would block a reactor for too long.
    fn is_costly(&self) -> bool {
        let is_costly = |copy: &Copy| decoding::is_costly(&copy.headers, copy.bytes.len());
        self.copy.as_ref().is_some_and(is_costly)
    }

    fn submit(mut self) -> PendingWrites {
        let copy = self.take_copy();
        let object = copy.and_then(|copy| decoding::object(&self.record, &copy.headers, &copy.bytes));
        self.record.submit(Stage::ResponseComplete, Some(self.status), object)
    }

    /// [`submit`](Self::submit) for a [costly](Self::is_costly) one.
    async fn decode_and_submit(mut self) -> PendingWrites {
        let object = match self.take_copy() {
            None => None,
            Some(copy) => {
                let length = copy.bytes.len();
                let read = move |record: &Record| decoding::object(record, &copy.headers, &copy.bytes);
                decoding::decoded(&self.record, length, read).await.flatten()
            }
        };
        self.record.submit(Stage::ResponseComplete, Some(self.status), object)
    }

    fn take_copy(&mut self) -> Option<Copy> {
        let copy = self.copy.take()?;
        // Nothing is recorded instead of a part: half an object cannot be decoded.
        if copy.too_large {
            self.record.trail.annotate("audit.k8s.io/truncated", "true");
            return None;
        }
        Some(copy)
    }
}

struct Recorded {
    body: Body,
    stopwatch: Option<Stopwatch>,
    last: Option<Last>,
    storing: Option<(Pin<Box<dyn Future<Output = bool> + Send>>, Option<BoxError>)>,
}

impl http_body::Body for Recorded {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.storing.is_none() {
            self.stopwatch.iter_mut().for_each(Stopwatch::polled);
            let polled = ready!(Pin::new(&mut self.body).poll_frame(cx));
            self.stopwatch.iter_mut().for_each(Stopwatch::given);
            let error = match polled {
                Some(Ok(frame)) => {
                    if let (Some(data), Some(copy)) =
                        (frame.data_ref(), self.last.as_mut().and_then(|l| l.copy.as_mut()))
                    {
                        copy.add(data);
                    }
                    return Poll::Ready(Some(Ok(frame)));
                }
                Some(Err(error)) => Some(error),
                None => None,
            };
            // Polled again after its end.
            let Some(last) = self.last.take() else {
                return Poll::Ready(error.map(Err));
            };
            if last.is_costly() {
                let stored = async move { last.decode_and_submit().await.wait().await };
                self.storing = Some((Box::pin(stored), error));
                // Polls the new future at once, which registers the waker.
                return self.poll_frame(cx);
            }
            let pending = last.submit();
            if pending.is_empty() {
                return Poll::Ready(error.map(Err));
            }
            self.storing = Some((Box::pin(pending.wait()), error));
        }
        // The outcome does not matter here: the response has been sent.
        if let Some((storing, _)) = &mut self.storing {
            ready!(storing.as_mut().poll(cx));
        }
        let error = self.storing.take().and_then(|(_, error)| error);
        Poll::Ready(error.map(Err))
    }

    fn is_end_stream(&self) -> bool {
        // False until the event is stored, or the connection would drop the body without polling for its end.
        self.last.is_none() && self.storing.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Copy {
    fn add(&mut self, data: &[u8]) {
        if self.too_large
            || self.bytes.len() + data.len() > response::MAX_BYTES
            || !self.charged.grow_to(self.bytes.len() + data.len())
        {
            self.too_large = true;
            // Frees the copy at once: the stream may go on for long.
            self.bytes = Vec::new();
            self.charged.release();
        } else {
            self.bytes.extend_from_slice(data);
        }
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        // The client disconnected, or the transport stopped at the announced length without polling for the
        // end.
        if let Some(last) = self.last.take() {
            if last.is_costly() {
                let record = last.record.clone();
                record
                    .audit()
                    .defer(async move { drop(last.decode_and_submit().await) });
            } else {
                drop(last.submit());
            }
        }
    }
}
