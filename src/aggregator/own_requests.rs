//! Requests of the aggregator itself: probes, discovery and OpenAPI downloads. Entry points: [`get`] for
//! documents, [`fetch`] for probes.

use super::apiservice::ServiceReference;
use super::resolver::{Endpoints, ResolveError, ServiceResolver};
use crate::proxy::hops::HOPS;
use crate::proxy::transport::{BackendBody, Outgoing, ProbeRequest, SendError, Transport};
use crate::request::body::BoxError;
use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use http_body_util::BodyExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// How much of an unneeded body is read, so that its connection can be reused.
const MAX_UNUSED: usize = 64 << 10;

/// The identity that a request is sent with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    /// `X-Remote-User`.
    pub user: &'static str,
    /// `X-Remote-Group`.
    pub groups: &'static [&'static str],
}

/// Identity of probes and of aggregated discovery.
pub(crate) const AGGREGATOR: Caller = Caller {
    user: "system:kube-aggregator",
    groups: &["system:masters"],
};
/// Identity of discovery of a single group version; upstream sends no group there.
pub(crate) const AGGREGATOR_WITHOUT_GROUPS: Caller = Caller {
    user: "system:kube-aggregator",
    groups: &[],
};
/// Identity of OpenAPI downloads.
pub(crate) const OPENAPI: Caller = Caller {
    user: "system:aggregator",
    groups: &[],
};

/// Headers of probes: the User-Agent that Go's client sends by default.
pub(crate) const PROBE: [(HeaderName, &str); 1] = [(header::USER_AGENT, "Go-http-client/2.0")];

/// Limits on a response.
#[derive(Clone, Copy)]
pub(crate) struct ResponseLimits<'a> {
    /// Timeout for the whole response.
    pub time: Duration,
    /// Size limit of the body in bytes on the wire. No encoding is requested.
    pub bytes: usize,
    /// Permits for holding a large body.
    pub large: &'a LargeDocuments,
    /// Truncate a body over the limit instead of failing.
    truncate: bool,
}

impl<'a> ResponseLimits<'a> {
    /// Fails if the response takes longer than `time` or has more than `bytes`.
    pub(crate) fn new(time: Duration, bytes: usize, large: &'a LargeDocuments) -> Self {
        Self {
            time,
            bytes,
            large,
            truncate: false,
        }
    }
}

/// Limits how many large documents are in memory while they are downloaded and parsed. Small ones need no
/// permit.
#[derive(Clone)]
pub struct LargeDocuments(Arc<Semaphore>);

/// The permit of a large document; `None` for a small one.
pub(crate) type LargeDocumentPermit = Option<OwnedSemaphorePermit>;

/// Documents up to this size are small.
const MAX_SMALL: usize = 1 << 20;
/// Large documents in memory at a time.
const LARGE_DOCUMENT_PERMITS: usize = 4;
/// Time limit for a large document once it has its permit, so that a slow backend cannot block the others.
const LARGE_DOCUMENT_TIMEOUT: Duration = Duration::from_secs(20);

impl Default for LargeDocuments {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(LARGE_DOCUMENT_PERMITS)))
    }
}

/// Records a request in the metrics when it ends, also if its future is dropped.
struct RequestMetricsGuard<'a> {
    transport: &'a Transport,
    authority: &'a str,
    code: Option<u16>,
}

impl Drop for RequestMetricsGuard<'_> {
    fn drop(&mut self) {
        if let Some(counts) = self.transport.counts() {
            counts.sent(Method::GET.as_str(), self.authority, self.code);
        }
    }
}

/// Why a request of the gateway itself got no response, or no complete one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// As Go's client words it.
    #[error("context deadline exceeded (Client.Timeout exceeded while awaiting headers)")]
    Timeout,
    #[error(transparent)]
    Path(#[from] http::uri::InvalidUri),
    #[error(transparent)]
    Header(#[from] http::header::InvalidHeaderValue),
    #[error(transparent)]
    Send(#[from] SendError),
    #[error(transparent)]
    Body(BoxError),
    #[error("the document is larger than {0} bytes")]
    TooLarge(usize),
    #[error("a document of more than {size} bytes took longer than {time:?}", size = MAX_SMALL, time = LARGE_DOCUMENT_TIMEOUT)]
    Slow,
    #[error("the gateway is shutting down")]
    ShuttingDown,
}

/// A response whose body was read to its end, or to the limit.
pub(crate) struct FetchedDocument {
    pub status: u16,
    pub headers: HeaderMap,
    /// The body, possibly truncated.
    pub body: Bytes,
    /// Permit to be held while a large body is in memory.
    pub _permit: LargeDocumentPermit,
}

/// Downloads a document from a service.
///
/// # Errors
/// A message in upstream's wording.
///
/// # Cancel safety
/// Dropping the future cancels the request at the backend.
pub(crate) async fn get(
    transport: &Transport,
    resolver: &dyn ServiceResolver,
    service: &ServiceReference,
    path: &str,
    caller: Caller,
    headers: &[(HeaderName, &str)],
    limits: ResponseLimits<'_>,
) -> Result<FetchedDocument, FetchError> {
    let endpoints = resolver.endpoints(service)?;
    let first = transport.choose(endpoints.all());
    let fetching = fetch_sized(transport, (&endpoints, first), path, caller, headers, &limits);
    match tokio::time::timeout(limits.time, fetching).await {
        Ok(done) => done,
        Err(_) => Err(FetchError::Timeout),
    }
}

/// Builds a GET of `path` as `caller`.
///
/// # Errors
/// The path or a header is invalid.
pub(crate) fn probe_request(
    path: &str,
    caller: Caller,
    headers: &[(HeaderName, &str)],
) -> Result<ProbeRequest, FetchError> {
    let target = PathAndQuery::try_from(path)?;
    let mut map = HeaderMap::new();
    map.insert("x-remote-user", HeaderValue::from_static(caller.user));
    for group in caller.groups {
        map.append("x-remote-group", HeaderValue::from_static(group));
    }
    for (name, value) in headers {
        map.append(name, HeaderValue::from_str(value)?);
    }
    Ok(ProbeRequest { target, headers: map })
}

/// Like [`get`], but for resolved addresses, of which `first` is tried first, and for callers that need only
/// the status: reads at most 64 KiB of the body. Has no timeout.
///
/// # Errors
/// A message in upstream's wording.
///
/// # Cancel safety
/// Dropping the future cancels the request at the backend.
pub(crate) async fn fetch(
    transport: &Transport,
    (endpoints, first): (&Endpoints, &str),
    path: &str,
    caller: Caller,
    headers: &[(HeaderName, &str)],
) -> Result<FetchedDocument, FetchError> {
    let limits = ResponseLimits {
        time: Duration::MAX,
        bytes: MAX_UNUSED,
        // Never used: the body is cut off long before it is large.
        large: &LargeDocuments::default(),
        truncate: true,
    };
    fetch_sized(transport, (endpoints, first), path, caller, headers, &limits).await
}

async fn fetch_sized(
    transport: &Transport,
    (endpoints, first): (&Endpoints, &str),
    path: &str,
    caller: Caller,
    headers: &[(HeaderName, &str)],
    limits: &ResponseLimits<'_>,
) -> Result<FetchedDocument, FetchError> {
    let mut out = Outgoing::from(probe_request(path, caller, headers)?);
    // So that a gateway which is its own backend, through whatever proxies, recognises its own requests.
    if let Some(hop) = transport.hop() {
        out.headers.insert(HOPS, hop.clone());
    }
    let mut metrics = RequestMetricsGuard {
        transport,
        authority: transport.host_name(first),
        // Stays `None` if the request fails or is dropped: counted as an error.
        code: None,
    };
    let response = transport.send_among(endpoints.all(), first, out).await?;
    metrics.code = Some(response.status().as_u16());
    let (head, body) = response.into_parts();
    let (body, permit) = read_body(body, limits).await?;
    Ok(FetchedDocument {
        status: head.status.as_u16(),
        headers: head.headers,
        body,
        _permit: permit,
    })
}

/// Collects a body. Stops reading as soon as the announced or actual size exceeds the limit.
async fn read_body(
    mut body: BackendBody,
    limits: &ResponseLimits<'_>,
) -> Result<(Bytes, LargeDocumentPermit), FetchError> {
    // Spares reading a body that is announced as too large; the check below holds for any.
    let announced = http_body::Body::size_hint(&body).exact().unwrap_or(0);
    if announced > limits.bytes as u64 && !limits.truncate {
        return Err(FetchError::TooLarge(limits.bytes));
    }
    let mut bytes = Vec::new();
    let mut permit = None;
    let mut until = None;
    loop {
        let next = match until {
            // As long as it is not large, the time limit of the whole request is enough.
            None => body.frame().await,
            Some(until) => tokio::time::timeout_at(until, body.frame())
                .await
                .map_err(|_| FetchError::Slow)?,
        };
        let Some(frame) = next else { break };
        // Trailers say nothing about a document.
        let Ok(data) = frame.map_err(FetchError::Body)?.into_data() else {
            continue;
        };
        if bytes.len() + data.len() > limits.bytes {
            match limits.truncate {
                true => break,
                false => return Err(FetchError::TooLarge(limits.bytes)),
            }
        }
        if permit.is_none() && bytes.len() + data.len() > MAX_SMALL {
            // While this waits for a permit, flow control stops the backend.
            let free = limits.large.0.clone().acquire_owned().await;
            permit = Some(free.map_err(|_| FetchError::ShuttingDown)?);
            until = Some(Instant::now() + LARGE_DOCUMENT_TIMEOUT);
            // The announced size is within the limit here, so it can be trusted with memory.
            bytes.reserve_exact((announced as usize).saturating_sub(bytes.len()));
        }
        bytes.extend_from_slice(&data);
    }
    Ok((bytes.into(), permit))
}
