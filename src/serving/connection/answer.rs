//! From hyper's request to ours and back.

use super::activity::{Activity, InFlight, signals};
use crate::request::body::BoxError;
use crate::request::{Body, Handler};
use crate::serving::peer::{ConnectionCache, LocalAddr, PeerCertificates, RemoteAddr};
use bytes::Bytes;
use http::header::CONNECTION;
use http::{Request, Response, Version};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Answers a connection's requests.
pub(super) struct Answerer {
    pub(super) handler: Arc<dyn Handler>,
    pub(super) activity: Arc<Activity>,
    pub(super) remote: RemoteAddr,
    pub(super) local: LocalAddr,
    pub(super) certificates: Option<PeerCertificates>,
    pub(super) cache: ConnectionCache,
}

impl Answerer {
    /// Stamps the peer, asks the handler, and turns `Connection: close` of an HTTP/2 answer into GOAWAY, as Go does.
    pub(super) async fn answer(&self, request: Request<Incoming>) -> Response<Counted> {
        let in_flight = self.activity.request();
        let version = request.version();
        let mut request = request.map(|incoming| match incoming.is_end_stream() {
            true => Body::empty(),
            false => Body::stream(incoming),
        });
        let facts = request.extensions_mut();
        facts.insert(self.remote);
        facts.insert(self.local);
        facts.insert(self.cache.clone());
        if let Some(certificates) = &self.certificates {
            facts.insert(certificates.clone());
        }
        let mut response = self.handler.handle(request).await;
        if version == Version::HTTP_2 && response.headers().contains_key(CONNECTION) {
            let says_close = |v: &http::HeaderValue| v.as_bytes().eq_ignore_ascii_case(b"close");
            if response.headers().get_all(CONNECTION).iter().any(says_close) {
                self.activity.signal(signals::CLOSE);
            }
            response.headers_mut().remove(CONNECTION);
        }
        response.map(|body| Counted {
            body,
            _in_flight: in_flight,
        })
    }
}

/// An answer's body; the request is in flight until it is dropped.
pub(super) struct Counted {
    body: Body,
    _in_flight: InFlight,
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
