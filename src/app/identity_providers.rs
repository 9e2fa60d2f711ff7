//! Builds the authenticator of identity providers from `--authentication-config` and `--oidc-*`, and reloads
//! the file when it changes.

use super::Error;
use crate::apimachinery::codec::hex;
use crate::authn::oidc::configuration::{AnonymousConfig, JwtIssuer};
use crate::authn::oidc::{IssuerError, JwtAuthenticators, discover};
use crate::authn::service_account::system_clock;
use crate::cli::complete::{parse_authentication_config, read_authentication_config};
use crate::cli::{CompletedOptions, UsageError};
use crate::tasks::compute::{ComputePool, Flow};
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

/// Builds the authenticator. Discovery of providers and the reload of the file run in `tasks`, expensive
/// expressions on `compute`.
///
/// # Errors
/// A file that cannot be used.
pub(crate) fn build(
    options: &CompletedOptions,
    compute: &ComputePool,
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
    let authenticators = Arc::new(JwtAuthenticators::new(set, system_clock()).with_pool(compute.clone()));
    if let Some(path) = &o.config_file {
        let follower = Follower {
            path: path.clone(),
            // Not what was read above: the file may have been edited since, and is compared once more.
            in_force: None,
            service_accounts: service_accounts.clone(),
            issuers,
            anonymous: anonymous.clone(),
            authenticators: authenticators.clone(),
            compute: compute.clone(),
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

/// Why a changed file is not applied.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Unreadable(Unreadable),
    /// May succeed later.
    #[error("the server is too busy to compile it")]
    Busy,
    #[error(transparent)]
    Invalid(UsageError),
    #[error("anonymous: Forbidden: changed from initial configuration file")]
    Anonymous,
    #[error(transparent)]
    Provider(IssuerError),
    /// The providers were not discovered in time; may succeed later.
    #[error("the providers were not discovered within {HEALTHY_WITHIN:?}")]
    Undiscovered,
}

impl Failure {
    /// Whether the same content may be accepted later.
    fn is_transient(&self) -> bool {
        matches!(self, Self::Busy | Self::Undiscovered)
    }
}

/// Why the file cannot be read. Kept as a string, to notice when the reason changes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
struct Unreadable(String);

struct Follower {
    path: PathBuf,
    /// The content of the file that was applied last, so that an unchanged file is not compiled again.
    in_force: Option<Vec<u8>>,
    service_accounts: Vec<String>,
    issuers: Vec<JwtIssuer>,
    anonymous: Option<AnonymousConfig>,
    authenticators: Arc<JwtAuthenticators>,
    compute: ComputePool,
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
            let read =
                std::fs::read(&self.path).map_err(|e| Unreadable(format!("cannot read {}: {e}", self.path.display())));
            if refused.as_ref() == Some(&read) {
                continue;
            }
            if read.as_ref().ok() == self.in_force.as_ref() && self.in_force.is_some() {
                refused = None;
                continue;
            }
            // A check may wait for discovery, which must not delay the shutdown.
            let changed = tokio::select! {
                biased;
                () = stop.wait() => return,
                changed = self.check(&read) => changed,
            };
            match changed {
                Ok(changed) => {
                    if changed {
                        tracing::info!(file = %self.path.display(), "authentication configuration reloaded");
                        self.metrics.reloaded(true);
                    }
                    (self.in_force, refused) = (read.ok(), None);
                }
                Err(error) => {
                    if !error.is_transient() {
                        refused = Some(read);
                    }
                    tracing::error!(%error, "invalid authentication configuration; keeping the previous one");
                    self.metrics.reloaded(false);
                }
            }
        }
    }

    /// Applies the content of the file. False if it is already in force.
    async fn check(&mut self, read: &Result<Vec<u8>, Unreadable>) -> Result<bool, Failure> {
        let text = read.clone().map_err(Failure::Unreadable)?;
        let (path, service_accounts) = (self.path.clone(), self.service_accounts.clone());
        // Expressions are compiled, which may take a while.
        let parsed = async move { parse_authentication_config(&path, text, &service_accounts) };
        let parsed = self.compute.run(Flow::System, 0, parsed).await;
        let config = parsed.map_err(|_| Failure::Busy)?;
        let config = config.map_err(Failure::Invalid)?;
        // As upstream: the anonymous authenticator is fixed at the start.
        if config.anonymous != self.anonymous {
            return Err(Failure::Anonymous);
        }
        if config.issuers == self.issuers {
            return Ok(false);
        }
        // As upstream, the whole set is built anew: a provider that has not changed is discovered again, too.
        let set = discover(&config.issuers, &self.tasks).map_err(Failure::Provider)?;
        let deadline = Instant::now() + HEALTHY_WITHIN;
        // The old set stays in force until then, so that no token of an unchanged provider is refused in
        // between. Dropping `set` on failure ends its discovery.
        while !set.is_ready() {
            if Instant::now() >= deadline {
                return Err(Failure::Undiscovered);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.authenticators.replace(set);
        self.issuers = config.issuers;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authn::oidc::Configuration;
    use crate::authn::{PresentedToken, TokenAuthenticator};
    use crate::tasks::compute::Config;

    fn file(jwt: &str) -> Vec<u8> {
        format!("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt: [{jwt}]\n")
            .into_bytes()
    }

    /// A provider that cannot be discovered.
    fn provider(name: &str) -> String {
        format!(
            "{{issuer: {{url: 'https://localhost:1', audiences: [a]}}, claimMappings: {{username: {{expression: \"{name}\"}}}}}}"
        )
    }

    #[test]
    fn what_may_succeed_later_is_tried_again() {
        assert!(Failure::Busy.is_transient() && Failure::Undiscovered.is_transient());
        assert!(!Failure::Anonymous.is_transient() && !Failure::Unreadable(Unreadable(String::new())).is_transient());
    }

    #[tokio::test]
    async fn a_file_whose_expressions_do_not_compile_leaves_the_previous_configuration_in_force() {
        let (tasks, telemetry) = (TaskGroup::new("test"), Telemetry::new());
        let text = String::from_utf8(file(&provider("claims.sub"))).unwrap();
        let issuers = Configuration::parse(&text, &[]).unwrap().issuers;
        let set = discover(&issuers, &tasks).unwrap();
        let authenticators = Arc::new(JwtAuthenticators::new(set, system_clock()));
        let mut follower = Follower {
            path: PathBuf::from("f"),
            in_force: None,
            service_accounts: Vec::new(),
            issuers,
            anonymous: None,
            authenticators: authenticators.clone(),
            compute: ComputePool::start(Config::default(), telemetry.compute.clone()).unwrap(),
            tasks,
            metrics: ReloadMetrics::new(telemetry.registry(), "sha256:x".to_owned()),
        };
        // `{"iss":"https://localhost:1"}`
        let token = "e30.eyJpc3MiOiJodHRwczovL2xvY2FsaG9zdDoxIn0.AA";
        let trusted = || async {
            let presented = PresentedToken { token, audiences: &[] };
            authenticators.authenticate_token(presented).await.is_err()
        };
        assert!(trusted().await, "the provider is known, but not discovered yet");
        assert!(matches!(
            follower.check(&Ok(text.clone().into_bytes())).await,
            Ok(false)
        ));
        for (text, why) in [
            (
                Ok(file(&provider("claims.sub +"))),
                "compilation failed: ERROR: <input>:1:13: Syntax error",
            ),
            (
                Ok(file(&provider("claims.email"))),
                "claims.email_verified must be used",
            ),
            (
                Ok(text.replace("jwt:", "anonymous: {enabled: true}\njwt:").into_bytes()),
                "changed from initial",
            ),
            (Err(Unreadable("cannot read f".to_owned())), "cannot read f"),
        ] {
            let outcome = follower.check(&text).await;
            assert!(
                matches!(&outcome, Err(failure) if failure.to_string().contains(why)),
                "{outcome:?}"
            );
            assert!(trusted().await);
        }
        assert!(matches!(follower.check(&Ok(file(""))).await, Ok(true)));
        assert!(!trusted().await, "it has been replaced");
    }
}
