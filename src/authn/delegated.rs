//! Delegated authentication for extension servers: client CAs and front-proxy settings are read from the
//! ConfigMap `kube-system/extension-apiserver-authentication` of the core API server and watched for changes;
//! tokens are sent to it as TokenReviews. Follows upstream's
//! `k8s.io/apiserver/pkg/server/options/authentication.go`.
//!
//! Entry point: [`Delegated::start`].

mod config;
mod error;
mod tokens;

pub(crate) use config::Configuration;
pub(crate) use error::ConfigurationError;
pub use error::DelegatedError;
pub(crate) use tokens::TokenReviews;

use super::{
    Anonymous, AuthenticatedUser, AuthenticationError, Authenticator, BearerToken, Credentials, RequestHeader,
    SyncOutcome, Union, WebSocketToken, WithAnonymous, X509,
};
use crate::apimachinery::Value;
use crate::client::{Client, ClientError};
use crate::pki::certs::{CaPool, DynamicCa};
use crate::tasks::{Backoff, TaskGroup};
use arc_swap::ArcSwap;
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const COLLECTION: &str = "/api/v1/namespaces/kube-system/configmaps";
const NAME: &str = "extension-apiserver-authentication";

/// Backoff between reads of the ConfigMap.
const RETRY: Backoff = Backoff::doubling(Duration::from_millis(250), Duration::from_secs(30));

/// Authenticates with the trust configuration published by the core API server.
///
/// ```no_run
/// use std::sync::Arc;
/// use std::time::Duration;
/// use torana::sdk::authn::Delegated;
/// use torana::sdk::client::{Client, ClientConfig};
/// use torana::sdk::pki::ServingPair;
/// use torana::sdk::{Port, TaskGroup};
///
/// # async fn open(pair: &ServingPair, tasks: &TaskGroup) -> Result<(), Box<dyn std::error::Error>> {
/// let core = Client::try_new(&ClientConfig::from_kubeconfig("core.kubeconfig".as_ref())?)?;
/// let callers = Delegated::start(Arc::new(core), tasks, Duration::from_secs(30)).await?;
/// // The handshake requests a certificate of these CAs, also after the ConfigMap has changed.
/// let port = Port::bind(([127, 0, 0, 1], 8443).into(), pair, callers.client_cas())?;
/// # Ok(())
/// # }
/// ```
pub struct Delegated {
    current: ArcSwap<WithAnonymous>,
    proxies: Arc<DynamicCa>,
    clients: Arc<DynamicCa>,
    reviews: Arc<TokenReviews>,
}

impl Delegated {
    /// Reads the configuration, retrying for at most `patience`, and then watches it in a task of `tasks`.
    ///
    /// # Errors
    /// `DelegatedError` if the configuration cannot be read in time. The server must not start without it.
    ///
    /// # Cancel safety
    /// Cancel safe: the task is spawned last.
    pub async fn start(
        client: Arc<Client>,
        tasks: &TaskGroup,
        patience: Duration,
    ) -> Result<Arc<Self>, DelegatedError> {
        let deadline = Instant::now() + patience;
        let mut failures = 0;
        let found = loop {
            let why = match read(&client).await {
                Ok(found) => break found,
                Err(why) => why,
            };
            // Capped below the usual backoff: somebody waits for this start.
            let next = Instant::now() + RETRY.delay(failures).min(Duration::from_secs(5));
            if next > deadline {
                return Err(why);
            }
            // Once is enough: the final error has the last reason.
            if failures == 0 {
                tracing::warn!("{why}; trying again");
            }
            failures += 1;
            tokio::time::sleep_until(next).await;
        };
        let me = Self::with(&found.0, TokenReviews::try_new(client.clone())?);
        let me = Arc::new(me.map_err(DelegatedError::Unusable)?);
        let (follower, stop) = (me.clone(), tasks.stop_signal().clone());
        tasks.spawn("delegated-authentication", async move {
            // Nothing is lost by stopping: the next start reads the ConfigMap again.
            tokio::select! {
                () = stop.wait() => {}
                () = follower.follow(client, found.1) => {}
            }
        });
        Ok(me)
    }

    fn with(config: &Configuration, reviews: TokenReviews) -> Result<Self, ConfigurationError> {
        let pool = |pem: &Option<String>| pem.as_deref().map_or_else(|| Ok(CaPool::default()), parse_pool);
        let (proxies, clients) = (pool(&config.proxy_ca)?, pool(&config.client_ca)?);
        // Not read from files: `replace` sets them from the ConfigMap.
        let (proxies, clients) = (DynamicCa::fixed(proxies), DynamicCa::fixed(clients));
        let reviews = Arc::new(reviews);
        Ok(Self {
            current: ArcSwap::from_pointee(authenticators(config, &proxies, &clients, &reviews)),
            proxies,
            clients,
            reviews,
        })
    }

    /// The CAs to request client certificates for in the TLS handshake. Their content follows the
    /// configuration.
    pub fn client_cas(&self) -> Vec<Arc<DynamicCa>> {
        vec![self.proxies.clone(), self.clients.clone()]
    }

    fn replace(&self, config: &Configuration) -> Result<(), ConfigurationError> {
        // Parse everything before anything is replaced, so that a bad ConfigMap leaves the old state intact.
        let pool = |pem: &Option<String>| pem.as_deref().map_or_else(|| Ok(CaPool::default()), parse_pool);
        let (proxies, clients) = (pool(&config.proxy_ca)?, pool(&config.client_ca)?);
        let replace = |ca: &DynamicCa, pool: CaPool| {
            // Replacing an equal pool would invalidate the verification cache of every connection.
            if ca.current().pem != pool.pem {
                ca.replace(pool);
            }
        };
        replace(&self.proxies, proxies);
        replace(&self.clients, clients);
        let next = authenticators(config, &self.proxies, &self.clients, &self.reviews);
        // After the CAs: until here the old authenticators verify against the new CAs, never the reverse.
        self.current.store(Arc::new(next));
        Ok(())
    }

    /// Watches the ConfigMap forever, and reads it again whenever the watch ends.
    async fn follow(&self, client: Arc<Client>, mut version: String) {
        let mut failures = 0;
        loop {
            let path = format!(
                "{COLLECTION}?watch=1&fieldSelector=metadata.name%3D{NAME}&resourceVersion={version}&timeoutSeconds=600"
            );
            let watched = client.watch(&path).await;
            let unwatched = watched.as_ref().err().map(ToString::to_string);
            if let Ok(mut events) = watched {
                while let Some(event) = events.next().await {
                    match event.str_at(&["type"]) {
                        "ADDED" | "MODIFIED" => self.take(event.get("object")),
                        "DELETED" => {
                            tracing::warn!("ConfigMap kube-system/{NAME} was deleted, keeping its last content")
                        }
                        // An ERROR event (such as an expired resourceVersion) ends the watch; read and watch
                        // again.
                        _ => break,
                    }
                }
            }
            // Also after a watch that ended normally; a server that closes watches at once must not be
            // hammered.
            tokio::time::sleep(RETRY.delay(failures)).await;
            let read = read_object(&client).await;
            let unread = read.as_ref().err().map(ToString::to_string);
            if let Ok(object) = read {
                self.take(&object);
                version = object.str_at(&["metadata", "resourceVersion"]).to_owned();
            }
            let before = failures;
            failures = failures_after(before, unwatched.as_deref(), unread.as_deref());
            match (unread, unwatched) {
                (Some(why), _) => tracing::debug!("ConfigMap kube-system/{NAME} cannot be read: {why}"),
                // Once is enough: a missing right stays missing.
                (None, Some(why)) if before == 0 => {
                    tracing::warn!("ConfigMap kube-system/{NAME} cannot be watched and is read again and again: {why}")
                }
                _ => {}
            }
        }
    }

    fn take(&self, object: &Value) {
        let replaced = Configuration::parse(object).and_then(|c| self.replace(&c));
        if let Err(e) = replaced {
            tracing::error!("ConfigMap kube-system/{NAME} is invalid, keeping the previous content: {e}");
        }
    }
}

/// The number of failures in a row after a round of watching and reading. A round without a watch is a failure even
/// if the read succeeds: a server without the right to watch would read four times a second for ever.
fn failures_after(before: u32, unwatched: Option<&str>, unread: Option<&str>) -> u32 {
    match unwatched.or(unread) {
        None => 0,
        // Bounded to keep the exponent small; the delay has reached its maximum long before.
        Some(_) => (before + 1).min(16),
    }
}

fn parse_pool(pem: &str) -> Result<CaPool, ConfigurationError> {
    Ok(CaPool::from_pem(pem.as_bytes().to_vec())?)
}

/// Builds the authenticators in upstream's order: front proxy, client certificate, token, anonymous.
fn authenticators(
    config: &Configuration,
    proxies: &Arc<DynamicCa>,
    clients: &Arc<DynamicCa>,
    reviews: &Arc<TokenReviews>,
) -> WithAnonymous {
    let mut members: Vec<Arc<dyn Authenticator>> = Vec::new();
    if config.proxy_ca.is_some() {
        let (allowed, names) = (config.allowed_names.clone(), config.headers.clone());
        members.push(Arc::new(RequestHeader::new(proxies.clone(), allowed, names)));
    }
    if config.client_ca.is_some() {
        members.push(Arc::new(X509::new(clients.clone())));
    }
    members.push(Arc::new(BearerToken::new(reviews.clone())));
    members.push(Arc::new(WebSocketToken::new(reviews.clone())));
    WithAnonymous::new(Arc::new(Union::new(members)), Anonymous::new())
}

async fn read_object(client: &Client) -> Result<Value, ClientError> {
    client.get(&format!("{COLLECTION}/{NAME}")).await
}

async fn read(client: &Client) -> Result<(Configuration, String), DelegatedError> {
    let object = read_object(client).await.map_err(|e| match e.code() {
        Some(403) => DelegatedError::Forbidden(e),
        _ => DelegatedError::Unreadable(e),
    })?;
    let config = Configuration::parse(&object).map_err(DelegatedError::Unusable)?;
    Ok((config, object.str_at(&["metadata", "resourceVersion"]).to_owned()))
}

#[async_trait]
impl Authenticator for Delegated {
    async fn authenticate(&self, from: Credentials<'_>) -> Result<Option<AuthenticatedUser>, AuthenticationError> {
        // Not a guard: it would be held while a token is reviewed.
        let current = self.current.load_full();
        current.authenticate(from).await
    }

    fn authenticate_sync(&self, from: Credentials<'_>) -> SyncOutcome {
        self.current.load().authenticate_sync(from)
    }
}

#[cfg(test)]
mod tests;
