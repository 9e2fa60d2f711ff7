//! HTTP/1.1 on hyper: one request at a time, its informational (1xx) responses written before the final one.

use super::activity::InFlight;
use super::answer::Answerer;
use crate::request::body::BoxError;
use crate::request::interim::Lane;
use crate::request::{Answering, Body, WhenRead};
use bytes::Bytes;
use http::{Request, Response, Version};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The service that hyper calls.
pub(super) struct Http1 {
    pub(super) answerer: Answerer,
    /// Queue of informational responses.
    pub(super) lane: Arc<Lane>,
}

impl Http1 {
    pub(super) fn answer<'a>(
        &'a self,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Counted>> + Send + use<'a> {
        let in_flight = self.answerer.activity.request();
        // HTTP/1.0 has no informational responses.
        let lane = (request.version() == Version::HTTP_11).then_some(&*self.lane);
        if let Some(lane) = lane {
            lane.open();
        }
        let request = request.map(|incoming| match incoming.is_end_stream() {
            true => Body::empty(),
            false => Body::stream(incoming),
        });
        let handling = self.answerer.ask(request, None);
        async move {
            let response = ahead(handling, lane).await;
            let when_read = response.extensions().get::<WhenRead>().is_some();
            response.map(|body| Counted {
                body,
                when_read,
                in_flight,
            })
        }
    }
}

/// Awaits the response, and then the delivery of the informational responses queued before it.
async fn ahead(mut handling: Answering<'_>, lane: Option<&Lane>) -> Response<Body> {
    let Some(lane) = lane else {
        return handling.await;
    };
    let response = poll_fn(|cx| {
        lane.register(cx);
        handling.as_mut().poll(cx)
    })
    .await;
    poll_fn(|cx| lane.poll_close(cx)).await;
    response
}

/// A response body that keeps its request in flight until dropped.
pub(super) struct Counted {
    body: Body,
    /// Poll the body only when everything it produced is flushed; hyper would otherwise buffer up to a megabyte.
    when_read: bool,
    in_flight: InFlight,
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.when_read && self.in_flight.activity().awaits_flush() {
            return Poll::Pending;
        }
        self.in_flight.release();
        let poll = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &poll {
            if let (true, Some(data)) = (self.when_read, frame.data_ref()) {
                self.in_flight.activity().gave(data.len());
            }
            self.in_flight.hold();
        }
        poll
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
