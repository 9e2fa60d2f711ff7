//! [`Signer`]: a CA that signs certificate signing requests (upstream's
//! `pkg/controller/certificates/authority`). Whether a request may be signed is decided by the signing
//! controller.

use super::{PkiError, files, issue};
use crate::x509::{CertificateRequest, Draft, pem};
use rcgen::{KeyPair, SigningKey as _};
use std::path::{Path, PathBuf};
use std::time::Duration;
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer as _, ParsedExtension, X509Certificate};

/// `notBefore` lies in the past by this much, for clients whose clocks are behind. `notAfter` of certificates
/// that live [`SHORT`] or longer is earlier by the same time, so that they live no longer than asked for. As
/// upstream's `PermissiveSigningPolicy`.
const BACKDATE: Duration = Duration::from_secs(300);
/// Certificates shorter than this end exactly when they were asked to: taking `BACKDATE` off would leave
/// little of them.
const SHORT: Duration = Duration::from_secs(8 * 3600);

/// A CA and its key.
pub(crate) struct Signer {
    path: PathBuf,
    key: KeyPair,
    algorithm: &'static [u8],
    subject: Vec<u8>,
    key_id: Vec<u8>,
    not_after: OffsetDateTime,
}

/// The signature algorithms of CA keys, DER.
fn algorithm(key: &KeyPair) -> Option<&'static [u8]> {
    const ECDSA_SHA256: &[u8] = &[0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
    const ECDSA_SHA384: &[u8] = &[0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03];
    const RSA_SHA256: &[u8] = &[
        0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b, 0x05, 0x00,
    ];
    const ED25519: &[u8] = &[0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70];
    let known = [
        (&rcgen::PKCS_ECDSA_P256_SHA256, ECDSA_SHA256),
        (&rcgen::PKCS_ECDSA_P384_SHA384, ECDSA_SHA384),
        (&rcgen::PKCS_RSA_SHA256, RSA_SHA256),
        (&rcgen::PKCS_ED25519, ED25519),
    ];
    // rcgen knows the algorithm but does not expose its encoding, which the certificate needs twice.
    let found = known.iter().find(|(of, _)| *key.algorithm() == **of);
    found.map(|(_, der)| *der)
}

impl Signer {
    /// Loads a CA certificate and its key, both PEM. Blocking.
    ///
    /// # Errors
    /// A file is missing or unusable, or they do not belong together.
    pub(crate) fn load(path: &Path, key_path: &Path) -> Result<Self, PkiError> {
        let missing = |path: &Path| PkiError::new(path, "is missing: no certificate can be signed");
        let pem = files::read(path)?.ok_or_else(|| missing(path))?;
        let key_pem = files::read_secret(key_path)?.ok_or_else(|| missing(key_path))?;
        let der = issue::certificate(path, &pem)?;
        let key = issue::key(key_path, &key_pem)?;
        if !issue::matches(&der, &key) {
            let reason = format!("does not belong to {}", path.display());
            return Err(PkiError::new(key_path, reason));
        }
        let algorithm = algorithm(&key).ok_or_else(|| PkiError::new(key_path, "is a key of an unsupported kind"))?;
        let (_, ca) = X509Certificate::from_der(&der).map_err(|e| PkiError::new(path, e.to_string()))?;
        let key_id = ca.extensions().iter().find_map(|e| match e.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
            _ => None,
        });
        let not_after = OffsetDateTime::from_unix_timestamp(ca.validity().not_after.timestamp());
        Ok(Self {
            path: path.to_owned(),
            algorithm,
            // As encoded in the CA: verifiers compare the bytes of issuer and subject.
            subject: ca.subject().as_raw().to_vec(),
            // Absent in CAs of old tools; then the authority key identifier is left out.
            key_id: key_id.unwrap_or_default(),
            not_after: not_after.map_err(|e| PkiError::new(path, e.to_string()))?,
            key,
        })
    }

    /// Signs a certificate with the request's subject, alternative names and key, which lives as long as
    /// asked for but not longer than the CA. Returns it as PEM. Blocking.
    ///
    /// # Errors
    /// The CA has expired or cannot sign.
    pub(crate) fn sign(
        &self,
        request: &CertificateRequest,
        usages: &[&str],
        life: Duration,
        now: OffsetDateTime,
    ) -> Result<String, PkiError> {
        let fail = |reason: String| PkiError::new(&self.path, reason);
        if now >= self.not_after {
            let at = crate::apimachinery::time::format(self.not_after);
            return Err(fail(format!("the signer has expired: NotAfter={at}")));
        }
        // Random, so that gateways with the same CA need not agree on a counter.
        let mut serial = [0; 16];
        aws_lc_rs::rand::fill(&mut serial).map_err(|_| fail("no random numbers are available".to_owned()))?;
        let end = if life < SHORT {
            now + life
        } else {
            now + life - BACKDATE
        };
        let draft = Draft {
            serial,
            algorithm: self.algorithm,
            issuer: &self.subject,
            issuer_key: &self.key_id,
            not_before: now - BACKDATE,
            not_after: end.min(self.not_after),
            subject: &request.subject_der,
            key: &request.key_der,
            names: &request.names,
            usages,
        };
        let signed = draft.to_be_signed();
        let signature = self.key.sign(&signed).map_err(|e| fail(format!("cannot sign: {e}")))?;
        Ok(pem::encode(pem::CERTIFICATE, &draft.signed(&signed, &signature)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::{PkiOptions, ensure};
    use rcgen::{CertificateParams, DnType, SanType};
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, UnixTime};
    use std::time::SystemTime;

    fn request(key: &KeyPair) -> CertificateRequest {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params.distinguished_name.push(DnType::CommonName, "system:node:n");
        params.distinguished_name.push(DnType::LocalityName, "kept");
        params.subject_alt_names = vec![
            SanType::DnsName("n.example".try_into().unwrap()),
            SanType::IpAddress("10.0.0.1".parse().unwrap()),
        ];
        let pem = params.serialize_request(key).unwrap().pem().unwrap();
        CertificateRequest::from_pem(pem.as_bytes()).unwrap()
    }

    fn ca(rsa: bool) -> (tempfile::TempDir, Signer) {
        let dir = tempfile::tempdir().unwrap();
        if rsa {
            let key = KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap();
            std::fs::write(dir.path().join("client-ca.key"), key.serialize_pem()).unwrap();
        }
        let options = PkiOptions {
            dir: dir.path().to_owned(),
            serving_dir: None,
            names: Vec::new(),
            addresses: Vec::new(),
            rsa_signing_key: false,
            now: SystemTime::now(),
        };
        ensure(&options).unwrap();
        let path = |name: &str| dir.path().join(name);
        let signer = Signer::load(&path("client-ca.crt"), &path("client-ca.key")).unwrap();
        (dir, signer)
    }

    #[test]
    fn certificates_verify_and_match_their_request() {
        for rsa in [false, true] {
            let (dir, signer) = ca(rsa);
            let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
            let now = OffsetDateTime::now_utc();
            let usages = ["client auth", "digital signature", "key encipherment"];
            let life = Duration::from_secs(3600);
            let pem = signer.sign(&request(&key), &usages, life, now).unwrap();
            let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
            let (rest, parsed) = X509Certificate::from_der(&der).unwrap();
            assert!(rest.is_empty());
            let subject = parsed.subject().to_string();
            assert_eq!(subject, "O=system:nodes, CN=system:node:n, L=kept");
            assert_eq!(parsed.validity().not_after.timestamp(), (now + life).unix_timestamp());
            assert_eq!(
                parsed.validity().not_before.timestamp(),
                (now - BACKDATE).unix_timestamp()
            );
            assert!(issue::matches(&der, &key));
            let names = parsed.subject_alternative_name().unwrap().unwrap();
            assert_eq!(names.value.general_names.len(), 2);
            let usage = parsed.key_usage().unwrap().unwrap();
            assert!(usage.critical && usage.value.digital_signature() && usage.value.key_encipherment());
            assert!(!usage.value.key_cert_sign() && !parsed.is_ca());

            let authority = std::fs::read(dir.path().join("client-ca.crt")).unwrap();
            let authority = CertificateDer::from_pem_slice(&authority).unwrap();
            let anchor = webpki::anchor_from_trusted_cert(&authority).unwrap();
            let leaf = webpki::EndEntityCert::try_from(&der).unwrap();
            let verified = |usage| {
                let all = webpki::ALL_VERIFICATION_ALGS;
                leaf.verify_for_usage(
                    all,
                    std::slice::from_ref(&anchor),
                    &[],
                    UnixTime::now(),
                    usage,
                    None,
                    None,
                )
                .is_ok()
            };
            assert!(verified(webpki::KeyUsage::client_auth()));
            assert!(!verified(webpki::KeyUsage::server_auth()));
        }
    }

    #[test]
    fn certificates_expire_no_later_than_their_issuer() {
        let (_dir, signer) = ca(false);
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let ends = |life: u64, now: OffsetDateTime| {
            let pem = signer.sign(&request(&key), &["any"], Duration::from_secs(life), now);
            pem.map(|pem| {
                let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
                let (_, parsed) = X509Certificate::from_der(&der).unwrap();
                parsed.validity().not_after.timestamp()
            })
        };
        let now = OffsetDateTime::now_utc();
        let day = 24 * 3600;
        let backdated = now + Duration::from_secs(day) - BACKDATE;
        assert_eq!(ends(day, now).unwrap(), backdated.unix_timestamp());
        let end = signer.not_after.unix_timestamp();
        assert_eq!(ends(100 * 365 * day, now).unwrap(), end);
        let late = signer.not_after + Duration::from_secs(1);
        let refused = ends(day, late).unwrap_err().to_string();
        assert!(refused.contains("the signer has expired"), "{refused}");
    }
}
