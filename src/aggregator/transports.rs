//! Transports by TLS inputs: APIServices on the same service with the same bundle share connections, also with probes.

use super::apiservice::ApiService;
use super::proxy::tls::{TlsBuilder, TlsInputs};
use super::proxy::transport::{Bounds, Transport};
use crate::client::outbound::Outbound;
use crate::tasks::TaskGroup;
use crate::telemetry::Telemetry;
use crate::telemetry::clients::ClientRequestMetrics;
use arc_swap::ArcSwapOption;
use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use std::sync::{Arc, Mutex, Weak};

/// The transports in use. Looked at when an APIService changes, not when a request comes.
pub struct Transports {
    tls: TlsBuilder,
    identity: ArcSwapOption<CertifiedKey>,
    outbound: Arc<Outbound>,
    tasks: TaskGroup,
    counts: ClientRequestMetrics,
    bounds: Bounds,
    known: Mutex<Vec<(TlsInputs, Weak<Transport>)>>,
}

impl Transports {
    /// None yet. Connections' tasks belong to `tasks`.
    pub fn new(
        provider: Arc<CryptoProvider>,
        outbound: Outbound,
        tasks: TaskGroup,
        bounds: Bounds,
        telemetry: &Telemetry,
    ) -> Self {
        Self {
            outbound: Arc::new(outbound),
            tls: TlsBuilder::new(provider).counting(telemetry.x509_flaws.clone()),
            counts: telemetry.client_requests.clone(),
            bounds,
            identity: ArcSwapOption::empty(),
            tasks,
            known: Mutex::default(),
        }
    }

    /// The certificate to show to backends from now on. Transports made before keep theirs until they are asked for
    /// again.
    pub fn set_identity(&self, identity: Option<Arc<CertifiedKey>>) {
        self.identity.store(identity);
    }

    /// Those in use.
    pub fn all(&self) -> Vec<Arc<Transport>> {
        let known = self.known.lock().expect("no code panics while holding this lock");
        known.iter().filter_map(|(_, t)| t.upgrade()).collect()
    }

    /// The transport for an APIService's backend.
    ///
    /// # Errors
    /// Upstream's text about a bundle that cannot be used.
    pub fn of(&self, s: &ApiService) -> Result<Arc<Transport>, String> {
        let Some(service) = &s.service else {
            return Err("a local APIService has no transport".into());
        };
        let wanted = TlsInputs {
            insecure: s.insecure,
            ca_bundle: s.ca_bundle.clone(),
            server_name: service.server_name(),
            identity: self.identity.load_full(),
        };
        let mut known = self.known.lock().expect("no code panics while holding this lock");
        known.retain(|(_, t)| t.strong_count() > 0);
        let found = known.iter().find(|(inputs, _)| inputs.same(&wanted));
        if let Some(transport) = found.and_then(|(_, t)| t.upgrade()) {
            return Ok(transport);
        }
        let tls = self.tls.build(&wanted)?;
        let transport = Transport::new(tls, self.outbound.clone(), self.tasks.clone());
        let transport = Arc::new(transport.counting(self.counts.clone()).bounded(self.bounds));
        known.push((wanted, Arc::downgrade(&transport)));
        Ok(transport)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregator::internal::{self, AGGREGATOR};
    use crate::aggregator::testing::*;

    #[tokio::test]
    async fn a_certificate_without_names_is_counted_with_each_full_handshake_and_requests_with_each_answer() {
        let pki = Pki::new(&[], &[b"h2"]);
        let backend = Backend::http(&pki, 100, |_| async { answer(200, "{}") }).await;
        let telemetry = Telemetry::new();
        let transports = Transports::new(provider(), Outbound::direct(), tasks(), Bounds::default(), &telemetry);
        let mut object = apiservice("g", "", 443);
        object.set(&["spec", "insecureSkipTLSVerify"], true);
        let transport = transports.of(&ApiService::from_value(&object)).unwrap();
        for _ in 0..2 {
            let got = internal::fetch(&transport, &backend.authority, "/apis", AGGREGATOR, &[]).await;
            assert_eq!(got.unwrap().status, 200);
        }
        assert_eq!(telemetry.x509_flaws.missing_san.get(), 1, "one connection");
        // Another service, so another transport: on the same one the session would be resumed, without a certificate.
        object.set(&["spec", "service", "name"], "other");
        let other = transports.of(&ApiService::from_value(&object)).unwrap();
        let got = internal::fetch(&other, &backend.authority, "/apis", AGGREGATOR, &[]).await;
        assert_eq!(got.unwrap().status, 200);
        assert_eq!(telemetry.x509_flaws.missing_san.get(), 2);
        let text = String::from_utf8(telemetry.text()).unwrap();
        let line = format!(
            "rest_client_requests_total{{code=\"200\",host=\"{}\",method=\"GET\"}} 3",
            backend.authority
        );
        assert!(text.contains(&line), "{line} in {text}");
    }
}
