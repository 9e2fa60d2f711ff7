//! One request on one checked-out connection, and whether a failure may be retried.
//!
//! Entry point: [`exchange`]. The retry loop itself is `Transport::deliver`.

use super::health::InFlightGuard;
use super::host::{Host, Lease};
use super::http1::{error_text, root_io};
use super::replay::ReplayRecord;
use super::{BackendBody, Outgoing, http2};
use crate::proxy::interim::InterimLimit;
use crate::request::headers::MAX_HEADER_FIELDS;
use crate::request::{Body, InformationalSender};
use futures_util::future::Either;
use http::uri::PathAndQuery;
use http::{Method, Request, Response, Uri, header};
use hyper::client::conn::http1;
use std::sync::Arc;

/// Why an exchange failed, and whether its request may be sent again.
pub(super) struct Failure {
    /// The request, if not a byte of it was sent.
    pub(super) unsent: Option<Box<Outgoing>>,
    /// The backend states that it did not process the request.
    refused: bool,
    /// A reused connection died: the backend may have closed it while idle.
    stale: bool,
    /// The cause, in Go's wording.
    pub(super) text: String,
}

impl Failure {
    /// Whether a request that may have been sent can be sent again.
    pub(super) fn may_retry(&self, method: &Method, has_body: bool) -> bool {
        // A backend that refused the request has promised not to have acted on it, whatever the method.
        self.refused || (self.stale && is_idempotent(method) && !has_body)
    }

    pub(super) fn ping_missed() -> Self {
        Self {
            unsent: None,
            refused: false,
            stale: true,
            text: "no answer to a ping".to_owned(),
        }
    }

    /// Go's transport rejects a response with too large a head in these terms.
    fn too_many_fields() -> Self {
        let why = format!("net/http: server response headers exceeded {MAX_HEADER_FIELDS} fields; aborted");
        Self::aborted(why)
    }

    /// A response that this side does not accept.
    fn aborted(text: String) -> Self {
        Self {
            unsent: None,
            refused: false,
            stale: false,
            text,
        }
    }

    fn http1(mut e: hyper::client::conn::TrySendError<Request<Body>>, reused: bool) -> Self {
        let unsent = e.take_message().map(|r| {
            let (head, body) = r.into_parts();
            Outgoing::from_unsent(head, body).into()
        });
        let error = e.into_error();
        Self {
            unsent,
            refused: false,
            // As in Go's `shouldRetryRequest`: an idle timeout at the backend explains only the end of a
            // reused connection.
            stale: reused
                && (error.is_incomplete_message()
                    || error.is_canceled()
                    || error.is_closed()
                    || root_io(&error).is_some()),
            text: error_text(&error, reused),
        }
    }

    fn http2(e: http2::StreamError, reused: bool) -> Self {
        Self {
            unsent: e
                .unsent
                .map(|(r, body)| Outgoing::from_unsent(r.into_parts().0, body).into()),
            refused: e.refused,
            stale: reused && e.error.is_io(),
            text: http2::error_text(&e.error),
        }
    }
}

impl Outgoing {
    /// Rebuilds the request that a connection handed back. `Host` depends on the address of the next attempt.
    fn from_unsent(mut head: http::request::Parts, body: Body) -> Self {
        head.headers.remove(header::HOST);
        Self {
            method: head.method,
            target: head
                .uri
                .into_parts()
                .path_and_query
                .unwrap_or_else(|| PathAndQuery::from_static("/")),
            headers: head.headers,
            body,
        }
    }
}

/// Whether sending it twice is harmless, if it has no body: Go's `Request.isReplayable`.
pub(super) fn is_idempotent(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE)
}

/// Sends a request. As much as possible is done before the first poll, so that the returned future does not
/// carry the request. `upload` records the sent bytes of its body, if there is one.
pub(super) fn exchange<'t>(
    host: &'t Arc<Host>,
    lease: Lease,
    out: Outgoing,
    upload: Option<&ReplayRecord>,
    informational: Option<&'t InformationalSender>,
) -> impl Future<Output = Result<Response<BackendBody>, Failure>> + use<'t> {
    let Outgoing {
        method,
        target,
        headers,
        body,
    } = out;
    let mut request = Request::new(());
    *request.method_mut() = method;
    *request.headers_mut() = headers;
    let mut uri = http::uri::Parts::default();
    uri.path_and_query = Some(target);
    // Counted from here on, so that concurrent choices of an address see this request.
    let in_flight = host.in_flight.enter();
    match lease {
        Lease::Http2(stream) => {
            uri.scheme = Some(http::uri::Scheme::HTTPS);
            uri.authority = Some(host.authority.clone());
            *request.uri_mut() = Uri::from_parts(uri).expect("scheme, authority and path make a URI");
            let response = stream.exchange(request, body, &host.tasks, informational);
            Either::Left(async move {
                match response.await {
                    // h2 limits the bytes of a head, not the number of its fields.
                    Ok((response, _)) if response.headers().len() > MAX_HEADER_FIELDS => {
                        Err(Failure::too_many_fields())
                    }
                    Ok((response, upload)) => Ok(response.map(|b| BackendBody::http2(b, stream, upload, in_flight))),
                    Err(e) => {
                        // Out of the pool at once, or the retry would draw it again.
                        if e.unsent.is_some() {
                            host.forget(&stream);
                        }
                        Err(Failure::http2(e, stream.reused()))
                    }
                }
            })
        }
        Lease::Http1 { sender, reused } => {
            *request.uri_mut() = Uri::from_parts(uri).expect("a path makes a URI");
            request.headers_mut().insert(header::HOST, host.value.clone());
            let mut request = request.map(|()| body);
            let limit = InterimLimit::of(&mut request, informational.cloned());
            let lease = (sender, reused, upload.cloned());
            Either::Right(Box::pin(exchange_http1(host, lease, (request, limit), in_flight)))
        }
    }
}

async fn exchange_http1(
    host: &Arc<Host>,
    (mut sender, reused, upload): (http1::SendRequest<Body>, bool, Option<ReplayRecord>),
    (request, limit): (Request<Body>, InterimLimit),
    in_flight: InFlightGuard,
) -> Result<Response<BackendBody>, Failure> {
    let Some(sent) = limit.enforce(sender.try_send_request(request)).await else {
        return Err(Failure::aborted(InterimLimit::error_text()));
    };
    match sent {
        Ok(response) if response.headers().len() > MAX_HEADER_FIELDS => Err(Failure::too_many_fields()),
        Ok(response) => match unknown_coding(response.headers()) {
            // Weak: a long response must not keep the pool of a dropped transport alive.
            None => Ok(response.map(|b| BackendBody::http1(b, (sender, upload), Arc::downgrade(host), in_flight))),
            Some(coding) => Err(Failure::aborted(format!(
                "net/http: HTTP/1.x transport connection broken: unsupported transfer encoding: {coding:?}"
            ))),
        },
        Err(e) => Err(Failure::http1(e, reused)),
    }
}

/// A transfer encoding other than chunked. Hyper would read such a body until the connection ends; Go rejects
/// it.
fn unknown_coding(headers: &http::HeaderMap) -> Option<String> {
    let mut all = headers.get_all(header::TRANSFER_ENCODING).iter();
    let first = all.next()?;
    // Several header lines are rejected as well: Go allows one.
    let is_chunked = all.next().is_none() && first.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
    // Its beginning: the client and the log get the name, and the backend chooses its length.
    let shown = &first.as_bytes()[..first.len().min(64)];
    (!is_chunked).then(|| String::from_utf8_lossy(shown).into_owned())
}
