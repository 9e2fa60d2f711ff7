//! The filters of the handler chain, one file each. [`super::chain`] defines their order.

mod amend;
pub(crate) mod audit;
pub(crate) mod audit_init;
pub(crate) mod authentication;
pub(crate) mod authorization;
pub(crate) mod cache_control;
pub(crate) mod compute;
pub(crate) mod deadline;
mod hold;
pub(crate) mod http_log;
pub(crate) mod impersonation;
mod instrument;
pub(crate) mod max_in_flight;
pub(crate) mod mux_ready;
pub(crate) mod panic_recovery;
pub(crate) mod priority_and_fairness;
pub(crate) mod received_at;
pub(crate) mod request_info;
pub(crate) mod timeout;
pub(crate) mod wait_group;
pub(crate) mod warnings;

use crate::request::{FromBackend, Request, RequestInfo, Response, ResponseFuture};
use crate::server::respond;
use futures_util::future::Either;
use http::header::{Entry, HeaderName, HeaderValue};
use std::sync::Arc;

/// The future of a filter: the inner filter's or, on a less common path, a boxed one of its own.
type Next<'t, Inside> = Either<Inside, ResponseFuture<'t>>;

/// A response that is ready.
fn ready<'t>(response: Response) -> ResponseFuture<'t> {
    Box::pin(std::future::ready(response))
}

/// The request info. It is always present: the chain's order guarantees that the filter that sets it is
/// further out.
fn info(req: &Request) -> Arc<RequestInfo> {
    RequestInfo::of(req).cloned().unwrap_or_default()
}

/// True for requests without a natural end: [`RequestInfo::is_long_running`].
fn is_long_running(req: &Request) -> bool {
    RequestInfo::of(req).is_some_and(|info| info.is_long_running())
}

/// True for requests that are served during shutdown: health checks, metrics and the server's own.
fn exempt_from_shutdown(req: &Request) -> bool {
    let path = respond::path(req);
    ["/readyz", "/livez", "/healthz", "/metrics"]
        .iter()
        // A prefix, as upstream: `/readyz/ping` counts too.
        .any(|p| path.starts_with(p))
        || req
            .headers()
            .get(http::header::USER_AGENT)
            .is_some_and(|ua| ua.as_bytes().starts_with(b"kube-apiserver/"))
}

/// Sets a header in front of a backend's own values of that name, as Go's proxy leaves it. An upgrade
/// response passes unchanged.
fn prepend_header(response: &mut Response, name: HeaderName, value: HeaderValue) {
    if FromBackend::of(response) == Some(FromBackend::Verbatim) {
        return;
    }
    match response.headers_mut().entry(name) {
        Entry::Vacant(v) => drop(v.insert(value)),
        Entry::Occupied(mut o) => {
            // `HeaderMap` cannot insert in front of a value, so the values are taken out and appended again.
            let theirs: Vec<HeaderValue> = o.iter().cloned().collect();
            o.insert(value);
            for v in theirs {
                o.append(v);
            }
        }
    }
}
