//! Anonymous authentication, the last authenticator in the chain: any request becomes `system:anonymous`.

use super::{AuthenticatedUser, AuthenticationError, Authenticator, Credentials, SyncOutcome};
use crate::request::UserInfo;
use async_trait::async_trait;
use std::sync::Arc;

/// Authenticates any request as anonymous, on all paths or on selected ones.
pub(crate) struct Anonymous {
    user: Arc<UserInfo>,
    paths: Option<Vec<String>>,
}

impl Anonymous {
    /// Accepts every path (`--anonymous-auth`).
    pub(crate) fn new() -> Self {
        Self {
            // Shared by all requests: probes are frequent, and the user is always the same.
            user: Arc::new(UserInfo::anonymous()),
            paths: None,
        }
    }

    /// Accepts only requests for exactly one of `paths`; others stay unauthenticated.
    pub(crate) fn only_at(paths: Vec<String>) -> Self {
        Self {
            paths: Some(paths),
            ..Self::new()
        }
    }

    fn resolve_user(&self, path: &str) -> Option<AuthenticatedUser> {
        // Exact, as upstream: a prefix would open everything below it.
        let here = self.paths.as_ref().is_none_or(|paths| paths.iter().any(|p| p == path));
        here.then(|| AuthenticatedUser::new(self.user.clone()))
    }
}

impl Default for Anonymous {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Authenticator for Anonymous {
    async fn authenticate(&self, from: Credentials<'_>) -> Result<Option<AuthenticatedUser>, AuthenticationError> {
        Ok(self.resolve_user(from.path))
    }

    fn authenticate_sync(&self, from: Credentials<'_>) -> SyncOutcome {
        self.resolve_user(from.path).into()
    }
}
