//! Answers 504 if the deadline passes before the response begins, and aborts the body if it passes later
//! (upstream's `k8s.io/apiserver/pkg/server/filters/timeout.go`).
//!
//! As upstream, the 504 body is a `Status` without `kind` and `apiVersion`, labelled `text/plain`.

use crate::request::body::BoxError;
use crate::request::{Body, Request, RequestContext, RequestInfo, Response};
use crate::server::filter::{ContextField, Filter, FilterSpec, Unmet};
use crate::server::request_labels::request_labels;
use crate::server::respond::{self, TEXT};
use crate::telemetry::Telemetry;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::Either;
use http::StatusCode;
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::time::{Instant, Sleep};

const BODY: &str = "{\"metadata\":{},\"status\":\"Failure\",\"message\":\"Timeout: request did not complete within the \
                    allotted timeout\",\"reason\":\"Timeout\",\"details\":{},\"code\":504}\n";

pub(crate) struct Timeout<F> {
    inner: F,
    telemetry: Telemetry,
}

/// The filter's declaration in the chain.
const SPEC: FilterSpec = FilterSpec {
    needs: &[ContextField::RequestInfo, ContextField::Deadline],
    sets: &[],
};

impl<F> Timeout<F> {
    /// Wraps `inner`.
    pub(crate) fn new(inner: F, telemetry: Telemetry) -> Self {
        Self { inner, telemetry }
    }
}

impl<F: Filter> Filter for Timeout<F> {
    const UNMET: Unmet = SPEC.around(F::UNMET);

    fn handle<'s>(&'s self, req: &mut Request) -> impl Future<Output = Response> + Send + use<'s, F> {
        let deadline = RequestContext::of(req).deadline.map(Instant::from_std);
        // Read before the inner filters, which take the request out of `req`.
        let info = super::info(req);
        let inner = self.inner.handle(req);
        match deadline {
            None => Either::Left(inner),
            Some(deadline) => {
                // Dropping the inner future stops reads; writes continue in their own task (`endpoints::finish`).
                let timed = tokio::time::timeout_at(deadline, inner);
                Either::Right(timed.map(move |answered| self.timed(answered.ok(), deadline, info)))
            }
        }
    }
}

impl<F> Timeout<F> {
    /// The response with its body limited by the deadline; a 504 if there is none.
    fn timed(&self, response: Option<Response>, deadline: Instant, info: Arc<RequestInfo>) -> Response {
        let Some(response) = response else {
            let labels = request_labels(&info, false);
            self.telemetry.requests.terminated(&labels, 504);
            return respond::bytes(StatusCode::GATEWAY_TIMEOUT, TEXT, BODY);
        };
        // Upgraded connections have no deadline, and a body that is fully in memory needs none.
        if response.body().as_full().is_some() || response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return response;
        }
        response.map(|body| {
            Body::stream(Timed {
                body,
                deadline,
                alarm: None,
                on_cut: Some((self.telemetry.clone(), info)),
            })
        })
    }
}

struct Timed {
    body: Body,
    deadline: Instant,
    /// Created the first time the body is pending; most bodies never are.
    alarm: Option<Pin<Box<Sleep>>>,
    on_cut: Option<(Telemetry, Arc<RequestInfo>)>,
}

impl http_body::Body for Timed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        // Also checked while the body is ready: a handler that always has data must be cut, too.
        if Instant::now() < self.deadline {
            let polled = Pin::new(&mut self.body).poll_frame(cx);
            if polled.is_ready() {
                return polled;
            }
        }
        let deadline = self.deadline;
        let alarm = self
            .alarm
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if alarm.as_mut().poll(cx).is_ready() {
            if let Some((telemetry, info)) = self.on_cut.take() {
                telemetry.requests.aborted(&request_labels(&info, false));
            }
            // Frees what the body holds at once: the connection may keep the body until it is closed.
            self.body = Body::empty();
            return Poll::Ready(Some(Err(
                "request deadline exceeded in the middle of the response".into()
            )));
        }
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
