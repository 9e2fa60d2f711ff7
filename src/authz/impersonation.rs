//! Authorization of impersonation. Follows upstream's constrained impersonation
//! (`endpoints/filters/impersonation`): four modes that require both permission for the request's action
//! *and* permission for the identity, then the legacy mode. Entry point: [`Impersonation::check`].
//!
//! ```text
//! mode             identity                    (a) on the target      (b) on the identity
//! associated-node  node of the caller's pod    impersonate-on:M:VERB  impersonate:M nodes/*
//! arbitrary-node   system:node:N, name only    same                   impersonate:M nodes/N
//! serviceaccount   service account, name only  same                   impersonate:M serviceaccounts
//! user-info        no node or service account  same                   impersonate:M users, uids, …
//! (legacy)         any                         -                      impersonate users, uids, …
//! ```
//!
//! M is the name of the mode and VERB the request's verb. The first mode that succeeds applies; if none does,
//! the error is that of the first mode tried. The caller's last successful mode is tried first. Unlike
//! upstream, only the mode is cached, never the *permission*.

mod headers;

pub use headers::{is_impersonation_header, requested_identity};

use super::{Attributes, Authorizer, Decision, forbidden};
use crate::apimachinery::field::quote;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::validation::{dns1123_label, dns1123_subdomain};
use crate::request::UserInfo;
use crate::request::user::{ANONYMOUS, AUTHENTICATED, MASTERS, UNAUTHENTICATED};
use crate::sync::Mutex;
use crate::telemetry::access::ImpersonationMetrics;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
const NODE_KEYS: &str = "authentication.kubernetes.io/associated-node-keys";
const AUTHENTICATION: &str = "authentication.k8s.io";
/// From this many groups or extra values on, permission for all of them (`*`) is checked first.
const MANY: usize = 4;
/// Maximum number of callers whose last mode is cached.
const REMEMBERED: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    UserInfo,
    Legacy,
}

const MODES: [Mode; 5] = [
    Mode::AssociatedNode,
    Mode::ArbitraryNode,
    Mode::ServiceAccount,
    Mode::UserInfo,
    Mode::Legacy,
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Impersonated {
    /// The user as whom the request continues.
    pub user: Arc<UserInfo>,
    /// `impersonate:<mode>`, empty in legacy mode. For audit.
    pub constraint: &'static str,
}

pub(crate) struct Impersonation {
    authorizer: Arc<dyn Authorizer>,
    last: Mutex<HashMap<String, Mode>>,
    metrics: ImpersonationMetrics,
}

// === impl Mode ===

impl Mode {
    /// The verb checked on identities.
    const fn verb(self) -> &'static str {
        match self {
            Self::AssociatedNode => "impersonate:associated-node",
            Self::ArbitraryNode => "impersonate:arbitrary-node",
            Self::ServiceAccount => "impersonate:serviceaccount",
            Self::UserInfo => "impersonate:user-info",
            Self::Legacy => "impersonate",
        }
    }

    fn name(self) -> &'static str {
        self.verb().strip_prefix("impersonate:").unwrap_or("legacy")
    }

    fn applies_to(self, wanted: &UserInfo, caller: &UserInfo) -> bool {
        let only_name = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        let node = node_name(&wanted.name);
        let account = service_account(&wanted.name).is_some();
        match self {
            Self::AssociatedNode => {
                // Anything but exactly one value is ambiguous and must not match a node.
                let own = match caller.extra.get(NODE_NAME).map(Vec::as_slice) {
                    Some([own]) => Some(own.as_str()),
                    _ => None,
                };
                only_name && node.is_some() && service_account(&caller.name).is_some() && own == node
            }
            Self::ArbitraryNode => only_name && node.is_some(),
            Self::ServiceAccount => only_name && account,
            Self::UserInfo => node.is_none() && !account,
            Self::Legacy => true,
        }
    }
}

fn node_name(user: &str) -> Option<&str> {
    let name = user.strip_prefix("system:node:")?;
    dns1123_subdomain(name).is_empty().then_some(name)
}

fn service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    let fine = dns1123_label(namespace).is_empty() && dns1123_subdomain(name).is_empty();
    fine.then_some((namespace, name))
}

// === impl Impersonation ===

impl Impersonation {
    /// Checks permissions with `authorizer`.
    pub(crate) fn new(authorizer: Arc<dyn Authorizer>) -> Self {
        Self {
            authorizer,
            last: Mutex::default(),
            metrics: ImpersonationMetrics::default(),
        }
    }

    /// Sets the metrics to update.
    #[must_use]
    pub(crate) fn counting(mut self, metrics: ImpersonationMetrics) -> Self {
        self.metrics = metrics;
        self
    }

    /// Authorizes the caller in `attributes` to perform that request as `wanted`, and returns the effective
    /// identity.
    ///
    /// # Errors
    /// A 403 with upstream's message.
    pub(crate) async fn check(&self, wanted: &UserInfo, attributes: &Attributes<'_>) -> Result<Impersonated> {
        // The lock must not be held across the checks below, which may call a webhook.
        let remembered = self.lock().get(&attributes.user.name).copied();
        let rest = MODES.into_iter().filter(|m| Some(*m) != remembered);
        let (mut first, start) = (None, Instant::now());
        for mode in remembered.into_iter().chain(rest) {
            if !mode.applies_to(wanted, attributes.user) {
                continue;
            }
            match self.try_mode(mode, wanted, attributes).await {
                Ok(found) => {
                    self.remember(&attributes.user.name, mode);
                    self.metrics.attempted(Some(mode.name()), start.elapsed());
                    return Ok(found);
                }
                Err(refused) => first = first.or(Some(refused)),
            }
        }
        self.metrics.attempted(None, start.elapsed());
        // Legacy mode applies to every identity, so at least one attempt has failed.
        Err(first.unwrap_or_else(|| Status::internal("all impersonation modes failed")))
    }

    fn lock(&self) -> crate::sync::MutexGuard<'_, HashMap<String, Mode>> {
        self.last.lock()
    }

    fn remember(&self, caller: &str, mode: Mode) {
        let mut last = self.lock();
        if last.get(caller) == Some(&mode) {
            return;
        }
        if last.len() >= REMEMBERED {
            // A lost entry only costs additional checks, so evicting everything is simpler than tracking
            // recency.
            last.clear();
        }
        last.insert(caller.to_owned(), mode);
    }

    async fn allowed(&self, mode: Mode, attributes: &Attributes<'_>) -> Result<()> {
        let start = Instant::now();
        let verdict = self.authorizer.authorize(attributes).await;
        let allowed = verdict.decision == Decision::Allow;
        self.metrics.authorized(mode.name(), allowed, start.elapsed());
        if allowed {
            return Ok(());
        }
        let why = match verdict.error {
            Some(error) if verdict.reason.is_empty() => error,
            Some(error) => format!("{error}: {}", verdict.reason),
            None => verdict.reason.into_owned(),
        };
        Err(forbidden(attributes, &why))
    }

    async fn try_mode(&self, mode: Mode, wanted: &UserInfo, attributes: &Attributes<'_>) -> Result<Impersonated> {
        let associated;
        let mut caller = attributes.user;
        if mode == Mode::AssociatedNode {
            // Permission is granted to the service account for every node it runs on, so the rest of the
            // pod's token is left out.
            let keys: Vec<String> = caller.extra.keys().cloned().collect();
            associated = UserInfo {
                extra: BTreeMap::from([(NODE_KEYS.to_owned(), keys)]),
                ..caller.clone()
            };
            caller = &associated;
        }
        if mode != Mode::Legacy {
            // First the action, then the identity, as upstream: which of two missing permissions the 403
            // names depends on it.
            let verb = format!("impersonate-on:{}:{}", mode.name(), attributes.verb);
            let on = Attributes {
                user: caller,
                ..*attributes
            }
            .with_verb(&verb);
            self.allowed(mode, &on).await?;
        }
        let ask = IdentityCheck {
            me: self,
            mode,
            base: Attributes {
                is_resource: true,
                verb: mode.verb(),
                api_group: AUTHENTICATION,
                api_version: "v1",
                ..Attributes::empty(caller)
            },
        };
        // Name, uid, groups, extra: upstream's order, which decides about the message of the 403.
        let groups = ask.name(&wanted.name, &wanted.groups).await?;
        if !wanted.uid.is_empty() {
            ask.one("uids", "", &wanted.uid).await?;
        }
        ask.groups(&wanted.groups).await?;
        ask.extra(&wanted.extra).await?;
        let mut user = UserInfo {
            groups,
            ..wanted.clone()
        };
        // Permission for the name is enough for these two groups: every user is in one of them, so they grant
        // nothing beyond being that user.
        let unauthenticated = user.in_group(UNAUTHENTICATED);
        if user.name == ANONYMOUS {
            if !unauthenticated {
                user.groups.push(UNAUTHENTICATED.to_owned());
            }
        } else if !unauthenticated && !user.in_group(AUTHENTICATED) {
            user.groups.push(AUTHENTICATED.to_owned());
        }
        Ok(Impersonated {
            user: Arc::new(user),
            constraint: if mode == Mode::Legacy { "" } else { mode.verb() },
        })
    }
}

/// The permission checks for one identity, in one mode.
struct IdentityCheck<'a> {
    me: &'a Impersonation,
    mode: Mode,
    base: Attributes<'a>,
}

impl IdentityCheck<'_> {
    /// Base attributes for users and groups, which are in the core group in legacy mode.
    fn identity(&self) -> Attributes<'_> {
        Attributes {
            api_group: if self.mode == Mode::Legacy { "" } else { AUTHENTICATION },
            ..self.base
        }
    }

    async fn one(&self, resource: &str, subresource: &str, name: &str) -> Result<()> {
        let attributes = Attributes {
            resource,
            subresource,
            name,
            ..self.base
        };
        self.me.allowed(self.mode, &attributes).await
    }

    /// Checks permission for the name. Returns the groups, including those implied by a node or service
    /// account name.
    async fn name(&self, name: &str, groups: &[String]) -> Result<Vec<String>> {
        let mut attributes = Attributes {
            resource: "users",
            name,
            ..self.identity()
        };
        let mut found = groups.to_vec();
        if self.mode != Mode::Legacy
            && let Some(node) = node_name(name)
        {
            attributes.resource = "nodes";
            attributes.name = if self.mode == Mode::AssociatedNode { "*" } else { node };
            // Legacy mode does not add the group: it never knew nodes as such, and its result must stay as it
            // was.
            found = vec!["system:nodes".to_owned()];
        }
        if let Some((namespace, account)) = service_account(name) {
            attributes.resource = "serviceaccounts";
            attributes.namespace = namespace;
            attributes.name = account;
            // As upstream: groups that are given explicitly replace the implied ones.
            if groups.is_empty() {
                found = vec![
                    "system:serviceaccounts".to_owned(),
                    format!("system:serviceaccounts:{namespace}"),
                ];
            }
        }
        self.me.allowed(self.mode, &attributes).await?;
        Ok(found)
    }

    async fn groups(&self, groups: &[String]) -> Result<()> {
        let attributes = Attributes {
            resource: "groups",
            ..self.identity()
        };
        if self.mode != Mode::Legacy {
            if groups.iter().any(String::is_empty) {
                return Err(forbidden(
                    &attributes,
                    "impersonating the empty string group is not allowed",
                ));
            }
            // Independent of RBAC: `*` on groups is a plausible rule, and system:masters bypasses every
            // check.
            if groups.iter().any(|g| g == MASTERS) {
                let attributes = Attributes {
                    name: MASTERS,
                    ..attributes
                };
                return Err(forbidden(
                    &attributes,
                    "impersonating the system:masters group is not allowed",
                ));
            }
            if groups.len() >= MANY
                && self
                    .me
                    .allowed(
                        self.mode,
                        &Attributes {
                            name: "*",
                            ..attributes
                        },
                    )
                    .await
                    .is_ok()
            {
                return Ok(());
            }
        }
        for (i, name) in groups.iter().enumerate() {
            // One after the other, as upstream: the first group that is refused is the one the error names.
            yield_periodically(i).await;
            self.me.allowed(self.mode, &Attributes { name, ..attributes }).await?;
        }
        Ok(())
    }

    async fn extra(&self, extra: &BTreeMap<String, Vec<String>>) -> Result<()> {
        if self.mode != Mode::Legacy {
            let attributes = Attributes {
                resource: "userextras",
                ..self.base
            };
            for (key, values) in extra {
                check_extra(key, values).map_err(|e| forbidden(&attributes, &e.to_string()))?;
            }
            // A refusal of `*` is not final: each value may be permitted by itself.
            let many = extra.values().map(Vec::len).sum::<usize>() >= MANY || extra.len() >= MANY;
            if many && self.one("userextras", "*", "*").await.is_ok() {
                return Ok(());
            }
        }
        // Counted over all keys; otherwise many keys with one value each would never yield.
        let mut checked = 0;
        for (key, values) in extra {
            for value in values {
                yield_periodically(checked).await;
                checked += 1;
                self.one("userextras", key, value).await?;
            }
        }
        Ok(())
    }
}

/// Yields to other requests every few checks. Most checks complete without waiting, and headers can demand
/// many.
async fn yield_periodically(checked: usize) {
    const YIELD_EVERY: usize = 16;
    if checked % YIELD_EVERY == YIELD_EVERY - 1 {
        tokio::task::yield_now().await;
    }
}

/// Why an extra key and its values cannot be impersonated in the constrained modes. Messages as upstream
/// words them.
#[derive(Debug, thiserror::Error)]
enum InvalidExtra {
    #[error("impersonating the empty string key in extra is not allowed")]
    EmptyKey,
    #[error("impersonating an invalid key in extra is not allowed: extra.key: Invalid value: {}: {why}", quote(.part))]
    Key { part: String, why: String },
    #[error("impersonating a non-lowercase key in extra is not allowed: {}", quote(.0))]
    UpperCase(String),
    #[error("impersonating empty values in extra is not allowed")]
    NoValues,
    #[error("impersonating the empty string value in extra is not allowed")]
    EmptyValue,
}

/// Validates an extra key and its values, as the constrained modes require.
fn check_extra(key: &str, values: &[String]) -> std::result::Result<(), InvalidExtra> {
    if key.is_empty() {
        return Err(InvalidExtra::EmptyKey);
    }
    let bad = |part: &str, why: &str| {
        Err(InvalidExtra::Key {
            part: part.to_owned(),
            why: why.to_owned(),
        })
    };
    match key.split_once('/') {
        Some((host, path)) if !host.is_empty() && !path.is_empty() => {
            if let Some(why) = dns1123_subdomain(host).first() {
                return bad(host, why);
            }
            let fine = |c: char| c.is_ascii_alphanumeric() || "/-._~%!$&'()*+,;=:".contains(c);
            if !path.chars().all(fine) {
                return bad(
                    path,
                    "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')",
                );
            }
        }
        _ => return bad(key, "must be a domain-prefixed path (such as \"acme.io/foo\")"),
    }
    // Header names are case-insensitive, so upper case can only come from a percent-encoded key.
    if key.chars().any(|c| c.to_lowercase().ne([c])) {
        return Err(InvalidExtra::UpperCase(key.to_owned()));
    }
    if values.is_empty() {
        return Err(InvalidExtra::NoValues);
    }
    if values.iter().any(String::is_empty) {
        return Err(InvalidExtra::EmptyValue);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
