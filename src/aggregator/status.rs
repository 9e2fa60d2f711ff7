//! `/debug/aggregator`: the state of each APIService, for operators. JSON for programs (`torana status`) and
//! a self-contained HTML page for browsers. Entry point: [`StatusHandler`].

mod page;

use super::apiservice::{ApiService, Condition};
use super::backend_stats::{StatsRegistry, StatsSnapshot};
use super::documents::DocumentKind;
use super::resolver::ServiceResolver;
use super::sync_status::{DocumentStatus, SyncStatus};
use super::transports::Transports;
use crate::apimachinery::codec::json;
use crate::apimachinery::time;
use crate::apimachinery::value::{Map, Value};
use crate::client::Informer;
use crate::endpoints::discovery::AggregatedDiscovery;
use crate::endpoints::respond::gzip;
use crate::json;
use crate::proxy::target::TargetEndpoint;
use crate::proxy::transport::EndpointState;
use crate::request::{Authorized, Request, Response, UnprotectedHandler};
use crate::server::{page as server_page, respond};
use crate::telemetry::short_duration;
use ::time::OffsetDateTime;
use async_trait::async_trait;
use http::Method;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Path of the page.
pub(crate) const PATH: &str = "/debug/aggregator";

/// Serves the page. Reads live state; stores nothing.
pub(crate) struct StatusHandler {
    pub(super) api_services: Informer<ApiService>,
    pub(super) resolver: Arc<dyn ServiceResolver>,
    pub(super) transports: Arc<Transports>,
    pub(super) backend_stats: Arc<StatsRegistry>,
    pub(super) discovery: Arc<AggregatedDiscovery>,
    pub(super) sync_status: SyncStatus,
}

#[async_trait]
impl UnprotectedHandler for StatusHandler {
    async fn serve(self: Arc<Self>, req: Request, _: Authorized) -> Response {
        if !matches!(*req.method(), Method::GET | Method::HEAD) {
            return respond::method_not_allowed(req.headers());
        }
        let answer = server_page::answer(&req, &self.document(), page::render);
        // With hundreds of backends, several hundred kilobytes that a browser fetches every five seconds.
        gzip::maybe(answer, req.headers())
    }
}

impl StatusHandler {
    /// The document of all APIServices by name, those with a backend first.
    fn document(&self) -> Value {
        // Read once, so that all ages on the page fit together.
        let now = OffsetDateTime::now_utc();
        let services = self.api_services.snapshot();
        // The document as clients get it: the page shows the freshness that they see.
        let rendered = self.discovery.rendered();
        let document = json::decode(&rendered.json).unwrap_or_default();
        let reached: Vec<Vec<Arc<str>>> = services.values().map(|s| self.addresses(s)).collect();
        // Addresses are shared by APIServices with the same backend; `all` finds those that no APIService
        // uses any more.
        let all: BTreeSet<&str> = reached.iter().flatten().map(|a| &**a).collect();
        let mut items: Vec<(bool, Value)> = services
            .values()
            .zip(&reached)
            .map(|(s, addresses)| (s.service.is_none(), self.one(s, (addresses, &all), &document, now)))
            .collect();
        // Stable, so that each half stays sorted by name.
        items.sort_by_key(|(local, _)| *local);
        let items: Vec<Value> = items.into_iter().map(|(_, v)| v).collect();
        let mut out = json!({"kind": "AggregatorStatus", "apiVersion": "torana.dev/v1alpha1"});
        out.set(&["time"], time::format(now));
        out.set(&["items"], items);
        out
    }

    /// The addresses to which requests currently go.
    fn addresses(&self, s: &ApiService) -> Vec<Arc<str>> {
        let found = s
            .service
            .as_ref()
            .and_then(|service| self.resolver.endpoints(service).ok());
        // A Service that does not resolve has no addresses; the condition says why.
        found.map_or_else(Vec::new, |endpoints| endpoints.all().to_vec())
    }

    /// The entry of one APIService. `reached` holds its own addresses and those of all APIServices.
    fn one(
        &self,
        s: &ApiService,
        reached: (&[Arc<str>], &BTreeSet<&str>),
        discovery: &Value,
        now: OffsetDateTime,
    ) -> Value {
        let unknown = Condition::new("Unknown", "NotProbed", "not probed yet");
        let verdict = s.available.as_ref().unwrap_or(&unknown);
        let mut v = json!({
            "name": (s.name.as_str()),
            "available": (verdict.status.as_str()),
            "reason": (verdict.reason.as_str()),
            "message": (verdict.message.as_str())
        });
        if !s.available_since.is_empty() {
            v.set(&["since"], s.available_since.as_str());
        }
        let Some(service) = &s.service else {
            v.set(&["service"], "Local");
            return v;
        };
        v.set(&["service"], format!("{service:?}"));
        if verdict.status != "True" {
            v.set(&["hint"], &*hint(s, &verdict.reason, &verdict.message));
        }
        v.set(&["discovery"], freshness(discovery, s));
        for (key, what) in [
            ("discovery", DocumentKind::Discovery),
            ("openapiV2", DocumentKind::OpenApiV2),
            ("openapiV3", DocumentKind::OpenApiV3),
        ] {
            v.set(&["documents", key], document(&self.sync_status.of(&s.name, what), now));
        }
        v.set(&["requests"], requests(&self.backend_stats.of(&s.name).snapshot()));
        match self.transports.of(s) {
            Ok(transport) => {
                let states = endpoints(s, reached, &transport.endpoints());
                v.set(&["breaker"], breaker(&states));
                v.set(&["endpoints"], states);
            }
            Err(why) => v.set(&["configuration"], why.to_string()),
        }
        v
    }
}

/// The first thing an operator should check.
fn hint(s: &ApiService, reason: &str, message: &str) -> Cow<'static, str> {
    Cow::Borrowed(match reason {
        "FailedDiscoveryCheck" => return failed_check(s, message),
        "ServiceNotFound" => "create the Service, or delete the APIService if its server is gone for good",
        "ServicePortError" => "compare spec.service.port with the ports of the Service",
        "EndpointsNotFound" | "MissingEndpoints" => "no pod behind the Service is ready: look at its pods",
        "ReferenceNotFound" => {
            "create or correct the object that the annotation names; the gateway's log says what is wrong with it"
        }
        "OwnAddress" => "name the address of the backend: this one is the gateway's own",
        "InvalidAnnotations" => "correct the annotations of the APIService",
        "NotProbed" => "wait for the first probe, which takes a few seconds",
        _ => "look at the message",
    })
}

/// The hint for a failed discovery check, by its message.
fn failed_check(s: &ApiService, message: &str) -> Cow<'static, str> {
    // The order matters: many messages match several branches, and the first is the most specific.
    let says = |all: &[&str]| all.iter().any(|text| message.contains(text));
    Cow::Borrowed(if says(&["dial unix"]) {
        failed_socket(message)
    } else if says(&["connection refused"]) {
        "nothing listens there: check that the server runs, and on that port"
    } else if says(&["remote error: tls:"]) && says(&["certificate", "access denied"]) {
        return ours_is_refused(s).into();
    } else if says(&["x509: certificate has expired"]) {
        "the server's certificate is not valid at this time: renew it, or correct the clocks"
    } else if says(&["x509:"]) {
        return theirs_is_refused(s).into();
    } else if says(&["first record does not look like"]) {
        "the port does not speak TLS: check that it is the right one"
    } else if says(&["tls:"]) {
        "the handshake fails: look at the message, then at the server's log"
    } else if says(&["no such host"]) {
        "the name is not known to this machine's resolver"
    } else if says(&["dial tcp", "TLS handshake timeout"]) {
        "the address does not answer: look at the network and its firewalls, then at the server's machine"
    } else if says(&["bad status from"]) && says(&[": 401", ": 403"]) {
        "the server runs and does not trust this gateway: compare its front-proxy CA with \
         kube-system/extension-apiserver-authentication"
    } else if says(&["bad status from"]) && says(&[": 404"]) {
        "the server runs and does not serve this group and version: see whether it is the right server, and the right version"
    } else if says(&["bad status from"]) {
        "the server runs and fails: look at its log"
    } else if says(&["deadline exceeded", "timed out", "timeout"]) {
        "the server accepts connections and does not answer: it hangs or is overloaded; look at its log and its load"
    } else {
        "the server cannot be reached or drops the connection: look at the message, then at the server's log"
    })
}

fn failed_socket(message: &str) -> &'static str {
    let says = |all: &[&str]| all.iter().any(|text| message.contains(text));
    if says(&["connection refused", "no such file or directory"]) {
        "nothing listens there: check that the server runs, and on that socket"
    } else if says(&["--backend-socket-dirs"]) {
        "move the socket below a directory that this flag of the gateway names, or start the gateway with the socket's"
    } else if says(&["listens there, not"]) {
        "run the server as that user, or name its user in the URL (;uid=)"
    } else if says(&["permission denied"]) {
        "the gateway may not connect: look at the permissions of the socket and of the directories above it"
    } else {
        "the socket does not answer: look at the server's log and its load"
    }
}

/// The hint if the backend rejects the gateway's certificate.
fn ours_is_refused(s: &ApiService) -> String {
    let shown = match &s.backend.certificate_from {
        Some(reference) => reference.to_string(),
        None => "the front-proxy's, whose CA is in kube-system/extension-apiserver-authentication".to_owned(),
    };
    format!("the server rejects the client certificate, {shown}: compare it with the server's client CA")
}

/// The hint if the gateway rejects the backend's certificate.
fn theirs_is_refused(s: &ApiService) -> String {
    let roots = match &s.backend.ca_from {
        Some(reference) => reference.to_string(),
        None if s.ca_bundle.is_empty() => "the system's roots, for the APIService has no caBundle".to_owned(),
        None => "spec.caBundle".to_owned(),
    };
    let name = s
        .service
        .as_ref()
        .map(|service| service.server_name())
        .unwrap_or_default();
    format!("the server's certificate does not verify: compare it with the name {name} and with {roots}")
}

/// The sync status of a document.
fn document(seen: &DocumentStatus, now: OffsetDateTime) -> Value {
    let ago =
        |then: OffsetDateTime| short_duration(Duration::from_secs((now - then).whole_seconds().max(0).unsigned_abs()));
    let state = match (&seen.last_success, &seen.failing) {
        (Some(_), None) => "Current",
        (Some(_), Some(_)) => "Stale",
        // From a previous process: whether the backend still publishes it is not known.
        (None, _) if seen.restored_from_disk => "Stale",
        (None, _) => "Missing",
    };
    let mut v = json!({"state": state});
    if let Some(had) = seen.last_success {
        v.set(&["lastSuccess"], time::format(had));
        v.set(&["age"], ago(had));
    } else if seen.restored_from_disk {
        v.set(&["keptOverRestart"], true);
    }
    if let Some((since, why)) = &seen.failing {
        v.set(&["failingFor"], ago(*since));
        v.set(&["error"], why.as_str());
    }
    v
}

/// The freshness of a version in the aggregated discovery document.
fn freshness(discovery: &Value, s: &ApiService) -> String {
    let groups = discovery.get("items").items();
    let group = groups
        .iter()
        .find(|g| g.str_at(&["metadata", "name"]) == s.group.as_str());
    let versions = group.map_or(&[][..], |g| g.get("versions").items());
    let version = versions.iter().find(|v| v.str_at(&["version"]) == s.version.as_str());
    let freshness = version.map_or("", |v| v.str_at(&["freshness"]));
    if freshness.is_empty() { "Unknown" } else { freshness }.to_owned()
}

fn requests(f: &StatsSnapshot) -> Value {
    let mut v = json!({
        "inFlight": (f.in_flight as i64),
        "watching": (f.watching as i64),
        "answered": (f.answered as i64),
        "serverErrors": (f.server_errors as i64),
        "unreachable": (f.unreachable as i64),
        "unanswered": (f.unanswered as i64),
        "turnedAway": (f.rejected as i64)
    });
    // 0 stands for no limit.
    if f.limit != 0 {
        v.set(&["limit"], f.limit as i64);
    }
    if let Some([p50, p90, p99]) = f.latency {
        let mut latency = Map::new();
        for (name, d) in [("p50", p50), ("p90", p90), ("p99", p99)] {
            latency.insert(name, short_duration(d));
        }
        v.set(&["latency"], latency);
    }
    if let Some((at, why)) = &f.last_failure {
        v.set(
            &["lastFailure"],
            json!({"time": (time::format(*at)), "error": (why.as_str())}),
        );
    }
    v
}

/// The states of all addresses that requests go to, those of an explicit target in failover order. Addresses
/// that no APIService uses any more are listed behind them while requests are in flight there, without their
/// health, which has no influence on new requests.
fn endpoints(s: &ApiService, (reached, all): (&[Arc<str>], &BTreeSet<&str>), used: &[EndpointState]) -> Vec<Value> {
    let known = |address: &str| match used.iter().find(|e| *e.address == *address) {
        Some(state) => state.document(),
        None => json!({"address": (address), "state": "Unused"}),
    };
    let Some(target) = &s.backend.target else {
        let left = used.iter().filter(|e| e.under_way > 0 && !all.contains(&*e.address));
        let left = left.map(|e| {
            let mut v = e.document();
            v.set(&["state"], "Former");
            v
        });
        return reached.iter().map(|a| known(a)).chain(left).collect();
    };
    let of = |endpoint: &TargetEndpoint| {
        let mut v = known(&endpoint.address);
        v.set(&["weight"], i64::from(endpoint.weight));
        v.set(&["failover"], i64::from(endpoint.failover));
        v
    };
    target.endpoints.iter().map(of).collect()
}

/// The circuit breaker state of all endpoints together.
fn breaker(endpoints: &[Value]) -> &'static str {
    let count = |state: &str| endpoints.iter().filter(|e| e.str_at(&["state"]) == state).count();
    match (count("Ejected"), count("Probation")) {
        (0, 0) => "Closed",
        (out, _) if out > 0 && out == endpoints.len() => "Open",
        (0, on_trial) if on_trial == endpoints.len() => "HalfOpen",
        _ => "Partial",
    }
}

#[cfg(test)]
mod tests;
