//! Metrics, named as upstream's, and tracing spans ([`spans`]). Entry point: [`Telemetry`], one per gateway
//! and passed down; nothing here is process-wide.
//!
//! Modules register their own families through [`Telemetry::registry`]. The request path takes no lock:
//! [`requests::RequestMetrics`] keeps its series in a snapshot. Families prefixed `torana_` have no
//! counterpart upstream.

pub(crate) mod access;
pub(crate) mod admission_policies;
mod admission_steps;
pub(crate) mod admission_webhooks;
pub(crate) mod audit;
pub(crate) mod authentication;
pub(crate) mod backends;
pub(crate) mod caches;
pub(crate) mod clients;
pub(crate) mod compute;
pub(crate) mod conversion;
mod derived;
pub(crate) mod encryption;
mod endpoint_slices;
mod latencies;
pub(crate) mod match_conditions;
pub(crate) mod objects;
pub(crate) mod port;
pub(crate) mod process;
mod queue;
pub(crate) mod request_parts;
pub(crate) mod requests;
pub(crate) mod spans;
mod storage;
pub(crate) mod timed;
mod watches;

pub(crate) use endpoint_slices::EndpointSliceMetrics;
pub(crate) use latencies::{Latencies, short_duration};
pub(crate) use queue::QueueMetrics;
pub(crate) use storage::{Operation, StorageMetrics};
pub(crate) use watches::WatchMetrics;

use prometheus::{Encoder, GaugeVec, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry};
use std::sync::Arc;

use crate::sync::Mutex;

/// The metrics of one gateway. Clones refer to the same metrics.
#[derive(Clone)]
pub struct Telemetry(Arc<Families>);

/// The metric families that every gateway has.
pub struct Families {
    registry: Registry,
    slis: Registry,
    /// Requests: counts, durations, sizes and terminations.
    pub requests: requests::RequestMetrics,
    /// The compute pool, request body memory, and reactor stalls.
    pub compute: compute::ComputeMetrics,
    /// `apiserver_current_inflight_requests{request_kind}`.
    pub inflight: IntGaugeVec,
    /// `apiserver_current_inqueue_requests{request_kind}`.
    pub inqueue: IntGaugeVec,
    /// The serving port: handshakes, refused connections.
    pub port: port::PortMetrics,
    /// `aggregator_unavailable_apiservice{name}`: 1 if unavailable.
    pub unavailable_apiservice: IntGaugeVec,
    /// `aggregator_unavailable_apiservice_total{name,reason}`.
    pub unavailable_apiservice_total: IntCounterVec,
    /// Backend certificates that a stricter client would reject.
    pub x509_warnings: X509Warnings,
    /// The same of certificates of webhooks.
    pub webhook_x509_warnings: X509Warnings,
    /// Aggregated documents, backends and their addresses.
    pub backends: Arc<backends::BackendMetrics>,
    /// Requests that this gateway makes itself.
    pub client_requests: clients::ClientRequestMetrics,
    /// `apiserver_flowcontrol_dispatched_requests_total{flow_schema,priority_level}`: requests that were
    /// dispatched.
    pub dispatched: IntCounterVec,
    /// `apiserver_storage_objects{resource}`.
    pub storage_objects: IntGaugeVec,
    /// `apiserver_storage_size_bytes{storage_cluster_id}`.
    pub storage_size_bytes: IntGaugeVec,
    /// `authentication_attempts{result}`: success, failure or error.
    pub authentication_attempts: IntCounterVec,
    /// `authenticated_user_requests{username}`.
    pub authenticated_user_requests: IntCounterVec,
    /// `authentication_duration_seconds{result}`, and a part of
    /// `apiserver_request_filter_duration_seconds{filter}`.
    pub authentication_duration: HistogramVec,
    /// `apiserver_client_certificate_expiration_seconds`.
    pub client_certificates: access::ClientCertificateMetrics,
    /// Uses of service-account tokens, by kind.
    pub service_account_tokens: access::ServiceAccountTokenMetrics,
    /// Impersonation: attempts and durations, by mode and decision.
    pub impersonation: access::ImpersonationMetrics,
    /// `authorization_duration_seconds{result}`, and a part of
    /// `apiserver_request_filter_duration_seconds{filter}`.
    pub authorization_duration: HistogramVec,
    /// `authorization_attempts_total{result}`: allowed, denied, no-opinion or error.
    pub authorization_attempts: IntCounterVec,
    /// `kubernetes_healthcheck{name,type}`, served at `/metrics/slis`.
    pub healthcheck: IntGaugeVec,
    /// `kubernetes_healthchecks_total{name,type,status}`, served at `/metrics/slis`.
    pub healthchecks_total: IntCounterVec,
    /// `apiserver_admission_controller_admission_duration_seconds{name,operation,rejected,type}`.
    pub admission_controller: HistogramVec,
    /// Durations of the two phases of admission.
    pub admission_step: admission_steps::AdmissionStepMetrics,
    /// `apiserver_requested_deprecated_apis{group,removed_release,resource,subresource,version}`.
    pub requested_deprecated_apis: IntGaugeVec,
    queues: queue::QueueFamilies,
    storage: storage::StorageFamilies,
    watches: watches::WatchFamilies,
    // `Arc`, so that the list can be copied out of the lock.
    before_scrape: Mutex<Vec<Arc<dyn Fn() + Send + Sync>>>,
}

/// Defects of the certificates of servers of one kind, counted per TLS handshake.
#[derive(Clone, Debug)]
pub struct X509Warnings {
    /// `…_x509_missing_san_total`.
    pub missing_san: IntCounter,
    /// `…_x509_insecure_sha1_total`.
    pub insecure_sha1: IntCounter,
}

impl X509Warnings {
    fn new(r: &Registry, prefix: &str, servers: &str) -> Self {
        let defect = |name, what| {
            let help = format!("TLS handshakes with {servers} {what}.");
            counter(r, &format!("{prefix}_x509_{name}_total"), &help)
        };
        Self {
            missing_san: defect("missing_san", "whose certificate has no subject alternative name"),
            insecure_sha1: defect("insecure_sha1", "that present a certificate signed with SHA-1"),
        }
    }
}

impl Telemetry {
    /// Creates metrics that are all zero.
    pub fn new() -> Self {
        // Not the crate's default registry, where a second gateway of the process would find its names taken.
        let r = Registry::new();
        // A registry of their own, because they have a path of their own.
        let slis = Registry::new();
        // Made first, because the metrics of the port share it.
        let compute = compute::ComputeMetrics::new(&r);
        let families = Families {
            requests: requests::RequestMetrics::new(&r),
            inflight: int_gauges(
                &r,
                "apiserver_current_inflight_requests",
                "Requests being served, by kind.",
                &["request_kind"],
            ),
            inqueue: int_gauges(
                &r,
                "apiserver_current_inqueue_requests",
                "Requests waiting in queues of priority and fairness, by kind.",
                &["request_kind"],
            ),
            port: port::PortMetrics::new(&r, compute.clone()),
            unavailable_apiservice: int_gauges(
                &r,
                "aggregator_unavailable_apiservice",
                "APIServices that are unavailable, by name.",
                &["name"],
            ),
            unavailable_apiservice_total: counters(
                &r,
                "aggregator_unavailable_apiservice_total",
                "How often an APIService became unavailable, by name and reason.",
                &["name", "reason"],
            ),
            x509_warnings: X509Warnings::new(&r, "apiserver_kube_aggregator", "backends"),
            webhook_x509_warnings: X509Warnings::new(&r, "apiserver_webhooks", "webhooks"),
            backends: Arc::new(backends::BackendMetrics::new(&r)),
            client_requests: clients::ClientRequestMetrics::new(&r),
            dispatched: counters(
                &r,
                "apiserver_flowcontrol_dispatched_requests_total",
                "Requests that were dispatched, by flow schema and priority level.",
                &["flow_schema", "priority_level"],
            ),
            storage_objects: int_gauges(
                &r,
                "apiserver_storage_objects",
                "Stored objects, by resource.",
                &["resource"],
            ),
            storage_size_bytes: int_gauges(
                &r,
                "apiserver_storage_size_bytes",
                "Size of the store's files.",
                &["storage_cluster_id"],
            ),
            authentication_attempts: counters(
                &r,
                "authentication_attempts",
                "Authentications, by result.",
                &["result"],
            ),
            authenticated_user_requests: counters(
                &r,
                "authenticated_user_requests",
                "Authenticated requests, by kind of user name.",
                &["username"],
            ),
            authentication_duration: access::filter_durations(),
            client_certificates: access::ClientCertificateMetrics::new(&r),
            service_account_tokens: access::ServiceAccountTokenMetrics::new(&r),
            impersonation: access::ImpersonationMetrics::new(&r),
            authorization_duration: access::filter_durations(),
            authorization_attempts: counters(
                &r,
                "authorization_attempts_total",
                "Authorizations, by result.",
                &["result"],
            ),
            healthcheck: int_gauges(
                &slis,
                "kubernetes_healthcheck",
                "[STABLE] This metric records the result of a single healthcheck.",
                &["name", "type"],
            ),
            healthchecks_total: counters(
                &slis,
                "kubernetes_healthchecks_total",
                "[STABLE] This metric records the results of all healthcheck.",
                &["name", "type", "status"],
            ),
            admission_controller: histograms(
                &r,
                "apiserver_admission_controller_admission_duration_seconds",
                "Seconds an admission plugin took, by plugin, operation, outcome and phase.",
                &["name", "operation", "rejected", "type"],
                &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5],
            ),
            admission_step: admission_steps::AdmissionStepMetrics::new(&r),
            requested_deprecated_apis: int_gauges(
                &r,
                "apiserver_requested_deprecated_apis",
                "1 for deprecated APIs that were requested.",
                &["group", "removed_release", "resource", "subresource", "version"],
            ),
            queues: queue::QueueFamilies::new(&r),
            storage: storage::StorageFamilies::new(&r),
            watches: watches::WatchFamilies::new(&r),
            before_scrape: Mutex::default(),
            compute,
            slis,
            registry: r,
        };
        process::register(&families.registry);
        // After the families above: derived ones read them at each scrape.
        access::derive(&families);
        families.requests.derive(&families.registry);
        // Present from the start, so that alerts on them do not see a missing series.
        for kind in ["readOnly", "mutating"] {
            families.inflight.with_label_values(&[kind]).set(0);
        }
        Self(Arc::new(families))
    }

    /// The registry in which modules register their own families.
    pub fn registry(&self) -> &Registry {
        &self.0.registry
    }

    /// Creates handles for the work queue of that name.
    pub fn queue(&self, name: &str) -> QueueMetrics {
        self.0.queues.of(name)
    }

    /// Creates the series of a resource's storage. Call once per resource and gateway.
    pub fn storage(&self, group: &str, resource: &str) -> StorageMetrics {
        self.0.storage.of(group, resource)
    }

    /// Returns the counters for a watch of that resource.
    pub fn watch(&self, group: &str, version: &str, resource: &str) -> WatchMetrics {
        self.0.watches.of(group, version, resource)
    }

    /// Registers a function to run before each scrape, for values counted elsewhere. It must not block.
    pub fn before_scrape(&self, update: impl Fn() + Send + Sync + 'static) {
        self.updates().push(Arc::new(update));
    }

    fn updates(&self) -> crate::sync::MutexGuard<'_, Vec<Arc<dyn Fn() + Send + Sync>>> {
        self.0.before_scrape.lock()
    }

    /// Renders all metrics in the text exposition format.
    pub fn text(&self) -> Vec<u8> {
        // Cloned, so that the lock is not held while the functions run.
        let updates = self.updates().clone();
        for update in updates {
            update();
        }
        // At a scrape and not at each removal, because it walks all series.
        self.requests.purge();
        render(&self.0.registry)
    }

    /// Renders the service level indicators in the text exposition format.
    pub fn slis_text(&self) -> Vec<u8> {
        render(&self.0.slis)
    }
}

impl Default for Telemetry {
    fn default() -> Self {
        Self::new()
    }
}

// Families are added often, and accessors would only repeat their names.
impl std::ops::Deref for Telemetry {
    type Target = Families;
    fn deref(&self) -> &Families {
        &self.0
    }
}

/// Content type of [`Telemetry::text`].
pub(crate) const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

fn render(registry: &Registry) -> Vec<u8> {
    let mut out = Vec::with_capacity(16 << 10);
    // What was written before an error is served nevertheless.
    if let Err(error) = prometheus::TextEncoder::new().encode(&registry.gather(), &mut out) {
        tracing::warn!("metrics could not be written: {error}");
    }
    out
}

// Names and labels stand in the source, so a registration that fails is a mistake that the first start shows.
const VALID: &str = "the name and labels are literals, well-formed and registered once per registry";

/// Registers a family of counters.
pub(crate) fn counters(r: &Registry, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    let family = IntCounterVec::new(Opts::new(name, help), labels).expect(VALID);
    r.register(Box::new(family.clone())).expect(VALID);
    family
}

/// Registers a counter without labels.
pub(crate) fn counter(r: &Registry, name: &str, help: &str) -> IntCounter {
    let one = IntCounter::new(name, help).expect(VALID);
    r.register(Box::new(one.clone())).expect(VALID);
    one
}

/// Registers a family of gauges.
pub(crate) fn int_gauges(r: &Registry, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
    let family = IntGaugeVec::new(Opts::new(name, help), labels).expect(VALID);
    r.register(Box::new(family.clone())).expect(VALID);
    family
}

/// Registers a family of floating-point gauges.
pub(crate) fn gauges(r: &Registry, name: &str, help: &str, labels: &[&str]) -> GaugeVec {
    let family = GaugeVec::new(Opts::new(name, help), labels).expect(VALID);
    r.register(Box::new(family.clone())).expect(VALID);
    family
}

/// Registers a family of histograms.
pub(crate) fn histograms(r: &Registry, name: &str, help: &str, labels: &[&str], buckets: &[f64]) -> HistogramVec {
    let opts = prometheus::HistogramOpts::new(name, help).buckets(buckets.to_vec());
    let family = HistogramVec::new(opts, labels).expect(VALID);
    r.register(Box::new(family.clone())).expect(VALID);
    family
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateways_in_one_process_count_separately() {
        let (a, b) = (Telemetry::new(), Telemetry::new());
        a.port.handshake_failed();
        let text = |t: &Telemetry| String::from_utf8(t.text()).unwrap();
        assert!(text(&a).contains("apiserver_tls_handshake_errors_total 1"));
        assert!(text(&b).contains("apiserver_tls_handshake_errors_total 0"));
    }

    #[test]
    fn scrape_hooks_run_before_rendering() {
        let t = Telemetry::new();
        let gauge = t.storage_objects.with_label_values(&["pods"]);
        t.before_scrape(move || gauge.set(7));
        let text = String::from_utf8(t.text()).unwrap();
        assert!(text.contains("apiserver_storage_objects{resource=\"pods\"} 7"));
    }

    #[test]
    fn process_and_build_metrics_are_present() {
        let text = String::from_utf8(Telemetry::new().text()).unwrap();
        for name in [
            "process_start_time_seconds",
            "process_cpu_seconds_total",
            "process_resident_memory_bytes",
        ] {
            assert!(text.contains(&format!("\n{name} ")), "{name} missing in {text}");
        }
        assert!(text.contains("kubernetes_build_info{"));
    }
}
