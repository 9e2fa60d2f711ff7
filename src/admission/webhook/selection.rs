//! [`Selection`]: which webhooks a write concerns, by their criteria and match conditions (upstream:
//! `webhook/generic.Webhook.ShouldCallHook`).

use super::Calls;
use super::config::FailurePolicy;
use super::configurations::Active;
use crate::admission::expressions::{self, Case, Checks, ConditionResult, Inputs};
use crate::admission::matching::Matcher;
use crate::admission::versioned::Versioned;
use crate::admission::versions::own;
use crate::admission::{Attributes, ServedKind};
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::telemetry::admission_webhooks::WebhookLabels;
use crate::telemetry::match_conditions::ConditionLabels;
use std::sync::Arc;

/// Selects the webhooks for one write, and shares lookups and inputs between them.
pub(super) struct Selection<'a> {
    calls: &'a Calls,
    attributes: &'a Attributes,
    /// `admit` or `validating`.
    step: &'static str,
    matcher: Matcher<'a>,
    // Shared, so that a check of several webhooks is decided once.
    checks: Arc<Checks>,
    /// The inputs of conditions, by the version of the object.
    inputs: Vec<(ServedKind, Inputs)>,
}

impl<'a> Selection<'a> {
    pub(crate) fn new(calls: &'a Calls, attributes: &'a Attributes, step: &'static str) -> Self {
        Self {
            calls,
            attributes,
            step,
            matcher: Matcher::new(&calls.cluster, attributes),
            checks: Arc::new(Checks::new(calls.authorizer.clone(), attributes.user.clone())),
            inputs: Vec::new(),
        }
    }

    /// The labels of a webhook in metrics.
    pub(crate) fn labels<'n>(&self, active: &'n Active) -> WebhookLabels<'n> {
        WebhookLabels {
            name: &active.hook.name,
            step: self.step,
            operation: self.attributes.operation.as_str(),
        }
    }

    /// The version in which a webhook is to see the write; `None` if it is not to be called. The object is
    /// that of the request.
    ///
    /// # Errors
    /// The write cannot be matched, or a condition fails and the failure policy is `Fail`.
    pub(crate) async fn select(&mut self, active: &Active, object: &Value) -> Result<Option<ServedKind>> {
        self.select_in(active, object, &own(self.attributes)).await
    }

    /// As [`select`](Self::select), for an object that webhooks may have changed.
    ///
    /// # Errors
    /// As [`select`](Self::select).
    pub(crate) async fn select_changed(
        &mut self,
        active: &Active,
        object: &Versioned<'_>,
    ) -> Result<Option<ServedKind>> {
        self.select_in(active, object.object(), object.version()).await
    }

    /// Discards the inputs of conditions, which were made from the object before a change.
    pub(crate) fn object_changed(&mut self) {
        self.inputs.clear();
    }

    async fn select_in(&mut self, active: &Active, object: &Value, version: &ServedKind) -> Result<Option<ServedKind>> {
        let Some(target) = self.matcher.matches(&active.hook.criteria, object).await? else {
            return Ok(None);
        };
        if active.hook.conditions.is_empty() {
            return Ok(Some(target));
        }
        // Only now: converting the object is the expensive part.
        let inputs = self.inputs(object, version, &target).await?;
        let result = self.evaluate_conditions(active, inputs).await?;
        let labels = self.labels(active);
        let labels = ConditionLabels {
            name: labels.name,
            kind: "webhook",
            step: labels.step,
            operation: labels.operation,
        };
        let metrics = &self.calls.conditions;
        metrics.evaluated(labels, result.took, result.errors);
        match (result.applies, active.hook.failure_policy) {
            (Ok(true), _) => Ok(Some(target)),
            (Err(e), FailurePolicy::Fail) => {
                let resource = self.attributes.resource.group_resource();
                // Without the fallback to the object's name that `forbidden` has, as upstream.
                Err(Status::forbidden(&resource, &self.attributes.name, &e.to_string()))
            }
            (Ok(false), _) | (Err(_), FailurePolicy::Ignore) => {
                metrics.excluded(labels);
                Ok(None)
            }
        }
    }

    async fn inputs(&mut self, object: &Value, version: &ServedKind, target: &ServedKind) -> Result<Inputs> {
        if let Some((_, known)) = self.inputs.iter().find(|(of, _)| of == target) {
            return Ok(known.clone());
        }
        let made = Inputs::new(&self.calls.cluster, self.attributes, (object, version), target).await;
        let made = made.map_err(|e| Status::internal(e.message))?;
        self.inputs.push((target.clone(), made.clone()));
        Ok(made)
    }

    async fn evaluate_conditions(&self, active: &Active, inputs: Inputs) -> Result<ConditionResult> {
        let case = Case {
            subject: active.hook.conditions.clone(),
            inputs,
            checks: self.checks.clone(),
            own_check: expressions::own_check(self.attributes),
        };
        let result = case.evaluate().await;
        result.map_err(|_| Status::too_many_requests("too many requests, please try again later", 1))
    }
}
