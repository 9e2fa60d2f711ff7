//! Client TLS towards backends: how a backend proves its name, and which certificate we show.
//!
//! Verification agrees with Go's verifier where rustls' own is stricter: a serving certificate that stands in the bundle
//! itself is trusted as it is, also when it is marked as a CA (self-signed certificates usually are). Name, validity
//! and handshake signature are always checked.

use super::flaws::Inspecting;
use crate::telemetry::X509Flaws;
use bytes::Bytes;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};
use std::fmt;
use std::sync::{Arc, OnceLock};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

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

/// A verification failure in Go's words.
#[derive(Debug)]
pub struct X509Error(pub String);

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
        let verifier: Arc<dyn ServerCertVerifier> = if inputs.insecure {
            Arc::new(AnyServer(self.provider.clone()))
        } else if inputs.ca_bundle.is_empty() {
            let roots = self.system_roots.get_or_init(|| Arc::new(load_system_roots())).clone();
            Arc::new(GoLikeVerifier::new(roots, Vec::new(), self.provider.clone()))
        } else {
            let (roots, certs) = parse_bundle(&inputs.ca_bundle)?;
            Arc::new(GoLikeVerifier::new(Arc::new(roots), certs, self.provider.clone()))
        };
        let verifier = match &self.flaws {
            None => verifier,
            Some(flaws) => Arc::new(Inspecting {
                verdict: verifier,
                flaws: flaws.clone(),
            }),
        };
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

// === verifiers ===

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

/// Any certificate will do: its server's word decides nothing, or the object says so.
#[derive(Debug)]
pub(super) struct AnyServer(pub(super) Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// WebPKI first; then a certificate that is in the bundle itself.
#[derive(Debug)]
struct GoLikeVerifier {
    /// `None`: there are no roots at all, so nothing verifies.
    webpki: Option<Arc<WebPkiServerVerifier>>,
    bundle: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl GoLikeVerifier {
    fn new(roots: Arc<RootCertStore>, bundle: Vec<CertificateDer<'static>>, provider: Arc<CryptoProvider>) -> Self {
        Self {
            webpki: WebPkiServerVerifier::builder_with_provider(roots, provider.clone())
                .build()
                .ok(),
            bundle,
            provider,
        }
    }

    fn trusts_itself(&self, leaf: &CertificateDer<'_>, name: &ServerName<'_>, now: UnixTime) -> Result<(), X509Error> {
        let Ok((_, parsed)) = x509_parser::parse_x509_certificate(leaf) else {
            return Err(X509Error("x509: malformed certificate".into()));
        };
        check_validity(&parsed, now)?;
        let ours = ParsedCertificate::try_from(leaf).is_ok_and(|p| verify_server_name(&p, name).is_ok());
        if !ours {
            return Err(wrong_name(leaf, name));
        }
        match parsed.extended_key_usage() {
            Ok(Some(usage)) if !usage.value.server_auth && !usage.value.any => Err(X509Error(
                "x509: certificate specifies an incompatible key usage".into(),
            )),
            _ => Ok(()),
        }
    }
}

impl ServerCertVerifier for GoLikeVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let refused = match &self.webpki {
            None => CertificateError::UnknownIssuer,
            Some(webpki) => match webpki.verify_server_cert(end_entity, intermediates, server_name, ocsp, now) {
                Ok(verified) => return Ok(verified),
                Err(Error::InvalidCertificate(why)) => why,
                Err(other) => return Err(other),
            },
        };
        let why = if self.bundle.iter().any(|c| c.as_ref() == end_entity.as_ref()) {
            match self.trusts_itself(end_entity, server_name, now) {
                Ok(()) => return Ok(ServerCertVerified::assertion()),
                Err(why) => why,
            }
        } else {
            in_gos_words(&refused, end_entity, server_name, now)
        };
        Err(Error::InvalidCertificate(CertificateError::Other(OtherError(
            Arc::new(why),
        ))))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn in_gos_words(why: &CertificateError, leaf: &CertificateDer<'_>, name: &ServerName<'_>, now: UnixTime) -> X509Error {
    let text = match why {
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            return wrong_name(leaf, name);
        }
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => {
            let parsed = x509_parser::parse_x509_certificate(leaf);
            return match parsed.map(|(_, c)| check_validity(&c, now)) {
                Ok(Err(e)) => e,
                _ => X509Error("x509: certificate has expired or is not yet valid".into()),
            };
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "x509: certificate specifies an incompatible key usage"
        }
        CertificateError::BadEncoding => "x509: malformed certificate",
        CertificateError::UnhandledCriticalExtension => "x509: unhandled critical extension",
        // Whatever keeps a chain from a root: a wrong signature, a CA in the leaf's place, no issuer at all.
        _ => "x509: certificate signed by unknown authority",
    };
    X509Error(text.into())
}

fn check_validity(cert: &x509_parser::certificate::X509Certificate<'_>, now: UnixTime) -> Result<(), X509Error> {
    let now = now.as_secs() as i64;
    let text = |unix: i64| {
        OffsetDateTime::from_unix_timestamp(unix)
            .ok()
            .and_then(|t| t.format(&Rfc3339).ok())
            .unwrap_or_default()
    };
    let (from, to) = (
        cert.validity().not_before.timestamp(),
        cert.validity().not_after.timestamp(),
    );
    let relation = if now < from {
        format!("is before {}", text(from))
    } else if now > to {
        format!("is after {}", text(to))
    } else {
        return Ok(());
    };
    Err(X509Error(format!(
        "x509: certificate has expired or is not yet valid: current time {} {relation}",
        text(now)
    )))
}

fn wrong_name(leaf: &CertificateDer<'_>, name: &ServerName<'_>) -> X509Error {
    use x509_parser::extensions::GeneralName;
    let wanted = name.to_str();
    let parsed = x509_parser::parse_x509_certificate(leaf).ok().map(|(_, c)| c);
    let sans = parsed
        .as_ref()
        .and_then(|c| c.subject_alternative_name().ok().flatten());
    let Some(sans) = sans else {
        let common_name = parsed.as_ref().and_then(|c| {
            let cn = c.subject().iter_common_name().next()?;
            Some(cn.as_str().ok()?.to_owned())
        });
        return X509Error(if common_name.is_some_and(|cn| cn.eq_ignore_ascii_case(&wanted)) {
            "x509: certificate relies on legacy Common Name field, use SANs instead".into()
        } else {
            format!("x509: certificate is not valid for any names, but wanted to match {wanted}")
        });
    };
    let names: Vec<&str> = sans
        .value
        .general_names
        .iter()
        .filter_map(|n| match n {
            GeneralName::DNSName(d) => Some(*d),
            _ => None,
        })
        .collect();
    X509Error(if names.is_empty() {
        format!("x509: certificate is not valid for any names, but wanted to match {wanted}")
    } else {
        format!("x509: certificate is valid for {}, not {wanted}", names.join(", "))
    })
}

impl fmt::Display for X509Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for X509Error {}

impl fmt::Debug for TlsInputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TlsInputs({}, insecure: {})", self.server_name, self.insecure)
    }
}
