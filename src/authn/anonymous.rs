//! The last resort: everybody is `system:anonymous`.

use super::{AtOnce, Authenticator, Credentials, Identified, Refused};
use crate::request::UserInfo;
use async_trait::async_trait;
use std::sync::Arc;

/// Recognises everybody as anonymous, everywhere or at some paths.
pub struct Anonymous {
    user: Arc<UserInfo>,
    paths: Option<Vec<String>>,
}

impl Anonymous {
    /// The authenticator of `--anonymous-auth`.
    pub fn new() -> Self {
        Self {
            user: Arc::new(UserInfo::anonymous()),
            paths: None,
        }
    }

    /// Only requests for exactly one of `paths`; elsewhere nobody is anyone.
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
