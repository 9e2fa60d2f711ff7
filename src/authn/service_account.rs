//! Tokens of service accounts: made here ([`Issuer`]), recognised here ([`ServiceAccountTokens`]: bound ones and those
//! kept in Secrets), published for others to verify ([`discovery`]). Follows upstream's `pkg/serviceaccount`.
//!
//! A token counts as long as what it is bound to is there: every check reads the objects as they are.

mod authenticator;
mod bound;
pub mod discovery;
mod issuer;
mod legacy;

pub use authenticator::{ServiceAccountTokens, VerificationKeys};
pub use issuer::{Bound, Claimed, Issuer};

use super::Ground;
use crate::apimachinery::value::Value;
use crate::request::UserInfo;
use async_trait::async_trait;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Issuer of tokens that are kept in Secrets.
pub const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";

/// An object that a token depends on, as it was read.
#[derive(Clone, Debug)]
pub struct Found {
    /// The object.
    pub object: Value,
    /// Holds while the object stays as it is.
    pub ground: Arc<dyn Ground>,
}

/// The objects tokens depend on, as they are now.
#[async_trait]
pub trait Objects: Send + Sync + 'static {
    /// A core object; `namespace` is empty for nodes.
    ///
    /// # Errors
    /// One line: it cannot be told.
    async fn get(&self, resource: &'static str, namespace: &str, name: &str) -> Result<Option<Found>, String>;

    /// Sets a label of a Secret, as far as it can be set; nobody waits for it to have worked.
    async fn label_secret(&self, namespace: &str, name: &str, label: &'static str, value: &str);
}

/// Seconds since 1970.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// The system's clock.
pub fn system_clock() -> Clock {
    Arc::new(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    })
}

/// Clocks may differ by this many seconds, and what is bound may be gone for as long.
pub(super) const LEEWAY: i64 = 60;

/// The user name of a service account.
pub fn user_name(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// The user a service account is, without extra facts.
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
