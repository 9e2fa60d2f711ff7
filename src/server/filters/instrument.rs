//! Request metrics. Like upstream's instrumentation, which sits in the handlers, this runs inside
//! authorization: rejected requests, unknown paths and proxied responses are not counted in
//! `apiserver_request_total`.

use super::amend::amended;
use super::hold;
use crate::request::info::first_value;
use crate::request::{
    Authorized, FromBackend, NotInRequestMetrics, Request, RequestContext, RequestInfo, Response, UnprotectedHandler,
};
use crate::server::request_labels::request_labels;
use crate::telemetry::Telemetry;
use crate::telemetry::requests::{Labels, Series};
use http::Method;
use http::header::CONTENT_TYPE;
use prometheus::IntGauge;
use std::sync::Arc;
use std::time::Instant;

pub(super) struct Instrument {
    inner: Arc<dyn UnprotectedHandler>,
    telemetry: Telemetry,
}

impl Instrument {
    pub(super) fn new(inner: Arc<dyn UnprotectedHandler>, telemetry: Telemetry) -> Self {
        Self { inner, telemetry }
    }

    pub(super) fn serve(
        &self,
        req: Request,
        proof: Authorized,
        info: Arc<RequestInfo>,
    ) -> impl Future<Output = Response> + Send + use<'_> {
        let received = RequestContext::of(&req).received;
        // A prefix, for YAML and CBOR.
        let apply = req.method() == Method::PATCH
            && (req.headers().get(CONTENT_TYPE)).is_some_and(|c| c.as_bytes().starts_with(b"application/apply-patch"));
        let dry_run = match req.uri().query() {
            // Only `All` is valid: other values are refused and must not become a label.
            Some(q) if first_value(q, "dryRun").as_deref() == Some("All") => "All",
            _ => "",
        };
        let requests = &self.telemetry.requests;
        // Counted from here on, also while the handler waits; the guard decrements in any case.
        let running = info
            .is_long_running()
            .then(|| Running::start(requests.longrunning(&request_labels(&info, apply))));
        amended(self.inner.clone().serve(req, proof), move |answer| {
            // Decided by the response: only the handler knows whether it proxied the request.
            if answer.extensions().get::<NotInRequestMetrics>().is_some() || FromBackend::of(answer).is_some() {
                // A proxied stream still counts as long-running while it is open.
                if let Some(running) = running {
                    hold::until_sent(answer, running);
                }
                return;
            }
            let labels = Labels {
                dry_run,
                ..request_labels(&info, apply)
            };
            let ended = Ended {
                series: requests.series(&labels, answer.status().as_u16()),
                since: received.unwrap_or_else(|| tokio::time::Instant::now().into_std()),
                bytes: 0,
                _running: running,
            };
            hold::until_sent(answer, ended);
        })
    }
}

/// Records a request's metrics when its response ends.
struct Ended {
    series: Arc<Series>,
    since: Instant,
    bytes: usize,
    _running: Option<Running>,
}

impl hold::Guard for Ended {
    fn sent(&mut self, bytes: usize) {
        self.bytes += bytes;
    }
}

impl hold::Guard for Running {}

impl Drop for Ended {
    fn drop(&mut self) {
        if let Some(size) = &self.series.size {
            size.observe(self.bytes as f64);
        }
        // Also if the body was cut off, because the request was served.
        self.series.total.inc();
        let now = tokio::time::Instant::now().into_std();
        self.series
            .duration
            .observe(now.saturating_duration_since(self.since).as_secs_f64());
    }
}

/// Counts a long-running request in its gauge until dropped.
struct Running(IntGauge);

impl Running {
    fn start(gauge: IntGauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.dec();
    }
}
