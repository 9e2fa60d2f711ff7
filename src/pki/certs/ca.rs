//! CA bundles: [`CaPool`] is a parsed bundle, [`DynamicCa`] one that can be reloaded.

use super::source::{CertError, Reload, Seen, read};
use crate::request::{ClientCaSource, TrustAnchors};
use crate::x509::pem;
use arc_swap::ArcSwap;
use bytes::Bytes;
use rustls::DistinguishedName;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, TrustAnchor};
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
    /// Fails on bad PEM, on a certificate that cannot be a trust anchor, and if there is no certificate at all.
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

/// A CA bundle that can be replaced while the server runs.
#[derive(Debug)]
pub struct DynamicCa {
    path: Option<PathBuf>,
    current: ArcSwap<CaPool>,
    changes: watch::Sender<u64>,
    seen: Seen,
}

impl DynamicCa {
    /// Reads the bundle from a file. [`Reload::check_now`] re-reads it.
    ///
    /// # Errors
    /// Fails if the file cannot be read or holds no usable bundle.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Arc<Self>, CertError> {
        let path = path.as_ref();
        let pem = read(path)?;
        let seen = Seen::default();
        seen.is_new(&[&pem]);
        let pool = CaPool::from_pem(pem).map_err(|e| e.at(path))?;
        Ok(Arc::new(Self {
            path: Some(path.to_owned()),
            current: ArcSwap::from_pointee(pool),
            changes: watch::Sender::new(0),
            seen,
        }))
    }

    /// A bundle without a file; only [`DynamicCa::replace`] changes it.
    pub fn fixed(pool: CaPool) -> Arc<Self> {
        Arc::new(Self {
            path: None,
            current: ArcSwap::from_pointee(pool),
            changes: watch::Sender::new(0),
            seen: Seen::default(),
        })
    }

    /// The current bundle.
    pub fn current(&self) -> Arc<CaPool> {
        self.current.load_full()
    }

    /// Replaces the bundle and notifies the subscribers.
    pub fn replace(&self, pool: CaPool) {
        self.current.store(Arc::new(pool));
        self.changes.send_modify(|n| *n += 1);
    }

    /// A receiver of the replacement counter; it changes with every replacement.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
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
            Err(e) => self.seen.is_new(&[e.to_string().as_bytes()]),
        };
        if !seen {
            return false;
        }
        match read.and_then(|pem| CaPool::from_pem(pem).map_err(|e| e.at(path))) {
            Ok(pool) if pool.pem == self.current.load().pem => false,
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
