//! Requests that the aggregator makes on its own account: probes, discovery and OpenAPI downloads.

use super::apiservice::ServiceReference;
use super::proxy::transport::{Outgoing, Question, Transport};
use super::resolver::{Endpoints, ServiceResolver};
use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use http_body_util::BodyExt;
use std::time::Duration;

/// Most bytes of a downloaded document.
const LIMIT: usize = 64 << 20;

/// Whom a request is made as.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// `X-Remote-User`.
    pub user: &'static str,
    /// `X-Remote-Group`.
    pub groups: &'static [&'static str],
}

/// Probes and discovery.
pub const AGGREGATOR: Caller = Caller {
    user: "system:kube-aggregator",
    groups: &["system:masters"],
};
/// Discovery of one group version.
pub const AGGREGATOR_ALONE: Caller = Caller {
    user: "system:kube-aggregator",
    groups: &[],
};
/// OpenAPI.
pub const OPENAPI: Caller = Caller {
    user: "system:aggregator",
    groups: &[],
};

/// How probes introduce themselves, as upstream's do without being told.
pub const PROBE: [(HeaderName, &str); 1] = [(header::USER_AGENT, "Go-http-client/2.0")];

/// Counts a request when it is over, also where nobody waited for its end.
struct Counting<'a> {
    transport: &'a Transport,
    authority: &'a str,
    code: Option<u16>,
}

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        if let Some(counts) = self.transport.counts() {
            counts.sent(Method::GET.as_str(), self.authority, self.code);
        }
    }
}

/// A whole answer.
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
}

/// GETs a document from a service.
///
/// # Errors
/// A text, worded as upstream's.
///
/// # Cancel safety
/// When dropped, the request is cancelled at the backend.
pub async fn get(
    transport: &Transport,
    resolver: &dyn ServiceResolver,
    service: &ServiceReference,
    path: &str,
    caller: Caller,
    headers: &[(HeaderName, &str)],
    limit: Duration,
) -> Result<Answer, String> {
    let endpoints = resolver.endpoints(service).map_err(|e| e.0)?;
    let first = transport.choose(endpoints.all());
    match tokio::time::timeout(limit, fetch(transport, (&endpoints, first), path, caller, headers)).await {
        Ok(done) => done,
        Err(_) => Err("context deadline exceeded (Client.Timeout exceeded while awaiting headers)".into()),
    }
}

/// What is asked at `path` as `caller`.
///
/// # Errors
/// A text: the path or a header is none.
pub fn question(path: &str, caller: Caller, headers: &[(HeaderName, &str)]) -> Result<Question, String> {
    let target = PathAndQuery::try_from(path).map_err(|e| e.to_string())?;
    let mut map = HeaderMap::new();
    map.insert("x-remote-user", HeaderValue::from_static(caller.user));
    for group in caller.groups {
        map.append("x-remote-group", HeaderValue::from_static(group));
    }
    for (name, value) in headers {
        map.append(name, HeaderValue::from_str(value).map_err(|e| e.to_string())?);
    }
    Ok(Question { target, headers: map })
}

/// As [`get`], of resolved addresses and the one of them to ask first, without a limit of its own.
///
/// # Errors
/// A text, worded as upstream's.
///
/// # Cancel safety
/// When dropped, the request is cancelled at the backend.
pub async fn fetch(
    transport: &Transport,
    (endpoints, first): (&Endpoints, &str),
    path: &str,
    caller: Caller,
    headers: &[(HeaderName, &str)],
) -> Result<Answer, String> {
    let out = Outgoing::from(question(path, caller, headers)?);
    let mut counting = Counting {
        transport,
        authority: transport.host_name(first),
        code: None,
    };
    let answer = transport.send_among(endpoints.all(), first, out).await;
    let answer = answer.map_err(|e| e.to_string())?;
    counting.code = Some(answer.status().as_u16());
    let (head, body) = answer.into_parts();
    let body = http_body_util::Limited::new(body, LIMIT)
        .collect()
        .await
        .map_err(|e| e.to_string())?;
    Ok(Answer {
        status: head.status.as_u16(),
        headers: head.headers,
        body: body.to_bytes(),
    })
}
