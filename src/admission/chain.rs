//! Plugins in order: each mutates, then each validates; the first refusal ends it.

use super::{Admission, Attributes};
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use async_trait::async_trait;
use std::sync::Arc;

/// Plugins in upstream's recommended order.
pub struct Chain(Vec<Arc<dyn Admission>>);

impl Chain {
    /// A chain of these, asked in this order.
    pub fn new(plugins: Vec<Arc<dyn Admission>>) -> Self {
        Self(plugins)
    }
}

#[async_trait]
impl Admission for Chain {
    async fn mutate(&self, attributes: &Attributes, object: &mut Value) -> Result<()> {
        for plugin in &self.0 {
            if plugin.handles(attributes) {
                plugin.mutate(attributes, object).await?;
            }
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
