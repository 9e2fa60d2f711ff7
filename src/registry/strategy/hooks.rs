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
