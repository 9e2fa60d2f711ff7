//! Admission control: plugins, webhooks and policies that may change or reject a write, after authorization and
//! before storage.
//!
//! Entry point: the [`Admission`] trait, which is all that the registry depends on. [`plugins`] has the
//! implementations, and [`chain::Chain`] runs them in order. [`matching`] selects the writes of webhooks and
//! policies.

pub(crate) mod attributes;
pub(crate) mod chain;
pub(crate) mod configuration;
pub(crate) mod expressions;
pub(crate) mod matching;
pub(crate) mod object_lookup;
pub(crate) mod plugins;
pub(crate) mod policy;
pub(crate) mod refusal;
pub(crate) mod reinvocation;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod timed;
mod versioned;
pub(crate) mod versions;
pub(crate) mod webhook;

pub(crate) use attributes::{Attributes, Operation};
pub(crate) use chain::Chain;
pub(crate) use configuration::Configuration;
pub(crate) use object_lookup::{Cluster, ObjectLookup};
pub(crate) use refusal::forbidden;
pub(crate) use reinvocation::Reinvocation;
pub(crate) use timed::{Phases, Timed, TimedSteps};
pub(crate) use versions::{ServedKind, Versions, Wanted};

use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use async_trait::async_trait;
use std::time::Duration;

/// How long a request waits until the informers have delivered the webhook configurations and policies that were
/// acknowledged before it, as long as upstream's plugins wait for theirs.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(10);

/// An admission plugin, or a chain of them. Combines upstream's `admission.MutationInterface` and
/// `ValidationInterface`.
#[async_trait]
pub(crate) trait Admission: Send + Sync + 'static {
    /// Whether the plugin applies to this write; if not, it is not called. Runs for every plugin on every
    /// write, so it must be cheap.
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

    /// The validating phase: may reject the write. `object` is what will be stored (null for DELETE and
    /// CONNECT).
    ///
    /// # Errors
    /// The Status to send to the client; the write does not happen.
    async fn validate(&self, _attributes: &Attributes, _object: &Value) -> Result<()> {
        Ok(())
    }
}

/// A plugin that admits everything.
pub(crate) struct AdmitAll;

impl Admission for AdmitAll {}
