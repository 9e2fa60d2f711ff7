//! Admission control: the built-in plugins that may change or reject a write, after authorization and before storage.
//!
//! Entry point: the [`Admission`] trait, which is all that the registry depends on. [`plugins`] has the
//! implementations, and [`chain::Chain`] runs them in order. [`matching`] selects the writes of webhooks and policies.

pub mod attributes;
pub mod chain;
pub mod configuration;
pub mod expressions;
pub mod matching;
pub mod object_lookup;
pub mod plugins;
pub mod policy;
pub mod refusal;
pub mod reinvocation;
#[cfg(test)]
pub(crate) mod testing;
pub mod timed;
mod versioned;
pub mod versions;
pub mod webhook;

pub use attributes::{Attributes, Operation};
pub use chain::Chain;
pub use configuration::Configuration;
pub use object_lookup::{Cluster, ObjectLookup};
pub use refusal::forbidden;
pub use reinvocation::Reinvocation;
pub use timed::{Phases, Timed, TimedSteps};
pub use versions::{ServedKind, Versions};

use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use async_trait::async_trait;

/// An admission plugin, or a chain of them. Combines upstream's `admission.MutationInterface` and
/// `ValidationInterface`.
#[async_trait]
pub trait Admission: Send + Sync + 'static {
    /// Whether the plugin applies to this write; if not, it is not called. Runs for every plugin on every write, so it
    /// must be cheap.
    fn handles(&self, _attributes: &Attributes) -> bool {
        true
    }

    /// The mutating phase: may change `object` (null for DELETE and CONNECT) or reject the write.
    ///
    /// # Errors
    /// The Status to send to the client; the write does not happen.
    async fn mutate(&self, _attributes: &Attributes, _object: &mut Value) -> Result<()> {
        Ok(())
    }

    /// The validating phase: may reject the write. `object` is what will be stored (null for DELETE and CONNECT).
    ///
    /// # Errors
    /// The Status to send to the client; the write does not happen.
    async fn validate(&self, _attributes: &Attributes, _object: &Value) -> Result<()> {
        Ok(())
    }
}

/// A plugin that admits everything.
pub struct AdmitAll;

impl Admission for AdmitAll {}
