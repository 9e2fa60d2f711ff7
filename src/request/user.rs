//! [`UserInfo`], the identity of a caller, and the well-known users and groups.

use std::collections::BTreeMap;

/// Name of the user of unauthenticated requests.
pub(crate) const ANONYMOUS: &str = "system:anonymous";
/// Group of unauthenticated requests.
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";
/// Group of all authenticated users.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
/// The superuser group; [`crate::authz::PrivilegedGroups`] authorizes its members for everything.
pub(crate) const MASTERS: &str = "system:masters";

/// A caller's identity, as upstream's `user.Info`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserInfo {
    /// User name, unique at any one time.
    pub name: String,
    /// Identifier that is unique over time; empty if the authenticator has none.
    pub uid: String,
    /// Groups, in the order given by the authenticator.
    pub groups: Vec<String>,
    /// Additional attributes set by the authenticator.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// The user of an unauthenticated request.
    pub fn anonymous() -> Self {
        Self {
            name: ANONYMOUS.into(),
            groups: vec![UNAUTHENTICATED.into()],
            ..Default::default()
        }
    }

    /// An identity for a component of this server.
    pub fn system(name: &str, groups: &[&str]) -> Self {
        Self {
            name: name.into(),
            groups: groups.iter().map(|g| (*g).to_owned()).collect(),
            ..Default::default()
        }
    }

    /// True if the user is a member of `group`.
    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }
}
