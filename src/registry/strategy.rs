//! [`Strategy`]: the behaviour of a kind that its [`Resource`](super::Resource) cannot express as data:
//! defaults, preparation, validation and side effects.
//!
//! Corresponds to upstream's `rest.RESTCreateStrategy`, `RESTUpdateStrategy` and `RESTDeleteStrategy`. The
//! order of the calls is in the docs of [`Strategy`]. The registry calls a [`RestStrategy`], which every
//! `Strategy` is.

mod hooks;
mod rest;
mod rules;

pub use hooks::{DeleteStrategy, Outcome, SideEffects};
pub(crate) use rest::{Change, RestStrategy};
pub use rules::{GarbageCollection, NameRule, Rules};
pub(crate) use rules::{MetaChecks, UpdateOrder};

use crate::api::decode::Empties;
use crate::apimachinery::field::ErrorList;
use crate::apimachinery::object::restore;
use crate::apimachinery::value::Value;
use crate::request::{AuditTrail, UserInfo, Warnings};
use crate::sync::Mutex;
use std::sync::Arc;
use std::time::Instant;

/// The caller-related inputs of a verb. A program makes one with [`Context::system`] and changes its fields.
#[derive(Clone, Debug)]
pub struct Context {
    /// The caller, after impersonation.
    pub user: Arc<UserInfo>,
    /// The namespace of the request; empty for cluster scope.
    pub namespace: String,
    /// Collects the response's `Warning` headers.
    pub warnings: Warnings,
    /// Collects annotations for the audit event.
    pub(crate) audit: AuditTrail,
    /// The empty lists and maps of the body that its decoded form lacks; validation sees them.
    pub(crate) empties: BodyEmpties,
    /// True if nothing may be written.
    pub dry_run: bool,
    /// When the request ends; `None` for the server's own writes and for connections.
    pub deadline: Option<Instant>,
    /// The verb as used in authorization: `create`, `update`, `patch` or `delete`.
    pub verb: &'static str,
}

/// The [`Empties`] of the body that was decoded last: a patch is decoded again for each attempt. Inline rather than
/// shared, since every request has a context and few have any.
#[derive(Debug, Default)]
pub(crate) struct BodyEmpties(Mutex<Empties>);

impl BodyEmpties {
    /// Replaces those of an earlier attempt.
    pub(crate) fn set(&self, empties: Empties) {
        *self.0.lock() = empties;
    }

    /// A copy of them.
    pub(crate) fn get(&self) -> Empties {
        self.0.lock().clone()
    }

    /// See [`Empties::is_at`].
    pub(crate) fn is_at(&self, path: &str) -> bool {
        self.0.lock().is_at(path)
    }

    /// See [`Empties::restored`].
    pub(crate) fn restored(&self, object: &Value) -> Option<Value> {
        self.0.lock().restored(object)
    }
}

impl Clone for BodyEmpties {
    fn clone(&self) -> Self {
        Self(Mutex::new(self.0.lock().clone()))
    }
}

impl Context {
    /// The context of the server's own writes, in `namespace` (empty for cluster scope).
    pub fn system(namespace: &str) -> Self {
        Self {
            user: Arc::new(UserInfo::system("system:apiserver", &[crate::request::user::MASTERS])),
            namespace: namespace.to_owned(),
            warnings: Warnings::default(),
            audit: AuditTrail::default(),
            empties: BodyEmpties::default(),
            dry_run: false,
            deadline: None,
            verb: "update",
        }
    }
}

/// The behaviour of a kind. All methods have defaults, which suit kinds without special behaviour.
///
/// Order on create: [`default`](Self::default) → mutating admission →
/// [`prepare_create`](Self::prepare_create) → [`SideEffects::begin`] → object metadata and
/// [`validate_create`](Self::validate_create) → [`warnings`](Self::warnings) → validating admission → storage
/// → [`SideEffects::end`]. Updates follow the same order with the old object as an extra argument. All methods
/// are pure functions of their arguments; what is not goes into [`SideEffects`].
///
/// ```
/// use torana::apimachinery::{ErrorList, FieldError, FieldPath, Value};
/// use torana::json;
/// use torana::sdk::{Kind, Strategy};
///
/// struct NoteStrategy;
///
/// impl Strategy for NoteStrategy {
///     fn validate_create(&self, note: &Value) -> ErrorList {
///         let (text, mut errors) = (note.str_at(&["spec", "text"]), ErrorList::new());
///         if text.trim().is_empty() {
///             let path = FieldPath::new("spec").child("text");
///             errors.push(FieldError::invalid(&path, text, "must hold a word"));
///         }
///         errors
///     }
/// }
///
/// let errors = NoteStrategy.validate_create(&json!({"spec": {"text": " "}}));
/// assert_eq!(errors[0].to_string(), r#"spec.text: Invalid value: " ": must hold a word"#);
/// let note = Kind::namespaced("Note", "notes", json!({"type": "object"})).strategy(NoteStrategy);
/// ```
pub trait Strategy: Send + Sync + 'static {
    /// The constants of the kind.
    fn rules(&self) -> Rules {
        Rules::DEFAULT
    }

    /// Sets defaults on a decoded object, like upstream's `SetDefaults_*`.
    fn default(&self, _object: &mut Value) {}

    /// Clears the fields a client may not set on create (status) and sets those the server owns (generation
    /// 1).
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

    /// [`prepare_update`](Self::prepare_update) for the `status` subresource. The default keeps the old
    /// object except for `status` and for managed fields, which the registry maintains.
    fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        let sent = std::mem::replace(new, old.clone());
        // Only these and the optimistic lock come from the request. Objects that do not have the types of their schema
        // lose the managed fields.
        for path in [&["status"][..], &["metadata", "managedFields"]] {
            restore(new, &sent, path);
        }
        new.set(
            &["metadata", "resourceVersion"],
            sent.at(&["metadata", "resourceVersion"]).clone(),
        );
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

    /// Warnings about a new or changed object.
    fn warnings(&self, _new: &Value, _old: Option<&Value>) -> Vec<String> {
        Vec::new()
    }

    /// Warnings for updates of subresources other than `scale`; those of the main resource are not repeated.
    fn subresource_warnings(&self, _subresource: &str, _new: &Value, _old: &Value) -> Vec<String> {
        Vec::new()
    }

    /// The paths that writers of the main resource, or of `subresource`, never own.
    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        match subresource {
            "status" => &["spec", "metadata.labels", "metadata.annotations"],
            _ => &[],
        }
    }

    /// Side effects of writes, such as allocating cluster IPs.
    fn effects(&self) -> Option<&dyn SideEffects> {
        None
    }

    /// Rules for deletes. Without them, nothing is protected and there is no grace period.
    fn deletion(&self) -> Option<&dyn DeleteStrategy> {
        None
    }
}

/// [`Strategy::reset_fields`] of a kind with a status subresource: a writer of the spec owns no fields of the
/// status, and vice versa.
pub(crate) fn reset_spec_or_status(subresource: &str) -> &'static [&'static str] {
    match subresource {
        "status" => &["spec"],
        _ => &["status"],
    }
}

/// The strategy of kinds without special behaviour.
pub(crate) struct Plain;

impl Strategy for Plain {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn a_status_without_managed_fields_leaves_none() {
        let old = json!({"metadata": {"name": "a", "resourceVersion": "1", "managedFields": [{}]}, "spec": 1});
        let mut new = json!({"metadata": {"name": "a", "resourceVersion": "1"}, "spec": 2, "status": 3});
        Plain.prepare_status_update(&mut new, &old);
        let want = json!({"metadata": {"name": "a", "resourceVersion": "1"}, "spec": 1, "status": 3});
        assert_eq!(new, want);
    }
}
