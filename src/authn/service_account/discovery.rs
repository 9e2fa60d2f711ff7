//! The OpenID Connect discovery document and the key set, with which others verify our tokens.

use super::VerificationKeys;
use crate::apimachinery::field::quote;
use std::collections::BTreeSet;

/// Path of the discovery document.
pub(crate) const DOCUMENT_PATH: &str = "/.well-known/openid-configuration";
pub(crate) const KEY_SET_PATH: &str = "/openid/v1/jwks";
/// Media type of the key set.
pub(crate) const KEY_SET_TYPE: &str = "application/jwk-set+json";
/// `Cache-Control` of both documents.
pub(crate) const CACHE_CONTROL: &str = "public, max-age=3600";

/// Renders the two documents. The keys may change.
#[derive(Clone, Debug)]
pub(crate) struct Documents {
    issuer: String,
    keys: VerificationKeys,
    key_set_uri: String,
}

impl Documents {
    /// `None` if the issuer is not an https URL without query and fragment; upstream then serves none.
    pub(crate) fn new(issuer: &str, keys: &VerificationKeys, key_set_uri: &str) -> Option<Self> {
        // `Uri` drops the fragment when it parses, hence the search in the text below.
        let url: http::Uri = issuer.parse().ok()?;
        if url.scheme_str() != Some("https") || issuer.contains(['?', '#']) {
            return None;
        }
        Some(Self {
            issuer: issuer.to_owned(),
            keys: keys.clone(),
            key_set_uri: key_set_uri.to_owned(),
        })
    }

    /// `/.well-known/openid-configuration`, as JSON.
    pub(crate) fn configuration(&self) -> String {
        let keys = self.keys.all();
        // Sorted and distinct, as upstream's.
        let algorithms: BTreeSet<&str> = keys.iter().map(|k| k.algorithm().name()).collect();
        let algorithms: Vec<String> = algorithms.into_iter().map(quote).collect();
        // By hand, for upstream's order of the members.
        format!(
            r#"{{"issuer":{},"jwks_uri":{},"response_types_supported":["id_token"],"subject_types_supported":["public"],"id_token_signing_alg_values_supported":[{}]}}"#,
            quote(&self.issuer),
            quote(&self.key_set_uri),
            algorithms.join(",")
        )
    }

    /// `/openid/v1/jwks`, as JSON.
    pub(crate) fn key_set(&self) -> String {
        let keys = self.keys.all();
        let set: Vec<String> = keys.iter().map(super::super::jwt::PublicKey::to_jwk).collect();
        format!(r#"{{"keys":[{}]}}"#, set.join(","))
    }
}
