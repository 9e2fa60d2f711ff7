//! [`Authority`]: an authorizer, a check that it is asked, or its decision.

use super::Val;
use std::fmt;
use std::sync::Arc;

/// Decides about checks of expressions.
pub trait Authorizer: Send + Sync {
    /// Decides `check`. Called during an evaluation, so it must not block for long.
    fn authorize(&self, check: &Check) -> Decision;
}

/// A check that an expression requests of an [`Authorizer`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of request attributes")]
pub struct Check {
    /// Namespace and name of the service account that is asked about, if it is not the requesting user.
    pub service_account: Option<(String, String)>,
    pub verb: String,
    /// The path of a non-resource request; `None` for a resource.
    pub path: Option<String>,
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    /// As written; empty if there is none.
    pub field_selector: String,
    /// As written; empty if there is none.
    pub label_selector: String,
}

/// The answer to a [`Check`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// True if the request would be allowed.
    pub allowed: bool,
    /// The authorizer's explanation, for people.
    pub reason: String,
    /// Why the check could not be decided; `None` if it was.
    pub error: Option<String>,
}

/// A value of the authorizer's library.
#[derive(Clone)]
pub enum Authority<'a> {
    /// `kubernetes.authorization.Authorizer`, perhaps for a service account.
    Authorizer(&'a dyn Authorizer, Arc<Check>),
    /// `kubernetes.authorization.PathCheck`
    Path(&'a dyn Authorizer, Arc<Check>),
    /// `kubernetes.authorization.GroupCheck`
    Group(&'a dyn Authorizer, Arc<Check>),
    /// `kubernetes.authorization.ResourceCheck`
    Resource(&'a dyn Authorizer, Arc<Check>),
    /// `kubernetes.authorization.Decision`
    Decision(Arc<Decision>),
}

impl<'a> Val<'a> {
    /// The value of a variable of type [`Type::AUTHORIZER`](crate::Type::AUTHORIZER).
    pub fn authorizer(of: &'a dyn Authorizer) -> Self {
        Self::Authority(Authority::Authorizer(of, Arc::default()))
    }

    /// The value of a variable of type [`Type::RESOURCE_CHECK`](crate::Type::RESOURCE_CHECK): a check of the
    /// resource that a request is for.
    pub fn resource_check(of: &'a dyn Authorizer, check: Check) -> Self {
        Self::Authority(Authority::Resource(of, Arc::new(check)))
    }
}

impl Authority<'_> {
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Authorizer(..) => "kubernetes.authorization.Authorizer",
            Self::Path(..) => "kubernetes.authorization.PathCheck",
            Self::Group(..) => "kubernetes.authorization.GroupCheck",
            Self::Resource(..) => "kubernetes.authorization.ResourceCheck",
            Self::Decision(_) => "kubernetes.authorization.Decision",
        }
    }

    /// Equality of the check, or of its decision.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Authorizer(_, a), Self::Authorizer(_, b))
            | (Self::Path(_, a), Self::Path(_, b))
            | (Self::Group(_, a), Self::Group(_, b))
            | (Self::Resource(_, a), Self::Resource(_, b)) => a == b,
            (Self::Decision(a), Self::Decision(b)) => a == b,
            _ => false,
        }
    }
}

impl fmt::Debug for Authority<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.type_name())
    }
}
