//! JSON Web Tokens (RFC 7515, 7517, 7519): compact form and asymmetric algorithms only. [`Token::parse`]
//! reads a token, [`Signer`] makes one.
//!
//! The classic attacks are excluded by construction: `none` and HMAC are not representable, keys come from
//! the caller and never from the token's header, and each key only verifies the algorithms of its own type.

mod key;
mod pem;
mod sign;

pub(crate) use key::KeyError;
pub use key::PublicKey;
pub use sign::Signer;

use crate::apimachinery::codec::json;
use crate::apimachinery::value::Value;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::fmt;

/// A signature algorithm of JSON web tokens, by its name in RFC 7518.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each variant is the algorithm of its name in RFC 7518")]
pub enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    Es512,
}

impl Algorithm {
    /// All algorithms, in upstream's order.
    pub const ALL: [Self; 9] = [
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
        Self::Es256,
        Self::Es384,
        Self::Es512,
        Self::Ps256,
        Self::Ps384,
        Self::Ps512,
    ];

    /// The name in the header's `alg`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Ps256 => "PS256",
            Self::Ps384 => "PS384",
            Self::Ps512 => "PS512",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::Es512 => "ES512",
        }
    }

    /// The algorithm of this name. `None` for `none` and HMAC, which are not supported.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|a| a.name() == name)
    }
}

/// Why a string is not a token. The message never repeats the token, so that it can be logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed jwt: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

/// A parsed token. Nothing in it may be trusted before [`Token::verified_by`] returns true.
#[derive(Debug)]
pub struct Token<'a> {
    /// The algorithm named in the header.
    pub algorithm: Algorithm,
    /// The key id from the header; may be empty.
    pub key_id: String,
    /// The claims, unverified.
    pub claims: Value,
    signed: &'a str,
    signature: Vec<u8>,
}

fn object(part: &str, what: &'static str) -> Result<Value, Malformed> {
    let bytes = URL_SAFE_NO_PAD.decode(part).map_err(|_| Malformed(what))?;
    // Parsers disagree on which of two duplicate members counts, so duplicates are rejected.
    match json::decode_with_duplicates(&bytes) {
        Ok((v, notes)) if v.as_object().is_some() && notes.duplicates.is_empty() => Ok(v),
        _ => Err(Malformed(what)),
    }
}

/// The claims of a token without verification: only for finding the authenticator of its issuer.
pub fn unverified_claims(text: &str) -> Option<Value> {
    // Deliberately no check of the header: a token of an unknown algorithm still belongs to its issuer, whose
    // authenticator decides what becomes of it.
    let mut parts = text.split('.');
    let (_, claims, _) = (parts.next()?, parts.next()?, parts.next()?);
    match parts.next() {
        None => object(claims, "claims").ok(),
        Some(_) => None,
    }
}

impl<'a> Token<'a> {
    /// Parses the compact form.
    ///
    /// # Errors
    /// [`Malformed`] if the text is not three base64url parts with JSON objects, if the algorithm is not
    /// supported, or if the header has a `crit` extension (none is supported).
    pub fn parse(text: &'a str) -> Result<Self, Malformed> {
        // `signed` is a slice of the token as received: the signature covers these very bytes, not a
        // re-encoding.
        let (signed, signature) = text.rsplit_once('.').ok_or(Malformed("not three parts"))?;
        let (header, claims) = signed.split_once('.').ok_or(Malformed("not three parts"))?;
        if claims.contains('.') {
            return Err(Malformed("not three parts"));
        }
        let header = object(header, "the header cannot be read")?;
        // RFC 7515 demands rejection of critical extensions that are not understood.
        if !header.get("crit").is_null() {
            return Err(Malformed("a critical extension is not known"));
        }
        let algorithm = header.get("alg").as_str().and_then(Algorithm::of);
        Ok(Self {
            algorithm: algorithm.ok_or(Malformed("the signature algorithm is not allowed"))?,
            key_id: header.str_at(&["kid"]).to_owned(),
            claims: object(claims, "the claims cannot be read")?,
            signed,
            signature: URL_SAFE_NO_PAD
                .decode(signature)
                .map_err(|_| Malformed("the signature cannot be read"))?,
        })
    }

    /// True if `key` verifies the signature under the algorithm named in the header.
    pub fn verified_by(&self, key: &PublicKey) -> bool {
        key.verifies(self.algorithm, self.signed.as_bytes(), &self.signature)
    }

    /// The `aud` claim, which is a string or a list.
    pub fn audiences(&self) -> Vec<String> {
        texts(self.claims.get("aud"))
    }
}

/// Reads a string or a list of strings; other elements are skipped.
pub(crate) fn texts(v: &Value) -> Vec<String> {
    match v {
        Value::String(s) => vec![s.to_string()],
        v => v.items().iter().filter_map(Value::as_str).map(str::to_owned).collect(),
    }
}

/// Reads a claim in seconds since 1970. Fractions are truncated.
///
/// # Errors
/// If the claim is present but not a number.
pub fn seconds(claims: &Value, claim: &'static str) -> Result<Option<i64>, Malformed> {
    match claims.get(claim) {
        Value::Null => Ok(None),
        v => match (v.as_i64(), v.as_f64()) {
            (Some(n), _) => Ok(Some(n)),
            #[allow(
                clippy::cast_possible_truncation,
                reason = "`as` saturates, which is what is wanted of a time"
            )]
            (None, Some(f)) if f.is_finite() => Ok(Some(f as i64)),
            _ => Err(Malformed(claim)),
        },
    }
}

#[cfg(test)]
pub(super) mod tests;
