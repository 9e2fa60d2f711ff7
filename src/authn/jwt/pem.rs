//! Public keys from PEM files.

use super::Signer;
use super::key::{KeyError, PublicKey, bad};
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer, X509Certificate};

impl PublicKey {
    /// Reads all keys of a PEM file: public keys, certificates, and the public halves of private keys, as
    /// upstream's `--service-account-key-file` accepts them. Other blocks are skipped.
    ///
    /// # Errors
    /// If a block is invalid, or the file has no key.
    pub fn from_pem(pem: &[u8]) -> Result<Vec<Self>, KeyError> {
        let mut out = Vec::new();
        for block in Pem::iter_from_buffer(pem) {
            let block = block.map_err(|e| bad(format!("invalid PEM: {e}")))?;
            let key = match block.label.as_str() {
                "PUBLIC KEY" => Self::from_spki(&block.contents),
                "RSA PUBLIC KEY" => Self::from_pkcs1(&block.contents),
                "CERTIFICATE" => {
                    let (_, cert) = X509Certificate::from_der(&block.contents)
                        .map_err(|e| bad(format!("the certificate cannot be read: {e}")))?;
                    Self::from_spki(cert.public_key().raw)
                }
                // Clusters commonly name the signing key here as well.
                "PRIVATE KEY" | "RSA PRIVATE KEY" | "EC PRIVATE KEY" => {
                    Signer::from_der(&block.contents).map(|s| s.public().clone())
                }
                // `EC PARAMETERS`, for example, which OpenSSL writes before the key.
                _ => continue,
            };
            out.push(key?);
        }
        if out.is_empty() {
            return Err(bad(
                "the file contains no public key, certificate or private key in PEM form",
            ));
        }
        Ok(out)
    }
}
