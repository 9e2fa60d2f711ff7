//! TLS for the serving port: versions, ALPN, choice of the server certificate, request for a client
//! certificate.
//!
//! [`TlsConfig::try_new`] builds the configuration, [`TlsConfig::follow`] rebuilds it when a certificate
//! changes. Client certificates are not verified here; see `RequestClientCert`.

use crate::pki::certs::{CertError, DynamicCa, DynamicKeyPair};
use crate::x509::VersionOne;
use arc_swap::ArcSwap;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
    verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ProducesTickets, ResolvesServerCert, ServerConfig};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, SignatureScheme};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::watch;
use webpki::RawPublicKeyEntity;

/// The lowest TLS version accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TlsVersion {
    /// TLS 1.2 and 1.3.
    #[default]
    Tls12,
    /// TLS 1.3 only.
    Tls13,
}

/// TLS settings that are fixed for the server's lifetime.
#[derive(Clone, Debug)]
pub(crate) struct TlsOptions {
    /// `--tls-min-version`.
    pub min_version: TlsVersion,
    /// Offer h2 before http/1.1 (`--disable-http2-serving` clears it).
    pub http2: bool,
    /// `--tls-cipher-suites` by IANA name; applies to TLS 1.2. Empty means all. As in Go, the TLS 1.3 suites
    /// are always on.
    pub cipher_suites: Vec<String>,
}

impl Default for TlsOptions {
    fn default() -> Self {
        Self {
            min_version: TlsVersion::default(),
            http2: true,
            cipher_suites: Vec::new(),
        }
    }
}

/// One value of `--tls-sni-cert-key`.
#[derive(Clone, Debug)]
pub(crate) struct SniKeyPair {
    /// Names to present it for (exact or `*.suffix`). If empty, the names in the certificate apply.
    pub names: Vec<String>,
    /// The certificate and key.
    pub pair: Arc<DynamicKeyPair>,
}

/// The serving TLS configuration. It is rebuilt as a whole when a certificate changes; open connections keep
/// theirs.
pub(crate) struct TlsConfig {
    default: Arc<DynamicKeyPair>,
    sni: Vec<SniKeyPair>,
    client_cas: Vec<Arc<DynamicCa>>,
    options: TlsOptions,
    provider: Arc<CryptoProvider>,
    tickets: Arc<dyn ProducesTickets>,
    current: ArcSwap<Snapshot>,
}

struct Snapshot {
    config: Arc<ServerConfig>,
    /// For clients without SNI, by the local address that they connected to.
    by_address: HashMap<IpAddr, Arc<ServerConfig>>,
}

impl TlsConfig {
    /// Builds the configuration. A client certificate is requested if `client_cas` is not empty, with the
    /// subjects of all their certificates as hints.
    ///
    /// # Errors
    /// Fails on an unknown cipher suite, and if the provider lacks a required TLS version.
    pub(crate) fn try_new(
        default: Arc<DynamicKeyPair>,
        sni: Vec<SniKeyPair>,
        client_cas: Vec<Arc<DynamicCa>>,
        options: TlsOptions,
        provider: Arc<CryptoProvider>,
    ) -> Result<Arc<Self>, CertError> {
        // Shared by all rebuilds, so that sessions can still be resumed after a certificate has changed.
        let tickets = rustls::crypto::aws_lc_rs::Ticketer::new().map_err(unusable)?;
        let provider = restrict(provider, &options)?;
        let first = build(&default, &sni, &client_cas, &options, &provider, &tickets)?;
        Ok(Arc::new(Self {
            current: ArcSwap::from_pointee(first),
            default,
            sni,
            client_cas,
            options,
            provider,
            tickets,
        }))
    }

    /// The configuration for a connection accepted at `local`.
    pub(super) fn for_connection(&self, local: IpAddr) -> Arc<ServerConfig> {
        let snapshot = self.current.load();
        Arc::clone(snapshot.by_address.get(&local).unwrap_or(&snapshot.config))
    }

    /// Rebuilds the configuration from the current certificates. On failure the previous one stays in use.
    pub(crate) fn rebuild(&self) {
        let built = build(
            &self.default,
            &self.sni,
            &self.client_cas,
            &self.options,
            &self.provider,
            &self.tickets,
        );
        match built {
            Ok(snapshot) => self.current.store(Arc::new(snapshot)),
            Err(error) => tracing::error!(%error, "TLS configuration cannot be rebuilt; keeping the previous one"),
        }
    }

    /// Rebuilds the configuration after each change of a certificate. Never returns; the caller owns the task
    /// and aborts it.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn follow(self: Arc<Self>) {
        let pairs = std::iter::once(&self.default).chain(self.sni.iter().map(|s| &s.pair));
        let mut sources: Vec<watch::Receiver<u64>> = pairs.map(|p| p.subscribe()).collect();
        sources.extend(self.client_cas.iter().map(|ca| ca.subscribe()));
        loop {
            // Also covers a change between the initial build and the subscription above.
            self.rebuild();
            // Receivers remember what they have seen, so a change during the rebuild is found by the next
            // round.
            let changes = sources.iter_mut().map(|source| Box::pin(source.changed()));
            let (changed, ..) = futures_util::future::select_all(changes).await;
            // The senders live in the sources, which `self` holds.
            if changed.is_err() {
                return;
            }
        }
    }
}

fn unusable(error: rustls::Error) -> CertError {
    CertError::Invalid {
        path: None,
        reason: format!("TLS cannot be set up: {error}"),
    }
}

/// The provider, limited to the TLS 1.2 suites in `options`.
fn restrict(provider: Arc<CryptoProvider>, options: &TlsOptions) -> Result<Arc<CryptoProvider>, CertError> {
    if options.cipher_suites.is_empty() {
        return Ok(provider);
    }
    let name = |suite: &rustls::SupportedCipherSuite| format!("{:?}", suite.suite());
    for wanted in &options.cipher_suites {
        let plain = without_hash(wanted);
        if !provider.cipher_suites.iter().any(|s| without_hash(&name(s)) == plain) {
            let known: Vec<String> = provider.cipher_suites.iter().map(name).collect();
            return Err(CertError::Invalid {
                path: None,
                reason: format!(
                    "--tls-cipher-suites: {wanted} is not offered (only forward-secret AEAD suites are: {})",
                    known.join(", ")
                ),
            });
        }
    }
    let mut restricted = (*provider).clone();
    restricted.cipher_suites.retain(|suite| {
        // Go does not let TLS 1.3 suites be configured, so they stay.
        suite.tls13().is_some()
            || options
                .cipher_suites
                .iter()
                .any(|wanted| without_hash(wanted) == without_hash(&name(suite)))
    });
    Ok(Arc::new(restricted))
}

/// Normalises a suite name: Go accepts `…_CHACHA20_POLY1305` with and without its hash, and the names of TLS
/// 1.3 suites lack rustls' `13`.
fn without_hash(name: &str) -> String {
    let name = name.replace("TLS13_", "TLS_");
    match name.strip_suffix("CHACHA20_POLY1305_SHA256") {
        Some(stem) => format!("{stem}CHACHA20_POLY1305"),
        None => name,
    }
}

fn build(
    default: &DynamicKeyPair,
    sni: &[SniKeyPair],
    client_cas: &[Arc<DynamicCa>],
    options: &TlsOptions,
    provider: &Arc<CryptoProvider>,
    tickets: &Arc<dyn ProducesTickets>,
) -> Result<Snapshot, CertError> {
    let names = Arc::new(Names::new(sni));
    let verifier = (!client_cas.is_empty()).then(|| RequestClientCert::new(client_cas, provider));
    let default = &default.current().certified_key;
    let config = |unnamed: &Arc<CertifiedKey>| -> Result<Arc<ServerConfig>, CertError> {
        let versions: &[&rustls::SupportedProtocolVersion] = match options.min_version {
            TlsVersion::Tls12 => &[&rustls::version::TLS13, &rustls::version::TLS12],
            TlsVersion::Tls13 => &[&rustls::version::TLS13],
        };
        let builder = ServerConfig::builder_with_provider(Arc::clone(provider))
            .with_protocol_versions(versions)
            .map_err(unusable)?;
        let builder = match &verifier {
            Some(verifier) => builder.with_client_cert_verifier(Arc::clone(verifier) as Arc<dyn ClientCertVerifier>),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(Arc::new(Resolver {
            names: Arc::clone(&names),
            unnamed: Arc::clone(unnamed),
            default: Arc::clone(default),
        }));
        // In order of preference, which is the server's.
        config.alpn_protocols = match options.http2 {
            true => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            false => vec![b"http/1.1".to_vec()],
        };
        config.ticketer = Arc::clone(tickets);
        // As Go's server; rustls would send two.
        config.send_tls13_tickets = 1;
        Ok(Arc::new(config))
    };
    let mut by_address = HashMap::new();
    // A resolver is not given the local address, hence one configuration per address.
    for (address, key) in &names.addresses {
        by_address.insert(*address, config(key)?);
    }
    Ok(Snapshot {
        config: config(default)?,
        by_address,
    })
}

/// Maps names to certificates. Earlier flags win over later ones; names given in flags win over names in
/// certificates.
#[derive(Debug, Default)]
struct Names {
    exact: HashMap<String, Arc<CertifiedKey>>,
    /// By suffix: what follows `*`, including the dot.
    wildcard: HashMap<String, Arc<CertifiedKey>>,
    addresses: HashMap<IpAddr, Arc<CertifiedKey>>,
}

impl Names {
    fn new(sni: &[SniKeyPair]) -> Self {
        let mut names = Self::default();
        // `partition` keeps the order of the flags, which `or_insert` relies on.
        let (named, unnamed): (Vec<_>, Vec<_>) = sni.iter().partition(|s| !s.names.is_empty());
        for entry in named.into_iter().chain(unnamed) {
            let data = entry.pair.current();
            let list = if entry.names.is_empty() {
                &data.names
            } else {
                &entry.names
            };
            for name in list {
                names.add(name, &data.certified_key);
            }
        }
        names
    }

    fn add(&mut self, name: &str, key: &Arc<CertifiedKey>) {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        let key = Arc::clone(key);
        if let Ok(address) = name.parse::<IpAddr>() {
            self.addresses.entry(address).or_insert(key);
        } else if let Some(suffix) = name.strip_prefix('*') {
            self.wildcard.entry(suffix.to_owned()).or_insert(key);
        } else {
            self.exact.entry(name).or_insert(key);
        }
    }

    fn find(&self, name: &str) -> Option<&Arc<CertifiedKey>> {
        // Without SNI certificates no name needs to be copied and lowered.
        if self.exact.is_empty() && self.wildcard.is_empty() {
            return None;
        }
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        self.exact.get(&name).or_else(|| {
            // As in Go, a wildcard stands for exactly one label.
            let dot = name.find('.')?;
            self.wildcard.get(&name[dot..])
        })
    }
}

#[derive(Debug)]
struct Resolver {
    names: Arc<Names>,
    /// For a client without SNI.
    unnamed: Arc<CertifiedKey>,
    /// For a name that matches no certificate.
    default: Arc<CertifiedKey>,
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let key = match hello.server_name() {
            None => &self.unnamed,
            Some(name) => self.names.find(name).unwrap_or(&self.default),
        };
        Some(Arc::clone(key))
    }
}

/// Requests a client certificate and accepts any, like Go's `tls.RequestClientCert`: only possession of the
/// key is checked. A chain that does not verify results in a 401 from the authenticator, not in a TLS alert.
#[derive(Debug)]
struct RequestClientCert {
    hints: Vec<DistinguishedName>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl RequestClientCert {
    fn new(cas: &[Arc<DynamicCa>], provider: &CryptoProvider) -> Arc<Self> {
        let mut hints: Vec<DistinguishedName> = Vec::new();
        for ca in cas {
            for subject in &ca.current().subjects {
                // Each subject once: the list is sent in every handshake.
                if !hints.iter().any(|hint| hint.as_ref() == subject.as_ref()) {
                    hints.push(subject.clone());
                }
            }
        }
        Arc::new(Self {
            hints,
            algorithms: provider.signature_verification_algorithms,
        })
    }
}

impl ClientCertVerifier for RequestClientCert {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let Ok(first) = VersionOne::parse(certificate) else {
            return verify_tls12_signature(message, certificate, signature, &self.algorithms);
        };
        let key = SubjectPublicKeyInfoDer::from(first.key);
        let key = RawPublicKeyEntity::try_from(&key).map_err(|_| CertificateError::BadEncoding)?;
        let mut known = self.algorithms.mapping.iter();
        let known = known.find(|(scheme, _)| *scheme == signature.scheme);
        // In TLS 1.2 a scheme does not determine the curve, so each of its algorithms is tried.
        let mut algorithms = known.into_iter().flat_map(|(_, algorithms)| algorithms.iter());
        if algorithms.any(|a| key.verify_signature(*a, message, signature.signature()).is_ok()) {
            return Ok(HandshakeSignatureValid::assertion());
        }
        Err(CertificateError::BadSignature.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        // The library reads certificates of version 3 only, but needs no more than the key here.
        match VersionOne::parse(certificate) {
            Ok(first) => {
                let key = SubjectPublicKeyInfoDer::from(first.key);
                verify_tls13_signature_with_raw_key(message, &key, signature, &self.algorithms)
            }
            Err(_) => verify_tls13_signature(message, certificate, signature, &self.algorithms),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
