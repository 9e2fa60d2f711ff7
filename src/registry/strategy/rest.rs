//! [`RestStrategy`]: a strategy as the registry and the verbs call it.
//!
//! A kind implements [`Strategy`] instead, which has a default for everything, and becomes a `RestStrategy`
//! by the blanket implementation below. A strategy that wraps another one implements this trait: no method
//! has a default, so a wrapper that does not forward one does not compile.

use super::{DeleteStrategy, Rules, SideEffects, Strategy};
use crate::apimachinery::field::ErrorList;
use crate::apimachinery::value::Value;

/// The write that a strategy takes part in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change<'a> {
    Create,
    /// A change of a stored object.
    Update {
        /// The stored object.
        old: &'a Value,
        /// The subresource written through; empty for the main resource.
        subresource: &'a str,
    },
}

impl<'a> Change<'a> {
    /// The stored object, if there is one.
    pub(crate) fn old(self) -> Option<&'a Value> {
        match self {
            Self::Create => None,
            Self::Update { old, .. } => Some(old),
        }
    }
}

/// One method per phase of a write; their order is in the docs of [`Strategy`].
pub(crate) trait RestStrategy: Send + Sync + 'static {
    /// The constants of the kind.
    fn rules(&self) -> Rules;
    /// Sets defaults on a decoded object.
    fn default(&self, object: &mut Value);
    /// Clears or restores the fields that this write may not set, and sets those the server owns.
    fn prepare(&self, object: &mut Value, change: Change<'_>);
    /// Validates the object, except for its metadata.
    fn validate(&self, object: &Value, change: Change<'_>) -> ErrorList;
    /// Warnings about the object.
    fn warnings(&self, object: &Value, change: Change<'_>) -> Vec<String>;
    /// The paths that writers of the main resource, or of `subresource`, never own.
    fn reset_fields(&self, subresource: &str) -> &'static [&'static str];
    /// Side effects of writes.
    fn effects(&self) -> Option<&dyn SideEffects>;
    /// Rules for deletes.
    fn deletion(&self) -> Option<&dyn DeleteStrategy>;
}

impl<S: Strategy> RestStrategy for S {
    fn rules(&self) -> Rules {
        Strategy::rules(self)
    }

    fn default(&self, object: &mut Value) {
        Strategy::default(self, object);
    }

    fn prepare(&self, object: &mut Value, change: Change<'_>) {
        match change {
            Change::Create => self.prepare_create(object),
            Change::Update { old, subresource: "" } => self.prepare_update(object, old),
            Change::Update {
                old,
                subresource: "status",
            } => self.prepare_status_update(object, old),
            Change::Update { old, subresource } => self.prepare_subresource_update(subresource, object, old),
        }
    }

    fn validate(&self, object: &Value, change: Change<'_>) -> ErrorList {
        match change {
            Change::Create => self.validate_create(object),
            Change::Update { old, subresource: "" } => self.validate_update(object, old),
            Change::Update {
                old,
                subresource: "status",
            } => self.validate_status_update(object, old),
            Change::Update { old, subresource } => self.validate_subresource_update(subresource, object, old),
        }
    }

    fn warnings(&self, object: &Value, change: Change<'_>) -> Vec<String> {
        match change {
            Change::Create => Strategy::warnings(self, object, None),
            Change::Update {
                old,
                // A scale is a write of the whole object, about which upstream warns as usual.
                subresource: "" | "scale",
            } => Strategy::warnings(self, object, Some(old)),
            Change::Update { old, subresource } => self.subresource_warnings(subresource, object, old),
        }
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        Strategy::reset_fields(self, subresource)
    }

    fn effects(&self) -> Option<&dyn SideEffects> {
        Strategy::effects(self)
    }

    fn deletion(&self) -> Option<&dyn DeleteStrategy> {
        Strategy::deletion(self)
    }
}
