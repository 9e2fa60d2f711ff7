//! The check of one remote APIService, in the order and wording of upstream's
//! `kube-aggregator/pkg/controllers/status/remote/remote_available_controller.go`. Entry points:
//! [`service_condition`], then [`probe_condition`].

use crate::aggregator::apiservice::{ApiService, Condition, ServiceReference};
use crate::aggregator::own_requests::{self, AGGREGATOR, FetchError, PROBE};
use crate::aggregator::resolver::{Endpoints, ResolveError, ServiceIndex, ServiceResolver, ServiceType};
use crate::proxy::target::URLS;
use crate::proxy::transport::Transport;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::net::SocketAddr;
use std::time::Duration;

const PROBES: usize = 5;
const PROBE_LIMIT: Duration = Duration::from_secs(5);
/// Backstop for all probes together. Upstream guards each probe with the same limit.
const GUARD: Duration = Duration::from_secs(6);

/// The result of probing an APIService.
pub(super) struct Probed {
    pub condition: Condition,
    /// Whether a probe waited for its time limit.
    pub timed_out: bool,
}

/// Why a backend is not available. Messages as upstream words them: they become the condition's message.
#[derive(Debug, thiserror::Error)]
enum ProbeError {
    /// The Service has no address.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// The backend's response is no success.
    #[error("failing or missing response from {url}: bad status from {url}: {status}")]
    Status { url: String, status: u16 },
    /// The backend did not respond.
    #[error("failing or missing response from {url}: Get {url:?}: {source}")]
    Fetch { url: String, source: FetchError },
    /// No probe ended in time.
    #[error("timed out waiting for https://{0}")]
    Guard(String),
}

/// Probes an APIService whose Service is correctly wired.
pub(super) async fn probe_condition(
    s: &ApiService,
    service: &ServiceReference,
    resolver: &dyn ServiceResolver,
    transport: &Transport,
) -> Probed {
    // Before the probes, whose error would be that of the loop, not of its cause.
    if let Some(own) = find_own_address(service, resolver, transport).await {
        let what = match &service.target {
            Some(_) => format!("metadata.annotations[{URLS}] names"),
            None => format!(
                "service/{} in {:?} leads to",
                service.name.as_str(),
                service.namespace.as_str()
            ),
        };
        let why = format!("{what} this gateway itself, at {own}: requests would loop");
        return Probed {
            condition: Condition::new("False", "OwnAddress", why),
            timed_out: false,
        };
    }
    match probe(s, service, resolver, transport).await {
        Ok(()) => {
            // Only one address has answered. The others that failed before are probed out of band.
            if let Ok(all) = resolver.endpoints(service) {
                transport.probe_if_due(all.all());
            }
            Probed {
                condition: Condition::new("True", "Passed", "all checks passed"),
                timed_out: false,
            }
        }
        Err(e) => {
            // The next probe must not succeed on a pooled connection to a server that is wrong or about to
            // disappear.
            transport.close_idle();
            Probed {
                condition: Condition::new("False", "FailedDiscoveryCheck", e.to_string()),
                timed_out: e.is_timeout(),
            }
        }
    }
}

impl ProbeError {
    fn is_timeout(&self) -> bool {
        match self {
            Self::Guard(_) => true,
            Self::Fetch { source, .. } => matches!(source, FetchError::Timeout),
            Self::Resolve(_) | Self::Status { .. } => false,
        }
    }
}

/// Whether both are failures of the same URL with different texts. A backend that starts first refuses
/// connections, then resets them.
pub(super) fn is_reworded(known: &Condition, new: &Condition) -> bool {
    let url = |c: &Condition| c.message.split(": ").next().map(str::to_owned);
    let failed = |c: &Condition| c.status == "False" && c.reason == "FailedDiscoveryCheck";
    failed(known) && failed(new) && url(known) == url(new)
}

/// The backend's address that is this gateway's own, if any.
async fn find_own_address(
    service: &ServiceReference,
    resolver: &dyn ServiceResolver,
    transport: &Transport,
) -> Option<SocketAddr> {
    // A Service that cannot be resolved is reported by the probe.
    let endpoints = resolver.endpoints(service).ok()?;
    // All of them: a request may be sent to any.
    for authority in endpoints.all() {
        if let Some(own) = transport.find_own_address(authority).await {
            return Some(own);
        }
    }
    None
}

/// The condition if Service, port or endpoints are missing; `None` if a request could be routed.
pub(super) fn service_condition(wanted: &ServiceReference, index: &ServiceIndex) -> Option<Condition> {
    if wanted.target.is_some() {
        return None;
    }
    let (ns, name) = (wanted.namespace.as_str(), wanted.name.as_str());
    let no = |reason: &str, message: String| Some(Condition::new("False", reason, message));
    let Some(service) = index.service(wanted.key()) else {
        return no("ServiceNotFound", format!("service/{name} in {ns:?} is not present"));
    };
    // Upstream checks ports and endpoints of ClusterIP Services only; others are probed as they are.
    if service.kind != ServiceType::ClusterIp {
        return None;
    }
    let Some(port) = service.port(wanted.port) else {
        return no(
            "ServicePortError",
            format!("service/{name} in {ns:?} is not listening on port {}", wanted.port),
        );
    };
    let slices = index.slices(wanted.key());
    if slices.is_empty() {
        return no(
            "EndpointsNotFound",
            format!("cannot find endpointslices for service/{name} in {ns:?}"),
        );
    }
    // In one and the same slice, as upstream: a ready endpoint in one and the port in another do not count
    // together.
    let served = slices
        .iter()
        .any(|s| s.has_ready() && s.port_named(&port.name).is_some());
    if served {
        return None;
    }
    no(
        "MissingEndpoints",
        format!(
            "endpointslices for service/{name} in {ns:?} have no addresses with port name {:?}",
            port.name.as_str()
        ),
    )
}

/// Sends five probes at once. The first success decides; otherwise the last failure is returned.
async fn probe(
    s: &ApiService,
    service: &ServiceReference,
    resolver: &dyn ServiceResolver,
    transport: &Transport,
) -> Result<(), ProbeError> {
    let path = s.discovery_path();
    // As upstream: a single bad address or lost packet must not decide.
    let mut all: FuturesUnordered<_> = (0..PROBES)
        .map(|_| attempt(&path, service, resolver, transport))
        .collect();
    let mut last = Ok(());
    let first_success = async {
        while let Some(outcome) = all.next().await {
            if outcome.is_ok() {
                return Ok(());
            }
            last = outcome;
        }
        last
    };
    match tokio::time::timeout(GUARD, first_success).await {
        Ok(outcome) => outcome,
        Err(_) => Err(ProbeError::Guard(format!("{}{path}", service.server_name()))),
    }
}

async fn attempt(
    path: &str,
    service: &ServiceReference,
    resolver: &dyn ServiceResolver,
    transport: &Transport,
) -> Result<(), ProbeError> {
    // Anew for each attempt, as upstream: they may lead to different endpoints.
    let endpoints = match &service.target {
        // As for requests: if one address fails, another may answer.
        Some(_) => resolver.endpoints(service),
        None => resolver.resolve(service).map(Endpoints::One),
    };
    let endpoints = endpoints?;
    let url = match endpoints.all() {
        [one] if one.contains('/') => format!("{one}:{path}"),
        [one] => format!("https://{one}{path}"),
        _ => format!("https://{}{path}", service.server_name()),
    };
    let first = transport.choose(endpoints.all());
    let got = tokio::time::timeout(
        PROBE_LIMIT,
        own_requests::fetch(transport, (&endpoints, first), path, AGGREGATOR, &PROBE),
    )
    .await;
    let source = match got {
        // As upstream: redirects and a 304 are failures.
        Ok(Ok(response)) if (200..300).contains(&response.status) => return Ok(()),
        Ok(Ok(response)) => {
            let status = response.status;
            return Err(ProbeError::Status { url, status });
        }
        Ok(Err(e)) => e,
        Err(_) => {
            // Lets the next probe, and requests, prefer another address.
            transport.record_timeout(first, "no answer to a probe");
            FetchError::Timeout
        }
    };
    Err(ProbeError::Fetch { url, source })
}
