//! Where a provider's keys come from: discovered once, fetched again when a token names a key that is not known.

use super::configuration::JwtIssuer;
use crate::apimachinery::codec::json;
use crate::apimachinery::value::Value;
use crate::authn::jwt::{PublicKey, Token};
use crate::client::Fetcher;
use crate::tasks::Signal;
use arc_swap::ArcSwapOption;
use bytes::Bytes;
use std::time::Duration;
use tokio::time::Instant;

/// How long a provider may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time between tries to discover it.
const DISCOVERY_RETRY: Duration = Duration::from_secs(10);
/// Key sets are not fetched more often for keys nobody knows: tokens are made up faster than that.
const REFRESH_AT_MOST_EVERY: Duration = Duration::from_secs(10);
/// Most keys of a set that are looked at.
const MOST_KEYS: usize = 256;

struct Keys {
    uri: String,
    keys: Vec<PublicKey>,
    fetched: Instant,
}

/// One provider.
pub struct Provider {
    url: String,
    discovery: String,
    fetcher: Fetcher,
    current: ArcSwapOption<Keys>,
    refreshing: tokio::sync::Mutex<()>,
    between: Duration,
    /// Fires when nobody needs it any more.
    pub(super) dropped: Signal,
}

fn document(bytes: &Bytes, url: &str) -> Result<Value, String> {
    let v = json::decode(bytes).map_err(|e| format!("{url}: {e}"))?;
    match v.as_object() {
        Some(_) => Ok(v),
        None => Err(format!("{url}: the answer is no JSON object")),
    }
}

impl Provider {
    /// The provider of `issuer`; nothing is fetched yet.
    ///
    /// # Errors
    /// Its CA certificates cannot be used.
    pub fn try_new(issuer: &JwtIssuer) -> Result<Self, String> {
        let pem = issuer.ca_pem.as_ref().map(String::as_bytes);
        let well_known = || format!("{}/.well-known/openid-configuration", issuer.url.trim_end_matches('/'));
        Ok(Self {
            url: issuer.url.clone(),
            discovery: issuer.discovery_url.clone().unwrap_or_else(well_known),
            fetcher: Fetcher::try_new(pem, PATIENCE).map_err(|e| e.what)?,
            current: ArcSwapOption::empty(),
            refreshing: tokio::sync::Mutex::new(()),
            between: REFRESH_AT_MOST_EVERY,
            dropped: Signal::new("provider dropped"),
        })
    }

    /// Fetches key sets again after `between` instead of ten seconds.
    #[must_use]
    pub fn refreshing_every(mut self, between: Duration) -> Self {
        self.between = between;
        self
    }

    /// True once it was discovered.
    pub fn is_ready(&self) -> bool {
        self.current.load().is_some()
    }

    /// Tries until it is discovered.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn discover(&self) {
        loop {
            match self.try_discover().await {
                Ok(()) => return,
                Err(error) => tracing::warn!(issuer = %self.url, "oidc: the provider is not discovered yet: {error}"),
            }
            tokio::time::sleep(DISCOVERY_RETRY).await;
        }
    }

    async fn try_discover(&self) -> Result<(), String> {
        let found = self.fetcher.get(&self.discovery).await.map_err(|e| e.what)?;
        let found = document(&found, &self.discovery)?;
        let issuer = found.str_at(&["issuer"]);
        if issuer != self.url {
            return Err(format!(
                "issuer did not match the issuer returned by provider, expected {:?} got {issuer:?}",
                self.url
            ));
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

    async fn fetch(&self, uri: &str) -> Result<Vec<PublicKey>, String> {
        let set = self.fetcher.get(uri).await.map_err(|e| e.what)?;
        let set = document(&set, uri)?;
        let mut keys = Vec::new();
        for jwk in set.get("keys").items().iter().take(MOST_KEYS) {
            match PublicKey::from_jwk(jwk) {
                Ok(Some(key)) => keys.push(key),
                Ok(None) => {}
                Err(error) => tracing::warn!(issuer = %self.url, %error, "oidc: a key of the set cannot be used"),
            }
        }
        Ok(keys)
    }

    /// Whether one of its keys made the token; an unknown key is looked for once more.
    ///
    /// # Errors
    /// One line: it did not.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn verify(&self, token: &Token<'_>) -> Result<(), String> {
        let verified = |keys: &Keys| {
            let mut candidates = keys
                .keys
                .iter()
                .filter(|k| token.key_id.is_empty() || k.id == token.key_id);
            candidates.any(|k| token.verified_by(k))
        };
        let before = self.current.load_full().ok_or("the provider is not discovered yet")?;
        if verified(&before) {
            return Ok(());
        }
        let one_at_a_time = self.refreshing.lock().await;
        let mut now = self.current.load_full().ok_or("the provider is not discovered yet")?;
        if now.fetched == before.fetched && now.fetched.elapsed() >= self.between {
            match self.fetch(&now.uri).await {
                Ok(keys) => self.store(now.uri.clone(), keys),
                Err(error) => {
                    // Its keys stay as they are; the next try is later.
                    let (uri, keys) = (now.uri.clone(), now.keys.clone());
                    self.store(uri, keys);
                    return Err(format!("fetching keys: {error}"));
                }
            }
            now = self.current.load_full().ok_or("the provider is not discovered yet")?;
        }
        drop(one_at_a_time);
        match verified(&now) {
            true => Ok(()),
            false => Err("failed to verify signature: failed to verify id token signature".to_owned()),
        }
    }
}
