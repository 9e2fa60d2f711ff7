//! `/debug/aggregator`: how each APIService does, for who is woken by it. JSON for programs (`torana status`), HTML for
//! people, which needs nothing but this answer.

use super::apiservice::{ApiService, Condition};
use super::ledger::{Figures, Ledger};
use super::proxy::transport::EndpointState;
use super::transports::Transports;
use crate::apimachinery::codec::json;
use crate::apimachinery::time;
use crate::apimachinery::value::{Map, Value};
use crate::client::Informer;
use crate::endpoints::discovery::AggregatedDiscovery;
use crate::json;
use crate::request::{Authorized, Request, Response, UnprotectedHandler};
use crate::server::respond;
use async_trait::async_trait;
use http::{HeaderValue, Method, StatusCode, header};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

/// Where the page is.
pub const PATH: &str = "/debug/aggregator";

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");

/// Serves the page.
pub struct StatusHandler {
    pub(super) api_services: Informer<ApiService>,
    pub(super) transports: Arc<Transports>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) discovery: Arc<AggregatedDiscovery>,
}

#[async_trait]
impl UnprotectedHandler for StatusHandler {
    async fn serve(&self, req: Request, _: Authorized) -> Response {
        if !matches!(*req.method(), Method::GET | Method::HEAD) {
            return respond::method_not_allowed(req.headers());
        }
        let document = self.document();
        if wants_html(&req) {
            return respond::bytes(StatusCode::OK, HTML, page(&document).into_bytes());
        }
        respond::bytes(StatusCode::OK, JSON, json::to_vec(&document))
    }
}

/// Browsers say so; everybody else gets JSON.
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
    /// All APIServices, those with a backend first, by name.
    fn document(&self) -> Value {
        let services = self.api_services.snapshot();
        let rendered = self.discovery.rendered();
        let document = json::decode(&rendered.json).unwrap_or_default();
        let mut items: Vec<(bool, Value)> = services
            .values()
            .map(|s| (s.service.is_none(), self.one(s, &document)))
            .collect();
        items.sort_by_key(|(local, _)| *local);
        let items: Vec<Value> = items.into_iter().map(|(_, v)| v).collect();
        let mut out = json!({"kind": "AggregatorStatus", "apiVersion": "torana.dev/v1alpha1"});
        out.set(&["time"], time::now());
        out.set(&["items"], items);
        out
    }

    fn one(&self, s: &ApiService, discovery: &Value) -> Value {
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
        v.set(&["discovery"], freshness(discovery, s));
        v.set(&["requests"], requests(&self.ledger.of(&s.name).figures()));
        match self.transports.of(s) {
            Ok(transport) => {
                let all: Vec<Value> = transport.endpoints().iter().map(endpoint).collect();
                v.set(&["endpoints"], all);
            }
            Err(why) => v.set(&["configuration"], why.to_string()),
        }
        v
    }
}

/// What the aggregated document says of a version.
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

fn requests(f: &Figures) -> Value {
    let mut v = json!({
        "inFlight": (f.in_flight as i64),
        "watching": (f.watching as i64),
        "answered": (f.answered as i64),
        "serverErrors": (f.server_errors as i64),
        "unreachable": (f.unreachable as i64),
        "turnedAway": (f.turned_away as i64)
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

fn endpoint(e: &EndpointState) -> Value {
    let state = match (e.ejected_for, e.failures_in_a_row) {
        (Some(_), _) => "Ejected",
        (None, 0) => "Good",
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

/// `1.3ms`, `250µs`, `2.1s`.
fn shown(d: Duration) -> String {
    let us = d.as_micros();
    match us {
        0..1_000 => format!("{us}µs"),
        1_000..1_000_000 => format!("{:.1}ms", us as f64 / 1e3),
        _ => format!("{:.1}s", us as f64 / 1e6),
    }
}

const STYLE: &str = "body{font:15px/1.4 system-ui,sans-serif;margin:1.5em;max-width:75em}table{border-collapse:collapse;\
                     width:100%}th,td{text-align:left;padding:.3em .8em .3em 0;border-bottom:1px solid #ddd;\
                     vertical-align:top}.True,.Good,.Current{color:#060}.False,.Ejected{color:#b00;font-weight:bold}\
                     .Unknown,.Failing,.Stale{color:#a60}small{color:#555}";

fn page(document: &Value) -> String {
    let esc = respond::html_escape;
    let items = document.get("items").items();
    let (remote, local): (Vec<&Value>, Vec<&Value>) = items.iter().partition(|v| v.str_at(&["service"]) != "Local");
    let down = remote.iter().filter(|v| v.str_at(&["available"]) != "True").count();
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "<!doctype html><meta charset=utf-8><meta http-equiv=refresh content=5><title>Aggregator</title>\
         <style>{STYLE}</style><h1>Aggregator</h1><p>{} backends, {down} of them unavailable; {} groups served here. \
         <small>{}</small></p><table><tr><th>APIService<th>Verdict<th>Requests<th>Latency<th>Endpoints</tr>",
        remote.len(),
        local.len(),
        esc(document.str_at(&["time"]))
    );
    for v in remote {
        let _ = write!(
            out,
            "<tr><td>{}<br><small>{}</small><td>{} {} <small>since {}</small><br>{}<br><small>{}</small> documents: {}\
             <td>{}<td>{}<td>",
            esc(v.str_at(&["name"])),
            esc(v.str_at(&["service"])),
            coloured(v.str_at(&["available"])),
            esc(v.str_at(&["reason"])),
            esc(v.str_at(&["since"])),
            esc(v.str_at(&["message"])),
            esc(v.str_at(&["configuration"])),
            coloured(v.str_at(&["discovery"])),
            counts(v.get("requests")),
            latency(v.get("requests")),
        );
        for e in v.get("endpoints").items() {
            let _ = write!(
                out,
                "{} {} <small>{} under way, {} connections {} {}</small><br>",
                coloured(e.str_at(&["state"])),
                esc(e.str_at(&["address"])),
                e.get("underWay").as_i64().unwrap_or(0),
                e.get("http2Connections").as_i64().unwrap_or(0) + e.get("idleHTTP1Connections").as_i64().unwrap_or(0),
                esc(e.str_at(&["ejectedFor"])),
                esc(e.str_at(&["lastFailure"])),
            );
        }
        out.push_str("</tr>");
    }
    out.push_str("</table><p><small>Served here: ");
    let names: Vec<String> = local.iter().map(|v| esc(v.str_at(&["name"]))).collect();
    out.push_str(&names.join(", "));
    out.push_str("</small></p>");
    out
}

/// One of the words that the style sheet knows, in its colour.
fn coloured(word: &str) -> String {
    let known = ["True", "False", "Good", "Ejected", "Failing", "Current", "Stale"];
    let class = known.into_iter().find(|k| *k == word).unwrap_or("Unknown");
    format!("<span class={class}>{}</span>", respond::html_escape(word))
}

fn counts(r: &Value) -> String {
    let n = |key: &str| r.get(key).as_i64().unwrap_or(0);
    let limit = r.get("limit").as_i64().map_or(String::new(), |l| format!(" of {l}"));
    let last = match r.at(&["lastFailure", "error"]).as_str() {
        Some(why) => format!(
            "<br><small>last failure {}: {}</small>",
            respond::html_escape(r.str_at(&["lastFailure", "time"])),
            respond::html_escape(why)
        ),
        None => String::new(),
    };
    format!(
        "{}{limit} under way, {} watches<br>{} answered, {} with 5xx, {} unreachable, {} turned away{last}",
        n("inFlight"),
        n("watching"),
        n("answered"),
        n("serverErrors"),
        n("unreachable"),
        n("turnedAway")
    )
}

fn latency(r: &Value) -> String {
    let l = r.get("latency");
    match l.str_at(&["p50"]) {
        "" => "–".to_owned(),
        p50 => format!("{p50} / {} / {}", l.str_at(&["p90"]), l.str_at(&["p99"])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregator::testing::*;

    #[tokio::test]
    async fn an_annotation_names_backends_outside_the_cluster() {
        let pki = Pki::new(&["api.example.com"], &[b"h2"]);
        let (a, b) = (
            Backend::http(&pki, 100, |_| async { answer(200, "{}") }).await,
            Backend::http(&pki, 100, |_| async { answer(200, "{}") }).await,
        );
        let w = World::start(MemoryStorage::new(), MemoryStorage::new()).await;
        let mut object = apiservice("g", &pki.ca_pem, 443);
        let urls = format!("https://{}, https://{}", a.authority, b.authority);
        object.set(&["metadata", "annotations", "torana.dev/backend-urls"], urls);
        object.set(
            &["metadata", "annotations", "torana.dev/backend-server-name"],
            "api.example.com",
        );
        w.api_services.set("v1.g", &object);
        w.until_condition("v1.g", "True/Passed/all checks passed").await;
        let served = || async { (w.get("/apis/g/v1/things").await.0 == 200).then_some(()) };
        w.until("the route", served).await;
        drop(a);
        for _ in 0..20 {
            assert_eq!(w.get("/apis/g/v1/things").await.0, 200, "the other one answers");
        }
    }

    #[tokio::test]
    async fn the_page_tells_who_is_down_since_when_and_why() {
        let pki = Pki::new(&["ext.ns.svc"], &[b"h2"]);
        let backend = Backend::http(&pki, 100, |_| async { answer(200, "{}") }).await;
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
        assert!(!item.str_at(&["since"]).is_empty());
        let html = w.get("/debug/aggregator?format=html").await.1;
        assert!(html.contains("1 backends, 1 of them unavailable"), "{html}");
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
        let endpoint = &item.get("endpoints").items()[0];
        assert_eq!(
            (endpoint.str_at(&["state"]), endpoint.get("http2Connections").as_i64()),
            ("Good", Some(1))
        );
    }
}
