//! The passage of a write through admission. The types prescribe the order: [`mutate`] is the only way to a
//! [`Mutated`], and only that can run the validating phase. Preparation and validation of the kind run
//! between the two.

use super::store::Store;
use super::strategy::Context;
use super::write::WriteOptions;
use crate::admission::{Admission, Attributes, Operation};
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use crate::tasks::compute;
use std::sync::Arc;

/// A write that the mutating phase has admitted.
pub(super) struct Mutated<'a> {
    admission: &'a dyn Admission,
    attributes: Attributes,
}

/// Runs the mutating phase of a write of `name`. `old` is the stored object, for updates and deletes.
///
/// # Errors
/// The Status of the plugin that rejects the write.
pub(super) async fn mutate<'a>(
    store: &'a Store,
    cx: &Context,
    (operation, name): (Operation, &str),
    old: Option<Arc<Value>>,
    options: &WriteOptions,
    object: &mut Value,
) -> Result<Mutated<'a>> {
    let attributes = Attributes {
        operation,
        // A subresource with a kind of its own is admitted as that kind.
        kind: options.kind.clone().unwrap_or_else(|| store.resource.gvk()),
        resource: store.resource.gvr.clone(),
        subresource: options.subresource.clone(),
        namespace: cx.namespace.clone(),
        name: name.to_owned(),
        user: cx.user.clone(),
        dry_run: cx.dry_run,
        old_object: old,
        empties: cx.empties.get(),
        options: options.options.clone(),
        warnings: cx.warnings.clone(),
        audit: cx.audit.clone(),
        deadline: cx.deadline,
        // Per write: the changes of its plugins decide which of them run again.
        reinvocation: Arc::default(),
    };
    store.admission.mutate(&attributes, object).await?;
    // Defaults and plugins can make a large object of a small one.
    compute::leave_reactor_with(object).await;
    Ok(Mutated {
        admission: &*store.admission,
        attributes,
    })
}

impl Mutated<'_> {
    /// The same write, with an old object without managed fields.
    pub(crate) fn without_managed_fields(mut self) -> Self {
        if let Some(old) = &mut self.attributes.old_object {
            // Copied only if the old object is shared.
            Arc::make_mut(old).unset(&["metadata", "managedFields"]);
        }
        self
    }

    /// Runs the validating phase.
    ///
    /// # Errors
    /// The Status of the plugin that rejects the write.
    pub(crate) async fn validate(&self, object: &Value) -> Result<()> {
        self.admission.validate(&self.attributes, object).await
    }

    /// [`validate`](Self::validate) for an object whose name was generated after the mutating phase.
    ///
    /// # Errors
    /// The Status of the plugin that rejects the write.
    pub(crate) async fn validate_named(&self, name: &str, object: &Value) -> Result<()> {
        if name == self.attributes.name {
            return self.validate(object).await;
        }
        let attributes = Attributes {
            name: name.to_owned(),
            // Only creates with a generated name come here, so the copy is rare.
            ..self.attributes.clone()
        };
        self.admission.validate(&attributes, object).await
    }
}
