//! Client certificate → user: verified against the client CA here, not in the handshake, so that a bad certificate is
//! only an authentication error (upstream's `request/x509`).

mod memo;

use super::{AtOnce, Authenticator, Credentials, Identified, Refused, add_authenticated};
use crate::apimachinery::codec::hex;
use crate::apimachinery::x509::Name;
use crate::request::{ClientCaSource, UserInfo};
use crate::telemetry::access::ClientCertificateMetrics;
use async_trait::async_trait;
use memo::Memo;
use rustls::pki_types::{CertificateDer, TrustAnchor, UnixTime};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use webpki::{EndEntityCert, KeyUsage};
use x509_parser::prelude::{FromDer, X509Certificate};

/// The extra key under which a certificate's digest is stated.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Why a chain is not trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Untrusted(pub String);

/// Verifies a presented chain for client authentication: now, against `roots`, what came along being intermediates.
///
/// # Errors
/// [`Untrusted`].
pub fn verify_chain(chain: &[CertificateDer<'_>], roots: &[TrustAnchor<'_>], now: SystemTime) -> Result<(), Untrusted> {
    let Some((leaf, intermediates)) = chain.split_first() else {
        return Err(Untrusted("no certificate".into()));
    };
    let since_epoch = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let leaf = EndEntityCert::try_from(leaf).map_err(|e| Untrusted(e.to_string()))?;
    leaf.verify_for_usage(
        webpki::ALL_VERIFICATION_ALGS,
        roots,
        intermediates,
        UnixTime::since_unix_epoch(since_epoch),
        KeyUsage::client_auth(),
        None,
        None,
    )
    .map(|_| ())
    .map_err(|e| Untrusted(e.to_string()))
}

/// Which front proxies' certificates were found good.
pub(super) type ProxyMemo = Memo<Result<(), Refused>>;

/// Recognises holders of client certificates. What a connection's chain came to is remembered for a minute, at most
/// until the certificate ends or the CA is replaced.
pub struct X509 {
    ca: Arc<dyn ClientCaSource>,
    memo: Memo<Known>,
    metrics: Option<ClientCertificateMetrics>,
}

/// What a chain came to, and when its first certificate ends.
#[derive(Clone)]
struct Known {
    user: Result<Option<Arc<UserInfo>>, Refused>,
    ends: Option<SystemTime>,
}

impl X509 {
    /// Trusts the issuers of `ca` (`--client-ca-file`).
    pub fn new(ca: Arc<dyn ClientCaSource>) -> Self {
        Self {
            ca,
            memo: Memo::new(),
            metrics: None,
        }
    }

    /// Notes in `metrics` what each request's certificate has left.
    #[must_use]
    pub fn observing(mut self, metrics: ClientCertificateMetrics) -> Self {
        self.metrics = Some(metrics);
        self
    }
}

#[async_trait]
impl Authenticator for X509 {
    async fn authenticate(&self, from: Credentials<'_>) -> Result<Option<Identified>, Refused> {
        let Some(known) = self.look(from) else { return Ok(None) };
        self.observe(&known);
        Ok(known.user?.map(Identified::new))
    }

    fn at_once(&self, from: Credentials<'_>) -> AtOnce {
        let Some(known) = self.look(from) else {
            return AtOnce::Nobody;
        };
        // Others are asked about in full, and observed then.
        let Ok(Some(user)) = &known.user else {
            return AtOnce::Unknown;
        };
        self.observe(&known);
        AtOnce::Known(Identified::new(user.clone()))
    }
}

impl X509 {
    /// What the chain comes to; nothing without one.
    fn look(&self, from: Credentials<'_>) -> Option<Known> {
        let chain = from.peer.filter(|c| !c.is_empty())?;
        let ca = self.ca.current();
        Some(self.memo.get_or_compute(chain, &ca, |now| {
            Known {
                user: verify_chain(chain, ca.roots(), now)
                    .map_err(|e| Refused(format!("verifying certificate {} failed: {}", describe(&chain[0]), e.0)))
                    .and_then(|()| named(&chain[0])),
                ends: not_after(&chain[0]),
            }
        }))
    }

    fn observe(&self, known: &Known) {
        if let (Some(metrics), Some(ends)) = (&self.metrics, known.ends) {
            metrics.seen(ends);
        }
    }
}

/// The user a certificate names; `None` without a common name. Whether the certificate is to be believed is not asked.
///
/// # Errors
/// It cannot be read, or its uid cannot.
pub fn named(certificate: &CertificateDer<'_>) -> Result<Option<Arc<UserInfo>>, Refused> {
    let (_, parsed) =
        X509Certificate::from_der(certificate).map_err(|e| Refused(format!("the certificate cannot be read: {e}")))?;
    let subject = Name::parse(parsed.subject().as_raw())
        .map_err(|e| Refused(format!("the certificate's subject cannot be read: {e}")))?;
    let name = subject.common_name();
    if name.is_empty() {
        return Ok(None);
    }
    let uid = match subject.uids() {
        [] => "",
        [uid] if uid.is_empty() => return Err(Refused::new("UID cannot be an empty string")),
        [uid] => uid,
        uids => return Err(Refused(format!("expected 1 UID, but found multiple: {uids:?}"))),
    };
    let mut user = UserInfo {
        name: name.to_owned(),
        uid: uid.to_owned(),
        groups: subject.organizations().to_vec(),
        ..Default::default()
    };
    user.extra
        .insert(CREDENTIAL_ID.to_owned(), vec![credential_id(certificate)]);
    add_authenticated(&mut user);
    Ok(Some(Arc::new(user)))
}

fn credential_id(certificate: &[u8]) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, certificate);
    format!("X509SHA256={}", hex(digest.as_ref()))
}

/// The common name of a certificate's subject; empty where it has none that can be read.
pub fn common_name(certificate: &CertificateDer<'_>) -> String {
    let subject = X509Certificate::from_der(certificate)
        .ok()
        .map(|(_, c)| Name::parse(c.subject().as_raw()));
    match subject {
        Some(Ok(name)) => name.common_name().to_owned(),
        _ => String::new(),
    }
}

/// When a certificate ends.
fn not_after(certificate: &CertificateDer<'_>) -> Option<SystemTime> {
    let (_, c) = X509Certificate::from_der(certificate).ok()?;
    let seconds = u64::try_from(c.validity().not_after.timestamp()).ok()?;
    Some(UNIX_EPOCH + Duration::from_secs(seconds))
}

fn describe(certificate: &CertificateDer<'_>) -> String {
    match X509Certificate::from_der(certificate) {
        Ok((_, c)) => format!("SN={}, subject={:?}", c.raw_serial_as_string(), c.subject().to_string()),
        Err(_) => "(unreadable)".to_owned(),
    }
}

impl fmt::Display for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Untrusted {}

#[cfg(test)]
pub(super) mod tests;
