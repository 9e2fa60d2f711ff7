//! What a plugin is told about a write beside the object itself.

use crate::apimachinery::gvk::{GroupVersionKind, GroupVersionResource};
use crate::apimachinery::value::Value;
use crate::request::{AuditTrail, UserInfo, Warnings};
use std::sync::Arc;

/// What is about to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A new object.
    Create,
    /// A changed object.
    Update,
    /// An object goes.
    Delete,
    /// A connection to a subresource.
    Connect,
}

impl Operation {
    /// As AdmissionReview and webhook rules spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// As upstream's `admission.Attributes`.
#[derive(Clone, Debug)]
pub struct Attributes {
    /// What is about to be done.
    pub operation: Operation,
    /// Kind of the object sent (for `scale`: Scale).
    pub kind: GroupVersionKind,
    /// The resource of the request.
    pub resource: GroupVersionResource,
    /// The subresource, or empty.
    pub subresource: String,
    /// Namespace of the request, empty for cluster scope.
    pub namespace: String,
    /// Name; empty where the server will generate it.
    pub name: String,
    /// Who writes.
    pub user: Arc<UserInfo>,
    /// Nothing will be stored.
    pub dry_run: bool,
    /// The stored object, for updates and deletes.
    pub old_object: Option<Arc<Value>>,
    /// The CreateOptions, UpdateOptions, PatchOptions or DeleteOptions of the request; null for internal callers.
    pub options: Arc<Value>,
    /// Texts for the answer's `Warning` headers.
    pub warnings: Warnings,
    /// Annotations for the audit event; keys are `prefix/name`.
    pub audit: AuditTrail,
}

impl Attributes {
    /// True for this resource and any subresource of it.
    pub fn is_for(&self, group: &str, resource: &str) -> bool {
        self.resource.resource == resource && self.resource.group == group
    }

    /// True for the resource itself, not a subresource.
    pub fn is(&self, group: &str, resource: &str) -> bool {
        self.subresource.is_empty() && self.is_for(group, resource)
    }

    /// True for a new pod: a create of the resource itself.
    pub fn is_new_pod(&self) -> bool {
        self.operation == Operation::Create && self.is("", "pods")
    }
}
