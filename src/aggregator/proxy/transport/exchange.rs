//! One request on one connection, and what may be done when that fails.

use super::host::{Host, Lease};
use super::kept::Kept;
use super::{BackendBody, Outgoing, balance, http2};
use crate::client::headers::MOST_FIELDS;
use crate::client::{dial, headers};
use crate::request::{Body, Interim};
use futures_util::future::Either;
use http::uri::PathAndQuery;
use http::{Method, Request, Response, Uri, header};
use hyper::client::conn::http1;
use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

/// An exchange that failed, and what may be done about it.
pub(super) struct Failure {
    /// The request, where not a byte of it was sent.
    pub(super) unsent: Option<Box<Outgoing>>,
    /// The backend says that it did not process it.
    refused: bool,
    /// The connection had served before, and died.
    stale: bool,
    /// What went wrong, in Go's words.
    pub(super) text: String,
}

impl Failure {
    pub(super) fn may_retry(&self, method: &Method, has_body: bool) -> bool {
        self.refused || (self.stale && is_idempotent(method) && !has_body)
    }

    pub(super) fn silent() -> Self {
        Self {
            unsent: None,
            refused: false,
            stale: true,
            text: "no answer to a ping".to_owned(),
        }
    }

    /// As Go refuses an answer whose head is too large.
    fn too_many_fields() -> Self {
        Self {
            unsent: None,
            refused: false,
            stale: false,
            text: format!("net/http: server response headers exceeded {MOST_FIELDS} fields; aborted"),
        }
    }

    fn http1(mut e: hyper::client::conn::TrySendError<Request<Body>>, reused: bool) -> Self {
        let unsent = e.take_message().map(|r| {
            let (head, body) = r.into_parts();
            Outgoing::again(head, body).into()
        });
        let error = e.into_error();
        Self {
            unsent,
            refused: false,
            stale: reused
                && (error.is_incomplete_message()
                    || error.is_canceled()
                    || error.is_closed()
                    || root_io(&error).is_some()),
            text: error_text(&error, reused),
        }
    }

    fn http2(e: http2::Failed, reused: bool) -> Self {
        Self {
            unsent: e.unsent.map(|(r, body)| Outgoing::again(r.into_parts().0, body).into()),
            refused: e.refused,
            stale: reused && e.error.is_io(),
            text: http2::error_text(&e.error),
        }
    }
}

impl Outgoing {
    /// A request that came back.
    fn again(mut head: http::request::Parts, body: Body) -> Self {
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

/// Nothing comes of sending it twice, where it has no body.
pub(super) fn is_idempotent(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE)
}

/// Sends a request when it is called, as far as that is possible at once: no future carries the request about. `upload` is
/// what its body does, where it has one.
pub(super) fn exchange<'t>(
    host: &'t Arc<Host>,
    lease: Lease,
    out: Outgoing,
    upload: Option<&Kept>,
    interim: Option<&'t Interim>,
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
    let busy = host.busy.enter();
    match lease {
        Lease::Http2(stream) => {
            uri.scheme = Some(http::uri::Scheme::HTTPS);
            uri.authority = Some(host.authority.clone());
            *request.uri_mut() = Uri::from_parts(uri).expect("scheme, authority and path make a URI");
            let answer = stream.exchange(request, body, &host.tasks, interim);
            Either::Left(async move {
                match answer.await {
                    Ok((answer, _)) if answer.headers().len() > MOST_FIELDS => Err(Failure::too_many_fields()),
                    Ok((answer, upload)) => Ok(answer.map(|b| BackendBody::http2(b, stream, upload, busy))),
                    Err(e) => {
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
            if let Some(interim) = interim {
                headers::pass_interim(&mut request, interim.clone());
            }
            let lease = (sender, reused, upload.cloned());
            Either::Right(Box::pin(exchange_http1(host, lease, request, busy)))
        }
    }
}

async fn exchange_http1(
    host: &Arc<Host>,
    (mut sender, reused, upload): (http1::SendRequest<Body>, bool, Option<Kept>),
    request: Request<Body>,
    busy: balance::Turn,
) -> Result<Response<BackendBody>, Failure> {
    match sender.try_send_request(request).await {
        Ok(answer) if answer.headers().len() > MOST_FIELDS => Err(Failure::too_many_fields()),
        Ok(answer) => match unknown_coding(answer.headers()) {
            None => Ok(answer.map(|b| BackendBody::http1(b, (sender, upload), Arc::downgrade(host), busy))),
            Some(coding) => Err(Failure {
                unsent: None,
                refused: false,
                stale: false,
                text: format!(
                    "net/http: HTTP/1.x transport connection broken: unsupported transfer encoding: {coding:?}"
                ),
            }),
        },
        Err(e) => Err(Failure::http1(e, reused)),
    }
}

/// A transfer encoding other than chunked, which hyper would take for a body that ends with its connection.
fn unknown_coding(headers: &http::HeaderMap) -> Option<String> {
    let mut all = headers.get_all(header::TRANSFER_ENCODING).iter();
    let first = all.next()?;
    let is_chunked = all.next().is_none() && first.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
    (!is_chunked).then(|| String::from_utf8_lossy(first.as_bytes()).into_owned())
}

fn root_io(e: &hyper::Error) -> Option<&io::Error> {
    let mut cause = e.source();
    while let Some(c) = cause {
        if let Some(io) = c.downcast_ref::<io::Error>() {
            return Some(io);
        }
        cause = c.source();
    }
    None
}

/// A failure in Go's words, as far as they are the same thing.
pub(super) fn error_text(e: &hyper::Error, reused: bool) -> String {
    if let Some(io) = root_io(e) {
        return dial::system_error("read", io);
    }
    if e.is_incomplete_message() {
        return "EOF".into();
    }
    if e.is_parse() {
        return format!("net/http: HTTP/1.x transport connection broken: {e}");
    }
    if e.is_canceled() || e.is_closed() {
        return if reused {
            "http: server closed idle connection".into()
        } else {
            "EOF".into()
        };
    }
    let mut text = e.to_string();
    let mut cause: Option<&dyn StdError> = e.source();
    while let Some(c) = cause {
        text = c.to_string();
        cause = c.source();
    }
    text
}
