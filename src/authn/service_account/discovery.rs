//! The OpenID Connect discovery document and the key set, with which others verify our tokens.

use super::VerificationKeys;
use crate::apimachinery::field::quote;
use std::collections::BTreeSet;

/// Path of the discovery document.
pub const DOCUMENT_PATH: &str = "/.well-known/openid-configuration";
/// Path of the key set.
pub const KEY_SET_PATH: &str = "/openid/v1/jwks";
/// Media type of the key set.
pub const KEY_SET_TYPE: &str = "application/jwk-set+json";
/// `Cache-Control` of both documents.
pub const CACHE_CONTROL: &str = "public, max-age=3600";

/// The two documents, as JSON.
#[derive(Clone, Debug)]
pub struct Documents {
    /// `/.well-known/openid-configuration`.
    pub configuration: String,
    /// `/openid/v1/jwks`.
    pub key_set: String,
}

/// Renders the documents. `None` if the issuer is not an https URL without query and fragment; upstream then serves
/// none.
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
