//! Admission webhooks: the plugins MutatingAdmissionWebhook and ValidatingAdmissionWebhook (upstream:
//! `admission/plugin/webhook`).
//!
//! Entry points: [`MutatingWebhooks`] and [`ValidatingWebhooks`]. [`Configurations`] holds the compiled
//! configurations of one kind and is fed from storage; every configuration that was acknowledged before a
//! request applies to it.
//!
//! ```text
//! storage ──▶ informer ──▶ Configurations ─▶ Snapshot ─ by plural ─▶ selection ─▶ review ──▶ client::webhook
//!                                                                                   ◀── response, patch
//! ```
//!
//! A write that no webhook can concern costs two atomic loads and a lookup of its resource.

mod advice;
mod call;
mod config;
mod configurations;
mod failure;
mod mutating;
mod patch;
pub(crate) mod review;
mod selection;
mod stats;
#[cfg(test)]
mod tests;
mod validating;

pub(crate) use configurations::Configurations;

use super::matching;
use super::{Admission, Attributes, ObjectLookup, Operation, forbidden};
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use crate::authz::Authorizer;
use crate::client::webhook::{Limits, SharedWebhooks};
use crate::telemetry::admission_webhooks::AdmissionWebhookMetrics;
use crate::telemetry::match_conditions::MatchConditionMetrics;
use async_trait::async_trait;
use configurations::Snapshot;
use std::sync::Arc;

/// Bounds on the use of one webhook. A caller that waits holds a request, so a webhook that hangs must not
/// collect all requests of the server.
pub(crate) const LIMITS: Limits = Limits {
    calls: 128,
    waiting: 256,
};

/// The dependencies of webhook calls.
#[derive(Clone)]
pub(crate) struct Calls {
    /// Namespaces, and versions of resources.
    pub cluster: ObjectLookup,
    pub webhooks: Arc<SharedWebhooks>,
    /// Decides about the checks of match conditions.
    pub authorizer: Arc<dyn Authorizer>,
    pub metrics: AdmissionWebhookMetrics,
    /// Metrics of match conditions.
    pub conditions: MatchConditionMetrics,
}

/// The plugin MutatingAdmissionWebhook.
pub(crate) struct MutatingWebhooks {
    configurations: Arc<Configurations>,
    calls: Calls,
}

/// The plugin ValidatingAdmissionWebhook.
pub(crate) struct ValidatingWebhooks {
    configurations: Arc<Configurations>,
    calls: Calls,
}

impl MutatingWebhooks {
    /// Calls the webhooks of MutatingWebhookConfigurations.
    pub(crate) fn new(configurations: Arc<Configurations>, calls: Calls) -> Self {
        Self { configurations, calls }
    }
}

impl ValidatingWebhooks {
    /// Calls the webhooks of ValidatingWebhookConfigurations.
    pub(crate) fn new(configurations: Arc<Configurations>, calls: Calls) -> Self {
        Self { configurations, calls }
    }
}

/// True unless it is certain that no webhook concerns this write.
fn may_concern(configurations: &Configurations, attributes: &Attributes) -> bool {
    configurations.may_match(&attributes.resource.resource) && !matching::is_exempt(attributes)
}

/// True for new and changed webhook configurations.
fn configures_webhooks(attributes: &Attributes) -> bool {
    let written = matches!(attributes.operation, Operation::Create | Operation::Update);
    // For these, `validate` below only adds warnings.
    written && matching::is_exempt(attributes) && attributes.kind.kind.ends_with("WebhookConfiguration")
}

async fn fresh(configurations: &Configurations, attributes: &Attributes, object: &Value) -> Result<Arc<Snapshot>> {
    let snapshot = configurations.fresh().await;
    snapshot.map_err(|_| forbidden(attributes, object, "not yet ready to handle request"))
}

#[async_trait]
impl Admission for MutatingWebhooks {
    fn handles(&self, attributes: &Attributes) -> bool {
        may_concern(&self.configurations, attributes)
    }

    async fn mutate(&self, attributes: &Attributes, object: &mut Value) -> Result<()> {
        let snapshot = fresh(&self.configurations, attributes, object).await?;
        mutating::dispatch(&self.calls, &snapshot, attributes, object).await
    }
}

#[async_trait]
impl Admission for ValidatingWebhooks {
    fn handles(&self, attributes: &Attributes) -> bool {
        may_concern(&self.configurations, attributes) || configures_webhooks(attributes)
    }

    async fn validate(&self, attributes: &Attributes, object: &Value) -> Result<()> {
        if matching::is_exempt(attributes) {
            advice::warn(&self.calls.cluster, attributes, object).await;
            return Ok(());
        }
        let snapshot = fresh(&self.configurations, attributes, object).await?;
        validating::dispatch(&self.calls, &snapshot, attributes, object).await
    }
}
