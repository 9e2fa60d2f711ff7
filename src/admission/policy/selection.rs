//! [`Selection`]: which policies and bindings concern a write, and with which parameters they are evaluated
//! (upstream's `generic.policyDispatcher`).

use super::params::{self, Misconfigured};
use super::stored::{Binding, Common};
use crate::admission::expressions;
use crate::admission::matching::{Criteria, Matcher, ObjectLabels};
use crate::admission::{Attributes, ObjectLookup, ServedKind};
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use std::sync::Arc;

/// Selects for one write.
pub(super) struct Selection<'a> {
    cluster: &'a ObjectLookup,
    attributes: &'a Attributes,
    matcher: Matcher<'a>,
}

impl<'a> Selection<'a> {
    pub(crate) fn new(cluster: &'a ObjectLookup, attributes: &'a Attributes) -> Self {
        Self {
            cluster,
            attributes,
            matcher: Matcher::new(cluster, attributes),
        }
    }

    /// True if the labels of the object alone show that a policy does not apply to the write.
    pub(crate) fn rules_out(&self, policy: &Common, labels: &ObjectLabels<'_>) -> bool {
        self.matcher.rules_out(&policy.criteria, labels)
    }

    /// The labels of the object in its current state, for [`rules_out`](Self::rules_out).
    pub(crate) fn labels<'v>(&self, object: &'v Value) -> ObjectLabels<'v>
    where
        'a: 'v,
    {
        self.matcher.labels(object)
    }

    /// The version of the object that a policy evaluates; `None` if the policy does not apply.
    ///
    /// # Errors
    /// 404 if the namespace does not exist.
    pub(crate) async fn version(
        &self,
        policy: &Common,
        object: &Value,
    ) -> Result<std::result::Result<Option<ServedKind>, Misconfigured>> {
        let matched = self.matches(&policy.criteria, object).await?;
        Ok(matched.map_err(|status| Misconfigured::Policy(status.message)))
    }

    /// The parameters to evaluate a policy with for one of its bindings; empty if the binding does not
    /// concern the write.
    ///
    /// # Errors
    /// 404 if the namespace does not exist.
    pub(crate) async fn params(
        &self,
        policy: &Common,
        binding: &Binding,
        object: &Value,
    ) -> Result<std::result::Result<Vec<Arc<Value>>, Misconfigured>> {
        if let Some(criteria) = &binding.criteria {
            match self.matches(criteria, object).await? {
                Ok(Some(_)) => {}
                Ok(None) => return Ok(Ok(Vec::new())),
                Err(status) => return Ok(Err(Misconfigured::Binding(status.message))),
            }
        }
        Ok(params::collect(self.cluster, policy.param_kind.as_ref(), binding, self.attributes).await)
    }

    /// The namespace of the write, as expressions see it.
    ///
    /// # Errors
    /// 404 if it does not exist.
    pub(crate) async fn namespace(&self) -> Result<Arc<Value>> {
        let namespace = match self.attributes.is_for("", "namespaces") {
            // As upstream: `namespaceObject` is null for Namespaces themselves, although rules see their name as
            // namespace.
            true => None,
            false => self.matcher.namespace().await?,
        };
        Ok(Arc::new(expressions::namespace(namespace.map(AsRef::as_ref))))
    }

    /// The inner error: the criteria cannot be evaluated.
    async fn matches(&self, criteria: &Criteria, object: &Value) -> Result<Result<Option<ServedKind>>> {
        match self.matcher.matches(criteria, object).await {
            // The namespace is missing, which is the request's error and not the policy's.
            Err(status) if status.code == 404 => Err(status),
            matched => Ok(matched),
        }
    }
}
