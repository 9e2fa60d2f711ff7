//! The filters of the handler chain, one file each. [`super::chain`] defines their order.

mod amend;
pub mod audit;
pub mod audit_init;
pub mod authentication;
pub mod authorization;
pub mod cache_control;
pub mod compute;
pub mod deadline;
mod hold;
pub mod http_log;
pub mod impersonation;
mod instrument;
pub mod max_in_flight;
pub mod mux_ready;
pub mod panic_recovery;
pub mod priority_and_fairness;
pub mod received_at;
pub mod request_info;
pub mod timeout;
pub mod wait_group;
pub mod warnings;

pub use instrument::labels;

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

/// The request info. It is always present: the chain's order guarantees that the filter that sets it is further out.
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
        .any(|p| path.starts_with(p))
        || req
            .headers()
            .get(http::header::USER_AGENT)
            .is_some_and(|ua| ua.as_bytes().starts_with(b"kube-apiserver/"))
}

/// Sets a header in front of a backend's own values of that name, as Go's proxy leaves it. An upgrade response passes
/// unchanged.
fn prepend_header(response: &mut Response, name: HeaderName, value: HeaderValue) {
    if FromBackend::of(response) == Some(FromBackend::Verbatim) {
        return;
    }
    match response.headers_mut().entry(name) {
        Entry::Vacant(v) => drop(v.insert(value)),
        Entry::Occupied(mut o) => {
            let theirs: Vec<HeaderValue> = o.iter().cloned().collect();
            o.insert(value);
            for v in theirs {
                o.append(v);
            }
        }
    }
}
