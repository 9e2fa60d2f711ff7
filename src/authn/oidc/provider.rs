//! [`Provider`]: a provider's signing keys. They are discovered once in the background, and fetched again
//! when a token names an unknown key, at most once per interval. Claims are not looked at here.

use super::configuration::JwtIssuer;
use crate::apimachinery::codec::json;
use crate::apimachinery::value::Value;
use crate::authn::jwt::{PublicKey, Token};
use crate::client::{FetchError, Fetcher};
use crate::tasks::Signal;
use arc_swap::ArcSwapOption;
use bytes::Bytes;
use std::time::Duration;
use tokio::time::Instant;

/// Timeout of one request to the provider.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Delay between attempts at discovery.
const DISCOVERY_RETRY: Duration = Duration::from_secs(10);
/// Minimum interval between fetches of the key set. Otherwise forged key ids would cause a request each.
const REFRESH_AT_MOST_EVERY: Duration = Duration::from_secs(10);
/// Maximum number of keys read from a key set.
const MAX_KEYS: usize = 256;

struct Keys {
    uri: String,
    keys: Vec<PublicKey>,
    fetched: Instant,
}

/// Why a token could not be verified with the keys of its provider.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProviderError {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("{url}: {why}")]
    Document { url: String, why: String },
    #[error("issuer did not match the issuer returned by provider, expected {expected:?} got {found:?}")]
    Issuer { expected: String, found: String },
    #[error("the provider is not discovered yet")]
    NotDiscovered,
    #[error("fetching keys: {0}")]
    Refresh(#[source] Box<ProviderError>),
    #[error("failed to verify signature: failed to verify id token signature")]
    Signature,
}

pub(crate) struct Provider {
    url: String,
    discovery: String,
    fetcher: Fetcher,
    current: ArcSwapOption<Keys>,
    refreshing: tokio::sync::Mutex<()>,
    between: Duration,
    /// Fires when the last set with this provider is dropped; ends discovery.
    pub(super) dropped: Signal,
}

fn document(bytes: &Bytes, url: &str) -> Result<Value, ProviderError> {
    let wrong = |why| ProviderError::Document {
        url: url.to_owned(),
        why,
    };
    let v = json::decode(bytes).map_err(|e| wrong(e.to_string()))?;
    match v.as_object() {
        Some(_) => Ok(v),
        None => Err(wrong("the response is not a JSON object".to_owned())),
    }
}

impl Provider {
    /// The provider of `issuer`. Nothing is fetched yet.
    ///
    /// # Errors
    /// If the CA certificates cannot be used.
    pub(crate) fn try_new(issuer: &JwtIssuer) -> Result<Self, FetchError> {
        let pem = issuer.ca_pem.as_ref().map(String::as_bytes);
        let well_known = || format!("{}/.well-known/openid-configuration", issuer.url.trim_end_matches('/'));
        Ok(Self {
            url: issuer.url.clone(),
            discovery: issuer.discovery_url.clone().unwrap_or_else(well_known),
            fetcher: Fetcher::try_new(pem, REQUEST_TIMEOUT)?,
            current: ArcSwapOption::empty(),
            refreshing: tokio::sync::Mutex::new(()),
            between: REFRESH_AT_MOST_EVERY,
            dropped: Signal::new("provider dropped"),
        })
    }

    /// Sets the minimum interval between fetches of the key set (default: ten seconds).
    #[must_use]
    #[cfg(test)]
    pub(crate) fn refreshing_every(mut self, between: Duration) -> Self {
        self.between = between;
        self
    }

    /// True once discovery has succeeded.
    pub(crate) fn is_ready(&self) -> bool {
        self.current.load().is_some()
    }

    /// Retries discovery until it succeeds.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn discover(&self) {
        loop {
            match self.try_discover().await {
                Ok(()) => return,
                Err(error) => tracing::warn!(issuer = %self.url, "oidc: discovery failed, will retry: {error}"),
            }
            tokio::time::sleep(DISCOVERY_RETRY).await;
        }
    }

    async fn try_discover(&self) -> Result<(), ProviderError> {
        let found = self.fetcher.get(&self.discovery).await?;
        let found = document(&found, &self.discovery)?;
        let issuer = found.str_at(&["issuer"]);
        // Required by OpenID Connect Discovery: a document that another issuer controls must not supply the
        // keys of this one.
        if issuer != self.url {
            return Err(ProviderError::Issuer {
                expected: self.url.clone(),
                found: issuer.to_owned(),
            });
        }
        let uri = found.str_at(&["jwks_uri"]).to_owned();
        let keys = self.fetch(&uri).await?;
        self.store(uri, keys);
        Ok(())
    }

    fn store(&self, uri: String, keys: Vec<PublicKey>) {
        tracing::debug!(issuer = %self.url, keys = keys.len(), "oidc: key set fetched");
        let fetched = Instant::now();
        self.current.store(Some(Keys { uri, keys, fetched }.into()));
    }

    async fn fetch(&self, uri: &str) -> Result<Vec<PublicKey>, ProviderError> {
        let set = self.fetcher.get(uri).await?;
        let set = document(&set, uri)?;
        let mut keys = Vec::new();
        // Bounded: a token without a key id is tried against all of them.
        for jwk in set.get("keys").items().iter().take(MAX_KEYS) {
            match PublicKey::from_jwk(jwk) {
                Ok(Some(key)) => keys.push(key),
                Ok(None) => {}
                // Skipped rather than fatal: one odd key must not lock out the users of all others.
                Err(error) => tracing::warn!(issuer = %self.url, %error, "oidc: a key of the set cannot be used"),
            }
        }
        Ok(keys)
    }

    /// Verifies the signature with the provider's keys. If none fits, the key set is fetched again, at most
    /// once per interval.
    ///
    /// # Errors
    /// [`ProviderError`] if the signature does not verify.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn verify(&self, token: &Token<'_>) -> Result<(), ProviderError> {
        let verified = |keys: &Keys| {
            let mut candidates = keys
                .keys
                .iter()
                // A token without a key id is tried against every key, as go-oidc does.
                .filter(|k| token.key_id.is_empty() || k.id == token.key_id);
            candidates.any(|k| token.verified_by(k))
        };
        // The first attempt takes no lock: nearly all tokens are signed with a known key.
        let before = self.current.load_full().ok_or(ProviderError::NotDiscovered)?;
        if verified(&before) {
            return Ok(());
        }
        // Serialise refreshes: waiters reuse the result of the request that fetched first.
        let one_at_a_time = self.refreshing.lock().await;
        let mut now = self.current.load_full().ok_or(ProviderError::NotDiscovered)?;
        // Equal times mean that no other request has refreshed the keys while this one waited for the lock.
        if now.fetched == before.fetched && now.fetched.elapsed() >= self.between {
            match self.fetch(&now.uri).await {
                Ok(keys) => self.store(now.uri.clone(), keys),
                Err(error) => {
                    // Keep the old keys, but restart the interval so that a failing provider is not hammered.
                    let (uri, keys) = (now.uri.clone(), now.keys.clone());
                    self.store(uri, keys);
                    return Err(ProviderError::Refresh(Box::new(error)));
                }
            }
            now = self.current.load_full().ok_or(ProviderError::NotDiscovered)?;
        }
        // Verification needs no lock.
        drop(one_at_a_time);
        match verified(&now) {
            true => Ok(()),
            false => Err(ProviderError::Signature),
        }
    }
}
