//! Metrics about backends' serving certificates that work today but will be rejected by stricter clients (no
//! SAN, SHA-1 signatures), so that operators can find them in time. Follows `apiserver/pkg/util/x509metrics`.
//!
//! Entry point: [`CountingVerdict`], which wraps another [`Verdict`].

use super::verify::{PresentedChain, Verdict};
use crate::telemetry::X509Warnings;
use rustls::Error;
use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;

/// `sha1WithRSAEncryption`, `dsa-with-sha1`, `ecdsa-with-SHA1`.
const SHA1: [&str; 3] = ["1.2.840.113549.1.1.5", "1.2.840.10040.4.3", "1.2.840.10045.4.1"];

/// Delegates the verdict and counts deprecated properties once per handshake.
#[derive(Debug)]
pub(super) struct CountingVerdict<V> {
    pub(super) verdict: V,
    pub(super) certificate_warnings: X509Warnings,
}

impl<V> CountingVerdict<V> {
    fn inspect(&self, leaf: &CertificateDer<'_>, chain: &[CertificateDer<'_>]) {
        let parsed = x509_parser::parse_x509_certificate(leaf);
        if parsed.is_ok_and(|(_, c)| matches!(c.subject_alternative_name(), Ok(None))) {
            self.certificate_warnings.missing_san.inc();
        }
        let weak = |c: &CertificateDer<'_>| x509_parser::parse_x509_certificate(c).is_ok_and(|(_, c)| is_weak(&c));
        if weak(leaf) || chain.iter().any(weak) {
            self.certificate_warnings.insecure_sha1.inc();
        }
    }
}

/// Whether the certificate has a SHA-1 signature that is verified. That of a self-signed certificate never
/// is.
fn is_weak(c: &X509Certificate<'_>) -> bool {
    c.subject().as_raw() != c.issuer().as_raw()
        && SHA1.contains(&c.signature_algorithm.algorithm.to_id_string().as_str())
}

impl<V: Verdict> Verdict for CountingVerdict<V> {
    fn of(&self, presented: &PresentedChain<'_>) -> Result<(), Error> {
        // Before the verdict, so that refused certificates count too.
        self.inspect(presented.leaf, presented.chain);
        self.verdict.of(presented)
    }
}

#[cfg(test)]
mod tests {
    use super::super::verify::AnyServer;
    use super::*;
    use crate::telemetry::Telemetry;
    use rcgen::{CertificateParams, DnType, Issuer, KeyPair};
    use rustls::pki_types::{ServerName, UnixTime};

    /// Marks a certificate as signed with SHA-1: the OIDs of `sha256WithRSAEncryption` and
    /// `sha1WithRSAEncryption` differ only in the last byte.
    fn marked_as_sha1(der: &[u8]) -> CertificateDer<'static> {
        const SHA256: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b];
        let mut der = der.to_vec();
        let all = der.windows(SHA256.len()).enumerate().filter(|(_, w)| *w == SHA256);
        let ends: Vec<usize> = all.map(|(at, _)| at + SHA256.len() - 1).collect();
        assert_eq!(ends.len(), 2, "in the signature algorithm and in the signed part");
        ends.into_iter().for_each(|at| der[at] = 0x05);
        der.into()
    }

    #[test]
    fn sha1_signatures_count_unless_self_signed() {
        let rsa = || KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap();
        let mut authority = CertificateParams::default();
        authority.distinguished_name.push(DnType::CommonName, "a CA");
        let key = rsa();
        let own = authority.self_signed(&key).unwrap();
        let issuer = Issuer::new(authority, key);
        let mut named = CertificateParams::new(vec!["ext.ns.svc".to_owned()]).unwrap();
        named.distinguished_name.push(DnType::CommonName, "ext.ns.svc");
        let leaf = named.signed_by(&rsa(), &issuer).unwrap();
        let (own, weak) = (marked_as_sha1(own.der()), marked_as_sha1(leaf.der()));

        let telemetry = Telemetry::new();
        let inspecting = CountingVerdict {
            verdict: AnyServer,
            certificate_warnings: telemetry.x509_warnings.clone(),
        };
        let name = ServerName::try_from("ext.ns.svc").unwrap();
        let sees = |leaf: &CertificateDer<'_>, chain: &[CertificateDer<'_>]| {
            let presented = PresentedChain {
                leaf,
                chain,
                name: &name,
                ocsp: &[],
                now: UnixTime::now(),
            };
            inspecting.of(&presented).unwrap();
            let certificate_warnings = &telemetry.x509_warnings;
            (
                certificate_warnings.insecure_sha1.get(),
                certificate_warnings.missing_san.get(),
            )
        };
        assert_eq!(
            sees(leaf.der(), std::slice::from_ref(&own)),
            (0, 0),
            "a root's signature is not verified"
        );
        assert_eq!(sees(&weak, &[]), (1, 0));
        assert_eq!(
            sees(leaf.der(), std::slice::from_ref(&weak)),
            (2, 0),
            "any certificate of the chain"
        );
        assert_eq!(sees(&own, &[]), (2, 1), "it has no SAN");
    }
}
