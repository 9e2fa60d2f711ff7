//! HTTP/1.1 on hyper: one request at a time, its informational (1xx) responses written before the final one.

use super::dispatch::Dispatcher;
use crate::request::body::BoxError;
use crate::request::informational::H1InformationalQueue;
use crate::request::{Body, OnDemandBody, ResponseFuture};
use crate::serving::activity::InFlight;
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
    pub(super) dispatcher: Dispatcher,
    /// Queue of informational responses.
    pub(super) queue: Arc<H1InformationalQueue>,
}

impl Http1 {
    pub(super) fn serve<'a>(
        &'a self,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<CountedBody>> + Send + use<'a> {
        let in_flight = self.dispatcher.activity.request();
        // HTTP/1.0 has no informational responses.
        let queue = (request.version() == Version::HTTP_11).then_some(&*self.queue);
        if let Some(queue) = queue {
            queue.begin_request();
        }
        let request = request.map(|incoming| match incoming.is_end_stream() {
            true => Body::empty(),
            false => Body::stream(incoming),
        });
        let handling = self.dispatcher.dispatch(request, None);
        async move {
            let response = with_informational(handling, queue).await;
            let on_demand = response.extensions().get::<OnDemandBody>().is_some();
            response.map(|body| CountedBody {
                body,
                on_demand,
                in_flight,
            })
        }
    }
}

/// Awaits the response, and then the delivery of the informational responses queued before it.
async fn with_informational(mut handling: ResponseFuture<'_>, queue: Option<&H1InformationalQueue>) -> Response<Body> {
    let Some(queue) = queue else {
        return handling.await;
    };
    let response = poll_fn(|cx| {
        queue.register(cx);
        handling.as_mut().poll(cx)
    })
    .await;
    poll_fn(|cx| queue.poll_close(cx)).await;
    response
}

/// A response body that keeps its request in flight until dropped.
pub(super) struct CountedBody {
    body: Body,
    /// Poll the body only when everything it produced is flushed; hyper would otherwise buffer up to a
    /// megabyte.
    on_demand: bool,
    in_flight: InFlight,
}

impl http_body::Body for CountedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        // `awaits_flush` has asked for a wake-up, which comes from `flushed`.
        if self.on_demand && self.in_flight.activity().awaits_flush() {
            return Poll::Pending;
        }
        self.in_flight.release();
        let poll = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &poll {
            if let (true, Some(data)) = (self.on_demand, frame.data_ref()) {
                self.in_flight.activity().body_produced(data.len());
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
