//! The authorization flags, and their translation into the entries that an AuthorizationConfiguration would
//! have. The file itself is read by `complete`.

use super::{UsageError, Values, file};
use crate::authz::config::{AuthorizerConfig, Mode};
use crate::authz::webhook::{ReviewVersion, WebhookConfig};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug)]
pub(crate) struct AuthorizationOptions {
    /// The authorizers in order; Node and RBAC by default. Read from `config`, if given, by `complete`.
    pub authorizers: Vec<AuthorizerConfig>,
    /// `--authorization-config`; reloaded while the server runs.
    pub config: Option<PathBuf>,
    /// `--authorization-policy-file`; read once.
    pub policy: Option<PathBuf>,
}

/// Timeout of a webhook call; upstream has no flag for it.
const TIMEOUT: Duration = Duration::from_secs(30);

impl AuthorizationOptions {
    pub(super) fn read(values: &Values) -> Result<Self, UsageError> {
        let config = file(values, "authorization-config");
        let flags = values
            .given()
            .any(|f| f == "authorization-mode" || f.starts_with("authorization-webhook-"));
        if config.is_some() && flags {
            return Err(UsageError::new(
                "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* \
                 flags are defined",
            ));
        }
        let mut me = Self {
            authorizers: Vec::new(),
            config,
            policy: file(values, "authorization-policy-file"),
        };
        let given = values.list("authorization-mode");
        for name in &given {
            let Some(mode) = Mode::parse(name) else {
                return Err(UsageError::new(format!(
                    "authorization-mode {name:?} is not a valid mode"
                )));
            };
            if me.has(mode) {
                return Err(UsageError::new(format!(
                    "authorization-mode {given:?} has mode specified more than once"
                )));
            }
            me.authorizers.push(AuthorizerConfig::of(mode));
        }
        // Unlike upstream, whose default is AlwaysAllow: a server without flags must not be open.
        if me.authorizers.is_empty() {
            me.authorizers = [Mode::Node, Mode::Rbac].map(AuthorizerConfig::of).into();
        }
        // With a configuration file, the modes are known only when `complete` has read it.
        if me.config.is_none() {
            me.check_files(values)?;
        }
        Ok(me)
    }

    /// Checks that a mode and the file it needs are given together.
    fn check_files(&mut self, values: &Values) -> Result<(), UsageError> {
        if self.has(Mode::Abac) && self.policy.is_none() {
            return Err(UsageError::new(
                "authorization-mode ABAC's authorization policy file not passed",
            ));
        }
        if !self.has(Mode::Abac) && self.policy.is_some() {
            return Err(UsageError::new(
                "cannot specify --authorization-policy-file without mode ABAC",
            ));
        }
        let kubeconfig = file(values, "authorization-webhook-config-file");
        let Some(hook) = self.authorizers.iter_mut().find(|a| a.mode == Mode::Webhook) else {
            return match kubeconfig {
                None => Ok(()),
                Some(_) => Err(UsageError::new(
                    "cannot specify --authorization-webhook-config-file without mode Webhook",
                )),
            };
        };
        let kubeconfig = kubeconfig
            .ok_or_else(|| UsageError::new("authorization-mode Webhook's authorization config file not passed"))?;
        let version = match values.text("authorization-webhook-version") {
            "v1" => ReviewVersion::V1,
            "v1beta1" => ReviewVersion::V1Beta1,
            other => {
                return Err(UsageError::invalid(
                    "authorization-webhook-version",
                    other,
                    "expected v1 or v1beta1",
                ));
            }
        };
        // Upstream's name for the webhook that flags define; metrics and errors carry it.
        hook.name = "default".to_owned();
        hook.webhook = Some(WebhookConfig {
            kubeconfig,
            version,
            authorized_ttl: values.duration("authorization-webhook-cache-authorized-ttl")?,
            unauthorized_ttl: values.duration("authorization-webhook-cache-unauthorized-ttl")?,
            timeout: TIMEOUT,
            // Flags cannot choose it; upstream's fixed policy there is NoOpinion.
            deny_on_failure: false,
            conditions: None,
        });
        Ok(())
    }

    /// True if the mode is enabled.
    pub(in crate::cli) fn has(&self, mode: Mode) -> bool {
        self.authorizers.iter().any(|a| a.mode == mode)
    }

    /// True if every request is allowed.
    pub(crate) fn allows_all(&self) -> bool {
        self.has(Mode::AlwaysAllow)
    }
}
