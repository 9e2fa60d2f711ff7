//! Builds the authenticator of identity providers from `--authentication-config` and `--oidc-*`, and reloads the file
//! when it changes.

use super::Error;
use crate::apimachinery::codec::hex;
use crate::authn::oidc::configuration::{AnonymousConfig, JwtIssuer};
use crate::authn::oidc::{JwtAuthenticators, discover};
use crate::authn::service_account::system_clock;
use crate::cli::CompletedOptions;
use crate::cli::complete::read_authentication_config;
use crate::tasks::{Signal, TaskGroup};
use crate::telemetry::Telemetry;
use crate::telemetry::authentication::ReloadMetrics;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Interval at which the file is checked for changes.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Time limit for the discovery of new providers, before a reload is given up and the previous ones stay.
const HEALTHY_WITHIN: Duration = Duration::from_secs(60);

/// The result of the options.
pub(crate) struct IdentityProviders {
    /// Authenticates the tokens of the configured providers.
    pub tokens: Arc<JwtAuthenticators>,
    /// The file's settings for anonymous requests.
    pub anonymous: Option<AnonymousConfig>,
}

/// Builds the authenticator. Discovery of providers and the reload of the file run in `tasks`.
///
/// # Errors
/// A file that cannot be used.
pub(crate) fn build(
    options: &CompletedOptions,
    tasks: &TaskGroup,
    telemetry: &Telemetry,
) -> Result<IdentityProviders, Error> {
    let o = &options.authentication;
    let mut issuers: Vec<JwtIssuer> = Vec::new();
    let mut anonymous = None;
    if let Some(oidc) = &o.oidc {
        let mut issuer = oidc.issuer.clone();
        if let Some(path) = &oidc.ca_file {
            let pem = std::fs::read_to_string(path);
            issuer.ca_pem = Some(pem.map_err(Error::unreadable("oidc-ca-file", path))?);
        }
        issuers.push(issuer);
    }
    let service_accounts = &o.service_account.issuers;
    if let Some(path) = &o.config_file {
        let config = read_authentication_config(path, service_accounts).map_err(Error::other)?;
        issuers.extend(config.issuers);
        anonymous = config.anonymous;
    }
    let set = discover(&issuers, tasks).map_err(|e| Error::other(format!("identity provider {e}")))?;
    let authenticators = Arc::new(JwtAuthenticators::new(set, system_clock()));
    if let Some(path) = &o.config_file {
        let follower = Follower {
            path: path.clone(),
            service_accounts: service_accounts.clone(),
            issuers,
            anonymous: anonymous.clone(),
            authenticators: authenticators.clone(),
            tasks: tasks.clone(),
            metrics: ReloadMetrics::new(telemetry.registry(), server_id(options)),
        };
        let stop = tasks.stop_signal().clone();
        tasks.spawn("authentication configuration", follower.follow(stop));
    }
    Ok(IdentityProviders {
        tokens: authenticators,
        anonymous,
    })
}

/// Identifies this server in metrics without revealing its host name.
fn server_id(options: &CompletedOptions) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, options.host_name.as_bytes());
    format!("sha256:{}", hex(digest.as_ref()))
}

enum Failure {
    /// Permanent until the file changes.
    Text(String),
    /// The providers were not discovered in time; may succeed later.
    Providers,
}

struct Follower {
    path: PathBuf,
    service_accounts: Vec<String>,
    issuers: Vec<JwtIssuer>,
    anonymous: Option<AnonymousConfig>,
    authenticators: Arc<JwtAuthenticators>,
    tasks: TaskGroup,
    metrics: ReloadMetrics,
}

impl Follower {
    async fn follow(mut self, stop: Signal) {
        // The content that failed, so that it is tried and reported only once.
        let mut refused = None;
        loop {
            // Biased towards stopping.
            tokio::select! {
                biased;
                () = stop.wait() => return,
                () = tokio::time::sleep(CHECK_INTERVAL) => {}
            }
            let text = std::fs::read(&self.path).unwrap_or_default();
            if refused.as_ref() == Some(&text) {
                continue;
            }
            let changed = tokio::select! {
                biased;
                () = stop.wait() => return,
                changed = self.check() => changed,
            };
            match changed {
                Ok(false) => refused = None,
                Ok(true) => {
                    tracing::info!(file = %self.path.display(), "authentication configuration reloaded");
                    self.metrics.reloaded(true);
                    refused = None;
                }
                Err(failure) => {
                    let error = match failure {
                        Failure::Text(error) => {
                            refused = Some(text);
                            error
                        }
                        Failure::Providers => {
                            format!("the providers were not discovered within {HEALTHY_WITHIN:?}")
                        }
                    };
                    tracing::error!(%error, "invalid authentication configuration; keeping the previous one");
                    self.metrics.reloaded(false);
                }
            }
        }
    }

    async fn check(&mut self) -> Result<bool, Failure> {
        let config = read_authentication_config(&self.path, &self.service_accounts);
        let config = config.map_err(|e| Failure::Text(e.to_string()))?;
        if config.anonymous != self.anonymous {
            let why = "anonymous: Forbidden: changed from initial configuration file";
            return Err(Failure::Text(why.to_owned()));
        }
        if config.issuers == self.issuers {
            return Ok(false);
        }
        let set = discover(&config.issuers, &self.tasks).map_err(|e| Failure::Text(e.to_string()))?;
        let deadline = Instant::now() + HEALTHY_WITHIN;
        while !set.is_ready() {
            if Instant::now() >= deadline {
                return Err(Failure::Providers);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.authenticators.replace(set);
        self.issuers = config.issuers;
        Ok(true)
    }
}
