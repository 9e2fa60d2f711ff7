//! Signing of tokens. [`Signer`] holds a private key; which claims are signed is left to `service_account`.

use super::key::{Curve, KeyError, PublicKey};
use crate::apimachinery::codec::json;
use crate::apimachinery::value::Value;
use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{self, EcdsaKeyPair, EcdsaSigningAlgorithm, KeyPair, RsaKeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::fmt;
use x509_parser::pem::Pem;

enum Pair {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair),
}

/// A private key. It signs with the algorithm upstream uses for its type.
pub struct Signer {
    pair: Pair,
    public: PublicKey,
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer")
            .field("id", &self.public.id)
            .finish_non_exhaustive()
    }
}

fn signing(curve: Curve) -> &'static EcdsaSigningAlgorithm {
    match curve {
        // At fixed width, as JWS has them, and not in ASN.1.
        Curve::P256 => &signature::ECDSA_P256_SHA256_FIXED_SIGNING,
        Curve::P384 => &signature::ECDSA_P384_SHA384_FIXED_SIGNING,
        Curve::P521 => &signature::ECDSA_P521_SHA512_FIXED_SIGNING,
    }
}

impl Signer {
    /// The first private key of a PEM file.
    ///
    /// # Errors
    /// If there is none, or if it is neither RSA (at least 2048 bits) nor ECDSA on a NIST curve.
    pub fn from_pem(pem: &[u8]) -> Result<Self, KeyError> {
        for block in Pem::iter_from_buffer(pem) {
            let block = block.map_err(|e| KeyError(format!("invalid PEM: {e}")))?;
            if block.label.ends_with("PRIVATE KEY") {
                return Self::from_der(&block.contents);
            }
        }
        Err(KeyError("the file contains no private key in PEM form".to_owned()))
    }

    /// Reads a private key in PKCS#8, PKCS#1 or SEC 1.
    ///
    /// # Errors
    /// Like [`Signer::from_pem`].
    pub fn from_der(der: &[u8]) -> Result<Self, KeyError> {
        // By trial instead of by the PEM label: `PRIVATE KEY` may hold either type.
        if let Ok(pair) = RsaKeyPair::from_pkcs8(der).or_else(|_| RsaKeyPair::from_der(der)) {
            let spki = pair
                .public_key()
                .as_der()
                .map_err(|_| KeyError("not an RSA key".to_owned()))?;
            let public = PublicKey::from_spki(spki.as_ref())?;
            return Ok(Self {
                pair: Pair::Rsa(pair),
                public,
            });
        }
        // The library takes the curve as a parameter and fails if the key is on another one, so all three are
        // tried.
        for curve in Curve::ALL {
            if let Ok(pair) = EcdsaKeyPair::from_private_key_der(signing(curve), der) {
                let public = PublicKey::from_point(curve, pair.public_key().as_ref())?;
                return Ok(Self {
                    pair: Pair::Ec(pair),
                    public,
                });
            }
        }
        Err(KeyError(
            "neither an RSA key nor an ECDSA key on P-256, P-384 or P-521".to_owned(),
        ))
    }

    /// The matching public key.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Signs `claims` under a header with `alg` and `kid`.
    ///
    /// # Errors
    /// If the cryptographic library fails.
    pub fn sign(&self, claims: &Value) -> Result<String, KeyError> {
        let header = crate::json!({"alg": (self.public.algorithm().name()), "kid": (self.public.id.as_str())});
        self.sign_with(&header, claims)
    }

    /// Like [`Signer::sign`], with a header of the caller's choice. The signature uses this key's own
    /// algorithm whatever the header says, which lets tests forge headers.
    ///
    /// # Errors
    /// If the cryptographic library fails.
    pub fn sign_with(&self, header: &Value, claims: &Value) -> Result<String, KeyError> {
        let part = |v: &Value| URL_SAFE_NO_PAD.encode(json::to_vec(v));
        let mut token = format!("{}.{}", part(header), part(claims));
        let refused = |_| KeyError("the token cannot be signed".to_owned());
        let random = SystemRandom::new();
        let signature = match &self.pair {
            Pair::Rsa(pair) => {
                // RSA is signed with RS256 for every key size, as upstream.
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&signature::RSA_PKCS1_SHA256, &random, token.as_bytes(), &mut signature)
                    .map_err(refused)?;
                signature
            }
            Pair::Ec(pair) => pair.sign(&random, token.as_bytes()).map_err(refused)?.as_ref().to_vec(),
        };
        token.push('.');
        token.push_str(&URL_SAFE_NO_PAD.encode(signature));
        Ok(token)
    }
}
