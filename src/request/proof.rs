//! Proof values minted by the authentication and authorization filters. A handler that takes one as an argument cannot
//! be called before the filter has run.

use super::user::UserInfo;
use std::sync::Arc;

/// Proof that authentication succeeded. Anonymous requests count as authenticated.
#[derive(Clone, Debug)]
pub struct Authenticated {
    user: Arc<UserInfo>,
}

/// Proof that the caller is allowed to perform the request.
#[derive(Clone, Debug)]
pub struct Authorized {
    user: Arc<UserInfo>,
}

impl Authenticated {
    /// Only for the authentication filter, and for the impersonation filter once it has verified that the caller may
    /// act as `user`.
    pub fn mint(user: Arc<UserInfo>) -> Self {
        Self { user }
    }
    /// The effective user: after impersonation, the impersonated one.
    pub fn user(&self) -> &Arc<UserInfo> {
        &self.user
    }
}

impl Authorized {
    /// Only for the authorization filter and for in-process loopback calls, which name the identity they act as.
    pub fn mint(user: Arc<UserInfo>) -> Self {
        Self { user }
    }
    /// The effective user, after impersonation.
    pub fn user(&self) -> &Arc<UserInfo> {
        &self.user
    }
}
