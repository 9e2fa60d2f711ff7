//! What webhooks are called with: TLS, egress rules, and the aggregator's view of Services.

use crate::aggregator::{ServiceReference, ServiceResolver};
use crate::client::webhook::{ResolveService, Webhooks};
use crate::extensions::conversion::Conversions;
use crate::proxy::outbound::Outbound;
use crate::proxy::tls::TlsBuilder;
use crate::telemetry::Telemetry;
use crate::telemetry::conversion::ConversionMetrics;
use rustls::crypto::CryptoProvider;
use std::sync::{Arc, OnceLock};

/// The Services of the cluster. Webhooks are configured before the aggregator, which knows the Services, is built.
#[derive(Clone, Default)]
pub struct Services(Arc<OnceLock<Arc<dyn ServiceResolver>>>);

impl Services {
    /// Sets the resolver. Later calls have no effect.
    pub fn set(&self, resolver: Arc<dyn ServiceResolver>) {
        let _ = self.0.set(resolver);
    }
}

impl ResolveService for Services {
    fn addresses(&self, namespace: &str, name: &str, port: u16) -> Result<Vec<Arc<str>>, String> {
        let resolver = self.0.get().ok_or("the server is still starting")?;
        let found = resolver.endpoints(&ServiceReference::new(namespace, name, port));
        found.map(|all| all.all().to_vec()).map_err(|e| e.0)
    }
}

/// The conversions of custom resources.
pub fn conversions(
    provider: &Arc<CryptoProvider>,
    outbound: &Outbound,
    services: &Services,
    telemetry: &Telemetry,
) -> Conversions {
    let tls = TlsBuilder::new(provider.clone()).with_metrics(telemetry.x509_warnings.clone());
    let webhooks = Webhooks::new(tls, outbound.clone(), Arc::new(services.clone()));
    Conversions::new(webhooks, ConversionMetrics::new(telemetry.registry()))
}
