//! From hyper's request to ours and back.

use super::activity::{Activity, InFlight, signals};
use crate::request::body::BoxError;
use crate::request::interim::Lane;
use crate::request::{Answering, Body, Facts, Handler};
use crate::serving::peer::{ConnectionCache, PeerCertificates, RemoteAddr};
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Request, Response, StatusCode, Version};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Answers a connection's requests.
pub(super) struct Answerer {
    pub(super) handler: Arc<dyn Handler>,
    pub(super) activity: Arc<Activity>,
    pub(super) remote: RemoteAddr,
    pub(super) certificates: Option<PeerCertificates>,
    /// What is remembered; the lane, where there is one, is found in it.
    pub(super) cache: ConnectionCache,
    /// The way of 1xx answers; none over HTTP/2.
    pub(super) lane: Option<Arc<Lane>>,
}

impl Answerer {
    /// Stamps the peer, asks the handler, and turns `Connection: close` of an HTTP/2 answer into GOAWAY, as Go does.
    ///
    /// The head is read before there is a future: what a stream's task carries is a pointer to the handler's.
    pub(super) fn answer<'a>(
        &'a self,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Counted>> + Send + use<'a> {
        let in_flight = self.activity.request();
        let version = request.version();
        let lane = self.lane.as_deref().filter(|_| version == Version::HTTP_11);
        if let Some(lane) = lane {
            lane.open();
        }
        let handling = match malformed(&request) {
            None => Ok(self.handler.handle(self.stamped(request))),
            Some(why) => Err(why),
        };
        async move {
            let mut response = match handling {
                Ok(handling) => ahead(handling, lane).await,
                Err(why) => return bad_request(why, version, in_flight),
            };
            if version == Version::HTTP_2 && response.headers().contains_key(CONNECTION) {
                self.close_where_told(&mut response);
            }
            response.map(|body| Counted::new(body, in_flight))
        }
    }

    fn stamped(&self, request: Request<Incoming>) -> Request<Body> {
        let mut request = request.map(|incoming| match incoming.is_end_stream() {
            true => Body::empty(),
            false => Body::stream(incoming),
        });
        let facts = Facts::of_mut(&mut request);
        facts.remote = Some(self.remote);
        facts.connection = Some(self.cache.clone());
        facts.certificates = self.certificates.clone();
        request
    }

    fn close_where_told(&self, response: &mut Response<Body>) {
        let says_close = |v: &HeaderValue| v.as_bytes().eq_ignore_ascii_case(b"close");
        if response.headers().get_all(CONNECTION).iter().any(says_close) {
            self.activity.signal(signals::CLOSE);
        }
        response.headers_mut().remove(CONNECTION);
    }
}

/// The answer, behind the 1xx answers that came before it.
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

/// What Go's server refuses before any handler sees it, and hyper lets through.
fn malformed<B>(request: &Request<B>) -> Option<&'static str> {
    if request.version() <= Version::HTTP_11 {
        let mut hosts = request.headers().get_all(HOST).iter();
        if hosts.next().is_none() && request.version() == Version::HTTP_11 {
            return Some("400 Bad Request: missing required Host header");
        }
        if hosts.next().is_some() {
            return Some("400 Bad Request: too many Host headers");
        }
    }
    let mut rest = request.uri().path().as_bytes();
    while let Some(at) = rest.iter().position(|b| *b == b'%') {
        match rest.get(at + 1..at + 3) {
            Some(hex) if hex.iter().all(u8::is_ascii_hexdigit) => rest = &rest[at + 3..],
            _ => return Some("400 Bad Request"),
        }
    }
    None
}

fn bad_request(why: &'static str, version: Version, in_flight: InFlight) -> Response<Counted> {
    let mut response = Response::new(Counted::new(Body::from(why), in_flight));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    if version < Version::HTTP_2 {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// An answer's body; the request is in flight until it is dropped.
pub(super) struct Counted {
    body: Body,
    in_flight: InFlight,
    /// It gave bytes and has not been asked since.
    held: bool,
}

impl Counted {
    fn new(body: Body, in_flight: InFlight) -> Self {
        Self {
            body,
            in_flight,
            held: false,
        }
    }

    fn release(&mut self) {
        if std::mem::take(&mut self.held) {
            self.in_flight.activity().released();
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.release();
    }
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.release();
        let poll = Pin::new(&mut self.body).poll_frame(cx);
        if matches!(poll, Poll::Ready(Some(Ok(_)))) {
            self.held = true;
            self.in_flight.activity().held();
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
