//! `/debug/aggregator`: the state of each APIService, for operators. JSON for programs (`torana status`) and a
//! self-contained HTML page for browsers. Entry point: [`StatusHandler`].

mod page;

use super::apiservice::{ApiService, Condition};
use super::backend_stats::{StatsRegistry, StatsSnapshot};
use super::disk_cache::DocumentKind;
use super::proxy::transport::EndpointState;
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
use crate::request::{Authorized, Request, Response, UnprotectedHandler};
use crate::server::respond;
use ::time::OffsetDateTime;
use async_trait::async_trait;
use http::{HeaderValue, Method, StatusCode, header};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Path of the page.
pub const PATH: &str = "/debug/aggregator";

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");

/// Serves the page. Reads live state; stores nothing.
pub struct StatusHandler {
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
        let document = self.document();
        let html = wants_html(&req);
        let mut answer = match html {
            true => respond::bytes(StatusCode::OK, HTML, page::render(&document).into_bytes()),
            false => respond::bytes(StatusCode::OK, JSON, json::to_vec(&document)),
        };
        let headers = answer.headers_mut();
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, respond::NOSNIFF);
        if html {
            headers.insert(header::CONTENT_SECURITY_POLICY, page::POLICY);
        }
        // With hundreds of backends, several hundred kilobytes that a browser fetches every five seconds.
        gzip::maybe(answer, req.headers())
    }
}

/// Whether to render HTML: by `?format=`, else by the `Accept` header of browsers.
fn wants_html(req: &Request) -> bool {
    match req.uri().query() {
        Some(q) if q.split('&').any(|p| p == "format=json") => false,
        Some(q) if q.split('&').any(|p| p == "format=html") => true,
        _ => {
            let accept = req.headers().get(header::ACCEPT).and_then(|a| a.to_str().ok());
            accept.is_some_and(|a| a.contains("text/html"))
        }
    }
}

impl StatusHandler {
    /// The document of all APIServices by name, those with a backend first.
    fn document(&self) -> Value {
        let now = OffsetDateTime::now_utc();
        let services = self.api_services.snapshot();
        let rendered = self.discovery.rendered();
        let document = json::decode(&rendered.json).unwrap_or_default();
        let reached: Vec<Vec<Arc<str>>> = services.values().map(|s| self.addresses(s)).collect();
        let all: BTreeSet<&str> = reached.iter().flatten().map(|a| &**a).collect();
        let mut items: Vec<(bool, Value)> = services
            .values()
            .zip(&reached)
            .map(|(s, addresses)| (s.service.is_none(), self.one(s, (addresses, &all), &document, now)))
            .collect();
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
        let unknown = Condition::new("Unknown", "NotProbed", "nobody has looked at it yet");
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

/// The hint for a failed discovery check, by its error text.
fn failed_check(s: &ApiService, message: &str) -> Cow<'static, str> {
    let says = |all: &[&str]| all.iter().any(|text| message.contains(text));
    Cow::Borrowed(if says(&["dial unix"]) {
        failed_socket(message)
    } else if says(&["connection refused"]) {
        "nobody listens there: see whether the server runs, and on that port"
    } else if says(&["remote error: tls:"]) && says(&["certificate", "access denied"]) {
        return ours_is_refused(s).into();
    } else if says(&["x509: certificate has expired"]) {
        "the server's certificate is not valid at this time: renew it, or correct the clocks"
    } else if says(&["x509:"]) {
        return theirs_is_refused(s).into();
    } else if says(&["first record does not look like"]) {
        "no TLS is spoken there: see whether the port is the right one"
    } else if says(&["tls:"]) {
        "the handshake fails: look at the message, then at the server's log"
    } else if says(&["no such host"]) {
        "the name is not known to this machine's resolver"
    } else if says(&["dial tcp", "TLS handshake timeout"]) {
        "the address does not answer: look at the network and its firewalls, then at the server's machine"
    } else if says(&["bad status from"]) && says(&[": 401", ": 403"]) {
        "the server runs and does not believe this gateway: compare its front-proxy CA with \
         kube-system/extension-apiserver-authentication"
    } else if says(&["bad status from"]) && says(&[": 404"]) {
        "the server runs and does not serve this group and version: see whether it is the right server, and the right version"
    } else if says(&["bad status from"]) {
        "the server runs and fails: look at its log"
    } else if says(&["deadline exceeded", "timed out", "timeout"]) {
        "the server takes connections and does not answer: it hangs or has too much to do; look at its log and its load"
    } else {
        "the server is not reached or breaks off: look at the message, then at the server's log"
    })
}

fn failed_socket(message: &str) -> &'static str {
    let says = |all: &[&str]| all.iter().any(|text| message.contains(text));
    if says(&["connection refused", "no such file or directory"]) {
        "nobody listens there: see whether the server runs, and on that socket"
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
    format!("the server refuses the certificate that it is shown, {shown}: compare it with the server's client CA")
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
    format!("the server's certificate is not what is expected: compare it with the name {name} and with {roots}")
}

/// The sync status of a document.
fn document(seen: &DocumentStatus, now: OffsetDateTime) -> Value {
    let ago = |then: OffsetDateTime| shown(Duration::from_secs((now - then).whole_seconds().max(0).unsigned_abs()));
    let state = match (&seen.last_success, &seen.failing) {
        (Some(_), None) => "Current",
        (Some(_), Some(_)) => "Stale",
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
    if f.limit != 0 {
        v.set(&["limit"], f.limit as i64);
    }
    if let Some([p50, p90, p99]) = f.latency {
        let mut latency = Map::new();
        for (name, d) in [("p50", p50), ("p90", p90), ("p99", p99)] {
            latency.insert(name, shown(d));
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

/// The states of all addresses that requests go to, those of an explicit target in failover order. Addresses that no
/// APIService uses any more are listed behind them while requests are in flight there, without their health, which has
/// no influence on new requests.
fn endpoints(s: &ApiService, (reached, all): (&[Arc<str>], &BTreeSet<&str>), used: &[EndpointState]) -> Vec<Value> {
    let known = |address: &str| match used.iter().find(|e| *e.address == *address) {
        Some(state) => endpoint(state),
        None => json!({"address": (address), "state": "Unused"}),
    };
    let Some(target) = &s.backend.target else {
        let left = used.iter().filter(|e| e.under_way > 0 && !all.contains(&*e.address));
        let left = left.map(|e| {
            let mut v = endpoint(e);
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

fn endpoint(e: &EndpointState) -> Value {
    let state = match (e.ejected_for, e.failures_in_a_row) {
        (Some(_), _) => "Ejected",
        (None, 0) => "Good",
        (None, _) if e.was_ejected => "Probation",
        (None, _) => "Failing",
    };
    let mut v = json!({
        "address": (e.address.as_str()),
        "state": state,
        "underWay": (e.under_way as i64),
        "http2Connections": (e.http2_connections as i64),
        "http2Streams": (e.http2_streams as i64),
        "idleHTTP1Connections": (e.idle_http1_connections as i64),
        "failuresInARow": (i64::from(e.failures_in_a_row))
    });
    if e.dialing {
        v.set(&["dialing"], true);
    }
    if let Some(left) = e.ejected_for {
        v.set(&["ejectedFor"], shown(left));
    }
    if let Some(why) = e.last_failure.as_ref().filter(|_| e.failures_in_a_row > 0) {
        v.set(&["lastFailure"], why.as_str());
    }
    v
}

/// Formats a duration: `1.3ms`, `250µs`, `2.1s`, `5m`, `3h`.
fn shown(d: Duration) -> String {
    let us = d.as_micros();
    match us {
        0 => "0s".to_owned(),
        1..1_000 => format!("{us}µs"),
        1_000..1_000_000 => format!("{:.1}ms", us as f64 / 1e3),
        1_000_000..120_000_000 if us.is_multiple_of(1_000_000) => format!("{}s", us / 1_000_000),
        1_000_000..120_000_000 => format!("{:.1}s", us as f64 / 1e6),
        120_000_000..7_200_000_000 => format!("{}m", us / 60_000_000),
        _ => format!("{}h", us / 3_600_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregator::testing::*;

    #[tokio::test]
    async fn the_page_lists_what_is_down_since_when_and_why() {
        let pki = Pki::new(&["ext.ns.svc"], &[b"h2"]);
        let backend = Backend::http(&pki, 100, |_| async { response(200, "{}") }).await;
        let port: u16 = backend.authority.rsplit(':').next().unwrap().parse().unwrap();
        let w = World::start(MemoryStorage::new(), MemoryStorage::new()).await;
        w.api_services.set("v1.g", &apiservice("g", &pki.ca_pem, port));
        w.until_condition("v1.g", "False/ServiceNotFound/service/ext in \"ns\" is not present")
            .await;
        let item = || async {
            let document = json::decode(w.get("/debug/aggregator").await.1.as_bytes()).unwrap();
            let first = document.get("items").items().first().cloned()?;
            (first.str_at(&["reason"]) == "ServiceNotFound").then_some(first)
        };
        let item = w.until("the verdict", item).await;
        assert_eq!((item.str_at(&["name"]), item.str_at(&["discovery"])), ("v1.g", "Stale"));
        assert_eq!(item.str_at(&["documents", "openapiV3", "state"]), "Missing");
        assert!(item.str_at(&["hint"]).starts_with("create the Service"));
        assert!(!item.str_at(&["since"]).is_empty());
        let html = w.get("/debug/aggregator?format=html").await.1;
        assert!(html.contains("1 of 1 backends is unavailable"), "{html}");
        assert!(html.contains("service/ext in \"ns\" is not present"), "{html}");

        let service =
            json!({"metadata": {"name": "ext"}, "spec": {"type": "ExternalName", "externalName": "127.0.0.1"}});
        w.services.set("ns/ext", &service);
        w.until_condition("v1.g", "True/Passed/all checks passed").await;
        let served = || async { (w.get("/apis/g/v1/things").await.0 == 200).then_some(()) };
        w.until("the route", served).await;
        let document = json::decode(w.get("/debug/aggregator").await.1.as_bytes()).unwrap();
        let item = document.get("items").items()[0].clone();
        assert_eq!(item.at(&["requests", "answered"]).as_i64(), Some(1));
        assert!(!item.at(&["requests", "latency", "p99"]).is_null());
        assert_eq!((item.str_at(&["breaker"]), item.str_at(&["hint"])), ("Closed", ""));
        let current = || async {
            let document = json::decode(w.get("/debug/aggregator").await.1.as_bytes()).unwrap();
            let item = document.get("items").items()[0].clone();
            let all = ["discovery", "openapiV2", "openapiV3"];
            let ages = all.iter().filter(|d| {
                let d = item.at(&["documents", d]);
                d.str_at(&["state"]) == "Current" && !d.str_at(&["age"]).is_empty()
            });
            (ages.count() == 3).then_some(())
        };
        w.until("every document's age", current).await;
        let endpoint = &item.get("endpoints").items()[0];
        assert_eq!(
            (endpoint.str_at(&["state"]), endpoint.get("http2Connections").as_i64()),
            ("Good", Some(1))
        );
    }

    #[tokio::test]
    async fn an_address_that_is_not_used_any_more_is_not_listed() {
        let pki = Pki::new(&["ext.ns.svc"], &[b"h2"]);
        let (go, gone) = tokio::sync::watch::channel(false);
        let backend = |gone: tokio::sync::watch::Receiver<bool>| {
            Backend::http(&pki, 100, move |r| {
                let mut gone = gone.clone();
                async move {
                    if r.uri().path().ends_with("/slow") {
                        let _ = gone.wait_for(|g| *g).await;
                    }
                    response(200, "{}")
                }
            })
        };
        let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let refused = dead.local_addr().unwrap().port();
        drop(dead);
        let [old, new] = [backend(gone.clone()).await, backend(gone).await];
        let w = World::start(MemoryStorage::new(), MemoryStorage::new()).await;
        let service =
            json!({"metadata": {"name": "ext"}, "spec": {"type": "ExternalName", "externalName": "127.0.0.1"}});
        w.services.set("ns/ext", &service);
        let told = || async {
            let document = json::decode(w.get("/debug/aggregator").await.1.as_bytes()).unwrap();
            let item = document.get("items").items().first().cloned().unwrap_or_default();
            let of = |e: &Value| format!("{} {}", e.str_at(&["address"]), e.str_at(&["state"]));
            let endpoints: Vec<String> = item.get("endpoints").items().iter().map(of).collect();
            (endpoints.join(", "), item.str_at(&["breaker"]).to_owned())
        };
        let until = async |wanted: (String, &str)| {
            let is = || async { (told().await == (wanted.0.clone(), wanted.1.to_owned())).then_some(()) };
            w.until(&format!("{wanted:?}"), is).await;
        };
        w.api_services.set("v1.g", &apiservice("g", &pki.ca_pem, refused));
        until((format!("127.0.0.1:{refused} Ejected"), "Open")).await;
        w.api_services.set("v1.g", &apiservice("g", &pki.ca_pem, old.port()));
        until((format!("127.0.0.1:{} Good", old.port()), "Closed")).await;
        w.until_condition("v1.g", "True/Passed/all checks passed").await;
        let slow = async {
            let served = || async { (w.get("/apis/g/v1/slow").await.0 == 200).then_some(()) };
            w.until("the slow answer", served).await;
        };
        let moved = async {
            let asked = || async {
                let document = json::decode(w.get("/debug/aggregator").await.1.as_bytes()).unwrap();
                let busy = document.get("items").items()[0].at(&["requests", "inFlight"]).as_i64() == Some(1);
                busy.then_some(())
            };
            w.until("the slow request", asked).await;
            w.api_services.set("v1.g", &apiservice("g", &pki.ca_pem, new.port()));
            let both = format!("127.0.0.1:{} Good, 127.0.0.1:{} Former", new.port(), old.port());
            until((both, "Closed")).await;
            go.send(true).unwrap();
        };
        tokio::join!(slow, moved);
        until((format!("127.0.0.1:{} Good", new.port()), "Closed")).await;
    }

    #[test]
    fn hints_name_the_first_thing_to_check() {
        let service = |annotations: Value| {
            let spec = json!({"group": "g", "version": "v1", "caBundle": "eA==", "service": {"namespace": "ns", "name": "ext"}});
            ApiService::from_value(&json!({"metadata": {"name": "v1.g", "annotations": annotations}, "spec": spec}))
        };
        let plain = service(json!({}));
        let refused = |s: &ApiService, why: &str| {
            let get = "failing or missing response from https://h:1/apis/g/v1: Get \"https://h:1/apis/g/v1\": ";
            hint(s, "FailedDiscoveryCheck", &format!("{get}{why}")).into_owned()
        };
        for (why, begins) in [
            (
                "dial tcp 127.0.0.1:1: connect: connection refused",
                "nobody listens there: see whether the server runs, and on that port",
            ),
            ("dial tcp 10.0.0.1:1: i/o timeout", "the address does not answer"),
            ("dial tcp: lookup h: no such host", "the name is not known"),
            (
                "dial unix /run/a: connect: no such file or directory",
                "nobody listens there: see whether the server runs, and on that socket",
            ),
            (
                "dial unix /run/a: it is in no directory of --backend-socket-dirs",
                "move the socket",
            ),
            (
                "dial unix /run/a: user 7 listens there, not user 0 or root",
                "run the server as that user",
            ),
            (
                "dial unix /run/a: connect: permission denied",
                "the gateway may not connect",
            ),
            (
                "tls: failed to verify certificate: x509: certificate has expired or is not yet valid",
                "the server's certificate is not valid at this time",
            ),
            (
                "tls: first record does not look like a TLS handshake",
                "no TLS is spoken there",
            ),
            ("remote error: tls: handshake failure", "the handshake fails"),
            ("net/http: TLS handshake timeout", "the address does not answer"),
            (
                "context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
                "the server takes connections",
            ),
            ("EOF", "the server is not reached or breaks off"),
        ] {
            let hint = refused(&plain, why);
            assert!(hint.starts_with(begins), "{why}: {hint}");
        }
        let (theirs, ours) = (
            "x509: certificate signed by unknown authority",
            "remote error: tls: certificate required",
        );
        assert!(refused(&plain, theirs).ends_with("the name ext.ns.svc and with spec.caBundle"));
        assert!(refused(&plain, ours).contains("the front-proxy's"));
        let elsewhere = service(
            json!({"torana.dev/backend-urls": "https://h", "torana.dev/backend-ca-from": "configmap/ns/roots",
            "torana.dev/backend-client-certificate-from": "secret/ns/shown"}),
        );
        assert!(refused(&elsewhere, theirs).ends_with("the name h and with configmap \"ns/roots\""));
        assert!(refused(&elsewhere, ours).contains("secret \"ns/shown\""));

        let bad = |code| {
            let message = format!(
                "failing or missing response from https://h:1/apis/g/v1: bad status from https://h:1/apis/g/v1: {code}"
            );
            hint(&plain, "FailedDiscoveryCheck", &message).into_owned()
        };
        assert!(bad(403).contains("front-proxy CA"));
        assert!(bad(404).contains("does not serve this group and version"));
        assert!(bad(500).starts_with("the server runs and fails"));
    }

    #[test]
    fn the_breaker_summarises_all_endpoints() {
        let of = |states: &[&str]| breaker(&states.iter().map(|s| json!({"state": (*s)})).collect::<Vec<_>>());
        for (states, breaker) in [
            (&["Good", "Unused"][..], "Closed"),
            (&["Good", "Failing"], "Closed"),
            (&["Good", "Ejected"], "Partial"),
            (&["Good", "Probation"], "Partial"),
            (&["Ejected", "Ejected"], "Open"),
            (&["Probation"], "HalfOpen"),
            (&[], "Closed"),
        ] {
            assert_eq!(of(states), breaker, "{states:?}");
        }
    }

    #[tokio::test]
    async fn the_page_is_self_contained_and_runs_no_scripts() {
        let w = World::start(MemoryStorage::new(), MemoryStorage::new()).await;
        let evil = json!({"metadata": {"name": "v1.g", "uid": "u"},
            "spec": {"group": "g", "version": "v1", "service": {"namespace": "<script>alert(1)</script>", "name": "s", "port": 1}}});
        w.api_services.set("v1.g", &evil);
        let page = || async {
            let html = w.get("/debug/aggregator?format=html").await.1;
            html.contains("ServiceNotFound").then_some(html)
        };
        let html = w.until("the verdict", page).await;
        for outside in ["<script", "http:", "https:", "src=", "@import", "url("] {
            assert!(!html.contains(outside), "{outside} in {html}");
        }
        let mut request = get("/debug/aggregator");
        request
            .headers_mut()
            .insert("accept", HeaderValue::from_static("text/html"));
        let headers = w.headers(request).await;
        let policy = headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
        assert_eq!(policy, page::policy_of(page::STYLE), "the style's own digest");
        assert_eq!(headers["x-content-type-options"], "nosniff");
    }
}
