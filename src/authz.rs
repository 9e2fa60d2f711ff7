//! Whether the caller may do what the request asks for.
//!
//! Entry points: [`Authorizer`], [`Attributes`], [`Union`]. The authorization filter asks, and turns a refusal into
//! upstream's 403 with [`forbidden`].

pub mod abac;
mod attributes;
pub mod config;
pub mod delegated;
mod forbidden;
pub mod impersonation;
mod memory;
pub mod node;
mod path;
pub mod rbac;
mod review;
mod rules;
mod union;
pub mod webhook;

pub use attributes::Attributes;
pub use forbidden::forbidden;
pub use path::{AllowedPaths, PrivilegedGroups};
pub use rbac::Rbac;
pub use rules::Rules;
pub use union::{AlwaysAllow, AlwaysDeny, Union};

use crate::request::UserInfo;
use async_trait::async_trait;
use std::borrow::Cow;

/// What an authorizer thinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Yes.
    Allow,
    /// No, and nobody else is asked.
    Deny,
    /// Somebody else may know; if nobody does, it is a no.
    NoOpinion,
}

/// A decision and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The decision.
    pub decision: Decision,
    /// Shown to the caller where it is a no, and kept for audit where it is a yes.
    pub reason: Cow<'static, str>,
    /// The authorizer could not do its work; without an Allow from somebody this makes a 500.
    pub error: Option<String>,
}

impl Verdict {
    /// Yes.
    pub fn allow(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::of(Decision::Allow, reason)
    }
    /// A final no.
    pub fn deny(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::of(Decision::Deny, reason)
    }
    /// Not mine to say.
    pub fn no_opinion(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::of(Decision::NoOpinion, reason)
    }
    fn of(decision: Decision, reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            decision,
            reason: reason.into(),
            error: None,
        }
    }
}

/// Decides.
#[async_trait]
pub trait Authorizer: Send + Sync + 'static {
    /// Decides about one request.
    async fn authorize(&self, asked: &Attributes<'_>) -> Verdict;

    /// The same, where nothing has to be waited for, as is the rule; `None`: ask with [`Authorizer::authorize`].
    fn at_once(&self, _asked: &Attributes<'_>) -> Option<Verdict> {
        None
    }

    /// What somebody may do in a namespace, as far as this authorizer knows.
    async fn rules_for(&self, _user: &UserInfo, _namespace: &str) -> Rules {
        Rules::default()
    }
}
