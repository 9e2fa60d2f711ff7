//! Loads, checks and issues certificates. [`Authority::ensure`] handles a CA, [`Leaf::ensure`] a certificate signed by
//! one, [`ensure_signing_key`] the service account key.

use super::files::{self, PUBLIC, SECRET};
use super::{CA_LIFE, LEAF_LIFE, PkiError, RENEW_BEFORE};
use crate::x509::pem;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, SanType,
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

/// The specification of a leaf certificate.
pub(super) struct Leaf {
    pub(super) ca: &'static str,
    pub(super) file: &'static str,
    pub(super) common_name: &'static str,
    pub(super) organization: Option<&'static str>,
    /// DNS names and IP addresses of a serving certificate; `None` for a client certificate.
    pub(super) serves: Option<(Vec<String>, Vec<IpAddr>)>,
}

fn paths(dir: &Path, name: &str) -> (PathBuf, PathBuf) {
    (dir.join(format!("{name}.crt")), dir.join(format!("{name}.key")))
}

fn generation(path: &Path) -> impl Fn(rcgen::Error) -> PkiError {
    move |e| PkiError::new(path, format!("cannot be made: {e}"))
}

pub(super) fn certificate(path: &Path, pem: &str) -> Result<CertificateDer<'static>, PkiError> {
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|e| {
        PkiError::new(
            path,
            format!("is no PEM certificate ({}); repair or remove it", pem::error_text(&e)),
        )
    })?;
    X509Certificate::from_der(&der)
        .map_err(|e| PkiError::new(path, format!("is no X.509 certificate ({e}); repair or remove it")))?;
    Ok(der)
}

pub(super) fn key(path: &Path, pem: &str) -> Result<KeyPair, PkiError> {
    KeyPair::from_pem(pem)
        .map_err(|e| PkiError::new(path, format!("is no usable private key ({e}); repair or remove it")))
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
        written: &mut Vec<&'static str>,
    ) -> Result<Self, PkiError> {
        let (path, key_path) = paths(dir, name);
        let found_key = files::read_secret(&key_path)?
            .map(|pem| key(&key_path, &pem))
            .transpose()?;
        let (pem, key_pair) = match (files::read(&path)?, found_key) {
            (Some(pem), key_pair) => (pem, key_pair),
            (None, found) => {
                let key_pair = match found {
                    Some(key_pair) => key_pair,
                    None => {
                        let made = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(generation(&key_path))?;
                        files::write(&key_path, &made.serialize_pem(), SECRET)?;
                        made
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
                files::write(&path, &pem, PUBLIC)?;
                written.push(name);
                (pem, Some(key_pair))
            }
        };
        let der = certificate(&path, &pem)?;
        // Never renewed silently: everyone who trusts the CA must get the new one.
        let expired = X509Certificate::from_der(&der)
            .is_ok_and(|(_, c)| c.validity().not_after.timestamp() <= unix_time(now).as_secs() as i64);
        if expired {
            let remedy =
                format!("remove it and {name}.key to have a new CA made; everyone who trusts the old one must be told");
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
        let issuer = issuer.ok_or_else(|| PkiError::new(&self.key_path, "is missing: nothing can be issued"))?;
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
    /// Keeps a valid pair; otherwise issues a new certificate with a new key.
    pub(super) fn ensure(
        &self,
        dir: &Path,
        ca: &Authority,
        now: SystemTime,
        written: &mut Vec<&'static str>,
    ) -> Result<(), PkiError> {
        let (path, key_path) = paths(dir, self.file);
        let reissue_reason = match (files::read(&path)?, files::read_secret(&key_path)?) {
            (Some(pem), Some(key_pem)) => {
                let der = certificate(&path, &pem)?;
                if !matches(&der, &key(&key_path, &key_pem)?) {
                    // Also the result of a crash between the two writes below.
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
        if path.exists() {
            tracing::info!(file = %path.display(), reason = reissue_reason, "certificate reissued");
        }
        let key_pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(generation(&key_path))?;
        let issued = self
            .params(now)
            .map_err(generation(&path))?
            .signed_by(&key_pair, issuer)
            .map_err(generation(&path))?;
        files::write(&key_path, &key_pair.serialize_pem(), SECRET)?;
        files::write(&path, &issued.pem(), PUBLIC)?;
        written.push(self.file);
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
        let usage = match self.serves {
            Some(_) => webpki::KeyUsage::server_auth(),
            None => webpki::KeyUsage::client_auth(),
        };
        let verified = webpki::anchor_from_trusted_cert(&ca.certificate).and_then(|anchor| {
            let leaf = webpki::EndEntityCert::try_from(der)?;
            leaf.verify_for_usage(
                webpki::ALL_VERIFICATION_ALGS,
                &[anchor],
                &[],
                unix_time(now),
                usage,
                None,
                None,
            )?;
            Ok(())
        });
        verified
            .err()
            .map(|e| format!("it does not verify against {} ({e})", ca.path.display()))
    }
}

fn unix_time(time: SystemTime) -> UnixTime {
    UnixTime::since_unix_epoch(time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

/// Generates `sa.key` (ECDSA P-256 or RSA 2048) and `sa.pub` if missing. An existing `sa.pub` is never rewritten: it may also hold
/// former keys, which still verify old tokens.
pub(super) fn ensure_signing_key(dir: &Path, rsa: bool) -> Result<Option<&'static str>, PkiError> {
    let (path, public_path) = (dir.join("sa.key"), dir.join("sa.pub"));
    let (key_pair, made) = match files::read_secret(&path)? {
        Some(pem) => (key(&path, &pem)?, false),
        None => {
            if files::read(&public_path)?.is_some() {
                let remedy = "put the private key back, or remove sa.pub to have a new pair made (every service account token becomes invalid)";
                return Err(PkiError::new(&path, format!("is missing beside sa.pub; {remedy}")));
            }
            let algorithm = if rsa { &PKCS_RSA_SHA256 } else { &PKCS_ECDSA_P256_SHA256 };
            let made = KeyPair::generate_for(algorithm).map_err(generation(&path))?;
            files::write(&path, &made.serialize_pem(), SECRET)?;
            (made, true)
        }
    };
    if files::read(&public_path)?.is_none() {
        files::write(&public_path, &key_pair.public_key_pem(), PUBLIC)?;
    }
    Ok(made.then_some("sa"))
}
