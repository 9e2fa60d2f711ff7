//! The one seam for what a kind does that its row cannot say: defaults, preparation, validation, side effects.
//! As upstream's `rest.RESTCreateStrategy`, `RESTUpdateStrategy` and `RESTDeleteStrategy`.

use crate::apimachinery::field::ErrorList;
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use crate::request::{AuditTrail, UserInfo, Warnings};
use async_trait::async_trait;
use std::sync::Arc;

/// What a verb knows about its caller.
#[derive(Clone, Debug)]
pub struct Context {
    /// Who calls.
    pub user: Arc<UserInfo>,
    /// Namespace of the request, empty for cluster scope.
    pub namespace: String,
    /// Texts for the answer's `Warning` headers.
    pub warnings: Warnings,
    /// What the audit event is told.
    pub audit: AuditTrail,
    /// True where nothing may be written.
    pub dry_run: bool,
    /// The verb as authorization knows it: `create`, `update`, `patch`, `delete`.
    pub verb: &'static str,
}

impl Context {
    /// The server acting as itself, in a namespace (or `""`).
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

/// How names are checked. The texts are upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// DNS-1123 subdomain: most kinds.
    Subdomain,
    /// DNS-1123 label: namespaces.
    Label,
    /// DNS-1035 label: services.
    Label1035,
    /// Anything that is one path segment: RBAC, CRD-like names, APIServices.
    PathSegment,
    /// DNS-1123 subdomain where the check is declared, not coded (ReplicationControllers, DeviceClasses): a `generateName`
    /// is not looked at.
    Declared,
}

/// What a kind checks of the metadata itself, beside what the registry checks of every kind. Each check says again what
/// another has said, and upstream leaves the causes of a refusal as they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaChecks {
    /// Finalizers must be well-known or have a domain.
    pub strict_finalizers: bool,
    /// How often an update checks the metadata as that of a new object.
    pub as_new: usize,
    /// An update checks the metadata against the stored one.
    pub against_old: bool,
    /// So does an update of the status or of another part.
    pub in_parts: bool,
}

impl MetaChecks {
    /// Most kinds: an update is a new object that keeps to the old one.
    pub const BOTH: Self = Self {
        strict_finalizers: true,
        as_new: 1,
        against_old: true,
        in_parts: true,
    };
    /// Kinds whose update checks no more than what may change.
    pub const AGAINST_OLD: Self = Self {
        as_new: 0,
        ..Self::BOTH
    };
    /// Kinds whose update is checked as a new object.
    pub const AS_NEW: Self = Self {
        against_old: false,
        in_parts: false,
        ..Self::BOTH
    };
    /// Kinds that leave the metadata to the registry.
    pub const NONE: Self = Self {
        as_new: 0,
        against_old: false,
        in_parts: false,
        strict_finalizers: false,
    };

    /// The same, with finalizers of any form.
    pub const fn any_finalizers(self) -> Self {
        Self {
            strict_finalizers: false,
            ..self
        }
    }
}

/// What a delete that names no policy does with dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GarbageCollection {
    /// They go later.
    Background,
    /// They stay: finalizer `orphan` (Job, ReplicationController).
    Orphan,
    /// The kind takes no policy at all (events).
    Unsupported,
}

/// Per-kind behaviour. Every method has the default that suits a kind without any.
///
/// Order on create: [`default`](Self::default) → [`prepare_create`](Self::prepare_create) →
/// [`begin_create`](Self::begin_create) → object meta and [`validate_create`](Self::validate_create) → warnings →
/// admission → store → [`created`](Self::created). On update likewise, with the old object beside the new.
/// Pure methods look at values only; the async ones may allocate (and must give back in [`abandoned`](Self::abandoned)).
#[async_trait]
pub trait Strategy: Send + Sync + 'static {
    /// How names are checked.
    fn name_rule(&self) -> NameRule {
        NameRule::Subdomain
    }

    /// Fills in defaults of a decoded object, as upstream's `SetDefaults_*`.
    fn default(&self, _object: &mut Value) {}

    /// Removes what a creator may not set (status), sets what the server sets (generation 1).
    fn prepare_create(&self, _object: &mut Value) {}

    /// Errors beside those of the object meta.
    fn validate_create(&self, _object: &Value) -> ErrorList {
        ErrorList::new()
    }

    /// Keeps what an updater may not change, bumps the generation.
    fn prepare_update(&self, _new: &mut Value, _old: &Value) {}

    /// Errors beside those of the object meta. The default checks the new object as if it were created.
    fn validate_update(&self, new: &Value, _old: &Value) -> ErrorList {
        self.validate_create(new)
    }

    /// As [`prepare_update`](Self::prepare_update), for the `status` subresource. The default keeps everything of the
    /// old object but `status` (and managed fields, which the registry sees to).
    fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        let status = new.get("status").clone();
        let managed = new.at(&["metadata", "managedFields"]).clone();
        let version = new.at(&["metadata", "resourceVersion"]).clone();
        *new = old.clone();
        if status.is_null() {
            new.unset(&["status"]).map(drop).unwrap_or(())
        } else {
            new.set(&["status"], status)
        }
        new.set(&["metadata", "managedFields"], managed);
        new.set(&["metadata", "resourceVersion"], version);
    }

    /// Errors of a status update.
    fn validate_status_update(&self, _new: &Value, _old: &Value) -> ErrorList {
        ErrorList::new()
    }

    /// As [`prepare_update`](Self::prepare_update), for another subresource that is a part of the object
    /// (`pods/ephemeralcontainers`, `pods/resize`). The default takes it for the main resource.
    fn prepare_part_update(&self, _subresource: &str, new: &mut Value, old: &Value) {
        self.prepare_update(new, old);
    }

    /// Errors of an update of such a part.
    fn validate_part_update(&self, _subresource: &str, new: &Value, old: &Value) -> ErrorList {
        self.validate_update(new, old)
    }

    /// A `Warning` that every request on the kind carries, whatever its verb and outcome.
    fn deprecation(&self) -> Option<&'static str> {
        None
    }

    /// Texts for `Warning` headers.
    fn warnings(&self, _new: &Value, _old: Option<&Value>) -> Vec<String> {
        Vec::new()
    }

    /// As [`warnings`](Self::warnings), for an update of a subresource but `scale`: those of the main resource are not repeated.
    fn part_warnings(&self, _subresource: &str, _new: &Value, _old: &Value) -> Vec<String> {
        Vec::new()
    }

    /// Before validation of a create: allocates (cluster IPs, node ports).
    async fn begin_create(&self, _cx: &Context, _object: &mut Value) -> Result<()> {
        Ok(())
    }

    /// Before validation of an update: allocates and notes what to release.
    async fn begin_update(&self, _cx: &Context, _new: &mut Value, _old: &Value) -> Result<()> {
        Ok(())
    }

    /// A begun create or update did not happen (refused, lost, or dry run): gives back what it allocated.
    /// `old` is `None` for a create.
    async fn abandoned(&self, _cx: &Context, _object: &Value, _old: Option<&Value>) {}

    /// After the create is durable.
    async fn created(&self, _cx: &Context, _object: &Value) {}

    /// After the update is durable.
    async fn updated(&self, _cx: &Context, _new: &Value, _old: &Value) {}

    /// After the object is gone.
    async fn deleted(&self, _cx: &Context, _object: &Value) {}

    /// May the object be deleted at all? (Namespaces refuse `default`.)
    ///
    /// # Errors
    /// 403 or 409 in upstream's words.
    fn check_delete(&self, _object: &Value) -> Result<()> {
        Ok(())
    }

    /// Something beside `metadata.finalizers` still holds an object that is to be deleted (a namespace's
    /// `spec.finalizers`): it is marked, and goes with the update after which this is false.
    fn holds_deletion(&self, _object: &Value) -> bool {
        false
    }

    /// A `Warning` for deletes that do not say what becomes of dependents (Jobs, which leave their pods).
    fn unsaid_propagation(&self) -> Option<&'static str> {
        None
    }

    /// What a delete without a propagation policy does with dependents.
    fn garbage_collection(&self) -> GarbageCollection {
        GarbageCollection::Background
    }

    /// Seconds of grace for kinds that end gracefully (pods); `None`: this kind does not. Given the options' seconds.
    fn grace(&self, _object: &Value, _requested: Option<i64>) -> Option<i64> {
        None
    }

    /// Called when a delete must first mark the object (finalizers or grace): the kind's own marks, such as a
    /// namespace's `status.phase`.
    fn mark_deleting(&self, _object: &mut Value) {}

    /// False while something beside `metadata.finalizers` keeps the object (a namespace's `spec.finalizers`).
    fn may_vanish(&self, _object: &Value) -> bool {
        true
    }

    /// Seconds after which a new object goes by itself (events).
    fn ttl_seconds(&self, _object: &Value) -> Option<u64> {
        None
    }

    /// Annotations that stand for fields of upstream's internal object: what shows metadata alone leaves them out.
    fn wire_annotations(&self) -> &'static [&'static str] {
        &[]
    }

    /// Paths that writers of the main resource never own (`status`); with `subresource` "status", those of that one.
    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        match subresource {
            "status" => &["spec", "metadata.labels", "metadata.annotations"],
            _ => &[],
        }
    }
}

/// A kind without behaviour of its own.
pub struct Plain;

impl Strategy for Plain {}
