//! Refuses to create custom resources while their definition is being deleted.

use crate::admission::{Admission, Attributes, Operation};
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use async_trait::async_trait;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Flags of the lifecycle of a definition. Shared by all its states, so that versions built earlier see the change.
#[derive(Clone, Default)]
pub(super) struct Flags {
    /// The definition has the condition `Terminating`.
    pub terminating: Arc<AtomicBool>,
    /// The definition was deleted.
    pub removed: Arc<AtomicBool>,
}

/// The admission chain of a custom resource, behind a check that its definition is not terminating.
pub(super) struct RefuseCreates {
    pub inner: Arc<dyn Admission>,
    /// True while the definition has the condition `Terminating`.
    pub terminating: Arc<AtomicBool>,
}

impl RefuseCreates {
    fn check(&self, attributes: &Attributes) -> Result<()> {
        // Pairs with the `Release` store in the catalog, which has set the flag before publishing the state.
        if attributes.operation != Operation::Create || !self.terminating.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(Status::forbidden(
            &attributes.resource.group_resource(),
            &attributes.name,
            "create not allowed while custom resource definition is terminating",
        ))
    }
}

#[async_trait]
impl Admission for RefuseCreates {
    async fn mutate(&self, attributes: &Attributes, object: &mut Value) -> Result<()> {
        // Checked in both phases: the definition may start terminating between mutation and validation.
        self.check(attributes)?;
        self.inner.mutate(attributes, object).await
    }

    async fn validate(&self, attributes: &Attributes, object: &Value) -> Result<()> {
        self.check(attributes)?;
        self.inner.validate(attributes, object).await
    }
}
