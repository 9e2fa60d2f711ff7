//! Paths that the head of the delegation serves itself: index, version, metrics. Health is in
//! [`super::health`].

use super::container::WebService;
use super::health::{Endpoints, HealthCheck};
use super::mux::DynHandler;
use super::respond::{self, FnHandler, JSON};
use crate::apimachinery::codec::json;
use crate::apimachinery::value::Value;
use crate::request::Request;
use crate::telemetry::process::{
    self, BUILD_DATE, COMPILER, GIT_COMMIT, GIT_TREE_STATE, GIT_VERSION, GO_VERSION, platform,
};
use crate::telemetry::{TEXT_FORMAT, Telemetry};
use http::header::{HeaderName, HeaderValue};
use http::{Method, StatusCode};
use std::convert::Infallible;
use std::sync::Arc;

/// `/`: the listed paths of the whole delegation, as indented JSON.
pub(crate) fn index(paths: impl Fn() -> Vec<String> + Send + Sync + 'static) -> DynHandler {
    Arc::new(FnHandler(move |_: &Request| {
        // Computed for each request: web services come and go with custom resources and APIServices.
        let paths: Vec<Value> = paths().into_iter().map(Value::from).collect();
        let body = json::to_vec_pretty(&crate::json!({"paths": paths}));
        respond::bytes(StatusCode::OK, JSON, body)
    }))
}

/// Header with the start time of the counters, as upstream sends it with `/metrics`.
const PROCESS_START: HeaderName = HeaderName::from_static("process-start-time-unix");

/// `/metrics`.
pub(crate) fn metrics(telemetry: Telemetry) -> DynHandler {
    exposition(move || telemetry.text())
}

/// `/metrics/slis`.
pub(crate) fn slis(telemetry: Telemetry) -> DynHandler {
    exposition(move || telemetry.slis_text())
}

fn exposition(text: impl Fn() -> Vec<u8> + Send + Sync + 'static) -> DynHandler {
    let since = process::started().map(|seconds| HeaderValue::from(seconds as u64));
    Arc::new(FnHandler(move |_: &Request| {
        let mut response = respond::bytes(StatusCode::OK, HeaderValue::from_static(TEXT_FORMAT), text());
        if let Some(since) = &since {
            response.headers_mut().insert(PROCESS_START, since.clone());
        }
        response
    }))
}

/// The web service `/version`: JSON only, GET only.
pub(crate) fn version() -> WebService {
    // Built once; requests share the bytes.
    let body: bytes::Bytes = version_document().into();
    WebService {
        root: "/version".to_owned(),
        handler: Arc::new(FnHandler(move |req: &Request| {
            // A web service claims everything below its root, so it must refuse the rest itself.
            if !matches!(respond::path(req), "/version" | "/version/") {
                return respond::route_not_found(req.headers());
            }
            if req.method() != Method::GET {
                return respond::method_not_allowed(req.headers());
            }
            if !respond::is_accepted("application/json", req.headers()) {
                return respond::not_acceptable("application/json", req.headers());
            }
            respond::bytes(StatusCode::OK, JSON, body.clone())
        })),
    }
}

/// `version.Info` as indented JSON with the fields in Go's order. The version is upstream's release, with
/// ours as its build metadata.
fn version_document() -> String {
    let fields = [
        ("major", "1"),
        ("minor", "36"),
        ("emulationMajor", "1"),
        ("emulationMinor", "36"),
        ("minCompatibilityMajor", "1"),
        ("minCompatibilityMinor", "35"),
        ("gitVersion", GIT_VERSION),
        ("gitCommit", GIT_COMMIT),
        ("gitTreeState", GIT_TREE_STATE),
        ("buildDate", BUILD_DATE),
        ("goVersion", GO_VERSION),
        ("compiler", COMPILER),
        ("platform", platform()),
    ];
    let lines: Vec<String> = fields.iter().map(|(k, v)| format!("  \"{k}\": \"{v}\"")).collect();
    format!("{{\n{}\n}}", lines.join(",\n"))
}

/// The check `log`. It always passes: logging never waits for a flush here, so it cannot fall behind as
/// upstream's may.
pub(crate) fn log_check() -> HealthCheck {
    HealthCheck::new("log", Endpoints::ALL, || Ok::<_, Infallible>(()))
}

/// The check `loopback-serving-certificate`. It always passes: the server calls itself in its own process,
/// without a certificate that could expire.
pub(crate) fn loopback_check() -> HealthCheck {
    HealthCheck::new("loopback-serving-certificate", Endpoints::HEALTHZ_LIVEZ, || {
        Ok::<_, Infallible>(())
    })
}
