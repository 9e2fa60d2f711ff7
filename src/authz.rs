//! Authorization: whether the caller may perform the request.
//!
//! Entry points: the [`Authorizer`] trait, its input [`Attributes`], and [`Union`], which chains authorizers.
//! The authorization filter calls them and answers denied requests with upstream's 403 ([`forbidden`]).

pub(crate) mod abac;
mod attributes;
pub(crate) mod config;
pub(crate) mod delegated;
mod forbidden;
pub(crate) mod impersonation;
pub(crate) mod match_conditions;
pub(crate) mod node;
mod path;
pub(crate) mod rbac;
mod review;
mod rules;
mod union;
mod verdict_cache;
pub(crate) mod webhook;

pub use attributes::Attributes;
pub(crate) use forbidden::forbidden;
pub(crate) use path::{AllowedPaths, PrivilegedGroups};
pub(crate) use rbac::Rbac;
pub use rules::Rules;
pub use union::{AlwaysAllow, AlwaysDeny, Union};

use crate::request::UserInfo;
use async_trait::async_trait;
use std::borrow::Cow;

/// The outcome of an authorizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Allowed; no further authorizer runs.
    Allow,
    /// Denied; no further authorizer runs.
    Deny,
    /// Left to the next authorizer. If none has an opinion, the request is denied.
    NoOpinion,
}

/// A decision with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the request may proceed, as far as this authorizer knows.
    pub decision: Decision,
    /// Shown to the client if the request is denied, recorded for audit if it is allowed.
    pub reason: Cow<'static, str>,
    /// Why the authorizer failed. Unless another one allows the request, this results in a 500.
    pub error: Option<String>,
}

impl Verdict {
    /// Allows the request; no other authorizer is asked.
    pub fn allow(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::of(Decision::Allow, reason)
    }
    /// Denies the request for good.
    pub fn deny(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::of(Decision::Deny, reason)
    }
    /// Leaves the decision to other authorizers.
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

/// Decides whether a request is allowed.
///
/// ```
/// use async_trait::async_trait;
/// use torana::sdk::authn::UserInfo;
/// use torana::sdk::authz::{Attributes, Authorizer, Decision, Verdict};
///
/// /// Lets everybody read.
/// struct ReadOnly;
///
/// #[async_trait]
/// impl Authorizer for ReadOnly {
///     async fn authorize(&self, attributes: &Attributes<'_>) -> Verdict {
///         match attributes.verb {
///             "get" | "list" | "watch" => Verdict::allow("reading is allowed"),
///             _ => Verdict::no_opinion("only reading is allowed"),
///         }
///     }
/// }
///
/// # #[tokio::main]
/// # async fn main() {
/// let user = UserInfo::anonymous();
/// let list = Attributes { verb: "list", is_resource: true, resource: "pods", ..Attributes::empty(&user) };
/// assert_eq!(ReadOnly.authorize(&list).await.decision, Decision::Allow);
/// assert_eq!(ReadOnly.authorize(&list.with_verb("delete")).await.decision, Decision::NoOpinion);
/// # }
/// ```
#[async_trait]
pub trait Authorizer: Send + Sync + 'static {
    /// Decides on one request. May wait for an index to catch up or for a remote check.
    async fn authorize(&self, attributes: &Attributes<'_>) -> Verdict;

    /// The result of `authorize` if it is available without waiting, which is the common case; otherwise
    /// `None`.
    fn authorize_sync(&self, _attributes: &Attributes<'_>) -> Option<Verdict> {
        None
    }

    /// The rules that this authorizer grants a user in a namespace, for SelfSubjectRulesReviews.
    async fn rules_for(&self, _user: &UserInfo, _namespace: &str) -> Rules {
        Rules::default()
    }
}
