//! TLS configurations towards backends: trust anchors, server name and client certificate. Entry point:
//! [`TlsBuilder::build`]. The verification itself is in `verify`.

use super::ca_bundle::{CaBundle, UnusableBundle};
use super::certificate_warnings::CountingVerdict;
use super::verify::{AnyServer, GoLike, Verdict, Verifier};
use crate::telemetry::X509Warnings;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, SignatureScheme};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

/// All inputs of a TLS configuration. Backends with equal inputs share connections.
#[derive(Clone)]
pub(crate) struct TlsInputs {
    /// Skip verification of the backend's certificate.
    pub insecure: bool,
    /// CA certificates; empty for those of the system.
    pub ca_bundle: CaBundle,
    /// The name that the certificate must be valid for; also sent as SNI.
    pub server_name: String,
    /// The client certificate to present on request.
    pub identity: Option<Arc<CertifiedKey>>,
}

/// The TLS configurations for one set of inputs.
pub(crate) struct ClientTls {
    /// Offers h2, then http/1.1.
    pub any: Arc<ClientConfig>,
    /// Offers http/1.1 only, for upgrades.
    pub http1: Arc<ClientConfig>,
    /// The name to verify; `None` if the configured one is not a valid name, in which case every TLS dial
    /// fails.
    pub server_name: Option<ServerName<'static>>,
}

/// Builds TLS configurations and caches the system's root certificates.
pub(crate) struct TlsBuilder {
    provider: Arc<CryptoProvider>,
    system_roots: OnceLock<Arc<RootCertStore>>,
    certificate_warnings: Option<X509Warnings>,
}

impl TlsInputs {
    /// The parts by which configurations are compared. Client certificates are compared by address.
    fn parts(&self) -> impl Hash + Eq {
        // By address: a certificate is replaced, never changed, and `self` keeps its address from being
        // reused.
        let identity = self.identity.as_ref().map(Arc::as_ptr);
        (self.insecure, self.ca_bundle.digest(), &self.server_name, identity)
    }
}

impl PartialEq for TlsInputs {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for TlsInputs {}

impl Hash for TlsInputs {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

/// Why a TLS configuration cannot be built.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum Error {
    /// The CA bundle cannot be used.
    #[error(transparent)]
    Bundle(#[from] UnusableBundle),
    /// The crypto provider supports none of the protocol versions.
    #[error(transparent)]
    Provider(rustls::Error),
}

// === impl TlsBuilder ===

impl TlsBuilder {
    /// Creates a builder that uses this crypto provider.
    pub(crate) fn new(provider: Arc<CryptoProvider>) -> Self {
        Self {
            provider,
            system_roots: OnceLock::new(),
            certificate_warnings: None,
        }
    }

    /// Counts deprecated properties of backends' certificates.
    pub(crate) fn with_metrics(mut self, certificate_warnings: X509Warnings) -> Self {
        self.certificate_warnings = Some(certificate_warnings);
        self
    }

    /// Builds the configurations for these inputs. Takes a few hundred microseconds, so it is
    /// done per change, not per request.
    ///
    /// # Errors
    /// [`Error`], most often for a CA bundle that cannot be used.
    pub(crate) fn build(&self, inputs: &TlsInputs) -> Result<ClientTls, Error> {
        let verdict: Box<dyn Verdict> = if inputs.insecure {
            Box::new(AnyServer)
        } else if inputs.ca_bundle.is_empty() {
            // Read once, as Go does per process.
            let roots = self.system_roots.get_or_init(|| Arc::new(load_system_roots())).clone();
            Box::new(GoLike::new(roots, Arc::default(), &self.provider))
        } else {
            let parsed = inputs.ca_bundle.parsed()?;
            Box::new(GoLike::new(
                parsed.roots.clone(),
                parsed.certificates.clone(),
                &self.provider,
            ))
        };
        let verdict = match &self.certificate_warnings {
            None => verdict,
            Some(certificate_warnings) => Box::new(CountingVerdict {
                verdict,
                certificate_warnings: certificate_warnings.clone(),
            }),
        };
        let verifier = Arc::new(Verifier {
            verdict,
            provider: self.provider.clone(),
        });
        // Two of them, because ALPN cannot be chosen per connection.
        let config = |alpn: &[&[u8]]| -> Result<Arc<ClientConfig>, Error> {
            let builder = ClientConfig::builder_with_provider(self.provider.clone())
                .with_safe_default_protocol_versions()
                .map_err(Error::Provider)?
                .dangerous()
                .with_custom_certificate_verifier(verifier.clone());
            let mut c = match &inputs.identity {
                Some(key) => builder.with_client_cert_resolver(Arc::new(ShowAlways(key.clone()))),
                None => builder.with_no_client_auth(),
            };
            c.alpn_protocols = alpn.iter().map(|p| p.to_vec()).collect();
            Ok(Arc::new(c))
        };
        Ok(ClientTls {
            any: config(&[b"h2", b"http/1.1"])?,
            http1: config(&[b"http/1.1"])?,
            // A name that is not valid makes the handshake fail, as in Go, and not the configuration.
            server_name: ServerName::try_from(inputs.server_name.clone()).ok(),
        })
    }
}

fn load_system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    for e in &found.errors {
        tracing::warn!("a system root certificate was left out: {e}");
    }
    // As Go, which skips system roots that it cannot parse.
    roots.add_parsable_certificates(found.certs);
    roots
}

#[derive(Debug)]
struct ShowAlways(Arc<CertifiedKey>);

impl rustls::client::ResolvesClientCert for ShowAlways {
    fn resolve(&self, _roots: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        // The authorities that the server lists are ignored, as in client-go (`GetClientCertificate`); only the
        // signature scheme must match.
        self.0.key.choose_scheme(schemes).map(|_| self.0.clone())
    }
    fn has_certs(&self) -> bool {
        true
    }
}

impl fmt::Debug for TlsInputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TlsInputs({}, insecure: {})", self.server_name, self.insecure)
    }
}
