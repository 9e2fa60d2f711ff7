//! The check of one remote APIService, in the order and wording of upstream's
//! `kube-aggregator/pkg/controllers/status/remote/remote_available_controller.go`. Entry points: [`service_condition`],
//! then [`probe_condition`].

use crate::aggregator::apiservice::{ApiService, Condition, ServiceReference};
use crate::aggregator::own_requests::{self, AGGREGATOR, PROBE};
use crate::aggregator::resolver::{Endpoints, ServiceIndex, ServiceResolver, ServiceType};
use crate::proxy::target::URLS;
use crate::proxy::transport::Transport;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::net::SocketAddr;
use std::time::Duration;

const PROBES: usize = 5;
const PROBE_LIMIT: Duration = Duration::from_secs(5);
/// Backstop for all probes together. Upstream guards each probe with the same limit.
const GUARD: Duration = Duration::from_secs(6);

/// How Go's client words a timeout.
const TIMED_OUT: &str = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";
/// How the message begins when no probe ended in time.
const GUARDED: &str = "timed out waiting for https://";

/// Probes an APIService whose Service is correctly wired and returns its condition.
pub(super) async fn probe_condition(
    s: &ApiService,
    service: &ServiceReference,
    resolver: &dyn ServiceResolver,
    transport: &Transport,
) -> Condition {
    if let Some(own) = find_own_address(service, resolver, transport).await {
        let what = match &service.target {
            Some(_) => format!("metadata.annotations[{URLS}] names"),
            None => format!(
                "service/{} in {:?} leads to",
                service.name.as_str(),
                service.namespace.as_str()
            ),
        };
        let why = format!("{what} this gateway itself, at {own}: requests would go round for ever");
        return Condition::new("False", "OwnAddress", why);
    }
    match probe(s, service, resolver, transport).await {
        Ok(()) => {
            // Only one address has answered. The others that failed before are probed out of band.
            if let Ok(all) = resolver.endpoints(service) {
                transport.probe_if_due(all.all());
            }
            Condition::new("True", "Passed", "all checks passed")
        }
        Err(why) => {
            // The next probe must not succeed on a pooled connection to a server that is wrong or about to disappear.
            transport.close_idle();
            Condition::new("False", "FailedDiscoveryCheck", why)
        }
    }
}

/// Whether a result of [`probe_condition`] took no timeout.
pub(super) fn is_quick(condition: &Condition) -> bool {
    !condition.message.contains(TIMED_OUT) && !condition.message.starts_with(GUARDED)
}

/// Whether both say that probes of the same URL fail, in other words: a refused connection looks different from one that is
/// reset, and a backend that starts gives each of them.
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
    let endpoints = resolver.endpoints(service).ok()?;
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
) -> Result<(), String> {
    let path = s.discovery_path();
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
        Err(_) => Err(format!("{GUARDED}{}{path}", service.server_name())),
    }
}

async fn attempt(
    path: &str,
    service: &ServiceReference,
    resolver: &dyn ServiceResolver,
    transport: &Transport,
) -> Result<(), String> {
    let endpoints = match &service.target {
        // As for requests: if one address fails, another may answer.
        Some(_) => resolver.endpoints(service),
        None => resolver.resolve(service).map(Endpoints::One),
    };
    let endpoints = endpoints.map_err(|e| e.0)?;
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
    let why = match got {
        Ok(Ok(response)) if (200..300).contains(&response.status) => return Ok(()),
        Ok(Ok(response)) => format!("bad status from {url}: {}", response.status),
        Ok(Err(e)) => format!("Get {url:?}: {e}"),
        Err(_) => {
            // Lets the next probe, and requests, prefer another address.
            transport.record_timeout(first, "no answer to a probe");
            format!("Get {url:?}: {TIMED_OUT}")
        }
    };
    Err(format!("failing or missing response from {url}: {why}"))
}
