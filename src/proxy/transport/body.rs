//! The body of a backend's response, streamed to the client. [`BackendBody`] holds its connection and
//! in-flight guards and releases them at the end.

use super::health::InFlightGuard;
use super::host::Host;
use super::http2::{IncomingBody, Stream};
use super::replay::ReplayRecord;
use super::upload::Upload;
use crate::proxy::tcp::system_error;
use crate::request::Body;
use crate::request::body::BoxError;
use bytes::Bytes;
use http_body::Body as _;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use std::future::Future;
use std::pin::Pin;
use std::sync::Weak;
use std::task::{Context, Poll};
use tokio::time::{Instant, Sleep};

/// A response body from a backend. Dropping it before its end cancels the request at the backend. `G` is a
/// guard that is held until then, such as a permit.
pub(crate) struct BackendBody<G = ()> {
    source: Source,
    hold: Hold,
    deadline: Option<Instant>,
    alarm: Option<Pin<Box<Sleep>>>,
    in_flight: Option<InFlightGuard>,
    held: Option<G>,
}

enum Source {
    Http2(IncomingBody),
    Http1(Incoming),
}

#[allow(clippy::large_enum_variant, reason = "the body is boxed once, whole")]
enum Hold {
    Http2(#[allow(dead_code, reason = "held for its drop")] Stream, Option<Upload>),
    Http1(http1::SendRequest<Body>, Option<ReplayRecord>, Weak<Host>),
    Released,
}

impl BackendBody {
    pub(super) fn http2(
        received: IncomingBody,
        stream: Stream,
        upload: Option<Upload>,
        in_flight: InFlightGuard,
    ) -> Self {
        Self::new(Source::Http2(received), Hold::Http2(stream, upload), in_flight)
    }

    pub(super) fn http1(
        incoming: Incoming,
        (sender, upload): (http1::SendRequest<Body>, Option<ReplayRecord>),
        host: Weak<Host>,
        in_flight: InFlightGuard,
    ) -> Self {
        Self::new(Source::Http1(incoming), Hold::Http1(sender, upload, host), in_flight)
    }

    fn new(source: Source, hold: Hold, in_flight: InFlightGuard) -> Self {
        let mut body = Self {
            source,
            hold,
            deadline: None,
            alarm: None,
            in_flight: Some(in_flight),
            held: None,
        };
        // Without a body nothing will be polled, so everything is released now.
        if body.source.is_end_stream() {
            body.release();
        }
        body
    }

    /// Holds `guard` until this body has ended.
    pub(crate) fn holding<G>(self, guard: G) -> BackendBody<G> {
        // A response without a body has released everything already; a guard held here would never be
        // released.
        let held = (!self.is_over()).then_some(guard);
        BackendBody {
            source: self.source,
            hold: self.hold,
            deadline: self.deadline,
            alarm: self.alarm,
            in_flight: self.in_flight,
            held,
        }
    }
}

impl<G: Send + Unpin + 'static> BackendBody<G> {
    /// Fails the body if it is not complete by then.
    pub(crate) fn with_deadline(mut self, deadline: Option<Instant>) -> Self {
        self.deadline = deadline;
        self
    }

    /// Type-erases the body. A small response has mostly arrived whole by the time its head is processed; it
    /// is then returned as a plain buffer without boxing, and its connection and guards are released at once.
    pub(crate) fn into_body(mut self) -> Body {
        if self.is_over() {
            return Body::empty();
        }
        let whole = match &mut self.source {
            Source::Http2(received) => received.take_whole(),
            Source::Http1(_) => None,
        };
        match whole {
            Some(bytes) => {
                self.release();
                Body::full(bytes)
            }
            None => Body::stream(self),
        }
    }

    /// Whether the body has ended and everything is released.
    fn is_over(&self) -> bool {
        matches!(self.hold, Hold::Released)
    }

    fn release(&mut self) {
        // Guards first: the request is over even if its upload is not.
        self.in_flight = None;
        self.held = None;
        match std::mem::replace(&mut self.hold, Hold::Released) {
            Hold::Http1(sender, upload, host) => {
                // Without its transport there is no pool any more, and the connection closes.
                if let Some(host) = host.upgrade() {
                    match upload {
                        Some(upload) if !upload.is_complete() => host.give_back_after_upload(sender),
                        _ => host.give_back(sender),
                    }
                }
            }
            // A backend may answer before it has read all of the request.
            Hold::Http2(_, Some(upload)) => upload.detach(),
            Hold::Http2(_, None) | Hold::Released => {}
        }
    }
}

impl Source {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self {
            Self::Http2(received) => received.poll_frame(cx).map_err(Into::into),
            Self::Http1(incoming) => Pin::new(incoming).poll_frame(cx).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http2(received) => received.is_end_stream(),
            Self::Http1(incoming) => incoming.is_end_stream(),
        }
    }
}

impl<G: Send + Unpin + 'static> http_body::Body for BackendBody<G> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        match this.source.poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                // At the last frame, not at the poll after it: a consumer that knows the length does not poll
                // again.
                if this.source.is_end_stream() {
                    this.release();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(None) => {
                this.release();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(e))) => {
                // Dropped rather than released: a broken HTTP/1.1 connection must not return to the pool.
                this.hold = Hold::Released;
                tracing::debug!("a backend's body broke off: {e}");
                Poll::Ready(Some(Err(e)))
            }
            Poll::Pending => {
                // The deadline is checked only when no data is ready: data that has arrived is delivered even
                // if late.
                let Some(deadline) = this.deadline else {
                    return Poll::Pending;
                };
                let alarm = this
                    .alarm
                    .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
                if alarm.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                // Dropped as above: the rest of this response may still arrive on the connection.
                this.hold = Hold::Released;
                let late = std::io::Error::from(std::io::ErrorKind::TimedOut);
                Poll::Ready(Some(Err(system_error("read", &late).into())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.source.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Http2(received) => received.size_hint(),
            Source::Http1(incoming) => incoming.size_hint(),
        }
    }
}
