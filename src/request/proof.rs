//! Proof values minted by the authentication and authorization filters. A handler that takes one as an
//! argument cannot be called before the filter has run.

use super::user::UserInfo;
use std::sync::Arc;

/// Proof that authentication succeeded. Anonymous requests count as authenticated.
#[derive(Clone, Debug)]
pub struct Authenticated {
    user: Arc<UserInfo>,
}

/// Proof that the caller is allowed to perform the request.
#[derive(Clone, Debug)]
pub(crate) struct Authorized {
    user: Arc<UserInfo>,
}

/// Names the filter that mints a proof. There is one implementation per proof, in that filter, and only the
/// filter can make a value of its key. The compiler therefore rejects `mint` anywhere else, although this
/// module, which is below the filters, cannot name them.
pub trait Minted {
    /// The private token of the filter.
    type Key;
}

impl Authenticated {
    /// Only for the authentication filter, and for the impersonation filter once it has verified that the
    /// caller may act as `user`.
    pub fn mint(user: Arc<UserInfo>, _: <Self as Minted>::Key) -> Self {
        Self { user }
    }
    /// The effective user: after impersonation, the impersonated one.
    pub fn user(&self) -> &Arc<UserInfo> {
        &self.user
    }
}

impl Authorized {
    /// Only for the authorization filter.
    pub(crate) fn mint(user: Arc<UserInfo>, _: <Self as Minted>::Key) -> Self {
        Self { user }
    }
    /// The effective user, after impersonation.
    pub(crate) fn user(&self) -> &Arc<UserInfo> {
        &self.user
    }

    /// A proof for tests, which call handlers without the filters.
    #[cfg(test)]
    pub(crate) fn for_test(user: impl Into<Arc<UserInfo>>) -> Self {
        Self { user: user.into() }
    }
}
