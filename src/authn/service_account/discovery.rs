//! What others need to verify our tokens: OpenID Connect discovery and the key set, as bytes.

use super::VerificationKeys;
use crate::apimachinery::field::quote;
use std::collections::BTreeSet;

/// Where the document is.
pub const DOCUMENT_PATH: &str = "/.well-known/openid-configuration";
/// Where the key set is.
pub const KEY_SET_PATH: &str = "/openid/v1/jwks";
/// Media type of the key set.
pub const KEY_SET_TYPE: &str = "application/jwk-set+json";
/// How long both may be kept.
pub const CACHE_CONTROL: &str = "public, max-age=3600";

/// Both documents.
#[derive(Clone, Debug)]
pub struct Documents {
    /// `/.well-known/openid-configuration`.
    pub configuration: String,
    /// `/openid/v1/jwks`.
    pub key_set: String,
}

/// The documents; `None` where the issuer is no https URL that could be looked under (then upstream serves none).
pub fn documents(issuer: &str, keys: &VerificationKeys, key_set_uri: &str) -> Option<Documents> {
    let url: http::Uri = issuer.parse().ok()?;
    if url.scheme_str() != Some("https") || issuer.contains(['?', '#']) {
        return None;
    }
    let algorithms: BTreeSet<&str> = keys.all().iter().map(|k| k.algorithm().name()).collect();
    let algorithms: Vec<String> = algorithms.into_iter().map(quote).collect();
    let set: Vec<String> = keys.all().iter().map(super::super::jwt::PublicKey::to_jwk).collect();
    Some(Documents {
        configuration: format!(
            r#"{{"issuer":{},"jwks_uri":{},"response_types_supported":["id_token"],"subject_types_supported":["public"],"id_token_signing_alg_values_supported":[{}]}}"#,
            quote(issuer),
            quote(key_set_uri),
            algorithms.join(",")
        ),
        key_set: format!(r#"{{"keys":[{}]}}"#, set.join(",")),
    })
}
