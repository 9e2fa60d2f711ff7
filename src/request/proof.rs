//! Values that only the matching filter mints, so that a handler that takes one knows the filter has run.

use super::user::UserInfo;
use std::sync::Arc;

/// The caller is known (anonymous is known, too).
#[derive(Clone, Debug)]
pub struct Authenticated {
    user: Arc<UserInfo>,
}

/// The caller may do what the request asks for.
#[derive(Clone, Debug)]
pub struct Authorized {
    user: Arc<UserInfo>,
}

impl Authenticated {
    /// For the authentication filter, and for that of impersonation, which has checked that the caller may be this one.
    pub fn mint(user: Arc<UserInfo>) -> Self {
        Self { user }
    }
    /// Who calls.
    pub fn user(&self) -> &Arc<UserInfo> {
        &self.user
    }
}

impl Authorized {
    /// For the authorization filter, and for the server's own calls to itself (loopback), which name who they act as.
    pub fn mint(user: Arc<UserInfo>) -> Self {
        Self { user }
    }
    /// Who calls (after impersonation).
    pub fn user(&self) -> &Arc<UserInfo> {
        &self.user
    }
}
