//! Anonymous authentication, the last authenticator in the chain: any request becomes `system:anonymous`.

use super::{AtOnce, Authenticator, Credentials, Identified, Refused};
use crate::request::UserInfo;
use async_trait::async_trait;
use std::sync::Arc;

/// Authenticates any request as anonymous, on all paths or on selected ones.
pub struct Anonymous {
    user: Arc<UserInfo>,
    paths: Option<Vec<String>>,
}

impl Anonymous {
    /// Accepts every path (`--anonymous-auth`).
    pub fn new() -> Self {
        Self {
            user: Arc::new(UserInfo::anonymous()),
            paths: None,
        }
    }

    /// Accepts only requests for exactly one of `paths`; others stay unauthenticated.
    pub fn only_at(paths: Vec<String>) -> Self {
        Self {
            paths: Some(paths),
            ..Self::new()
        }
    }

    fn recognise(&self, path: &str) -> Option<Identified> {
        let here = self.paths.as_ref().is_none_or(|paths| paths.iter().any(|p| p == path));
        here.then(|| Identified::new(self.user.clone()))
    }
}

impl Default for Anonymous {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Authenticator for Anonymous {
    async fn authenticate(&self, from: Credentials<'_>) -> Result<Option<Identified>, Refused> {
        Ok(self.recognise(from.path))
    }

    fn at_once(&self, from: Credentials<'_>) -> AtOnce {
        self.recognise(from.path).into()
    }
}
