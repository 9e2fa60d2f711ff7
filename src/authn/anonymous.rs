//! The last resort: everybody is `system:anonymous`.

use super::{Authenticator, Credentials, Identified, Refused};
use crate::request::UserInfo;
use async_trait::async_trait;
use std::sync::Arc;

/// Recognises everybody as anonymous.
pub struct Anonymous(Arc<UserInfo>);

impl Anonymous {
    /// The authenticator of `--anonymous-auth`.
    pub fn new() -> Self {
        Self(Arc::new(UserInfo::anonymous()))
    }
}

impl Default for Anonymous {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Authenticator for Anonymous {
    async fn authenticate(&self, _: Credentials<'_>) -> Result<Option<Identified>, Refused> {
        Ok(Some(Identified::new(self.0.clone())))
    }
}
