//! A backend's body as it streams through: it holds its connection, and gives it back at the end.

use super::super::dial::system_error;
use super::host::{Host, Stream};
use crate::request::Body;
use crate::request::body::BoxError;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use std::future::Future;
use std::pin::Pin;
use std::sync::Weak;
use std::task::{Context, Poll};
use tokio::time::{Instant, Sleep};

/// A body from a backend. Dropped before its end, it cancels the request at the backend.
pub struct BackendBody {
    incoming: Incoming,
    hold: Hold,
    deadline: Option<Instant>,
    alarm: Option<Pin<Box<Sleep>>>,
}

#[allow(clippy::large_enum_variant, reason = "the body is boxed once, whole")]
enum Hold {
    Http2(#[allow(dead_code, reason = "held for its drop")] Stream),
    Http1(http1::SendRequest<Body>, Weak<Host>),
    Released,
}

impl BackendBody {
    pub(super) fn http2(incoming: Incoming, stream: Stream) -> Self {
        Self::new(incoming, Hold::Http2(stream))
    }

    pub(super) fn http1(incoming: Incoming, sender: http1::SendRequest<Body>, host: Weak<Host>) -> Self {
        Self::new(incoming, Hold::Http1(sender, host))
    }

    fn new(incoming: Incoming, hold: Hold) -> Self {
        let mut body = Self {
            incoming,
            hold,
            deadline: None,
            alarm: None,
        };
        if http_body::Body::is_end_stream(&body.incoming) {
            body.release();
        }
        body
    }

    /// The body fails where it is not complete by then.
    pub fn with_deadline(mut self, deadline: Option<Instant>) -> Self {
        self.deadline = deadline;
        self
    }

    /// The erased body; nothing is boxed where nothing is left to come.
    pub fn into_body(self) -> Body {
        if http_body::Body::is_end_stream(&self) {
            Body::empty()
        } else {
            Body::stream(self)
        }
    }

    fn release(&mut self) {
        if let Hold::Http1(sender, host) = std::mem::replace(&mut self.hold, Hold::Released)
            && let Some(host) = host.upgrade()
        {
            host.give_back(sender);
        }
    }
}

impl http_body::Body for BackendBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        match Pin::new(&mut this.incoming).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                if http_body::Body::is_end_stream(&this.incoming) {
                    this.release();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(None) => {
                this.release();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(e))) => {
                this.hold = Hold::Released;
                tracing::debug!("a backend's body broke off: {e}");
                Poll::Ready(Some(Err(e.into())))
            }
            Poll::Pending => {
                let Some(deadline) = this.deadline else {
                    return Poll::Pending;
                };
                let alarm = this
                    .alarm
                    .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
                if alarm.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                this.hold = Hold::Released;
                let late = std::io::Error::from(std::io::ErrorKind::TimedOut);
                Poll::Ready(Some(Err(system_error("read", &late).into())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
