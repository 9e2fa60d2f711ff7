//! Who calls.

use std::collections::BTreeMap;

/// Name of a caller without credentials.
pub const ANONYMOUS: &str = "system:anonymous";
/// Group of callers without credentials.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// Group of callers with credentials.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group that may do everything.
pub const MASTERS: &str = "system:masters";

/// A caller's identity, as upstream's `user.Info`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserInfo {
    /// Unique name.
    pub name: String,
    /// Unique over time; empty where the authenticator knows none.
    pub uid: String,
    /// Groups in the authenticator's order.
    pub groups: Vec<String>,
    /// Further facts the authenticator states.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// The caller without credentials.
    pub fn anonymous() -> Self {
        Self {
            name: ANONYMOUS.into(),
            groups: vec![UNAUTHENTICATED.into()],
            ..Default::default()
        }
    }

    /// A part of this server acting as itself.
    pub fn system(name: &str, groups: &[&str]) -> Self {
        Self {
            name: name.into(),
            groups: groups.iter().map(|g| (*g).to_owned()).collect(),
            ..Default::default()
        }
    }

    /// True where the caller is in `group`.
    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }
}
