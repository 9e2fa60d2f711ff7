//! The filters of the chain, one thin file each. [`super::chain`] has their order.

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
pub mod received_at;
pub mod request_info;
pub mod timeout;
pub mod wait_group;
pub mod warnings;

pub use instrument::labels;

use crate::request::{Answering, FromBackend, Request, RequestInfo, Response};
use crate::server::respond;
use futures_util::future::Either;
use http::header::{Entry, HeaderName, HeaderValue};
use std::sync::Arc;

/// Where a request goes on to: inside, or, seldom, to an answer of the filter's own making.
type Onward<'t, Inside> = Either<Inside, Answering<'t>>;

/// An answer that is there already.
fn answered<'t>(response: Response) -> Answering<'t> {
    Box::pin(std::future::ready(response))
}

/// The request info. The order of the chain has it that the filter that leaves it stands outside.
fn info(req: &Request) -> Arc<RequestInfo> {
    RequestInfo::of(req).cloned().unwrap_or_default()
}

/// True of what has no end of its own: [`RequestInfo::is_long_running`].
fn is_long_running(req: &Request) -> bool {
    RequestInfo::of(req).is_some_and(|info| info.is_long_running())
}

/// Health checks, metrics and the server's own requests are answered while the server goes down.
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

/// Sets a header as Go's proxy leaves it: in front of a backend's own of that name, and not at all on an upgrade's
/// answer.
fn set_beside_backend(response: &mut Response, name: HeaderName, value: HeaderValue) {
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
