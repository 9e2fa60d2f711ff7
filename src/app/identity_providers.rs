//! `--authentication-config` and `--oidc-*` → the authenticator of identity providers, replaced as the file changes.

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

/// How often the file is looked at.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// How long new providers have to be discovered before the former ones go.
const HEALTHY_WITHIN: Duration = Duration::from_secs(60);

/// What the options lead to.
pub struct IdentityProviders {
    /// Recognises their tokens.
    pub tokens: Arc<JwtAuthenticators>,
    /// What the file says about callers without credentials.
    pub anonymous: Option<AnonymousConfig>,
}

/// Builds it; providers are discovered in tasks of `tasks`, and so is the file followed.
///
/// # Errors
/// One line: a file cannot be used.
pub fn build(
    options: &CompletedOptions,
    tasks: &TaskGroup,
    telemetry: &Telemetry,
) -> Result<IdentityProviders, String> {
    let o = &options.authentication;
    let mut issuers: Vec<JwtIssuer> = Vec::new();
    let mut anonymous = None;
    if let Some(oidc) = &o.oidc {
        let mut issuer = oidc.issuer.clone();
        if let Some(path) = &oidc.ca_file {
            let pem = std::fs::read_to_string(path);
            issuer.ca_pem = Some(pem.map_err(|e| format!("--oidc-ca-file: cannot read {}: {e}", path.display()))?);
        }
        issuers.push(issuer);
    }
    let service_accounts = &o.service_account.issuers;
    if let Some(path) = &o.config_file {
        let config = read_authentication_config(path, service_accounts).map_err(|e| e.to_string())?;
        issuers.extend(config.issuers);
        anonymous = config.anonymous;
    }
    let set = discover(&issuers, tasks).map_err(|e| format!("identity provider {e}"))?;
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

/// Tells this server from others in metrics, without naming it.
fn server_id(options: &CompletedOptions) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, options.host_name.as_bytes());
    format!("sha256:{}", hex(digest.as_ref()))
}

enum Failure {
    /// It stays wrong until it is changed.
    Text(String),
    /// It may be right in a while.
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
        // What failed, as long as it stays the same.
        let mut refused = None;
        loop {
            // An end comes first.
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
                    tracing::info!(file = %self.path.display(), "the authentication configuration was reloaded");
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
                            format!("its providers were not discovered within {HEALTHY_WITHIN:?}")
                        }
                    };
                    tracing::error!(%error, "the authentication configuration cannot be used, the former one stays");
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
        let set = discover(&config.issuers, &self.tasks).map_err(Failure::Text)?;
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
