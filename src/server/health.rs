//! `/healthz`, `/livez`, `/readyz` and the endpoints of their individual checks (upstream's
//! `k8s.io/apiserver/pkg/server/healthz`). Start reading at [`routes`].

use super::mux::{DynHandler, Registration};
use super::respond::{self, FnHandler, NOSNIFF, TEXT};
use crate::apimachinery::field::quote;
use crate::request::body::BoxError;
use crate::request::info::pairs;
use crate::request::{Request, Response};
use crate::telemetry::Telemetry;
use http::StatusCode;
use http::header::X_CONTENT_TYPE_OPTIONS;
use prometheus::{IntCounter, IntGauge};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fmt::Write;
use std::sync::Arc;
use tokio::time::Instant;

/// The endpoints that include a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Endpoints {
    healthz: bool,
    livez: bool,
    readyz: bool,
}

impl Endpoints {
    /// `/healthz`, `/livez` and `/readyz`.
    pub(crate) const ALL: Self = Self::of(true, true, true);
    /// `/readyz` only.
    pub(crate) const READYZ: Self = Self::of(false, false, true);
    /// `/healthz` and `/livez`.
    pub(crate) const HEALTHZ_LIVEZ: Self = Self::of(true, true, false);
    /// `/healthz` and `/readyz`.
    pub(crate) const HEALTHZ_READYZ: Self = Self::of(true, false, true);

    const fn of(healthz: bool, livez: bool, readyz: bool) -> Self {
        Self { healthz, livez, readyz }
    }
}

/// A named health check. It must be cheap and must not block; state that takes waiting is gathered elsewhere
/// and only read here.
#[derive(Clone)]
pub(crate) struct HealthCheck {
    name: String,
    group: Option<&'static str>,
    on: Endpoints,
    /// During the grace period after the start, a failure counts as passing on `/livez`.
    graced: bool,
    check: Arc<dyn Fn() -> Result<(), BoxError> + Send + Sync>,
}

impl HealthCheck {
    /// A check on the given endpoints. Its error appears in the log and in the response of the individual
    /// check.
    pub(crate) fn new<E: Into<BoxError>>(
        name: impl Into<String>,
        on: Endpoints,
        check: impl Fn() -> Result<(), E> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            group: None,
            on,
            graced: false,
            check: Arc::new(move || check().map_err(Into::into)),
        }
    }

    /// Makes `?exclude=<group>` exclude the check as well.
    #[cfg(test)]
    pub(crate) fn in_group(mut self, group: &'static str) -> Self {
        self.group = Some(group);
        self
    }

    /// Lets the check fail on `/livez` during the grace period.
    pub(crate) fn with_livez_grace(mut self) -> Self {
        self.graced = true;
        self
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// True if the endpoint includes the check.
    pub(crate) fn is_on(&self, endpoint: HealthEndpoint) -> bool {
        endpoint.has(self.on)
    }

    /// Runs the check.
    ///
    /// # Errors
    /// The reason for the failure.
    pub(crate) fn run(&self) -> Result<(), BoxError> {
        (self.check)()
    }

    /// A check that always passes.
    pub(crate) fn ping() -> Self {
        Self::new("ping", Endpoints::ALL, || Ok::<_, Infallible>(()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HealthEndpoint {
    /// `/healthz`, which upstream deprecates.
    Healthz,
    /// `/livez`: the process should not be restarted.
    Livez,
    /// `/readyz`: the process should get requests.
    Readyz,
}

impl HealthEndpoint {
    fn name(self) -> &'static str {
        match self {
            Self::Healthz => "healthz",
            Self::Livez => "livez",
            Self::Readyz => "readyz",
        }
    }

    fn has(self, on: Endpoints) -> bool {
        match self {
            Self::Healthz => on.healthz,
            Self::Livez => on.livez,
            Self::Readyz => on.readyz,
        }
    }
}

/// A check on one endpoint, with its metrics.
struct Probe {
    check: HealthCheck,
    graced_until: Option<Instant>,
    gauge: IntGauge,
    success: IntCounter,
    error: IntCounter,
}

impl Probe {
    fn run(&self) -> Result<(), BoxError> {
        let mut result = self.check.run();
        // The grace hides the failure from the metrics, too, as upstream: the probe reports what its caller sees.
        if result.is_err() && self.graced_until.is_some_and(|until| Instant::now() < until) {
            result = Ok(());
        }
        match &result {
            Ok(()) => {
                self.gauge.set(1);
                self.success.inc();
            }
            Err(_) => {
                self.gauge.set(0);
                self.error.inc();
            }
        }
        result
    }
}

/// Whether an endpoint would answer 200, without its grace period. For callers in the process: it counts nothing.
pub(crate) fn pass(checks: &[HealthCheck], endpoint: HealthEndpoint) -> bool {
    let mut included = checks.iter().filter(|check| check.is_on(endpoint));
    included.all(|check| check.run().is_ok())
}

/// The mux entries of all three endpoints. `livez_grace_until` applies to checks made with
/// [`HealthCheck::with_livez_grace`].
pub(crate) fn routes(
    checks: &[HealthCheck],
    telemetry: &Telemetry,
    livez_grace_until: Option<Instant>,
) -> Vec<Registration> {
    let mut out = Vec::new();
    for endpoint in [HealthEndpoint::Healthz, HealthEndpoint::Livez, HealthEndpoint::Readyz] {
        let type_ = endpoint.name();
        let probes: Arc<[Probe]> = checks
            .iter()
            .filter(|c| endpoint.has(c.on))
            .map(|c| Probe {
                check: c.clone(),
                graced_until: livez_grace_until.filter(|_| c.graced && endpoint == HealthEndpoint::Livez),
                // Looked up once: probes run often, and a lookup by label takes a lock.
                gauge: telemetry.healthcheck.with_label_values(&[c.name(), type_]),
                success: telemetry
                    .healthchecks_total
                    .with_label_values(&[c.name(), type_, "success"]),
                error: telemetry
                    .healthchecks_total
                    .with_label_values(&[c.name(), type_, "error"]),
            })
            .collect();
        let mut add = |path: String, handler: DynHandler| {
            out.push(Registration::exact(path, true, handler));
        };
        // Registered before the endpoint itself; exact paths, so that an unknown check is a 404.
        for i in 0..probes.len() {
            let probes = probes.clone();
            let path = format!("/{type_}/{}", probes[i].check.name);
            add(path, Arc::new(FnHandler(move |_: &Request| single(&probes[i]))));
        }
        let handler = FnHandler(move |req: &Request| overall(endpoint, &probes, req.uri().query().unwrap_or("")));
        add(format!("/{type_}"), Arc::new(handler));
    }
    out
}

fn single(probe: &Probe) -> Response {
    match probe.run() {
        Ok(()) => respond::bytes(StatusCode::OK, TEXT, "ok"),
        Err(reason) => respond::error_text(
            StatusCode::INTERNAL_SERVER_ERROR,
            &format!("internal server error: {reason}"),
        ),
    }
}

fn overall(endpoint: HealthEndpoint, probes: &[Probe], query: &str) -> Response {
    let mut verbose = false;
    let mut excluded: BTreeSet<String> = BTreeSet::new();
    for (key, value) in pairs(query) {
        match &*key {
            "verbose" => verbose = true,
            "exclude" => drop(excluded.insert(value.into_owned())),
            _ => {}
        }
    }
    // A name that matches no check is reported: a typo would otherwise exclude nothing unnoticed.
    let mut unmatched = excluded.clone();
    let mut lines = String::new();
    let mut failed: Vec<&str> = Vec::new();
    for p in probes {
        let name = p.check.name.as_str();
        // Writing to a String cannot fail.
        if excluded.contains(name) {
            unmatched.remove(name);
            let _ = writeln!(lines, "[+]{name} excluded: ok");
        } else if let Some(group) = p.check.group.filter(|g| excluded.contains(*g)) {
            unmatched.remove(group);
            let _ = writeln!(lines, "[+]{name} excluded with {group}: ok");
        } else if let Err(reason) = p.run() {
            tracing::debug!(endpoint = endpoint.name(), check = name, %reason, "health check failed");
            failed.push(name);
            // `/readyz` may be open to anonymous callers; the reason is only in the log and at the check's own path.
            let _ = writeln!(lines, "[-]{name} failed: reason withheld");
        } else {
            let _ = writeln!(lines, "[+]{name} ok");
        }
    }
    if !unmatched.is_empty() {
        let names: Vec<String> = unmatched.iter().map(|n| quote(n)).collect();
        let _ = writeln!(
            lines,
            "warn: some health checks cannot be excluded: no matches for {}",
            names.join(",")
        );
    }
    if !failed.is_empty() {
        tracing::info!(
            endpoint = endpoint.name(),
            checks = failed.join(","),
            "health check failed"
        );
        return respond::error_text(
            StatusCode::INTERNAL_SERVER_ERROR,
            &format!("{lines}{} check failed", endpoint.name()),
        );
    }
    let body = if verbose {
        format!("{lines}{} check passed\n", endpoint.name())
    } else {
        "ok".to_owned()
    };
    let mut r = respond::bytes(StatusCode::OK, TEXT, body);
    r.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    r
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Authorized, Body, UserInfo};
    use std::sync::atomic::{AtomicBool, Ordering};

    async fn get(routes: &[Registration], uri: &str) -> Option<(u16, String)> {
        let req = http::Request::get(uri).body(Body::empty()).unwrap();
        let route = routes.iter().find(|r| r.path == req.uri().path())?;
        let proof = Authorized::for_test(UserInfo::anonymous());
        let r = route.handler.clone().serve(req, proof).await;
        let code = r.status().as_u16();
        let body = r.into_body().collect(1 << 20).await.unwrap();
        Some((code, String::from_utf8(body.to_vec()).unwrap()))
    }

    #[tokio::test]
    async fn response_bodies_match_upstream() {
        let bad = Arc::new(AtomicBool::new(false));
        let checks = [
            HealthCheck::ping(),
            HealthCheck::new("etcd", Endpoints::ALL, {
                let bad = bad.clone();
                move || {
                    if bad.load(Ordering::Relaxed) { Err("no") } else { Ok(()) }
                }
            })
            .in_group("storage"),
            HealthCheck::new("shutdown", Endpoints::READYZ, || Ok::<_, Infallible>(())),
        ];
        let r = routes(&checks, &Telemetry::new(), None);
        assert_eq!(get(&r, "/livez").await, Some((200, "ok".into())));
        assert_eq!(get(&r, "/livez/etcd").await, Some((200, "ok".into())));
        assert_eq!(get(&r, "/livez/shutdown").await, None);
        assert_eq!(
            get(&r, "/readyz?verbose&exclude=etcd").await,
            Some((
                200,
                "[+]ping ok\n[+]etcd excluded: ok\n[+]shutdown ok\nreadyz check passed\n".into()
            ))
        );
        assert_eq!(
            get(&r, "/healthz?verbose=1&exclude=storage&exclude=b&exclude=a").await,
            Some((
                200,
                "[+]ping ok\n[+]etcd excluded with storage: ok\nwarn: some health checks cannot be excluded: no \
                 matches for \"a\",\"b\"\nhealthz check passed\n"
                    .into()
            ))
        );
        // Quoted as Go's %q does.
        let (_, odd) = get(&r, "/healthz?verbose=1&exclude=a%C2%A0%22")
            .await
            .expect("registered");
        assert!(odd.contains("no matches for \"a\\u00a0\\\"\"\n"), "{odd}");
        bad.store(true, Ordering::Relaxed);
        assert_eq!(
            get(&r, "/livez").await,
            Some((
                500,
                "[+]ping ok\n[-]etcd failed: reason withheld\nlivez check failed\n".into()
            ))
        );
        assert_eq!(
            get(&r, "/livez/etcd").await,
            Some((500, "internal server error: no\n".into()))
        );
        assert_eq!(get(&r, "/livez?exclude=etcd").await, Some((200, "ok".into())));
    }

    #[tokio::test]
    async fn an_unfinished_hook_passes_livez_during_the_grace_period() {
        let checks = [HealthCheck::new("poststarthook/x", Endpoints::ALL, || Err("not finished")).with_livez_grace()];
        let until = Some(Instant::now() + std::time::Duration::from_secs(60));
        let r = routes(&checks, &Telemetry::new(), until);
        assert_eq!(get(&r, "/livez").await.unwrap().0, 200);
        assert_eq!(get(&r, "/readyz").await.unwrap().0, 500);
    }
}
