//! Verification of backends' certificates: a [`Verdict`] decides, and [`Verifier`] adapts it to rustls.
//!
//! [`GoLike`] accepts what Go's verifier accepts and rustls' own does not: a serving certificate that is
//! itself in the CA bundle is trusted even if it is marked as a CA, as self-signed certificates usually are.
//! Name, validity period and handshake signature are always checked.

use crate::x509::intermediates_to_try;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use x509_parser::extensions::GeneralName;

/// Names of a certificate from which Go states only their number.
const MAX_NAMES: usize = 100;

/// The certificates of a server, and the name and time to verify them for.
pub(crate) struct PresentedChain<'a> {
    pub(crate) leaf: &'a CertificateDer<'a>,
    pub(crate) chain: &'a [CertificateDer<'a>],
    pub(crate) name: &'a ServerName<'a>,
    pub(crate) ocsp: &'a [u8],
    pub(crate) now: UnixTime,
}

/// Decides whether a certificate is acceptable. Possession of the private key is verified in any case.
pub(crate) trait Verdict: fmt::Debug + Send + Sync + 'static {
    /// # Errors
    /// Why the certificate is not acceptable.
    fn of(&self, presented: &PresentedChain<'_>) -> Result<(), Error>;
}

/// Adapts a [`Verdict`] to rustls.
#[derive(Debug)]
pub(crate) struct Verifier<V> {
    pub(crate) verdict: V,
    pub(crate) provider: Arc<CryptoProvider>,
}

impl<V: Verdict> ServerCertVerifier for Verifier<V> {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verdict.of(&PresentedChain {
            leaf,
            chain,
            name,
            ocsp,
            now,
        })?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl Verdict for Box<dyn Verdict> {
    fn of(&self, presented: &PresentedChain<'_>) -> Result<(), Error> {
        (**self).of(presented)
    }
}

/// Accepts any certificate, for `insecureSkipTLSVerify` and where the identity of the peer does not matter.
#[derive(Debug)]
pub(crate) struct AnyServer;

impl Verdict for AnyServer {
    fn of(&self, _: &PresentedChain<'_>) -> Result<(), Error> {
        Ok(())
    }
}

/// A verification failure in Go's wording.
#[derive(Debug)]
pub(crate) struct X509Error(pub String);

/// WebPKI first, then a certificate that is in the bundle itself.
#[derive(Debug)]
pub(crate) struct GoLike {
    /// `None` if there are no roots, so that nothing verifies.
    webpki: Option<Arc<WebPkiServerVerifier>>,
    bundle: Arc<[CertificateDer<'static>]>,
}

impl GoLike {
    pub(crate) fn new(
        roots: Arc<RootCertStore>,
        bundle: Arc<[CertificateDer<'static>]>,
        provider: &Arc<CryptoProvider>,
    ) -> Self {
        Self {
            webpki: WebPkiServerVerifier::builder_with_provider(roots, provider.clone())
                .build()
                .ok(),
            bundle,
        }
    }

    fn trusts_itself(&self, leaf: &CertificateDer<'_>, name: &ServerName<'_>, now: UnixTime) -> Result<(), X509Error> {
        let Ok((_, parsed)) = x509_parser::parse_x509_certificate(leaf) else {
            return Err(X509Error("x509: malformed certificate".into()));
        };
        // In Go's order: dates, name, usage.
        check_validity(&parsed, now)?;
        // A leaf in the bundle skips only the chain; name, validity and usage are checked as Go does.
        let ours = ParsedCertificate::try_from(leaf).is_ok_and(|p| verify_server_name(&p, name).is_ok());
        if !ours {
            return Err(wrong_name(leaf, name));
        }
        // Without the extension every usage is allowed.
        match parsed.extended_key_usage() {
            Ok(Some(usage)) if !usage.value.server_auth && !usage.value.any => Err(X509Error(
                "x509: certificate specifies an incompatible key usage".into(),
            )),
            _ => Ok(()),
        }
    }
}

impl Verdict for GoLike {
    fn of(&self, presented: &PresentedChain<'_>) -> Result<(), Error> {
        let PresentedChain {
            leaf,
            chain,
            name,
            ocsp,
            now,
        } = *presented;
        let refused = match &self.webpki {
            // No roots, no chain; but the bundle may hold the certificate itself.
            None => CertificateError::UnknownIssuer,
            Some(webpki) => match webpki.verify_server_cert(leaf, &intermediates_to_try(chain), name, ocsp, now) {
                Ok(_) => return Ok(()),
                Err(Error::InvalidCertificate(why)) => why,
                // Not a verdict on the certificate, so the bundle has no say.
                Err(other) => return Err(other),
            },
        };
        // Only after WebPKI has refused: a certificate that is trusted through a chain needs no exception.
        let why = if self.bundle.iter().any(|c| c.as_ref() == leaf.as_ref()) {
            match self.trusts_itself(leaf, name, now) {
                Ok(()) => return Ok(()),
                Err(why) => why,
            }
        } else {
            go_error(&refused, leaf, name, now)
        };
        Err(Error::InvalidCertificate(CertificateError::Other(OtherError(
            Arc::new(why),
        ))))
    }
}

fn go_error(why: &CertificateError, leaf: &CertificateDer<'_>, name: &ServerName<'_>, now: UnixTime) -> X509Error {
    let text = match why {
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            return wrong_name(leaf, name);
        }
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => {
            // Computed again, because rustls' error lacks the dates that Go's message states.
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
        // Everything else means that there is no valid chain to a root: a bad signature, a
        // CA as the leaf, an unknown issuer.
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

/// The text of Go's `x509.HostnameError`.
fn wrong_name(leaf: &CertificateDer<'_>, name: &ServerName<'_>) -> X509Error {
    let wanted = name.to_str();
    let parsed = x509_parser::parse_x509_certificate(leaf).ok().map(|(_, c)| c);
    let sans = parsed
        .as_ref()
        .and_then(|c| c.subject_alternative_name().ok().flatten());
    if sans.is_none() {
        let common_name = parsed.as_ref().and_then(|c| {
            let cn = c.subject().iter_common_name().next()?;
            Some(cn.as_str().ok()?.to_owned())
        });
        // Go mentions the legacy field only if it would have matched.
        if common_name.is_some_and(|cn| cn.eq_ignore_ascii_case(&wanted)) {
            return X509Error("x509: certificate relies on legacy Common Name field, use SANs instead".into());
        }
    }
    let all = sans.as_ref().map_or(&[][..], |sans| &sans.value.general_names);
    let (kind, names): (_, Vec<String>) = match name {
        ServerName::IpAddress(_) => ("IP SANs", all.iter().filter_map(ip_address).collect()),
        _ => ("names", all.iter().filter_map(dns_name).collect()),
    };
    X509Error(match names.len() {
        0 if matches!(name, ServerName::IpAddress(_)) => {
            format!("x509: cannot validate certificate for {wanted} because it doesn't contain any IP SANs")
        }
        0 => format!("x509: certificate is not valid for any names, but wanted to match {wanted}"),
        MAX_NAMES.. => format!(
            "x509: certificate is valid for {} {kind}, but none matched {wanted}",
            names.len()
        ),
        _ => format!("x509: certificate is valid for {}, not {wanted}", names.join(", ")),
    })
}

fn dns_name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    }
}

fn ip_address(name: &GeneralName<'_>) -> Option<String> {
    let GeneralName::IPAddress(bytes) = name else {
        return None;
    };
    let address = match bytes.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(*bytes).ok()?),
        _ => IpAddr::from(<[u8; 16]>::try_from(*bytes).ok()?),
    };
    // Go writes addresses that are mapped to IPv6 as IPv4.
    Some(address.to_canonical().to_string())
}

impl fmt::Display for X509Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for X509Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_do_not_match_are_listed_by_their_kind() {
        let message = |sans: Vec<String>, wanted: &'static str| {
            let params = rcgen::CertificateParams::new(sans).unwrap();
            let certificate = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
            wrong_name(certificate.der(), &ServerName::try_from(wanted).unwrap()).0
        };
        let some = || ["a.svc", "10.0.0.1", "fd00::1"].map(str::to_owned).to_vec();
        assert_eq!(
            message(some(), "b.svc"),
            "x509: certificate is valid for a.svc, not b.svc"
        );
        assert_eq!(
            message(some(), "10.0.0.2"),
            "x509: certificate is valid for 10.0.0.1, fd00::1, not 10.0.0.2"
        );
        assert_eq!(
            message(vec!["a.svc".to_owned()], "10.0.0.2"),
            "x509: cannot validate certificate for 10.0.0.2 because it doesn't contain any IP SANs"
        );
        assert_eq!(
            message((0..MAX_NAMES).map(|i| format!("10.0.0.{i}")).collect(), "10.0.1.1"),
            "x509: certificate is valid for 100 IP SANs, but none matched 10.0.1.1"
        );
    }
}
