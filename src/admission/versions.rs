//! [`Versions`]: the versions in which a resource is served, and the conversion of the objects of a write between them.
//! The registry implements it.

use crate::apimachinery::gvk::{GroupVersionKind, GroupVersionResource};

/// A version in which the objects of a resource are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedKind {
    /// The resource.
    pub resource: GroupVersionResource,
    /// The kind of its objects, or of the objects of its subresource.
    pub kind: GroupVersionKind,
}

/// What plugins ask about the versions of a resource.
pub trait Versions: Send + Sync + 'static {
    /// The other served versions of the objects of a resource, possibly in other groups, as far as they have the
    /// subresource.
    fn equivalents(&self, resource: &GroupVersionResource, subresource: &str) -> Vec<ServedKind>;
}
