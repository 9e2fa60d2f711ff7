//! [`Versions`]: the versions in which a resource is served, and the conversion of the objects of a write
//! between them. The registry implements it.

use super::Attributes;
use crate::apimachinery::apply::OverlayError;
use crate::apimachinery::gvk::{GroupVersionKind, GroupVersionResource};
use crate::apimachinery::selector::labels::LabelSelector;
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use async_trait::async_trait;

/// The criterion of a lookup.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted<'a> {
    /// The one with this name.
    Name(&'a str),
    /// All whose labels match.
    Labels(&'a LabelSelector),
}

/// A version in which the objects of a resource are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServedKind {
    pub resource: GroupVersionResource,
    /// The kind of its objects, or of the objects of its subresource.
    pub kind: GroupVersionKind,
}

/// The versions of a resource, as plugins need them.
#[async_trait]
pub(crate) trait Versions: Send + Sync + 'static {
    /// The other served versions of the objects of a resource, possibly in other groups, as far as they have
    /// the subresource.
    fn equivalents(&self, resource: &GroupVersionResource, subresource: &str) -> Vec<ServedKind>;

    /// Converts an object of one served version to another one of the same resource. Custom resources may be
    /// converted by a webhook.
    ///
    /// # Errors
    /// 500 if it cannot be converted.
    async fn convert(&self, object: Value, from: &GroupVersionResource, to: &GroupVersionResource) -> Result<Value>;

    /// The stored objects of a resource in a served version that `wanted` selects, in a namespace, or in all if
    /// it is empty. Includes every write that this process has acknowledged.
    ///
    /// # Errors
    /// 500 if the resource is not served in that version or the storage fails.
    async fn objects(&self, of: &GroupVersionResource, namespace: &str, wanted: Wanted<'_>) -> Result<Vec<Value>>;

    /// Decodes and defaults an object that a plugin has changed in any way. Unknown fields are dropped; those
    /// of built-in kinds are returned, as `unknown field "spec.x"`.
    ///
    /// # Errors
    /// 400 if a value has the wrong type.
    async fn complete(&self, kind: &ServedKind, subresource: &str, object: &mut Value) -> Result<Vec<String>>;

    /// Merges a configuration into an object as an apply does, but without ownership. The inner error is for
    /// a configuration that does not fit the kind.
    ///
    /// # Errors
    /// 500 or 503 if the kind is not served.
    async fn overlay(
        &self,
        kind: &ServedKind,
        subresource: &str,
        object: &Value,
        config: &Value,
    ) -> Result<std::result::Result<Value, OverlayError>>;
}

/// The version of the request itself.
pub(super) fn own(attributes: &Attributes) -> ServedKind {
    ServedKind {
        resource: attributes.resource.clone(),
        kind: attributes.kind.clone(),
    }
}
