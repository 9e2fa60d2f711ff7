//! [`Chain`] runs plugins in order: all mutating phases first, then all validating ones. The first error ends
//! the chain. A mutating plugin can ask for a second round of all mutating phases
//! ([`Reinvocation`](super::Reinvocation)).

use super::{Admission, Attributes};
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use async_trait::async_trait;
use std::sync::Arc;

/// A list of plugins, in upstream's recommended order.
pub(crate) struct Chain(Vec<Arc<dyn Admission>>);

impl Chain {
    /// A chain that calls `plugins` in this order.
    pub(crate) fn new(plugins: Vec<Arc<dyn Admission>>) -> Self {
        Self(plugins)
    }
}

impl Chain {
    async fn round(&self, attributes: &Attributes, object: &mut Value) -> Result<()> {
        for plugin in &self.0 {
            if plugin.handles(attributes) {
                plugin.mutate(attributes, object).await?;
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Admission for Chain {
    async fn mutate(&self, attributes: &Attributes, object: &mut Value) -> Result<()> {
        self.round(attributes, object).await?;
        // At most once, as upstream's `reinvocationHandler`: plugins that keep changing each other's results must not
        // loop.
        if attributes.reinvocation.begin_second_round() {
            self.round(attributes, object).await?;
        }
        Ok(())
    }

    async fn validate(&self, attributes: &Attributes, object: &Value) -> Result<()> {
        for plugin in &self.0 {
            if plugin.handles(attributes) {
                plugin.validate(attributes, object).await?;
            }
        }
        Ok(())
    }
}
