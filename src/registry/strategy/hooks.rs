//! Optional parts of a strategy, which few kinds have: [`SideEffects`] of writes, and a [`DeleteStrategy`].
//!
//! No method has a default, so that a strategy that wraps another one cannot forget to forward one.

use super::Context;
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use async_trait::async_trait;

/// The outcome of a write that was begun.
#[derive(Clone, Copy, Debug)]
pub enum Outcome<'a> {
    /// The create is durable.
    Created,
    /// The update is durable.
    Updated {
        /// The object before it.
        old: &'a Value,
    },
    /// The write did not take effect, because it was rejected, lost a conflict, changed nothing or was a dry
    /// run.
    Abandoned {
        /// The stored object; `None` for a create.
        old: Option<&'a Value>,
    },
    /// The object has been deleted. Also follows `Updated` if the update removed the last finalizer.
    Deleted,
}

/// Side effects of a write: it allocates from pools that all objects share, or checks the
/// caller's permissions.
///
/// ```
/// use async_trait::async_trait;
/// use std::sync::Arc;
/// use torana::apimachinery::status::Result;
/// use torana::apimachinery::{GroupResource, ObjectView, Status, Value};
/// use torana::json;
/// use torana::sdk::authn::UserInfo;
/// use torana::sdk::strategy::{Outcome, SideEffects};
/// use torana::sdk::{Context, Strategy};
///
/// /// Only members of the group `ops` pin notes.
/// struct NoteStrategy;
///
/// fn is_pinned(note: &Value) -> bool {
///     note.at(&["spec", "pinned"]).as_bool() == Some(true)
/// }
///
/// #[async_trait]
/// impl SideEffects for NoteStrategy {
///     async fn begin(&self, cx: &Context, new: &mut Value, old: Option<&Value>) -> Result<()> {
///         if is_pinned(new) && !old.is_some_and(is_pinned) && !cx.user.in_group("ops") {
///             let notes = GroupResource::new("notes.example.com", "notes");
///             return Err(Status::forbidden(&notes, new.name(), "only ops may pin it"));
///         }
///         Ok(())
///     }
///
///     async fn end(&self, _: &Context, _: &Value, _: Outcome<'_>) {}
/// }
///
/// impl Strategy for NoteStrategy {
///     fn effects(&self) -> Option<&dyn SideEffects> {
///         Some(self)
///     }
/// }
///
/// # #[tokio::main]
/// # async fn main() {
/// let mut note = json!({"metadata": {"name": "one"}, "spec": {"pinned": true}});
/// let mut cx = Context::system("default");
/// assert_eq!(NoteStrategy.begin(&cx, &mut note, None).await.unwrap_err().code, 403);
/// cx.user = Arc::new(UserInfo { groups: vec!["ops".to_owned()], ..UserInfo::default() });
/// assert!(NoteStrategy.begin(&cx, &mut note, None).await.is_ok());
/// # }
/// ```
#[async_trait]
pub trait SideEffects: Send + Sync {
    /// Runs before the validation of a create (`old` is `None`) or update. May allocate.
    ///
    /// # Errors
    /// The Status to reject the write with.
    async fn begin(&self, cx: &Context, new: &mut Value, old: Option<&Value>) -> Result<()>;

    /// Runs at the end of each write whose [`begin`](Self::begin) succeeded, and after each deletion.
    /// Releases the allocations of an abandoned write, and those that the object no longer needs.
    async fn end(&self, cx: &Context, object: &Value, outcome: Outcome<'_>);
}

/// Rules for deletes (upstream: `rest.RESTDeleteStrategy` and
/// `rest.RESTGracefulDeleteStrategy`).
///
/// ```
/// use torana::apimachinery::status::Result;
/// use torana::apimachinery::{GroupResource, ObjectView, Status, Value};
/// use torana::json;
/// use torana::sdk::Strategy;
/// use torana::sdk::strategy::DeleteStrategy;
///
/// /// The note `welcome` cannot be deleted.
/// struct NoteStrategy;
///
/// impl DeleteStrategy for NoteStrategy {
///     fn check(&self, note: &Value) -> Result<()> {
///         if note.name() == "welcome" {
///             let notes = GroupResource::new("notes.example.com", "notes");
///             return Err(Status::forbidden(&notes, note.name(), "it is protected"));
///         }
///         Ok(())
///     }
///
///     fn holds(&self, _: &Value) -> bool {
///         false
///     }
///
///     fn grace(&self, _: &Value, _: Option<i64>) -> Option<i64> {
///         None
///     }
///
///     fn mark(&self, _: &mut Value, _: &Value) {}
/// }
///
/// impl Strategy for NoteStrategy {
///     fn deletion(&self) -> Option<&dyn DeleteStrategy> {
///         Some(self)
///     }
/// }
///
/// let welcome = json!({"metadata": {"name": "welcome"}});
/// assert_eq!(NoteStrategy.check(&welcome).unwrap_err().code, 403);
/// ```
pub trait DeleteStrategy: Send + Sync {
    /// Rejects deletes of protected objects, such as the `default` namespace.
    ///
    /// # Errors
    /// 403 or 409 with upstream's message.
    fn check(&self, object: &Value) -> Result<()>;

    /// True if something other than `metadata.finalizers` holds a deleted object (`spec.finalizers` of a
    /// namespace). Such an object is only marked, and is removed by the update after which this returns
    /// false.
    fn holds(&self, object: &Value) -> bool;

    /// The grace period in seconds, given the requested one; `None` for kinds without graceful deletion (all
    /// but pods).
    fn grace(&self, object: &Value, requested: Option<i64>) -> Option<i64>;

    /// Adds the kind's own marks when a delete marks the object because of finalizers or grace, such as the
    /// `status.phase` of a namespace. `old` is the object before the delete.
    fn mark(&self, object: &mut Value, old: &Value);
}
