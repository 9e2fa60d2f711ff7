//! Certificates of the scripted backends, valid and invalid, generated for one run.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, PKCS_ECDSA_P256_SHA256,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use std::sync::Arc;

/// The properties of a backend's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certificate {
    /// Issued by the CA in the bundle, for the service's name.
    Good,
    /// Issued by a CA that is not in the bundle.
    OtherCa,
    /// Expired.
    Expired,
    /// For another name.
    OtherName,
    /// With the service's name as common name only.
    CommonNameOnly,
}

/// The crypto provider of this crate.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// Two CAs: the one in the bundle of every APIService, and an unknown one.
pub struct Pki {
    ours: Issuer<'static, KeyPair>,
    theirs: Issuer<'static, KeyPair>,
    /// The PEM of the CA in the bundles.
    pub bundle: String,
}

fn authority(name: &str) -> (Issuer<'static, KeyPair>, String) {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("a key");
    let pem = params.self_signed(&key).expect("a CA").pem();
    (Issuer::new(params, key), pem)
}

impl Default for Pki {
    fn default() -> Self {
        let (ours, bundle) = authority("proxy-conformance");
        let (theirs, _) = authority("a stranger");
        Self { ours, theirs, bundle }
    }
}

impl Pki {
    /// A server's TLS configuration.
    ///
    /// # Errors
    /// If `clients`, the PEM of the CA for client certificates, is invalid.
    pub fn server(
        &self,
        name: &str,
        certificate: Certificate,
        alpn: &[&str],
        clients: Option<&str>,
    ) -> Result<rustls::ServerConfig, String> {
        let names = match certificate {
            Certificate::OtherName => vec!["somebody.else.svc".to_owned()],
            Certificate::CommonNameOnly => vec![],
            _ => vec![name.to_owned()],
        };
        let mut params = CertificateParams::new(names).map_err(|e| e.to_string())?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        if certificate == Certificate::Expired {
            params.not_before = rcgen::date_time_ymd(2020, 1, 1);
            params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        }
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|e| e.to_string())?;
        let issuer = if certificate == Certificate::OtherCa {
            &self.theirs
        } else {
            &self.ours
        };
        let leaf = params.signed_by(&key, issuer).map_err(|e| e.to_string())?;
        let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(str::to_owned)?;
        let builder = rustls::ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|e| e.to_string())?;
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let mut roots = rustls::RootCertStore::empty();
                for certificate in certificates(pem)? {
                    roots.add(certificate).map_err(|e| e.to_string())?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
                builder.with_client_cert_verifier(verifier.build().map_err(|e| e.to_string())?)
            }
        };
        let mut config = builder
            .with_single_cert(vec![leaf.der().clone()], key)
            .map_err(|e| e.to_string())?;
        config.alpn_protocols = alpn.iter().map(|p| p.as_bytes().to_vec()).collect();
        Ok(config)
    }
}

/// Parses the certificates of a PEM text.
///
/// # Errors
/// If one cannot be parsed.
pub fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    use rustls::pki_types::pem::PemObject;
    CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|e| e.to_string())
}
