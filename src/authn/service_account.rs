//! Service account tokens: issued by [`Issuer`], authenticated by [`ServiceAccountTokens`] (bound tokens and
//! legacy ones in Secrets), and published for external verification by [`discovery`]. Follows upstream's
//! `pkg/serviceaccount`.
//!
//! A token is valid only while the objects it is bound to exist: every check reads their current state.

mod authenticator;
mod bound;
pub(crate) mod discovery;
mod issuer;
mod legacy;

pub(crate) use authenticator::{ServiceAccountTokens, VerificationDependencies, VerificationKeys};
pub(crate) use issuer::{Bound, Claimed, Issuer};

use super::CacheDependency;
use crate::apimachinery::value::Value;
use crate::request::UserInfo;
use crate::request::body::BoxError;
use async_trait::async_trait;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The `iss` claim of legacy tokens, which are stored in Secrets.
pub(crate) const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";

/// An object that a token depends on, as read from storage.
#[derive(Clone, Debug)]
pub(crate) struct ResolvedObject {
    pub object: Value,
    /// Holds while the object is unchanged.
    pub dependency: Arc<dyn CacheDependency>,
}

/// An object could not be read, as opposed to not existing.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) struct Unreadable(pub BoxError);

/// Reads the objects that tokens depend on, in their current state.
#[async_trait]
pub(crate) trait ObjectReader: Send + Sync + 'static {
    /// Reads a core object; `namespace` is empty for nodes.
    ///
    /// # Errors
    /// [`Unreadable`].
    async fn get(
        &self,
        resource: &'static str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<ResolvedObject>, Unreadable>;

    /// Sets a label of a Secret, best effort: failures are not reported.
    async fn label_secret(&self, namespace: &str, name: &str, label: &'static str, value: &str);
}

/// Current time in seconds since 1970. Injectable for tests.
pub(crate) type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

pub(crate) fn system_clock() -> Clock {
    Arc::new(|| {
        // A clock before 1970 counts as 1970, when no token is valid yet.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    })
}

/// Tolerance in seconds, for clock skew and for objects that are being deleted. Upstream's: go-jose's default
/// leeway, which its check of deletion times uses too.
pub(super) const LEEWAY: i64 = 60;

/// The user name of a service account.
pub(crate) fn user_name(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// The user of a service account, without extra attributes.
fn user_info(namespace: &str, name: &str, uid: &str) -> UserInfo {
    UserInfo {
        name: user_name(namespace, name),
        uid: uid.to_owned(),
        groups: vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
        ],
        ..UserInfo::default()
    }
}

#[cfg(test)]
mod tests;
