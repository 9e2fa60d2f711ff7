//! [`Strategy`]: the behaviour of a kind that its [`Resource`](super::Resource) cannot express as data: defaults,
//! preparation, validation and side effects.
//!
//! Corresponds to upstream's `rest.RESTCreateStrategy`, `RESTUpdateStrategy` and `RESTDeleteStrategy`. The order of
//! the calls is in the docs of [`Strategy`].

use crate::apimachinery::field::ErrorList;
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use crate::request::{AuditTrail, UserInfo, Warnings};
use async_trait::async_trait;
use std::sync::Arc;

/// The caller-related inputs of a verb.
#[derive(Clone, Debug)]
pub struct Context {
    /// The authenticated user.
    pub user: Arc<UserInfo>,
    /// The namespace of the request; empty for cluster scope.
    pub namespace: String,
    /// Collects texts for the response's `Warning` headers.
    pub warnings: Warnings,
    /// Collects annotations for the audit event.
    pub audit: AuditTrail,
    /// True if nothing may be written.
    pub dry_run: bool,
    /// The verb as used in authorization: `create`, `update`, `patch` or `delete`.
    pub verb: &'static str,
}

impl Context {
    /// The context of the server's own writes, in `namespace` (empty for cluster scope).
    pub fn system(namespace: &str) -> Self {
        Self {
            user: Arc::new(UserInfo::system("system:apiserver", &[crate::request::user::MASTERS])),
            namespace: namespace.to_owned(),
            warnings: Warnings::default(),
            audit: AuditTrail::default(),
            dry_run: false,
            verb: "update",
        }
    }
}

/// The check of object names. The messages are upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// DNS-1123 subdomain: most kinds.
    Subdomain,
    /// DNS-1123 label: namespaces.
    Label,
    /// DNS-1035 label: services.
    Label1035,
    /// Any valid path segment: RBAC, CRD-like names, APIServices.
    PathSegment,
    /// DNS-1123 subdomain with declarative validation (ReplicationControllers, DeviceClasses), which ignores
    /// `generateName`.
    Declared,
}

/// The metadata validation that a kind performs in addition to the registry's generic one. The checks overlap, and
/// like upstream, the duplicate causes are not removed from the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaChecks {
    /// Requires finalizers to be well-known or domain-qualified.
    pub strict_finalizers: bool,
    /// How many times an update validates the metadata as that of a new object.
    pub as_new: usize,
    /// An update validates the metadata against the stored one.
    pub against_old: bool,
    /// An update of status or another part also validates the metadata against the stored one.
    pub in_subresources: bool,
}

impl MetaChecks {
    /// Most kinds: an update is validated both as a new object and against the stored one.
    pub const BOTH: Self = Self {
        strict_finalizers: true,
        as_new: 1,
        against_old: true,
        in_subresources: true,
    };
    /// Kinds whose updates are validated only against the stored object.
    pub const AGAINST_OLD: Self = Self {
        as_new: 0,
        ..Self::BOTH
    };
    /// Kinds whose updates are validated only as new objects.
    pub const AS_NEW: Self = Self {
        against_old: false,
        in_subresources: false,
        ..Self::BOTH
    };
    /// Kinds without metadata validation of their own.
    pub const NONE: Self = Self {
        as_new: 0,
        against_old: false,
        in_subresources: false,
        strict_finalizers: false,
    };

    /// A copy that accepts finalizers of any form.
    pub const fn any_finalizers(self) -> Self {
        Self {
            strict_finalizers: false,
            ..self
        }
    }
}

/// What happens to dependents if a delete specifies no propagation policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GarbageCollection {
    /// They are deleted in the background.
    Background,
    /// They stay: the finalizer `orphan` is set (Job, ReplicationController).
    Orphan,
    /// The kind ignores propagation policies (events).
    Unsupported,
}

/// The behaviour of a kind. All methods have defaults, which suit kinds without special behaviour.
///
/// Order on create: [`default`](Self::default) → mutating admission → [`prepare_create`](Self::prepare_create) →
/// [`begin_create`](Self::begin_create) → object metadata and [`validate_create`](Self::validate_create) →
/// [`warnings`](Self::warnings) → validating admission → storage → [`created`](Self::created), or
/// [`rollback`](Self::rollback) after a failure. Updates follow the same order with the old object as an extra
/// argument. The synchronous methods are pure functions of their arguments; the async ones may allocate resources,
/// which `rollback` must release.
#[async_trait]
pub trait Strategy: Send + Sync + 'static {
    /// The check of object names.
    fn name_rule(&self) -> NameRule {
        NameRule::Subdomain
    }

    /// Sets defaults on a decoded object, like upstream's `SetDefaults_*`.
    fn default(&self, _object: &mut Value) {}

    /// Clears the fields a client may not set on create (status) and sets those the server owns (generation 1).
    fn prepare_create(&self, _object: &mut Value) {}

    /// Validates a new object, except for its metadata.
    fn validate_create(&self, _object: &Value) -> ErrorList {
        ErrorList::new()
    }

    /// Restores the fields a client may not change, and increments the generation if the spec changed.
    fn prepare_update(&self, _new: &mut Value, _old: &Value) {}

    /// Validates a changed object, except for its metadata. The default validates it as a new object.
    fn validate_update(&self, new: &Value, _old: &Value) -> ErrorList {
        self.validate_create(new)
    }

    /// [`prepare_update`](Self::prepare_update) for the `status` subresource. The default keeps the old object except
    /// for `status` and for managed fields, which the registry maintains.
    fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        let status = new.get("status").clone();
        let managed = new.at(&["metadata", "managedFields"]).clone();
        let version = new.at(&["metadata", "resourceVersion"]).clone();
        // Only status, managed fields and the optimistic lock come from the request.
        *new = old.clone();
        if status.is_null() {
            new.unset(&["status"]).map(drop).unwrap_or(())
        } else {
            new.set(&["status"], status)
        }
        new.set(&["metadata", "managedFields"], managed);
        new.set(&["metadata", "resourceVersion"], version);
    }

    /// Validates an update of the `status` subresource.
    fn validate_status_update(&self, _new: &Value, _old: &Value) -> ErrorList {
        ErrorList::new()
    }

    /// [`prepare_update`](Self::prepare_update) for another subresource that is part of the object
    /// (`pods/ephemeralcontainers`, `pods/resize`). The default treats it like the main resource.
    fn prepare_subresource_update(&self, _subresource: &str, new: &mut Value, old: &Value) {
        self.prepare_update(new, old);
    }

    /// Validates an update of such a part.
    fn validate_subresource_update(&self, _subresource: &str, new: &Value, old: &Value) -> ErrorList {
        self.validate_update(new, old)
    }

    /// A warning added to every request for the kind, whatever its verb and outcome.
    fn deprecation(&self) -> Option<&'static str> {
        None
    }

    /// Warnings about a new or changed object.
    fn warnings(&self, _new: &Value, _old: Option<&Value>) -> Vec<String> {
        Vec::new()
    }

    /// Warnings for updates of subresources other than `scale`; those of the main resource are not repeated.
    fn subresource_warnings(&self, _subresource: &str, _new: &Value, _old: &Value) -> Vec<String> {
        Vec::new()
    }

    /// Runs before validation of a create: allocates cluster IPs, node ports and the like.
    async fn begin_create(&self, _cx: &Context, _object: &mut Value) -> Result<()> {
        Ok(())
    }

    /// Runs before validation of an update: allocates, and records what to release afterwards.
    async fn begin_update(&self, _cx: &Context, _new: &mut Value, _old: &Value) -> Result<()> {
        Ok(())
    }

    /// Runs if a begun create (`old` is `None`) or update did not take effect, because it was rejected, lost a
    /// conflict or was a dry run. Must release what was allocated.
    async fn rollback(&self, _cx: &Context, _object: &Value, _old: Option<&Value>) {}

    /// Runs after the create is durable.
    async fn created(&self, _cx: &Context, _object: &Value) {}

    /// Runs after the update is durable.
    async fn updated(&self, _cx: &Context, _new: &Value, _old: &Value) {}

    /// Runs after the object has been removed.
    async fn deleted(&self, _cx: &Context, _object: &Value) {}

    /// Rejects deletes of protected objects, such as the `default` namespace.
    ///
    /// # Errors
    /// 403 or 409 with upstream's message.
    fn check_delete(&self, _object: &Value) -> Result<()> {
        Ok(())
    }

    /// True if something other than `metadata.finalizers` holds a deleted object (`spec.finalizers` of a namespace).
    /// Such an object is only marked, and is removed by the update after which this returns false.
    fn holds_deletion(&self, _object: &Value) -> bool {
        false
    }

    /// A warning for deletes that do not specify what happens to dependents (Jobs, which orphan their pods).
    fn missing_propagation_warning(&self) -> Option<&'static str> {
        None
    }

    /// What happens to dependents if a delete specifies no propagation policy.
    fn garbage_collection(&self) -> GarbageCollection {
        GarbageCollection::Background
    }

    /// The grace period in seconds, given the requested one; `None` for kinds without graceful deletion (all but pods).
    fn grace(&self, _object: &Value, _requested: Option<i64>) -> Option<i64> {
        None
    }

    /// Adds the kind's own marks when a delete marks the object because of finalizers or grace, such as the
    /// `status.phase` of a namespace.
    fn mark_deleting(&self, _object: &mut Value) {}

    /// False while something other than `metadata.finalizers` holds the object (`spec.finalizers` of a namespace).
    fn may_vanish(&self, _object: &Value) -> bool {
        true
    }

    /// The time to live of a stored object in seconds (events).
    fn ttl_seconds(&self, _object: &Value) -> Option<u64> {
        None
    }

    /// Annotations that represent fields of upstream's internal type; metadata-only responses omit them.
    fn wire_annotations(&self) -> &'static [&'static str] {
        &[]
    }

    /// The paths that writers of the main resource, or of `subresource`, never own.
    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        match subresource {
            "status" => &["spec", "metadata.labels", "metadata.annotations"],
            _ => &[],
        }
    }
}

/// The strategy of kinds without special behaviour.
pub struct Plain;

impl Strategy for Plain {}
