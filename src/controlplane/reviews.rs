//! Review resources: TokenReview, the SubjectAccessReviews, SelfSubjectRulesReview and SelfSubjectReview.
//! Each type implements [`CreateHandler`](crate::registry::resource::CreateHandler): a create is evaluated
//! and returned, never stored.
//!
//! A 422 of a review has an empty kind, because upstream validates internal objects, which carry none.

mod access;
mod no_storage;
mod rules;
mod selectors;
mod subject;

pub(crate) use access::{EXPLAIN, LocalSubjectAccessReview, SelfSubjectAccessReview, SubjectAccessReview};
pub(crate) use no_storage::NoStorage;
pub(crate) use rules::SelfSubjectRulesReview;
pub(crate) use subject::{SelfSubjectReview, TokenReview};

use crate::authn::TokenAuthenticator;
use crate::authz::{Authorizer, Rbac};
use std::sync::Arc;

#[derive(Clone)]
pub(crate) struct ReviewDependencies {
    /// Authenticates the tokens of TokenReviews.
    pub tokens: Arc<dyn TokenAuthenticator>,
    /// Whether a request without a token is anonymous rather than unauthenticated (`--anonymous-auth`).
    pub anonymous: bool,
    pub authorizer: Arc<dyn Authorizer>,
    /// RBAC: guards against privilege escalation, and explains decisions.
    pub roles: Arc<Rbac>,
    /// The server's own audiences (`--api-audiences`).
    pub audiences: Vec<String>,
}

#[cfg(test)]
mod tests;
