//! Loads, checks and issues certificates. [`Authority::ensure`] handles a CA, [`Leaf::ensure`] a certificate
//! signed by one.

use super::files::{self, PUBLIC, SECRET, Staged};
use super::{CA_LIFE, LEAF_LIFE, PkiError, RENEW_BEFORE};
use crate::x509::pem;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, SanType,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// `notBefore` lies in the past by this much, for clients whose clocks are behind.
const BACKDATE: Duration = Duration::from_secs(300);

/// A CA. Its certificate is present; its key may be kept elsewhere, in which case it cannot issue.
pub(super) struct Authority {
    path: PathBuf,
    key_path: PathBuf,
    certificate: CertificateDer<'static>,
    issuer: Option<Issuer<'static, KeyPair>>,
}

/// Generated files that are not written yet.
#[derive(Default)]
pub(super) struct GeneratedFiles {
    pub(super) files: Staged,
    /// Base names of the pairs.
    pub(super) names: Vec<&'static str>,
}

/// The specification of a leaf certificate.
pub(super) struct Leaf {
    pub(super) ca: &'static str,
    pub(super) file: &'static str,
    pub(super) common_name: &'static str,
    pub(super) organization: Option<&'static str>,
    /// DNS names and IP addresses of a serving certificate; `None` for a client certificate.
    pub(super) serves: Option<(Vec<String>, Vec<IpAddr>)>,
    /// Whether the file also has the CA's certificate, so that clients can take it as their CA bundle, as
    /// upstream's.
    pub(super) chain: bool,
}

pub(super) fn paths(dir: &Path, name: &str) -> (PathBuf, PathBuf) {
    (dir.join(format!("{name}.crt")), dir.join(format!("{name}.key")))
}

pub(super) fn generation(path: &Path) -> impl Fn(rcgen::Error) -> PkiError {
    move |e| PkiError::new(path, format!("cannot be made: {e}"))
}

pub(super) fn certificate(path: &Path, pem: &str) -> Result<CertificateDer<'static>, PkiError> {
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|e| {
        PkiError::new(
            path,
            format!(
                "is not a PEM certificate ({}); repair or remove it",
                pem::error_text(&e)
            ),
        )
    })?;
    X509Certificate::from_der(&der)
        .map_err(|e| PkiError::new(path, format!("is not an X.509 certificate ({e}); repair or remove it")))?;
    Ok(der)
}

pub(super) fn key(path: &Path, pem: &str) -> Result<KeyPair, PkiError> {
    KeyPair::from_pem(pem)
        .map_err(|e| PkiError::new(path, format!("is not a usable private key ({e}); repair or remove it")))
}

pub(super) fn matches(certificate: &CertificateDer<'_>, key: &KeyPair) -> bool {
    X509Certificate::from_der(certificate)
        .is_ok_and(|(_, c)| c.public_key().subject_public_key.data.as_ref() == key.public_key_raw())
}

fn params(common_name: &str, now: SystemTime, life: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.not_before = (now - BACKDATE).into();
    params.not_after = (now + life).into();
    // Lets verifiers choose between CAs of the same name, such as those of several gateways.
    params.use_authority_key_identifier_extension = true;
    params
}

impl Authority {
    /// Loads the CA. Without a certificate, one is generated for the existing key or for a new one.
    pub(super) fn ensure(
        dir: &Path,
        name: &'static str,
        common_name: &str,
        now: SystemTime,
        made: &mut GeneratedFiles,
    ) -> Result<Self, PkiError> {
        let (path, key_path) = paths(dir, name);
        let found_key = files::read_secret(&key_path)?
            .map(|pem| key(&key_path, &pem))
            .transpose()?;
        let (pem, key_pair) = match (files::read(&path)?, found_key) {
            (Some(pem), key_pair) => (pem, key_pair),
            // A key without its certificate: a crash between the two renames, or a backup of keys only.
            (None, found) => {
                let key_pair = match found {
                    Some(key_pair) => key_pair,
                    None => {
                        let new = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(generation(&key_path))?;
                        made.files.add(&key_path, new.serialize_pem(), SECRET);
                        new
                    }
                };
                let mut params = params(common_name, now, CA_LIFE);
                params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
                params.key_usages = vec![
                    KeyUsagePurpose::DigitalSignature,
                    KeyUsagePurpose::KeyCertSign,
                    KeyUsagePurpose::CrlSign,
                ];
                let pem = params.self_signed(&key_pair).map_err(generation(&path))?.pem();
                made.files.add(&path, pem.clone(), PUBLIC);
                made.names.push(name);
                (pem, Some(key_pair))
            }
        };
        let der = certificate(&path, &pem)?;
        // Never renewed silently: everyone who trusts the CA must get the new one.
        let expired = X509Certificate::from_der(&der)
            .is_ok_and(|(_, c)| c.validity().not_after.timestamp() <= unix_time(now).as_secs() as i64);
        if expired {
            let remedy = format!(
                "remove it and {name}.key to have a new CA made; everyone who trusts the old one must get the new one"
            );
            return Err(PkiError::new(&path, format!("this CA has expired; {remedy}")));
        }
        let issuer = match key_pair {
            Some(key_pair) if !matches(&der, &key_pair) => {
                let remedy = "restore the pair, or remove both to have a new CA made";
                return Err(PkiError::new(
                    &key_path,
                    format!("does not belong to {}; {remedy}", path.display()),
                ));
            }
            Some(key_pair) => Some(
                Issuer::from_ca_cert_der(&der, key_pair)
                    .map_err(|e| PkiError::new(&path, format!("cannot issue certificates: {e}")))?,
            ),
            None => None,
        };
        Ok(Self {
            path,
            key_path,
            certificate: der,
            issuer,
        })
    }
}

impl Authority {
    /// Issues a client certificate and returns it with its key, both PEM.
    pub(super) fn client(
        &self,
        user: &str,
        group: Option<&str>,
        life: Duration,
        now: SystemTime,
    ) -> Result<(String, String), PkiError> {
        let issuer = self.issuer.as_ref();
        let issuer = issuer.ok_or_else(|| PkiError::new(&self.key_path, "is missing: no certificate can be issued"))?;
        let failed = || generation(&self.path);
        let mut params = params(user, now, life);
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed())?;
        let issued = params.signed_by(&key, issuer).map_err(failed())?;
        Ok((issued.pem(), key.serialize_pem()))
    }
}

impl Leaf {
    /// True if `dir` has a certificate of this name that `ca` did not issue. One of ours that has expired is
    /// ours.
    pub(super) fn is_of_another_issuer(&self, dir: &Path, ca: &Authority) -> Result<bool, PkiError> {
        let (path, _) = paths(dir, self.file);
        let Some(pem) = files::read(&path)? else {
            return Ok(false);
        };
        let der = certificate(&path, &pem)?;
        let issued = X509Certificate::from_der(&der).ok();
        let issued = issued.and_then(|(_, c)| u64::try_from(c.validity().not_before.timestamp()).ok());
        // Verified as of the moment it was issued, because expiry does not change who issued it.
        let issued = UnixTime::since_unix_epoch(Duration::from_secs(issued.unwrap_or(0)));
        Ok(self.verify(&der, ca, issued).is_err())
    }

    /// Keeps a valid pair; otherwise issues a new certificate with a new key.
    pub(super) fn ensure(
        &self,
        dir: &Path,
        ca: &Authority,
        now: SystemTime,
        made: &mut GeneratedFiles,
    ) -> Result<(), PkiError> {
        let (path, key_path) = paths(dir, self.file);
        let reissue_reason = match (files::read(&path)?, files::read_secret(&key_path)?) {
            (Some(pem), Some(key_pem)) => {
                let der = certificate(&path, &pem)?;
                if !matches(&der, &key(&key_path, &key_pem)?) {
                    // Also the result of a crash before both were written.
                    Some("its key belongs to another certificate".to_owned())
                } else {
                    self.reissue_reason(&der, ca, now)
                }
            }
            (None, None) => Some("it is missing".to_owned()),
            (None, Some(_)) => Some("it is missing beside its key".to_owned()),
            (Some(_), None) => Some("its key is missing".to_owned()),
        };
        let Some(reissue_reason) = reissue_reason else {
            return Ok(());
        };
        let Some(issuer) = &ca.issuer else {
            return Err(PkiError::new(
                &path,
                format!(
                    "{reissue_reason}, and it cannot be issued without {}; put that key there, or put a good pair in place",
                    ca.key_path.display()
                ),
            ));
        };
        // The first start creates everything; only a replacement is news.
        if path.exists() {
            tracing::info!(file = %path.display(), reason = reissue_reason, "certificate reissued");
        }
        // Always a new key: a reissue may be the response to a leaked one.
        let key_pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(generation(&key_path))?;
        let issued = self
            .params(now)
            .map_err(generation(&path))?
            .signed_by(&key_pair, issuer)
            .map_err(generation(&path))?;
        made.files.add(&key_path, key_pair.serialize_pem(), SECRET);
        let mut pem = issued.pem();
        if self.chain {
            pem += &pem::encode(pem::CERTIFICATE, &ca.certificate);
        }
        made.files.add(&path, pem, PUBLIC);
        made.names.push(self.file);
        Ok(())
    }

    fn params(&self, now: SystemTime) -> Result<CertificateParams, rcgen::Error> {
        let mut params = params(self.common_name, now, LEAF_LIFE);
        if let Some(organization) = self.organization {
            params.distinguished_name.push(DnType::OrganizationName, organization);
        }
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![match self.serves {
            Some(_) => ExtendedKeyUsagePurpose::ServerAuth,
            None => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        if let Some((names, addresses)) = &self.serves {
            let mut sans: Vec<SanType> = Vec::new();
            for name in names {
                sans.push(SanType::DnsName(name.as_str().try_into()?));
            }
            sans.extend(addresses.iter().copied().map(SanType::IpAddress));
            // `dedup` would need sorting; the list is short and its order is kept.
            let mut distinct: Vec<SanType> = Vec::new();
            for san in sans {
                if !distinct.contains(&san) {
                    distinct.push(san);
                }
            }
            params.subject_alt_names = distinct;
        }
        Ok(params)
    }

    /// Why a certificate must be reissued, if it must.
    fn reissue_reason(&self, der: &CertificateDer<'_>, ca: &Authority, now: SystemTime) -> Option<String> {
        let (_, parsed) = X509Certificate::from_der(der).ok()?;
        let soon = unix_time(now + RENEW_BEFORE).as_secs() as i64;
        if parsed.validity().not_after.timestamp() <= soon {
            return Some("it expires soon or has expired".to_owned());
        }
        if let Some((names, addresses)) = &self.serves {
            let sans = parsed.subject_alternative_name().ok().flatten();
            let has = |wanted: &dyn Fn(&GeneralName<'_>) -> bool| {
                sans.as_ref()
                    .is_some_and(|sans| sans.value.general_names.iter().any(wanted))
            };
            for name in names {
                if !has(&|san| matches!(san, GeneralName::DNSName(n) if n.eq_ignore_ascii_case(name))) {
                    return Some(format!("it is not for the name {name}"));
                }
            }
            for address in addresses {
                let raw = match address {
                    IpAddr::V4(v4) => v4.octets().to_vec(),
                    IpAddr::V6(v6) => v6.octets().to_vec(),
                };
                if !has(&|san| matches!(san, GeneralName::IPAddress(ip) if *ip == raw)) {
                    return Some(format!("it is not for the address {address}"));
                }
            }
        }
        self.verify(der, ca, unix_time(now))
            .err()
            .map(|e| format!("it does not verify against {} ({e})", ca.path.display()))
    }

    /// Verifies a certificate as of a time.
    fn verify(&self, der: &CertificateDer<'_>, ca: &Authority, at: UnixTime) -> Result<(), webpki::Error> {
        let usage = match self.serves {
            Some(_) => webpki::KeyUsage::server_auth(),
            None => webpki::KeyUsage::client_auth(),
        };
        let anchor = webpki::anchor_from_trusted_cert(&ca.certificate)?;
        let leaf = webpki::EndEntityCert::try_from(der)?;
        let algorithms = webpki::ALL_VERIFICATION_ALGS;
        // No intermediates: generated CAs issue leaves directly.
        leaf.verify_for_usage(algorithms, &[anchor], &[], at, usage, None, None)?;
        Ok(())
    }
}

fn unix_time(time: SystemTime) -> UnixTime {
    UnixTime::since_unix_epoch(time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}
