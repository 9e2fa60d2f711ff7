//! Serving certificates of backends that work today and will not with a stricter client: counted, so that an operator
//! finds them before an upgrade does. As `apiserver/pkg/util/x509metrics`.

use crate::telemetry::X509Flaws;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};
use std::fmt;
use std::sync::Arc;
use x509_parser::certificate::X509Certificate;

/// `sha1WithRSAEncryption`, `dsa-with-sha1`, `ecdsa-with-SHA1`.
const SHA1: [&str; 3] = ["1.2.840.113549.1.1.5", "1.2.840.10040.4.3", "1.2.840.10045.4.1"];

/// Another verifier's verdicts, with flaws counted per handshake.
pub(super) struct Inspecting {
    pub(super) verdict: Arc<dyn ServerCertVerifier>,
    pub(super) flaws: X509Flaws,
}

impl Inspecting {
    fn inspect(&self, leaf: &CertificateDer<'_>, chain: &[CertificateDer<'_>]) {
        let parsed = x509_parser::parse_x509_certificate(leaf);
        if parsed.is_ok_and(|(_, c)| matches!(c.subject_alternative_name(), Ok(None))) {
            self.flaws.missing_san.inc();
        }
        let weak = |c: &CertificateDer<'_>| x509_parser::parse_x509_certificate(c).is_ok_and(|(_, c)| is_weak(&c));
        if weak(leaf) || chain.iter().any(weak) {
            self.flaws.insecure_sha1.inc();
        }
    }
}

/// Nobody checks the signature of a certificate that vouches for itself.
fn is_weak(c: &X509Certificate<'_>) -> bool {
    c.subject().as_raw() != c.issuer().as_raw()
        && SHA1.contains(&c.signature_algorithm.algorithm.to_id_string().as_str())
}

impl ServerCertVerifier for Inspecting {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.inspect(end_entity, intermediates);
        self.verdict
            .verify_server_cert(end_entity, intermediates, server_name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verdict.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verdict.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verdict.supported_verify_schemes()
    }
}

impl fmt::Debug for Inspecting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.verdict.fmt(f)
    }
}
