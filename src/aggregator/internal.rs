//! Requests that the aggregator makes on its own account: probes, discovery and OpenAPI downloads.

use super::apiservice::ServiceReference;
use super::proxy::transport::{BackendBody, Outgoing, Question, Transport};
use super::resolver::{Endpoints, ServiceResolver};
use crate::client::hops::HOPS;
use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use http_body_util::BodyExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Bytes that are read of an answer whose body nobody needs, so that its connection can be used again.
const MOST_UNUSED: usize = 64 << 10;

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

/// How much of an answer is taken.
#[derive(Clone, Copy)]
pub struct Within<'a> {
    /// Until its end.
    pub time: Duration,
    /// Bytes of its body, as they are on the wire: no encoding was asked for.
    pub bytes: usize,
    /// Who may hold a large one.
    pub large: &'a LargeDocuments,
    /// A larger one is cut, not refused.
    cut: bool,
}

impl<'a> Within<'a> {
    /// At most so many bytes in this time; more are an error.
    pub fn new(time: Duration, bytes: usize, large: &'a LargeDocuments) -> Self {
        Self {
            time,
            bytes,
            large,
            cut: false,
        }
    }
}

/// Bounds how many large documents are in memory while they are downloaded and parsed. Small ones need no place.
#[derive(Clone)]
pub struct LargeDocuments(Arc<Semaphore>);

/// A large document's place, until it is dropped.
pub type Place = Option<OwnedSemaphorePermit>;

/// Documents up to this size are small.
const SMALL: usize = 1 << 20;
/// Large documents at once.
const PLACES: usize = 4;
/// How long a large document may take from when it has its place: a slow backend does not keep it from the others.
const PLACE_TIME: Duration = Duration::from_secs(20);

impl Default for LargeDocuments {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(PLACES)))
    }
}

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
    /// Held while the body is in memory, where it is large.
    pub place: Place,
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
    within: Within<'_>,
) -> Result<Answer, String> {
    let endpoints = resolver.endpoints(service).map_err(|e| e.0)?;
    let first = transport.choose(endpoints.all());
    let fetching = fetch_sized(transport, (&endpoints, first), path, caller, headers, &within);
    match tokio::time::timeout(within.time, fetching).await {
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

/// As [`get`], of resolved addresses and the one of them to ask first, for an answer whose status is what matters: of its
/// body the first 64 KiB are read. Without a limit of time.
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
    let within = Within {
        time: Duration::MAX,
        bytes: MOST_UNUSED,
        large: &LargeDocuments::default(),
        cut: true,
    };
    fetch_sized(transport, (endpoints, first), path, caller, headers, &within).await
}

async fn fetch_sized(
    transport: &Transport,
    (endpoints, first): (&Endpoints, &str),
    path: &str,
    caller: Caller,
    headers: &[(HeaderName, &str)],
    within: &Within<'_>,
) -> Result<Answer, String> {
    let mut out = Outgoing::from(question(path, caller, headers)?);
    if let Some(hop) = transport.hop() {
        out.headers.insert(HOPS, hop.clone());
    }
    let mut counting = Counting {
        transport,
        authority: transport.host_name(first),
        code: None,
    };
    let answer = transport.send_among(endpoints.all(), first, out).await;
    let answer = answer.map_err(|e| e.to_string())?;
    counting.code = Some(answer.status().as_u16());
    let (head, body) = answer.into_parts();
    let (body, place) = whole(body, within).await?;
    Ok(Answer {
        status: head.status.as_u16(),
        headers: head.headers,
        body,
        place,
    })
}

/// A body in one piece. What announces to be too large, or turns out to be, is not read further.
async fn whole(mut body: BackendBody, within: &Within<'_>) -> Result<(Bytes, Place), String> {
    let too_large = || format!("the document is larger than {} bytes", within.bytes);
    let announced = http_body::Body::size_hint(&body).exact().unwrap_or(0);
    if announced > within.bytes as u64 && !within.cut {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    let mut place = None;
    let mut until = None;
    loop {
        let next = match until {
            None => body.frame().await,
            Some(until) => tokio::time::timeout_at(until, body.frame())
                .await
                .map_err(|_| format!("a document of more than {SMALL} bytes took longer than {PLACE_TIME:?}"))?,
        };
        let Some(frame) = next else { break };
        let Ok(data) = frame.map_err(|e| e.to_string())?.into_data() else {
            continue;
        };
        if bytes.len() + data.len() > within.bytes {
            match within.cut {
                true => break,
                false => return Err(too_large()),
            }
        }
        if place.is_none() && bytes.len() + data.len() > SMALL {
            let free = within.large.0.clone().acquire_owned().await;
            place = Some(free.map_err(|_| "the gateway is shutting down")?);
            until = Some(Instant::now() + PLACE_TIME);
            bytes.reserve_exact((announced as usize).saturating_sub(bytes.len()));
        }
        bytes.extend_from_slice(&data);
    }
    Ok((bytes.into(), place))
}
