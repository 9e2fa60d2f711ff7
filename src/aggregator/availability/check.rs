//! One check of a remote APIService, in upstream's order and words
//! (`kube-aggregator/pkg/controllers/status/remote/remote_available_controller.go`).

use crate::aggregator::apiservice::{ApiService, Condition, ServiceReference};
use crate::aggregator::internal::{self, AGGREGATOR, PROBE};
use crate::aggregator::proxy::transport::Transport;
use crate::aggregator::resolver::{Endpoints, ServiceIndex, ServiceResolver, ServiceType};
use crate::client::target::URLS;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::net::SocketAddr;
use std::time::Duration;

const PROBES: usize = 5;
const PROBE_LIMIT: Duration = Duration::from_secs(5);
const GUARD: Duration = Duration::from_secs(6);

/// What is to be said about the APIService whose Service can be reached, as [`wiring`] has it.
pub(super) async fn answer(
    s: &ApiService,
    service: &ServiceReference,
    resolver: &dyn ServiceResolver,
    transport: &Transport,
) -> Condition {
    if let Some(own) = leads_home(service, resolver, transport).await {
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
            // It is one address that has answered.
            if let Ok(all) = resolver.endpoints(service) {
                transport.ask_again(all.all());
            }
            Condition::new("True", "Passed", "all checks passed")
        }
        Err(why) => {
            // A pooled connection to what is not, or no longer, the right server must not answer the next one.
            transport.close_idle();
            Condition::new("False", "FailedDiscoveryCheck", why)
        }
    }
}

/// The address among the backend's that is this gateway's own.
async fn leads_home(
    service: &ServiceReference,
    resolver: &dyn ServiceResolver,
    transport: &Transport,
) -> Option<SocketAddr> {
    let endpoints = resolver.endpoints(service).ok()?;
    for authority in endpoints.all() {
        if let Some(own) = transport.leads_home(authority).await {
            return Some(own);
        }
    }
    None
}

/// What is wrong with Service, port and endpoints.
pub(super) fn wiring(wanted: &ServiceReference, index: &ServiceIndex) -> Option<Condition> {
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

/// Five at once; the first that succeeds decides, else the last to fail.
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
        Err(_) => Err(format!("timed out waiting for https://{}{path}", service.server_name())),
    }
}

async fn attempt(
    path: &str,
    service: &ServiceReference,
    resolver: &dyn ServiceResolver,
    transport: &Transport,
) -> Result<(), String> {
    let endpoints = match &service.target {
        // As requests go: where one place fails, another answers.
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
        internal::fetch(transport, (&endpoints, first), path, AGGREGATOR, &PROBE),
    )
    .await;
    let why = match got {
        Ok(Ok(answer)) if (200..300).contains(&answer.status) => return Ok(()),
        Ok(Ok(answer)) => format!("bad status from {url}: {}", answer.status),
        Ok(Err(e)) => format!("Get {url:?}: {e}"),
        Err(_) => {
            // So that the next probe, and requests, go to another place, where there is one.
            transport.unanswered(first, "no answer to a probe");
            format!("Get {url:?}: context deadline exceeded (Client.Timeout exceeded while awaiting headers)")
        }
    };
    Err(format!("failing or missing response from {url}: {why}"))
}
