//! Reviews: questions about identity and access, answered and forgotten. A refused question is a 422 whose kind is empty,
//! because upstream's internal objects carry none.

mod access;
mod nothing;
mod rules;
mod selectors;
mod subject;

pub use access::{EXPLAIN, LocalSubjectAccessReview, SelfSubjectAccessReview, SubjectAccessReview};
pub use nothing::Nothing;
pub use rules::SelfSubjectRulesReview;
pub use subject::{SelfSubjectReview, TokenReview};

use crate::authn::TokenAuthenticator;
use crate::authz::{Authorizer, Rbac};
use std::sync::Arc;

/// Who is asked.
#[derive(Clone)]
pub struct Judges {
    /// Knows tokens.
    pub tokens: Arc<dyn TokenAuthenticator>,
    /// Who shows no token is somebody, too (`--anonymous-auth`).
    pub anonymous: bool,
    /// Decides.
    pub authorizer: Arc<dyn Authorizer>,
    /// Roles and bindings: who may write them, and why somebody may do something.
    pub roles: Arc<Rbac>,
    /// The server's own audiences (`--api-audiences`).
    pub audiences: Vec<String>,
}

#[cfg(test)]
mod tests;
