//! Cache of [`Transport`]s by everything their connections depend on, so that APIServices with the same
//! service and settings share connections, with each other and with probes. Entry point: [`Transports::of`].

use super::apiservice::ApiService;
use super::own_requests::{self, AGGREGATOR, PROBE};
use super::references::{self, ReferenceError, References};
use crate::proxy::hops::HOPS;
use crate::proxy::outbound::Outbound;
use crate::proxy::tls::{self, TlsBuilder, TlsInputs};
use crate::proxy::transport::{ConnectionLimits, Transport, UpstreamOptions};
use crate::request::headers::IdentityHeaders;
use crate::sync::Mutex;
use crate::tasks::{TaskGroup, shrink};
use crate::telemetry::Telemetry;
use crate::telemetry::clients::ClientRequestMetrics;
use arc_swap::ArcSwapOption;
use http::HeaderValue;
use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// The transports in use. Accessed when an APIService changes, never per request.
pub(crate) struct Transports {
    tls: TlsBuilder,
    identity: ArcSwapOption<CertifiedKey>,
    references: Arc<References>,
    outbound: Arc<Outbound>,
    tasks: TaskGroup,
    counts: ClientRequestMetrics,
    limits: ConnectionLimits,
    forwarding_headers: ForwardingHeaders,
    known: Mutex<KnownTransports>,
    ids: AtomicU64,
    /// Set late: the availability checks listen, and they need the transports.
    on_failure: Arc<OnceLock<OnFailure>>,
}

/// Identifies a transport as long as the process lives.
pub(crate) type TransportId = u64;

type OnFailure = Box<dyn Fn(TransportId) + Send + Sync>;

/// The settings that the connections of a transport depend on.
type Settings = (TlsInputs, UpstreamOptions);

/// The transports by their settings. Only weak references: a transport lives as long as a handler or a
/// request uses it.
#[derive(Default)]
struct KnownTransports {
    by_settings: HashMap<Settings, (TransportId, Weak<Transport>)>,
    /// Number of transports at which those that are no longer used are removed.
    purge_at: usize,
}

/// Header rules for every request through a transport.
#[derive(Clone, Debug)]
pub(crate) struct ForwardingHeaders {
    /// The hop header of this gateway replica, for loop detection.
    pub hop: HeaderValue,
    /// Names of trailers that could claim an identity.
    pub identity: Arc<IdentityHeaders>,
}

/// Why there can be no connection.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum TransportError {
    /// The object has no backend.
    #[error("a local APIService has no transport")]
    Local,
    /// `spec.caBundle` cannot be used.
    #[error(transparent)]
    Bundle(tls::Error),
    /// The annotations are invalid or refer to unusable objects.
    #[error("{}", .0.message)]
    Annotations(ReferenceError),
}

impl KnownTransports {
    fn add(&mut self, settings: Settings, id: TransportId, transport: &Arc<Transport>) {
        // Replaces at most a transport that is no longer used: a living one would have been found and shared.
        self.by_settings.insert(settings, (id, Arc::downgrade(transport)));
        if self.by_settings.len() > self.purge_at {
            self.purge();
        }
    }

    fn purge(&mut self) {
        self.by_settings
            .retain(|_, (_, transport)| transport.strong_count() > 0);
        shrink(&mut self.by_settings);
        // Twice the number in use, so that purging takes constant time on average.
        self.purge_at = 2 * self.by_settings.len().max(16);
    }
}

impl Transports {
    /// Creates an empty cache. The tasks of connections belong to `tasks`.
    pub(crate) fn new(
        provider: Arc<CryptoProvider>,
        references: Arc<References>,
        outbound: Outbound,
        tasks: TaskGroup,
        limits: ConnectionLimits,
        forwarding_headers: ForwardingHeaders,
        telemetry: &Telemetry,
    ) -> Self {
        Self {
            forwarding_headers,
            outbound: Arc::new(outbound),
            tls: TlsBuilder::new(provider).with_metrics(telemetry.x509_warnings.clone()),
            counts: telemetry.client_requests.clone(),
            limits,
            identity: ArcSwapOption::empty(),
            references,
            tasks,
            known: Mutex::default(),
            ids: AtomicU64::new(0),
            on_failure: Arc::default(),
        }
    }

    /// Calls `report` when an exchange over a transport fails or one of its connections breaks. Only the
    /// first call has an effect.
    pub(crate) fn on_failure(&self, report: impl Fn(TransportId) + Send + Sync + 'static) {
        // A second caller would be a programming error without consequence for requests.
        let _ = self.on_failure.set(Box::new(report));
    }

    /// Replaces the client certificate for transports created from now on. Existing ones keep theirs until
    /// they are requested again.
    pub(crate) fn set_identity(&self, identity: Option<Arc<CertifiedKey>>) {
        self.identity.store(identity);
    }

    /// All transports in use.
    pub(crate) fn all(&self) -> Vec<Arc<Transport>> {
        let known = self.known.lock();
        known
            .by_settings
            .values()
            .filter_map(|(_, transport)| transport.upgrade())
            .collect()
    }

    /// Forgets the settings of transports that are no longer used, among which are CA bundles of up to a
    /// megabyte. Called periodically; takes time in proportion to the number of transports.
    pub(crate) fn purge(&self) {
        self.known.lock().purge();
    }

    /// The transport for an APIService's backend.
    ///
    /// # Errors
    /// [`TransportError`].
    pub(crate) fn of(&self, s: &ApiService) -> Result<Arc<Transport>, TransportError> {
        self.identified(s).map(|(_, transport)| transport)
    }

    /// [`Transports::of`], with the identifier that failures are reported with.
    ///
    /// # Errors
    /// [`TransportError`].
    pub(crate) fn identified(&self, s: &ApiService) -> Result<(TransportId, Arc<Transport>), TransportError> {
        let wanted = self.inputs(s)?;
        let options = UpstreamOptions {
            target: s.backend.target.clone(),
            timeouts: s.backend.timeouts,
        };
        let wanted = (wanted, options);
        // Built under the lock, so that equal settings never get two transports.
        let mut known = self.known.lock();
        let found = known.by_settings.get(&wanted);
        if let Some(found) = found.and_then(|(id, transport)| Some((*id, transport.upgrade()?))) {
            return Ok(found);
        }
        let tls = self.tls.build(&wanted.0).map_err(|why| match &s.backend.ca_from {
            Some(reference) => TransportError::Annotations(references::reference_error(reference, why)),
            None => TransportError::Bundle(why),
        })?;
        // Not the transport's address in memory, which a later one could get.
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        // The hook is set once the controllers exist; transports may be created earlier.
        let reported = self.on_failure.clone();
        let hook = Arc::new(move || {
            if let Some(report) = reported.get() {
                report(id);
            }
        });
        let mut transport = Transport::new(tls, self.outbound.clone(), self.tasks.clone())
            .with_options(wanted.1.clone())
            .with_metrics(self.counts.clone())
            .with_limits(self.limits)
            .with_failure_hook(hook)
            .with_hop(self.forwarding_headers.hop.clone())
            .with_identity_headers(self.forwarding_headers.identity.clone());
        // Ejected addresses are probed like the APIService itself. A name that is not a
        // valid path gets no requests either.
        if let Ok(mut probe) = own_requests::probe_request(&s.discovery_path(), AGGREGATOR, &PROBE) {
            probe.headers.insert(HOPS, self.forwarding_headers.hop.clone());
            transport = transport.with_probe(probe);
        }
        let transport = Arc::new(transport);
        known.add(wanted, id, &transport);
        Ok((id, transport))
    }

    fn inputs(&self, s: &ApiService) -> Result<TlsInputs, TransportError> {
        let Some(service) = &s.service else {
            return Err(TransportError::Local);
        };
        // Before anything is read: annotations that are invalid must not select certificates.
        if let Some(fault) = &s.fault {
            return Err(TransportError::Annotations(ReferenceError {
                reason: "InvalidAnnotations",
                message: fault.to_string(),
                detail: fault.to_string(),
            }));
        }
        let (ca, own) = (&s.backend.ca_from, &s.backend.certificate_from);
        let roots = ca.as_ref().map(|r| self.references.roots(r)).transpose();
        let pair = own.as_ref().map(|r| self.references.pair(r)).transpose();
        Ok(TlsInputs {
            // A reference to CA certificates expresses the wish to verify, even if the spec says otherwise.
            insecure: s.insecure && ca.is_none(),
            ca_bundle: roots
                .map_err(TransportError::Annotations)?
                .unwrap_or(s.ca_bundle.clone()),
            server_name: service.server_name(),
            identity: match pair.map_err(TransportError::Annotations)? {
                None => self.identity.load_full(),
                pair => pair,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregator::resolver::Endpoints;
    use crate::aggregator::testing::*;

    #[tokio::test]
    async fn unused_transports_are_purged_with_their_ca_bundles() {
        let pki = Pki::new(&["ext.ns.svc"], &[]);
        let transports = transports(&Telemetry::new());
        let of = |ca: &str| ApiService::from_value(&apiservice("g", ca, 443));
        let transport = transports.of(&of(&pki.ca_pem)).unwrap();
        transports.of(&of(&format!("{}\n", pki.ca_pem))).unwrap();
        transports.purge();
        let known = transports.known.lock();
        let bundles: Vec<&[u8]> = known.by_settings.keys().map(|(tls, _)| tls.ca_bundle.pem()).collect();
        assert_eq!(bundles, [pki.ca_pem.as_bytes()]);
        drop(transport);
    }

    #[tokio::test(start_paused = true)]
    async fn an_ejected_address_is_probed_as_the_aggregator() {
        let clock = Still::new();
        let pki = Pki::new(&["ext.ns.svc"], &[b"h2"]);
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        let backend = Backend::http(&pki, 100, move |r| {
            let header = |name: &str| r.headers().get(name).map(|v| v.to_str().unwrap().to_owned());
            let user = [header("x-remote-user"), header("x-remote-group")];
            sender.send((r.uri().path().to_owned(), user)).unwrap();
            async { response(403, "{}") }
        })
        .await;
        let transports = transports(&Telemetry::new());
        let object = apiservice("g", &pki.ca_pem, 443);
        let transport = transports.of(&ApiService::from_value(&object)).unwrap();
        let all: [Arc<str>; 2] = [backend.authority.as_str().into(), "127.0.0.1:1".into()];
        let first = Endpoints::One(all[0].clone());
        own_requests::fetch(&transport, (&first, &all[0]), "/x", AGGREGATOR, &[])
            .await
            .unwrap();
        assert_eq!(receiver.recv().await.unwrap().0, "/x");
        for _ in 0..3 {
            transport.record_timeout(&all[0], "late");
        }
        assert_eq!(*transport.choose(&all), all[1]);
        assert!(receiver.try_recv().is_err(), "the ejection has not elapsed");
        clock.pass(std::time::Duration::from_millis(1001)).await;
        assert_eq!(*transport.choose(&all), all[1]);
        let (path, user) = receiver.recv().await.unwrap();
        assert_eq!(path, "/apis/g/v1");
        assert_eq!(
            user,
            ["system:kube-aggregator", "system:masters"].map(|s| Some(s.to_owned()))
        );
    }

    #[tokio::test]
    async fn certificates_without_san_count_per_handshake_and_requests_per_response() {
        let pki = Pki::new(&[], &[b"h2"]);
        let backend = Backend::http(&pki, 100, |_| async { response(200, "{}") }).await;
        let telemetry = Telemetry::new();
        let transports = transports(&telemetry);
        let endpoints = Endpoints::One(backend.authority.as_str().into());
        let place = (&endpoints, backend.authority.as_str());
        let mut object = apiservice("g", "", 443);
        object.set(&["spec", "insecureSkipTLSVerify"], true);
        let transport = transports.of(&ApiService::from_value(&object)).unwrap();
        for _ in 0..2 {
            let got = own_requests::fetch(&transport, place, "/apis", AGGREGATOR, &[]).await;
            assert_eq!(got.unwrap().status, 200);
        }
        assert_eq!(telemetry.x509_warnings.missing_san.get(), 1, "one connection");
        // Another service has another transport: on the same one the session would be resumed, without a
        // certificate.
        object.set(&["spec", "service", "name"], "other");
        let other = transports.of(&ApiService::from_value(&object)).unwrap();
        let got = own_requests::fetch(&other, place, "/apis", AGGREGATOR, &[]).await;
        assert_eq!(got.unwrap().status, 200);
        assert_eq!(telemetry.x509_warnings.missing_san.get(), 2);
        let text = String::from_utf8(telemetry.text()).unwrap();
        let line = format!(
            "rest_client_requests_total{{code=\"200\",host=\"{}\",method=\"GET\"}} 3",
            backend.authority
        );
        assert!(text.contains(&line), "{line} in {text}");
    }
}
