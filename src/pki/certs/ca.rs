//! CA bundles: [`CaPool`] is a parsed bundle, [`DynamicCa`] one that can be reloaded and extended by the CAs
//! of other gateways. Verification of chains is left to those who read it.

use super::source::{CertError, ContentDigest, Reload, read};
use crate::request::{ClientCaSource, TrustAnchors};
use crate::sync::{Mutex, MutexGuard};
use crate::x509::pem;
use arc_swap::ArcSwap;
use bytes::Bytes;
use rustls::DistinguishedName;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, TrustAnchor};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::watch;

/// A parsed CA bundle.
#[derive(Clone, Debug, Default)]
pub struct CaPool {
    /// Trust anchors for chain verification.
    pub roots: Vec<TrustAnchor<'static>>,
    /// The certificates in bundle order.
    pub certificates: Vec<CertificateDer<'static>>,
    /// The PEM text as it was read.
    pub pem: Bytes,
    /// Subject names, sent as `certificate_authorities` when a client certificate is requested.
    pub subjects: Vec<DistinguishedName>,
}

impl CaPool {
    /// Parses a PEM bundle. Blocks of other types are skipped, as Go does.
    ///
    /// # Errors
    /// Fails on bad PEM, on a certificate that cannot be a trust anchor, and if there is no certificate at
    /// all.
    pub fn from_pem(pem: impl Into<Bytes>) -> Result<Self, CertError> {
        let pem = pem.into();
        let mut pool = Self {
            pem: pem.clone(),
            ..Self::default()
        };
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let certificate = certificate
                .map_err(|e| CertError::invalid(format!("bad PEM in the CA bundle: {}", pem::error_text(&e))))?;
            let n = pool.certificates.len() + 1;
            let anchor = webpki::anchor_from_trusted_cert(&certificate)
                .map_err(|e| CertError::invalid(format!("certificate {n} of the bundle cannot be a CA: {e}")))?
                .to_owned();
            // A trust anchor stores the content of the name without its outer SEQUENCE.
            pool.subjects.push(DistinguishedName::in_sequence(&anchor.subject));
            pool.roots.push(anchor);
            pool.certificates.push(certificate);
        }
        if pool.roots.is_empty() {
            return Err(CertError::invalid(
                "holds no certificate (expected one or more PEM blocks `CERTIFICATE`)",
            ));
        }
        Ok(pool)
    }
}

/// A CA bundle that can be replaced while the server runs, together with the CAs that other gateways share.
#[derive(Debug)]
pub struct DynamicCa {
    path: Option<PathBuf>,
    parts: Mutex<Parts>,
    /// The union of the parts.
    current: ArcSwap<CaPool>,
    changes: watch::Sender<u64>,
    seen: ContentDigest,
}

/// The parts of a [`DynamicCa`].
#[derive(Debug)]
struct Parts {
    /// The bundle of the file.
    own: CaPool,
    shared: Vec<CaPool>,
}

impl DynamicCa {
    /// Reads the bundle from a file. The caller re-reads it when the file changes.
    ///
    /// # Errors
    /// Fails if the file cannot be read or holds no usable bundle.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Arc<Self>, CertError> {
        let path = path.as_ref();
        let pem = read(path)?;
        let seen = ContentDigest::default();
        // Records what was read here, so that the first poll does not parse it again.
        seen.is_new(&[&pem]);
        let pool = CaPool::from_pem(pem).map_err(|e| e.at(path))?;
        Ok(Arc::new(Self {
            path: Some(path.to_owned()),
            parts: Mutex::new(Parts::of(pool.clone())),
            current: ArcSwap::from_pointee(pool),
            changes: watch::Sender::new(0),
            seen,
        }))
    }

    /// A bundle without a file; only [`DynamicCa::replace`] changes it.
    pub(crate) fn fixed(pool: CaPool) -> Arc<Self> {
        Arc::new(Self {
            path: None,
            parts: Mutex::new(Parts::of(pool.clone())),
            current: ArcSwap::from_pointee(pool),
            changes: watch::Sender::new(0),
            seen: ContentDigest::default(),
        })
    }

    /// The current bundle, with the CAs that are shared.
    pub(crate) fn current(&self) -> Arc<CaPool> {
        self.current.load_full()
    }

    /// The PEM text of the bundle without the CAs that are shared.
    pub(crate) fn own_pem(&self) -> Bytes {
        self.parts().own.pem.clone()
    }

    /// Replaces the bundle and notifies the subscribers. CAs that are shared stay.
    pub(crate) fn replace(&self, pool: CaPool) {
        self.change(|parts| parts.own = pool);
    }

    /// Replaces the CAs that are trusted besides the bundle itself. Subscribers are notified if the union
    /// changes.
    pub(crate) fn share(&self, others: Vec<CaPool>) {
        self.change(|parts| parts.shared = others);
    }

    fn change(&self, change: impl FnOnce(&mut Parts)) {
        let mut parts = self.parts();
        change(&mut parts);
        let union = parts.union();
        // Subscribers rebuild TLS configurations and drop caches, so an equal union must not notify them.
        if union.pem == self.current.load().pem {
            return;
        }
        // Stored under the lock, so that the last change wins.
        self.current.store(Arc::new(union));
        self.changes.send_modify(|n| *n += 1);
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock()
    }

    /// A receiver of the replacement counter; it changes with every replacement.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

impl Parts {
    fn of(own: CaPool) -> Self {
        Self {
            own,
            shared: Vec::new(),
        }
    }

    /// The own bundle followed by each shared certificate that it does not have.
    fn union(&self) -> CaPool {
        let mut all = self.own.clone();
        // By certificate, not by subject: gateways' generated CAs have the same name.
        let mut known: HashSet<CertificateDer<'static>> = all.certificates.iter().cloned().collect();
        let mut text = all.pem.to_vec();
        for pool in &self.shared {
            for ((certificate, root), subject) in pool.certificates.iter().zip(&pool.roots).zip(&pool.subjects) {
                if !known.insert(certificate.clone()) {
                    continue;
                }
                // A file without a final line break would run into the next block.
                if !text.ends_with(b"\n") {
                    text.push(b'\n');
                }
                text.extend_from_slice(pem::encode(pem::CERTIFICATE, certificate).as_bytes());
                all.certificates.push(certificate.clone());
                all.roots.push(root.clone());
                all.subjects.push(subject.clone());
            }
        }
        all.pem = text.into();
        all
    }
}

impl TrustAnchors for CaPool {
    fn roots(&self) -> &[TrustAnchor<'static>] {
        &self.roots
    }
}

impl ClientCaSource for DynamicCa {
    fn current(&self) -> Arc<dyn TrustAnchors> {
        self.current.load_full()
    }
}

impl Reload for DynamicCa {
    fn check_now(&self) -> bool {
        let Some(path) = &self.path else { return false };
        let read = read(path);
        let seen = match &read {
            Ok(pem) => self.seen.is_new(&[pem]),
            // Also errors, so that a file that is missing for an hour is logged once.
            Err(e) => self.seen.is_new(&[e.to_string().as_bytes()]),
        };
        if !seen {
            return false;
        }
        match read.and_then(|pem| CaPool::from_pem(pem).map_err(|e| e.at(path))) {
            // After an error, the digest is new although the file is back as it was.
            Ok(pool) if pool.pem == self.own_pem() => false,
            Ok(pool) => {
                tracing::info!(file = %path.display(), certificates = pool.roots.len(), "CA bundle reloaded");
                self.replace(pool);
                true
            }
            Err(error) => {
                tracing::warn!(%error, "CA bundle changed but cannot be used; keeping the previous one");
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ca(name: &str) -> String {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.self_signed(&key).unwrap().pem()
    }

    fn pool(pem: &str) -> CaPool {
        CaPool::from_pem(pem.as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn shared_cas_are_added_once_and_outlive_a_reload() {
        let (a, b) = (ca("a"), ca("b"));
        let tmp = tempfile::tempdir().unwrap();
        let file = tmp.path().join("ca.crt");
        std::fs::write(&file, &a).unwrap();
        let dynamic = DynamicCa::from_file(&file).unwrap();
        let mut changes = dynamic.subscribe();
        dynamic.share(vec![pool(&a), pool(&b), pool(&b)]);
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        assert_eq!(dynamic.current().roots.len(), 2);
        assert_eq!(
            pool(std::str::from_utf8(&dynamic.current().pem).unwrap()).certificates,
            dynamic.current().certificates
        );
        assert_eq!(dynamic.own_pem(), a.as_bytes());

        dynamic.share(vec![pool(&b)]);
        assert!(!changes.has_changed().unwrap(), "the union is the same");

        let c = ca("c");
        std::fs::write(&file, &c).unwrap();
        assert!(dynamic.check_now());
        let expected: Vec<_> = [&c, &b].iter().flat_map(|p| pool(p).certificates).collect();
        assert_eq!(dynamic.current().certificates, expected);
        assert!(!dynamic.check_now(), "the file is unchanged");

        dynamic.share(Vec::new());
        assert_eq!(dynamic.current().pem, c.as_bytes());
    }
}
