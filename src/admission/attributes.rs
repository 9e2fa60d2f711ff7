//! [`Attributes`]: the input of admission plugins besides the object itself (upstream's `admission.Attributes`): who
//! writes what, with which operation, and what was stored before.

use super::Reinvocation;
use crate::api::decode::Empties;
use crate::apimachinery::gvk::{GroupVersionKind, GroupVersionResource};
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::request::{AuditTrail, UserInfo, Warnings};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The operation of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Creation of an object.
    Create,
    /// Update or patch of an existing object.
    Update,
    /// Deletion of an object.
    Delete,
    /// Connection to a subresource such as `pods/exec`.
    Connect,
}

impl Operation {
    /// The name used in AdmissionReviews and webhook rules.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// The attributes of a write, as upstream's `admission.Attributes`.
#[derive(Clone, Debug)]
pub(crate) struct Attributes {
    pub operation: Operation,
    /// Kind of the object in the request (for the subresource `scale`: Scale).
    pub kind: GroupVersionKind,
    /// The resource of the request.
    pub resource: GroupVersionResource,
    /// The subresource; empty for the resource itself.
    pub subresource: String,
    /// Namespace of the request; empty for cluster scope.
    pub namespace: String,
    /// Object name; empty if the server will generate it.
    pub name: String,
    /// The authenticated caller, after impersonation.
    pub user: Arc<UserInfo>,
    /// True if nothing will be stored.
    pub dry_run: bool,
    /// The stored object, for updates and deletes.
    pub old_object: Option<Arc<Value>>,
    /// The empty lists and maps of the body, which the object lacks.
    pub empties: Empties,
    /// The CreateOptions, UpdateOptions, PatchOptions or DeleteOptions of the request; null for internal
    /// callers.
    pub options: Arc<Value>,
    /// Sink for warnings to the client.
    pub warnings: Warnings,
    /// Sink for audit annotations; keys have the form `prefix/name`.
    pub audit: AuditTrail,
    /// When the request times out; `None` for internal callers and connections.
    pub deadline: Option<Instant>,
    /// The rounds of the mutating phase.
    pub reinvocation: Arc<Reinvocation>,
}

impl Attributes {
    /// A write of `v1` that no client has sent: without a user, options or a deadline.
    pub(crate) fn hypothetical(operation: Operation, group: &str, kind: &str, resource: &str) -> Self {
        Self {
            operation,
            kind: GroupVersionKind::new(group, "v1", kind),
            resource: GroupVersionResource::new(group, "v1", resource),
            subresource: String::new(),
            namespace: String::new(),
            name: String::new(),
            user: Arc::new(UserInfo::default()),
            dry_run: false,
            old_object: None,
            empties: Empties::default(),
            options: Arc::new(Value::Null),
            warnings: Warnings::default(),
            audit: AuditTrail::default(),
            deadline: None,
            reinvocation: Arc::default(),
        }
    }

    /// The time until the request ends.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        Some(self.deadline?.saturating_duration_since(Instant::now()))
    }

    /// Fails once the request's own deadline has passed.
    ///
    /// # Errors
    /// 504.
    pub(crate) fn in_time(&self) -> Result<()> {
        match self.time_left() {
            // Checked between plugins, so that a write whose client got a timeout is not stored afterwards.
            Some(Duration::ZERO) => Err(Status::timeout("request did not complete within requested timeout", 0)),
            _ => Ok(()),
        }
    }

    /// True for this resource and its subresources.
    pub(crate) fn is_for(&self, group: &str, resource: &str) -> bool {
        self.resource.resource == resource && self.resource.group == group
    }

    /// True for this resource, but not for its subresources.
    pub(crate) fn is(&self, group: &str, resource: &str) -> bool {
        self.subresource.is_empty() && self.is_for(group, resource)
    }

    /// `request.namespace` of webhooks and policies; for a Namespace object its own name, as upstream.
    pub(crate) fn request_namespace(&self) -> &str {
        match self.namespace.is_empty() && self.is_for("", "namespaces") {
            true => &self.name,
            false => &self.namespace,
        }
    }

    /// True for the creation of a pod, not of a subresource such as `binding`.
    pub(crate) fn is_new_pod(&self) -> bool {
        self.operation == Operation::Create && self.is("", "pods")
    }
}
