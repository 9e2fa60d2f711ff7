//! Public keys, read from PEM files, certificates and JSON Web Key Sets. [`PublicKey`] accepts RSA and the
//! three NIST curves only, and verifies only the algorithms of its own type. Reading PEM is in `pem`, signing
//! in `sign`.

use super::Algorithm;
use crate::apimachinery::value::Value;
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::fmt;
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey as Parsed;
use x509_parser::x509::SubjectPublicKeyInfo;

/// Why a key cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyError(pub String);

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for KeyError {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Curve {
    P256,
    P384,
    P521,
}

impl Curve {
    pub(super) const ALL: [Self; 3] = [Self::P256, Self::P384, Self::P521];

    fn name(self) -> &'static str {
        match self {
            Self::P256 => "P-256",
            Self::P384 => "P-384",
            Self::P521 => "P-521",
        }
    }

    fn oid(self) -> &'static str {
        match self {
            Self::P256 => "1.2.840.10045.3.1.7",
            Self::P384 => "1.3.132.0.34",
            Self::P521 => "1.3.132.0.35",
        }
    }

    /// Size of a coordinate in bytes.
    fn size(self) -> usize {
        match self {
            Self::P256 => 32,
            Self::P384 => 48,
            Self::P521 => 66,
        }
    }

    pub(super) fn algorithm(self) -> Algorithm {
        match self {
            Self::P256 => Algorithm::Es256,
            Self::P384 => Algorithm::Es384,
            Self::P521 => Algorithm::Es512,
        }
    }

    /// The constant DER prefix of a SubjectPublicKeyInfo on this curve; the uncompressed point follows.
    fn spki_head(self) -> &'static [u8] {
        match self {
            Self::P256 => &[
                0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
                0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
            ],
            Self::P384 => &[
                0x30, 0x76, 0x30, 0x10, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b, 0x81,
                0x04, 0x00, 0x22, 0x03, 0x62, 0x00,
            ],
            Self::P521 => &[
                0x30, 0x81, 0x9b, 0x30, 0x10, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b,
                0x81, 0x04, 0x00, 0x23, 0x03, 0x81, 0x86, 0x00,
            ],
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum KeyMaterial {
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    Ec { curve: Curve, point: Vec<u8> },
}

pub(super) fn bad(what: impl Into<String>) -> KeyError {
    KeyError(what.into())
}

/// A key that verifies signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    kind: KeyMaterial,
    spki: Vec<u8>,
    /// Key id: upstream's digest of the DER for our own keys, or the `kid` from a key set.
    pub id: String,
    /// The only algorithm allowed for this key, if its key set names one.
    only: Option<Algorithm>,
}

fn without_zeros(bytes: &[u8]) -> &[u8] {
    // DER integers have a leading zero byte if their top bit is set; JWK components have none.
    let zeros = bytes.iter().take_while(|b| **b == 0).count();
    &bytes[zeros..]
}

impl PublicKey {
    /// Reads a DER-encoded `SubjectPublicKeyInfo`.
    ///
    /// # Errors
    /// If the key is neither RSA with at least 2048 bits nor on one of the three NIST curves.
    pub fn from_spki(der: &[u8]) -> Result<Self, KeyError> {
        let (rest, info) = SubjectPublicKeyInfo::from_der(der).map_err(|e| bad(format!("not a public key: {e}")))?;
        if !rest.is_empty() {
            return Err(bad("trailing data after the public key"));
        }
        let kind = match info.parsed().map_err(|e| bad(format!("not a public key: {e}")))? {
            Parsed::RSA(key) => {
                let modulus = without_zeros(key.modulus).to_vec();
                // NIST's minimum. Also the minimum of the verification algorithms below, so a smaller key
                // would never verify anything; better to say so at the start.
                if modulus.len() < 256 {
                    return Err(bad("RSA keys must have 2048 bits or more"));
                }
                KeyMaterial::Rsa {
                    modulus,
                    exponent: without_zeros(key.exponent).to_vec(),
                }
            }
            Parsed::EC(point) => {
                let oid = info.algorithm.parameters.as_ref().and_then(|p| p.as_oid().ok());
                let oid = oid.map(|o| o.to_id_string()).unwrap_or_default();
                let curve = Curve::ALL.into_iter().find(|c| c.oid() == oid);
                let curve = curve.ok_or_else(|| bad("unsupported curve; it must be P-256, P-384 or P-521"))?;
                let point = point.data().to_vec();
                // Compressed points are valid in SPKI, but `to_jwk` needs both coordinates.
                if point.len() != 1 + 2 * curve.size() || point[0] != 4 {
                    return Err(bad("the point of the EC key is not in the uncompressed form"));
                }
                KeyMaterial::Ec { curve, point }
            }
            _ => return Err(bad("neither an RSA nor an ECDSA key")),
        };
        Ok(Self {
            // Upstream's `keyIDFromPublicKey` (`pkg/serviceaccount/jwt.go`): tokens of a kube-apiserver with
            // the same key carry this id.
            id: URL_SAFE_NO_PAD.encode(digest(&SHA256, der).as_ref()),
            spki: der.to_vec(),
            kind,
            // A PEM file has no `alg`: any algorithm of the key's type is accepted.
            only: None,
        })
    }

    pub(super) fn from_rsa(modulus: &[u8], exponent: &[u8]) -> Result<Self, KeyError> {
        let (n, e) = (without_zeros(modulus), without_zeros(exponent));
        let der = RsaPublicKeyComponents { n, e }.as_der();
        let der = der.map_err(|_| bad("modulus and exponent do not form an RSA key"))?;
        Self::from_spki(der.as_ref())
    }

    pub(super) fn from_point(curve: Curve, point: &[u8]) -> Result<Self, KeyError> {
        Self::from_spki(&[curve.spki_head(), point].concat())
    }

    /// The key as a PEM block `PUBLIC KEY`.
    pub(crate) fn to_pem(&self) -> String {
        crate::x509::pem::encode("PUBLIC KEY", &self.spki)
    }

    pub(super) fn from_pkcs1(der: &[u8]) -> Result<Self, KeyError> {
        let key = aws_lc_rs::rsa::PublicKey::from_der(der).map_err(|e| bad(format!("not an RSA key: {e}")))?;
        let spki = key.as_der().map_err(|_| bad("not an RSA key"))?;
        Self::from_spki(spki.as_ref())
    }

    /// Reads a JSON Web Key. `None` if it is not for signatures or of an unsupported type, which a key set
    /// may contain.
    ///
    /// # Errors
    /// If the key is of a supported type but invalid.
    pub fn from_jwk(jwk: &Value) -> Result<Option<Self>, KeyError> {
        if !matches!(jwk.str_at(&["use"]), "" | "sig") {
            return Ok(None);
        }
        let part = |name: &str| {
            let text = jwk.str_at(&[name]);
            let bytes = URL_SAFE_NO_PAD.decode(text).ok().filter(|b| !b.is_empty());
            bytes.ok_or_else(|| bad(format!("{name} is not valid base64url")))
        };
        let mut key = match jwk.str_at(&["kty"]) {
            "RSA" => Self::from_rsa(&part("n")?, &part("e")?)?,
            "EC" => {
                let Some(curve) = Curve::ALL.into_iter().find(|c| c.name() == jwk.str_at(&["crv"])) else {
                    return Ok(None);
                };
                let (x, y) = (part("x")?, part("y")?);
                // RFC 7518 requires the full length, with leading zeros. Concatenating anything shorter would
                // shift the coordinates.
                if x.len() != curve.size() || y.len() != curve.size() {
                    return Err(bad("the coordinates do not have the curve's size"));
                }
                Self::from_point(curve, &[&[4][..], &x, &y].concat())?
            }
            _ => return Ok(None),
        };
        key.only = match jwk.str_at(&["alg"]) {
            "" => None,
            name => match Algorithm::of(name) {
                Some(algorithm) => Some(algorithm),
                // A key for an unsupported algorithm, such as EdDSA, is skipped: sets may contain them.
                None => return Ok(None),
            },
        };
        key.id = jwk.str_at(&["kid"]).to_owned();
        Ok(Some(key))
    }

    /// The key as a JWK with `use`, `kid` and `alg`; members in upstream's order.
    pub fn to_jwk(&self) -> String {
        let b64 = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        // Written by hand: a map would not keep upstream's order of the members.
        let algorithm = self.algorithm().name();
        match &self.kind {
            KeyMaterial::Rsa { modulus, exponent } => format!(
                r#"{{"use":"sig","kty":"RSA","kid":"{}","alg":"{algorithm}","n":"{}","e":"{}"}}"#,
                self.id,
                b64(modulus),
                b64(exponent),
            ),
            KeyMaterial::Ec { curve, point } => {
                // The first byte marks the uncompressed form; `from_spki` has checked the length.
                let (x, y) = point[1..].split_at(curve.size());
                format!(
                    r#"{{"use":"sig","kty":"EC","kid":"{}","crv":"{}","alg":"{algorithm}","x":"{}","y":"{}"}}"#,
                    self.id,
                    curve.name(),
                    b64(x),
                    b64(y),
                )
            }
        }
    }

    /// The algorithm with which upstream signs under this type of key.
    pub fn algorithm(&self) -> Algorithm {
        match &self.kind {
            KeyMaterial::Rsa { .. } => Algorithm::Rs256,
            KeyMaterial::Ec { curve, .. } => curve.algorithm(),
        }
    }

    fn verifier(&self, algorithm: Algorithm) -> Option<&'static dyn VerificationAlgorithm> {
        // The key decides which algorithms are allowed, not the token: this rules out algorithm confusion.
        let suits = match &self.kind {
            KeyMaterial::Rsa { .. } => !matches!(algorithm, Algorithm::Es256 | Algorithm::Es384 | Algorithm::Es512),
            KeyMaterial::Ec { curve, .. } => curve.algorithm() == algorithm,
        };
        if !suits || self.only.is_some_and(|only| only != algorithm) {
            return None;
        }
        Some(match algorithm {
            Algorithm::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
            Algorithm::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
            Algorithm::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
            Algorithm::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
            Algorithm::Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
            Algorithm::Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
            // JWS signatures are the two integers at fixed width, not ASN.1 (RFC 7518, section 3.4).
            Algorithm::Es256 => &signature::ECDSA_P256_SHA256_FIXED,
            Algorithm::Es384 => &signature::ECDSA_P384_SHA384_FIXED,
            Algorithm::Es512 => &signature::ECDSA_P521_SHA512_FIXED,
        })
    }

    pub(super) fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        self.verifier(algorithm)
            .is_some_and(|v| UnparsedPublicKey::new(v, &self.spki).verify(message, signature).is_ok())
    }
}
