//! Client certificate authentication (upstream's `pkg/authentication/request/x509`). The TLS handshake
//! accepts any certificate; it is verified against the client CA here, so that a bad one is an authentication
//! error rather than a failed connection.

mod memo;

use super::{AuthenticatedUser, AuthenticationError, Authenticator, Credentials, SyncOutcome, add_authenticated};
use crate::apimachinery::codec::hex;
use crate::request::{ClientCaSource, UserInfo};
use crate::telemetry::access::ClientCertificateMetrics;
use crate::x509::{Name, VersionOne, intermediates_to_try};
use async_trait::async_trait;
use memo::{Memo, Unverified};
use rustls::pki_types::{CertificateDer, TrustAnchor, UnixTime};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use webpki::{EndEntityCert, KeyUsage};
use x509_parser::nom::Parser as _;
use x509_parser::prelude::{FromDer, X509Certificate, X509CertificateParser};

/// The extra key that holds the digest of the certificate.
pub(crate) const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Why a certificate chain is not trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Untrusted(pub String);

/// Verifies a chain for client authentication against `roots`, at the time `now`. All but the leaf are
/// intermediates.
///
/// # Errors
/// [`Untrusted`] with the verifier's reason.
pub(crate) fn verify_chain(
    chain: &[CertificateDer<'_>],
    roots: &[TrustAnchor<'_>],
    now: SystemTime,
) -> Result<(), Untrusted> {
    let Some((leaf, intermediates)) = chain.split_first() else {
        return Err(Untrusted("no certificate".into()));
    };
    // The strict parser fails at once on version 3, whose first field is the version number.
    if let Ok(certificate) = VersionOne::parse(leaf) {
        return verify_version_one(&certificate, leaf, roots, now);
    }
    let since_epoch = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let intermediates = intermediates_to_try(intermediates);
    let leaf = EndEntityCert::try_from(leaf).map_err(|e| Untrusted(e.to_string()))?;
    leaf.verify_for_usage(
        // No SHA-1 among them, as in Go.
        webpki::ALL_VERIFICATION_ALGS,
        roots,
        &intermediates,
        UnixTime::since_unix_epoch(since_epoch),
        KeyUsage::client_auth(),
        // No revocation lists, since Go's verifier has none either.
        None,
        None,
    )
    .map(|_| ())
    .map_err(|e| Untrusted(e.to_string()))
}

/// Verifies a leaf of version 1, which webpki refuses and upstream accepts. Without extensions it can be used
/// for any purpose. One that an intermediate issued is not trusted: roots alone are.
fn verify_version_one(
    certificate: &VersionOne<'_>,
    der: &CertificateDer<'_>,
    roots: &[TrustAnchor<'_>],
    now: SystemTime,
) -> Result<(), Untrusted> {
    let (_, parsed) = X509Certificate::from_der(der).map_err(|e| Untrusted(e.to_string()))?;
    let validity = parsed.validity();
    let since_epoch = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let now = i64::try_from(since_epoch).unwrap_or(i64::MAX);
    // webpki checks the dates of other versions; here nobody else does.
    if now < validity.not_before.timestamp() || now > validity.not_after.timestamp() {
        return Err(Untrusted("certificate has expired or is not yet valid".into()));
    }
    // Constraints on names would have to be checked against the subject.
    let mut roots = roots.iter().filter(|root| root.name_constraints.is_none());
    if roots.any(|root| certificate.is_issued_by(&root.subject, &root.subject_public_key_info)) {
        return Ok(());
    }
    Err(Untrusted(webpki::Error::UnknownIssuer.to_string()))
}

/// Cached verification results of front-proxy certificates.
pub(super) type ProxyMemo = Memo<Result<(), AuthenticationError>>;

/// Authenticates client certificates. The result for a connection is cached for a minute, but no longer than
/// the certificate is valid or the CA is current.
///
/// ```no_run
/// use std::sync::Arc;
/// use torana::sdk::Port;
/// use torana::sdk::authn::{Union, X509};
/// use torana::sdk::pki::{DynamicCa, ServingPair};
///
/// # fn open(pair: &ServingPair) -> Result<(), Box<dyn std::error::Error>> {
/// let clients = DynamicCa::from_file("clients.crt")?;
/// // Clients are asked for a certificate in the handshake, but it is verified only here.
/// let port = Port::bind(([127, 0, 0, 1], 8443).into(), pair, vec![clients.clone()])?;
/// let callers = Union::new(vec![Arc::new(X509::new(clients))]);
/// # Ok(())
/// # }
/// ```
pub struct X509 {
    ca: Arc<dyn ClientCaSource>,
    memo: Memo<CachedResult>,
    metrics: Option<ClientCertificateMetrics>,
}

/// The cached result for a chain, and when its leaf expires.
#[derive(Clone)]
struct CachedResult {
    user: Result<Option<Arc<UserInfo>>, AuthenticationError>,
    ends: Option<SystemTime>,
}

impl X509 {
    /// Trusts certificates issued by `ca` (`--client-ca-file`).
    pub fn new(ca: Arc<dyn ClientCaSource>) -> Self {
        Self {
            ca,
            memo: Memo::new(verified),
            metrics: None,
        }
    }

    /// Records the remaining lifetime of each request's certificate in `metrics`.
    #[must_use]
    pub(crate) fn observing(mut self, metrics: ClientCertificateMetrics) -> Self {
        self.metrics = Some(metrics);
        self
    }
}

#[async_trait]
impl Authenticator for X509 {
    async fn authenticate(&self, from: Credentials<'_>) -> Result<Option<AuthenticatedUser>, AuthenticationError> {
        let Some(chain) = from.peer.filter(|c| !c.is_empty()) else {
            return Ok(None);
        };
        let known = self
            .memo
            .get(chain, &self.ca.current())
            .await
            .ok_or_else(not_verified)?;
        self.observe(&known);
        Ok(known.user?.map(AuthenticatedUser::new))
    }

    fn authenticate_sync(&self, from: Credentials<'_>) -> SyncOutcome {
        let Some(chain) = from.peer.filter(|c| !c.is_empty()) else {
            return SyncOutcome::NoCredentials;
        };
        let Some(known) = self.memo.get_sync(chain, &self.ca.current()) else {
            return SyncOutcome::Unknown;
        };
        // Errors and nameless certificates take the slow path, which also records the metric; do not record
        // it twice.
        let Ok(Some(user)) = &known.user else {
            return SyncOutcome::Unknown;
        };
        self.observe(&known);
        SyncOutcome::Authenticated(AuthenticatedUser::new(user.clone()))
    }
}

/// The error for a chain that the ending process does not verify any more.
pub(super) fn not_verified() -> AuthenticationError {
    AuthenticationError::new("the certificate was not verified: the server is shutting down")
}

fn verified(of: &Unverified<'_>) -> CachedResult {
    let user = verify_chain(of.chain, of.roots, of.now).map_err(|e| {
        let described = describe(of.leaf.as_ref().ok());
        AuthenticationError(format!("verifying certificate {described} failed: {}", e.0))
    });
    CachedResult {
        // Only after verification: an unverified subject is input of the client.
        user: user.and_then(|()| user_in(&of.chain[0], of.leaf.as_ref())),
        ends: of.leaf.as_ref().ok().and_then(not_after),
    }
}

impl X509 {
    fn observe(&self, known: &CachedResult) {
        if let (Some(metrics), Some(ends)) = (&self.metrics, known.ends) {
            metrics.seen(ends);
        }
    }
}

/// The user in a certificate's subject; `None` without a common name. The caller must have verified the
/// certificate.
///
/// # Errors
/// If the certificate or its subject cannot be parsed, or the uid is empty or not unique.
pub fn user_of(certificate: &CertificateDer<'_>) -> Result<Option<Arc<UserInfo>>, AuthenticationError> {
    user_in(certificate, parse(certificate).as_ref())
}

/// [`user_of`] a certificate that is parsed already.
fn user_in(
    certificate: &CertificateDer<'_>,
    parsed: Result<&X509Certificate<'_>, &Untrusted>,
) -> Result<Option<Arc<UserInfo>>, AuthenticationError> {
    let parsed = parsed.map_err(|e| AuthenticationError(format!("the certificate cannot be read: {e}")))?;
    // With the strict parser: one that skips what it cannot decode would drop a group or take another
    // attribute for the name.
    let subject = Name::parse(parsed.subject().as_raw())
        .map_err(|e| AuthenticationError(format!("the certificate's subject cannot be read: {e}")))?;
    let name = subject.common_name();
    if name.is_empty() {
        return Ok(None);
    }
    let uid = match subject.uids() {
        [] => "",
        // An empty uid would look like a user without one, so it cannot be a valid claim.
        [uid] if uid.is_empty() => return Err(AuthenticationError::new("UID cannot be an empty string")),
        [uid] => uid,
        uids => {
            return Err(AuthenticationError(format!(
                "expected 1 UID, but found multiple: {uids:?}"
            )));
        }
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

/// Parses a certificate, but not the contents of its extensions, which may have thousands of names.
fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, Untrusted> {
    let mut parser = X509CertificateParser::new().with_deep_parse_extensions(false);
    let parsed = parser.parse(&**certificate).map_err(|e| Untrusted(e.to_string()))?;
    Ok(parsed.1)
}

/// The common name of a certificate's subject; empty if it is absent or cannot be parsed.
pub fn common_name(certificate: &CertificateDer<'_>) -> String {
    parse(certificate).map_or_else(|_| String::new(), |parsed| common_name_in(&parsed))
}

/// [`common_name`] of a certificate that is parsed already.
pub(super) fn common_name_in(certificate: &X509Certificate<'_>) -> String {
    let subject = Name::parse(certificate.subject().as_raw());
    subject.map_or_else(|_| String::new(), |name| name.common_name().to_owned())
}

/// The end of a certificate's validity.
fn not_after(certificate: &X509Certificate<'_>) -> Option<SystemTime> {
    let seconds = u64::try_from(certificate.validity().not_after.timestamp()).ok()?;
    Some(UNIX_EPOCH + Duration::from_secs(seconds))
}

fn describe(certificate: Option<&X509Certificate<'_>>) -> String {
    match certificate {
        Some(c) => format!("SN={}, subject={:?}", c.raw_serial_as_string(), c.subject().to_string()),
        None => "(unreadable)".to_owned(),
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
