//! Client TLS towards backends: how a backend proves its name (`verify`), and which certificate we show.

use super::flaws::Inspecting;
use super::verify::{AnyServer, GoLike, Verdict, Verifier};
use crate::telemetry::X509Flaws;
use bytes::Bytes;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, SignatureScheme};
use std::fmt;
use std::sync::{Arc, OnceLock};

/// Everything a connection's trust depends on. Equal inputs share connections.
#[derive(Clone)]
pub struct TlsInputs {
    /// Do not verify.
    pub insecure: bool,
    /// PEM roots; empty: the system's.
    pub ca_bundle: Bytes,
    /// What the certificate must be valid for; also sent as SNI.
    pub server_name: String,
    /// The certificate we show when asked.
    pub identity: Option<Arc<CertifiedKey>>,
}

/// The two configurations of one set of inputs.
pub struct ClientTls {
    /// Offers h2, then http/1.1.
    pub any: Arc<ClientConfig>,
    /// Offers http/1.1 only: for upgrades.
    pub http1: Arc<ClientConfig>,
    /// As verified; `None` where the name is no DNS name (nothing can then be verified or sent).
    pub server_name: Option<ServerName<'static>>,
}

/// Builds client configurations; holds what they share.
pub struct TlsBuilder {
    provider: Arc<CryptoProvider>,
    system_roots: OnceLock<Arc<RootCertStore>>,
    flaws: Option<X509Flaws>,
}

impl TlsInputs {
    /// True where both make the same connections.
    pub fn same(&self, other: &Self) -> bool {
        let identity = match (&self.identity, &other.identity) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        };
        identity
            && self.insecure == other.insecure
            && self.ca_bundle == other.ca_bundle
            && self.server_name == other.server_name
    }
}

// === impl TlsBuilder ===

impl TlsBuilder {
    /// A builder over this provider.
    pub fn new(provider: Arc<CryptoProvider>) -> Self {
        Self {
            provider,
            system_roots: OnceLock::new(),
            flaws: None,
        }
    }

    /// Counts flaws of the certificates that backends show.
    pub fn counting(mut self, flaws: X509Flaws) -> Self {
        self.flaws = Some(flaws);
        self
    }

    /// The configurations for these inputs. Takes a few hundred microseconds: once per change, not per request.
    ///
    /// # Errors
    /// Upstream's text about a bundle that cannot be used.
    pub fn build(&self, inputs: &TlsInputs) -> Result<ClientTls, String> {
        let verdict: Box<dyn Verdict> = if inputs.insecure {
            Box::new(AnyServer)
        } else if inputs.ca_bundle.is_empty() {
            let roots = self.system_roots.get_or_init(|| Arc::new(load_system_roots())).clone();
            Box::new(GoLike::new(roots, Vec::new(), &self.provider))
        } else {
            let (roots, certs) = parse_bundle(&inputs.ca_bundle)?;
            Box::new(GoLike::new(Arc::new(roots), certs, &self.provider))
        };
        let verdict = match &self.flaws {
            None => verdict,
            Some(flaws) => Box::new(Inspecting {
                verdict,
                flaws: flaws.clone(),
            }),
        };
        let verifier = Arc::new(Verifier {
            verdict,
            provider: self.provider.clone(),
        });
        let config = |alpn: &[&[u8]]| -> Result<Arc<ClientConfig>, String> {
            let builder = ClientConfig::builder_with_provider(self.provider.clone())
                .with_safe_default_protocol_versions()
                .map_err(|e| e.to_string())?
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
    roots.add_parsable_certificates(found.certs);
    roots
}

fn parse_bundle(pem: &[u8]) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), String> {
    let unusable = |why: &str| format!("unable to load root certificates: {why}");
    let mut roots = RootCertStore::empty();
    let mut certs = Vec::new();
    let mut blocks = 0;
    for cert in CertificateDer::pem_slice_iter(pem) {
        // As upstream: what is no PEM at the end of a good bundle is ignored.
        let Ok(cert) = cert else { break };
        blocks += 1;
        if let Err(e) = roots.add(cert.clone()) {
            return Err(unusable(&format!("failed to parse certificate: {e}")));
        }
        certs.push(cert);
    }
    if blocks == 0 {
        let text = String::from_utf8_lossy(pem);
        return Err(unusable(
            if text.contains("-----BEGIN ") && text.contains("-----END ") {
                "no valid certificate authority data seen"
            } else {
                "unable to parse bytes as PEM block"
            },
        ));
    }
    Ok((roots, certs))
}

#[derive(Debug)]
struct ShowAlways(Arc<CertifiedKey>);

impl rustls::client::ResolvesClientCert for ShowAlways {
    fn resolve(&self, _roots: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
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
