//! Admission: what may change or refuse a write after authorization and before storage.
//!
//! The registry knows this room only by the [`Admission`] trait; `admission/chain.rs` puts plugins in order.

pub mod attributes;
pub mod chain;
pub mod cluster;
pub mod configuration;
pub mod plugins;
pub mod refusal;
#[cfg(test)]
pub(crate) mod testing;
pub mod timed;

pub use attributes::{Attributes, Operation};
pub use chain::Chain;
pub use cluster::Cluster;
pub use configuration::Configuration;
pub use refusal::forbidden;
pub use timed::{Phases, Timed};

use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use async_trait::async_trait;

/// A plugin, or a chain of them. As upstream's `admission.MutationInterface` and `ValidationInterface`.
#[async_trait]
pub trait Admission: Send + Sync + 'static {
    /// Whether this write concerns the plugin at all. Asked first, for every plugin and every write: it must be cheap.
    /// Where it is false, the plugin is not called.
    fn handles(&self, _attributes: &Attributes) -> bool {
        true
    }

    /// May change `object` (null for DELETE and CONNECT) or refuse.
    ///
    /// # Errors
    /// Any Status; the write does not happen.
    async fn mutate(&self, _attributes: &Attributes, _object: &mut Value) -> Result<()> {
        Ok(())
    }

    /// May refuse; `object` is what will be stored (null for DELETE and CONNECT).
    ///
    /// # Errors
    /// Any Status; the write does not happen.
    async fn validate(&self, _attributes: &Attributes, _object: &Value) -> Result<()> {
        Ok(())
    }
}

/// Lets everything pass.
pub struct Always;

impl Admission for Always {}
