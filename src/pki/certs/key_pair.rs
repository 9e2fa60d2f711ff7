//! Certificate chains with their private keys: [`KeyPairData`] is a parsed pair, [`DynamicKeyPair`] one that
//! can be reloaded.

use super::source::{CertError, ContentDigest, Reload, read};
use crate::x509::pem;
use arc_swap::ArcSwap;
use bytes::Bytes;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::watch;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// A certificate chain and its private key, parsed and checked to match.
#[derive(Clone, Debug)]
pub(crate) struct KeyPairData {
    /// The chain's PEM text as it was read.
    pub cert_pem: Bytes,
    /// Both in rustls form, usable for servers and clients.
    pub certified_key: Arc<CertifiedKey>,
    /// Names and addresses the certificate is valid for, in lower case: the common name if it is a domain
    /// name, then the subject alternative names.
    pub names: Vec<String>,
    /// Expiry of the leaf certificate.
    pub not_after: SystemTime,
}

impl KeyPairData {
    /// Parses a chain (leaf first) and the private key of its leaf.
    ///
    /// # Errors
    /// Fails on bad PEM, if either the certificate or the key is missing, and if the key is not the leaf's.
    pub(crate) fn from_pem(
        cert_pem: impl Into<Bytes>,
        key_pem: impl Into<Bytes>,
        provider: &CryptoProvider,
    ) -> Result<Self, CertError> {
        let (cert_pem, key_pem) = (cert_pem.into(), key_pem.into());
        let chain = CertificateDer::pem_slice_iter(&cert_pem)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| CertError::invalid(format!("bad PEM in the certificate: {}", pem::error_text(&e))))?;
        let Some(leaf) = chain.first() else {
            return Err(CertError::invalid(
                "holds no certificate (expected a PEM block `CERTIFICATE`)",
            ));
        };
        // rustls does not look at intermediates; without this, a damaged one would surface as a handshake
        // failure at every client.
        for (n, certificate) in chain.iter().enumerate() {
            X509Certificate::from_der(certificate)
                .map_err(|e| CertError::invalid(format!("certificate {} of the chain does not parse: {e}", n + 1)))?;
        }
        let (_, parsed) = X509Certificate::from_der(leaf)
            .map_err(|e| CertError::invalid(format!("certificate does not parse: {e}")))?;
        let names = names_of(&parsed);
        // A date before 1970 counts as expired.
        let not_after = u64::try_from(parsed.validity().not_after.timestamp()).unwrap_or(0);
        // The parser skips encrypted keys as blocks of an unknown kind and would only report that no key was
        // found.
        let key = PrivateKeyDer::from_pem_slice(&key_pem).map_err(|e| match is_encrypted(&key_pem) {
            true => CertError::invalid("the private key is encrypted: remove the passphrase"),
            false => CertError::invalid(format!(
                "no usable private key (PKCS#8, PKCS#1 or SEC1 PEM): {}",
                pem::error_text(&e)
            )),
        })?;
        let certified_key = CertifiedKey::from_der(chain, key, provider).map_err(|e| match e {
            rustls::Error::InconsistentKeys(_) => {
                CertError::invalid("the private key does not belong to the certificate")
            }
            other => CertError::invalid(format!("certificate and key cannot be used: {other}")),
        })?;
        Ok(Self {
            cert_pem,
            certified_key: Arc::new(certified_key),
            names,
            not_after: SystemTime::UNIX_EPOCH + Duration::from_secs(not_after),
        })
    }

    /// True if the leaf has expired.
    pub(crate) fn is_expired(&self, now: SystemTime) -> bool {
        self.not_after <= now
    }
}

fn is_encrypted(pem: &[u8]) -> bool {
    let begins = b"-----BEGIN ENCRYPTED PRIVATE KEY-----";
    pem.windows(begins.len()).any(|w| w == begins)
}

/// The names that upstream matches against SNI: the common name unless it is an address, then all SANs.
fn names_of(certificate: &X509Certificate<'_>) -> Vec<String> {
    let mut names = Vec::new();
    let mut add = |name: String| {
        // A common name is usually repeated among the alternative names.
        if !names.contains(&name) {
            names.push(name);
        }
    };
    if let Some(cn) = certificate
        .subject()
        .iter_common_name()
        .next()
        .and_then(|cn| cn.as_str().ok())
    {
        // A common name can be any text; only a domain name can match SNI.
        let host = cn.strip_prefix("*.").unwrap_or(cn);
        let label = |l: &str| !l.is_empty() && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if cn.parse::<IpAddr>().is_err() && host.split('.').all(label) {
            add(cn.to_ascii_lowercase());
        }
    }
    if let Ok(Some(sans)) = certificate.subject_alternative_name() {
        for san in &sans.value.general_names {
            match san {
                GeneralName::DNSName(name) => add(name.to_ascii_lowercase()),
                GeneralName::IPAddress(raw) => {
                    if let Ok(v4) = <[u8; 4]>::try_from(*raw) {
                        add(IpAddr::from(v4).to_string());
                    } else if let Ok(v6) = <[u8; 16]>::try_from(*raw) {
                        add(IpAddr::from(v6).to_string());
                    }
                }
                _ => {}
            }
        }
    }
    names
}

/// A certificate and key that can be replaced while the server runs.
#[derive(Debug)]
pub(crate) struct DynamicKeyPair {
    files: Option<(PathBuf, PathBuf)>,
    provider: Arc<CryptoProvider>,
    current: ArcSwap<KeyPairData>,
    changes: watch::Sender<u64>,
    seen: ContentDigest,
}

impl DynamicKeyPair {
    /// Reads both files. [`Reload::check_now`] re-reads them.
    ///
    /// # Errors
    /// Fails if a file cannot be read or its content is unusable; the error names the file.
    pub(crate) fn from_files(
        cert: impl AsRef<Path>,
        key: impl AsRef<Path>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Arc<Self>, CertError> {
        let (cert, key) = (cert.as_ref(), key.as_ref());
        let (cert_pem, key_pem) = (read(cert)?, read(key)?);
        let seen = ContentDigest::default();
        // Records what was read here, so that the first poll does not parse it again.
        seen.is_new(&[&cert_pem, &key_pem]);
        let data = KeyPairData::from_pem(cert_pem, key_pem, &provider).map_err(|e| e.at(cert))?;
        if data.is_expired(SystemTime::now()) {
            tracing::warn!(file = %cert.display(), "certificate has expired; peers will reject it");
        }
        Ok(Arc::new(Self {
            files: Some((cert.to_owned(), key.to_owned())),
            provider,
            current: ArcSwap::from_pointee(data),
            changes: watch::Sender::new(0),
            seen,
        }))
    }

    /// A pair without files; only [`DynamicKeyPair::replace`] changes it.
    #[cfg(test)]
    pub(crate) fn fixed(data: KeyPairData, provider: Arc<CryptoProvider>) -> Arc<Self> {
        Arc::new(Self {
            files: None,
            provider,
            current: ArcSwap::from_pointee(data),
            changes: watch::Sender::new(0),
            seen: ContentDigest::default(),
        })
    }

    pub(crate) fn current(&self) -> Arc<KeyPairData> {
        self.current.load_full()
    }

    /// Replaces the pair and notifies the subscribers.
    pub(crate) fn replace(&self, data: KeyPairData) {
        // Stored before the notification, so that a subscriber reads the new pair.
        self.current.store(Arc::new(data));
        self.changes.send_modify(|n| *n += 1);
    }

    /// A receiver of the replacement counter; it changes with every replacement.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn load(&self, cert: &Path, cert_pem: Vec<u8>, key_pem: Vec<u8>) -> Result<KeyPairData, CertError> {
        let data = KeyPairData::from_pem(cert_pem, key_pem, &self.provider).map_err(|e| e.at(cert))?;
        let now = SystemTime::now();
        // An expired certificate must not replace a valid one, but may replace another expired one.
        if data.is_expired(now) && !self.current.load().is_expired(now) {
            return Err(CertError::invalid("the certificate has expired already").at(cert));
        }
        Ok(data)
    }
}

impl Reload for DynamicKeyPair {
    fn check_now(&self) -> bool {
        let Some((cert, key)) = &self.files else { return false };
        // The two reads are not atomic. A pair caught in the middle of a rotation does not match, is
        // rejected, and is read again by the next poll.
        let read = read(cert).and_then(|c| Ok((c, read(key)?)));
        let seen = match &read {
            Ok((c, k)) => self.seen.is_new(&[c, k]),
            Err(e) => self.seen.is_new(&[e.to_string().as_bytes()]),
        };
        if !seen {
            return false;
        }
        match read.and_then(|(c, k)| self.load(cert, c, k)) {
            // An equal certificate has the same key, since the pair was checked to match.
            Ok(data) if data.cert_pem == self.current.load().cert_pem => false,
            Ok(data) => {
                tracing::info!(file = %cert.display(), "certificate reloaded");
                self.replace(data);
                true
            }
            Err(error) => {
                tracing::warn!(%error, "certificate or key changed but cannot be used; the old pair stays");
                false
            }
        }
    }
}
