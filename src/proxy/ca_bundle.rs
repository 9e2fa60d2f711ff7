//! [`CaBundle`]: the certificate authorities that a backend's certificate is verified against, such as an
//! APIService's `spec.caBundle`.

use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, TrustAnchor};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// Authorities of one name against which a certificate is verified: a few, for one whose key is being replaced.
const MAX_NAMESAKES: usize = 4;

/// CA certificates in PEM. A bundle may take a megabyte, so it is parsed once, when it is first used, and
/// compared by its digest. Clones share both.
#[derive(Clone, Default)]
pub(crate) struct CaBundle(Option<Arc<Inner>>);

struct Inner {
    pem: Bytes,
    digest: [u8; 32],
    parsed: OnceLock<Result<Arc<ParsedBundle>, UnusableBundle>>,
}

/// Why a bundle cannot be used. Messages as upstream words them.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum UnusableBundle {
    /// It has no PEM block.
    #[error("unable to load root certificates: unable to parse bytes as PEM block")]
    NotPem,
    /// It has PEM blocks, but no certificate.
    #[error("unable to load root certificates: no valid certificate authority data seen")]
    NoCertificate,
    /// One of its certificates is malformed.
    #[error("unable to load root certificates: failed to parse certificate: {0}")]
    Certificate(#[source] rustls::Error),
}

/// The certificates of a bundle.
pub(crate) struct ParsedBundle {
    /// As trust anchors, without further ones of a name.
    pub roots: Arc<RootCertStore>,
    /// As they were read.
    pub certificates: Arc<[CertificateDer<'static>]>,
}

impl CaBundle {
    /// The bundle as it was given.
    pub(crate) fn pem(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |inner| &inner.pem)
    }

    /// Whether the bundle is empty, which stands for the system's authorities.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The SHA-256 digest; `None` for the empty bundle.
    pub(super) fn digest(&self) -> Option<[u8; 32]> {
        self.0.as_ref().map(|inner| inner.digest)
    }

    /// The certificates. The first call takes milliseconds for a bundle of a megabyte.
    ///
    /// # Errors
    /// [`UnusableBundle`], also for the empty bundle.
    pub(super) fn parsed(&self) -> Result<Arc<ParsedBundle>, UnusableBundle> {
        match &self.0 {
            Some(inner) => inner.parsed.get_or_init(|| parse(&inner.pem).map(Arc::new)).clone(),
            None => parse(&[]).map(Arc::new),
        }
    }
}

impl From<Bytes> for CaBundle {
    fn from(pem: Bytes) -> Self {
        if pem.is_empty() {
            return Self(None);
        }
        let mut sum = [0; 32];
        sum.copy_from_slice(digest(&SHA256, &pem).as_ref());
        Self(Some(Arc::new(Inner {
            pem,
            digest: sum,
            parsed: OnceLock::new(),
        })))
    }
}

impl PartialEq for CaBundle {
    fn eq(&self, other: &Self) -> bool {
        // Transports are looked up by bundle: comparing a megabyte each time would take long.
        self.digest() == other.digest()
    }
}

impl Eq for CaBundle {}

impl fmt::Debug for CaBundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CaBundle({} bytes)", self.pem().len())
    }
}

/// Checks that a `caBundle` can be used.
///
/// # Errors
/// [`UnusableBundle`].
pub(crate) fn check_bundle(pem: &[u8]) -> Result<(), UnusableBundle> {
    // Not through the cache of a `CaBundle`: validation sees each bundle once.
    parse(pem).map(drop)
}

fn parse(pem: &[u8]) -> Result<ParsedBundle, UnusableBundle> {
    let mut roots = RootCertStore::empty();
    let mut certificates = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        // As upstream, ignore trailing data that is not PEM.
        let Ok(certificate) = certificate else { break };
        roots.add(certificate.clone()).map_err(UnusableBundle::Certificate)?;
        certificates.push(certificate);
    }
    if certificates.is_empty() {
        // Upstream tells a file without any PEM block from one whose blocks are not certificates, such as
        // keys.
        let text = String::from_utf8_lossy(pem);
        let is_pem = text.contains("-----BEGIN ") && text.contains("-----END ");
        return Err(match is_pem {
            true => UnusableBundle::NoCertificate,
            false => UnusableBundle::NotPem,
        });
    }
    Ok(ParsedBundle {
        roots: Arc::new(few_of_each_name(&roots)),
        certificates: certificates.into(),
    })
}

/// The first authorities of each name. In a handshake the certificate's signature is checked with the key of each
/// authority of its issuer's name: with a hundred large keys that takes a reactor tens of milliseconds.
fn few_of_each_name(all: &RootCertStore) -> RootCertStore {
    let mut by_name: HashMap<&[u8], Vec<&TrustAnchor<'static>>> = HashMap::new();
    let mut kept = RootCertStore::empty();
    for root in &all.roots {
        let namesakes = by_name.entry(root.subject.as_ref()).or_default();
        if namesakes.len() < MAX_NAMESAKES && !namesakes.contains(&root) {
            namesakes.push(root);
            kept.roots.push(root.clone());
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair};

    fn authority(name: &str) -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key is made");
        let made = params.self_signed(&key).expect("a certificate is made");
        made.pem()
    }

    #[test]
    fn few_authorities_of_one_name_are_kept_and_all_are_checked() {
        let again = authority("ca");
        let namesakes: String = (0..MAX_NAMESAKES).map(|_| authority("ca")).collect();
        let bundle = format!("{again}{again}{namesakes}{}", authority("other"));
        let parsed = parse(bundle.as_bytes()).unwrap();
        assert_eq!(parsed.roots.len(), MAX_NAMESAKES + 1);
        assert_eq!(parsed.certificates.len(), MAX_NAMESAKES + 3);
        let malformed = format!("{bundle}-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
        let refused = parse(malformed.as_bytes()).err();
        assert!(matches!(refused, Some(UnusableBundle::Certificate(_))), "{refused:?}");
    }
}
