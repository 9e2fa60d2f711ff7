//! The plugins ValidatingAdmissionPolicy and MutatingAdmissionPolicy: policies written as CEL expressions
//! (upstream: `admission/plugin/policy`).
//!
//! Entry points: [`ValidatingPolicies`] and [`MutatingPolicies`], and [`Policies`], which holds the compiled
//! policies of a kind with their bindings and is fed from storage. Every policy that was acknowledged before
//! a request applies to it. [`compile_errors`] and [`mutation_errors`] validate the expressions of a policy
//! when it is written. Which requests a policy concerns is left to [`matching`](super::matching), what
//! expressions may name and cost to [`expressions`](super::expressions).
//!
//! ```text
//! storage ──▶ 2 informers ──▶ Policies ──▶ Snapshot ─ by plural ─▶ selection ──▶ evaluation ──▶ actions
//!                                                                          └─▶ mutation ──▶ changes
//! ```

mod check;
mod evaluation;
mod mutating;
mod mutation;
mod params;
mod policies;
mod selection;
mod stored;
#[cfg(test)]
mod tests;
mod validating;

pub(crate) use check::{compile_errors, mutation_errors};
pub(crate) use policies::{Policies, Snapshot};
pub(crate) use stored::{Binding, MutatingPolicy, StoredPolicy, ValidatingPolicy};
pub(crate) use validating::dispatch as validate;

use super::{Admission, Attributes, ObjectLookup, Operation, forbidden};
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use crate::authz::Authorizer;
use crate::telemetry::admission_policies::{AdmissionPolicyMetrics, MutatingPolicyMetrics};
use crate::telemetry::match_conditions::MatchConditionMetrics;
use async_trait::async_trait;
use std::sync::Arc;

/// Kinds that policies are not evaluated for: policies themselves, so that a broken one can be repaired, and
/// reviews.
const EXEMPT: [(&str, &str); 10] = [
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"),
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
];

/// The dependencies of evaluations besides the policies. `M` are the metrics of the kind of policy.
#[derive(Clone)]
pub(crate) struct Surroundings<M> {
    /// Parameters, namespaces, and versions of resources.
    pub cluster: ObjectLookup,
    /// Decides about the checks of expressions.
    pub authorizer: Arc<dyn Authorizer>,
    pub metrics: M,
    /// Metrics of match conditions.
    pub conditions: MatchConditionMetrics,
}

pub(crate) struct ValidatingPolicies {
    policies: Arc<Policies<ValidatingPolicy>>,
    surroundings: Surroundings<AdmissionPolicyMetrics>,
}

/// The plugin MutatingAdmissionPolicy.
pub(crate) struct MutatingPolicies {
    policies: Arc<Policies<MutatingPolicy>>,
    surroundings: Surroundings<MutatingPolicyMetrics>,
}

impl ValidatingPolicies {
    pub(crate) fn new(
        policies: Arc<Policies<ValidatingPolicy>>,
        surroundings: Surroundings<AdmissionPolicyMetrics>,
    ) -> Self {
        Self { policies, surroundings }
    }
}

impl MutatingPolicies {
    pub(crate) fn new(
        policies: Arc<Policies<MutatingPolicy>>,
        surroundings: Surroundings<MutatingPolicyMetrics>,
    ) -> Self {
        Self { policies, surroundings }
    }
}

/// True unless it is certain that no policy concerns this write.
fn may_concern<P: StoredPolicy>(policies: &Policies<P>, attributes: &Attributes) -> bool {
    policies.may_match(&attributes.resource.resource)
        && !EXEMPT.contains(&(&*attributes.resource.group, &*attributes.resource.resource))
}

async fn fresh<P: StoredPolicy>(
    policies: &Policies<P>,
    attributes: &Attributes,
    object: &Value,
) -> Result<Arc<policies::Snapshot<P>>> {
    let snapshot = policies.fresh().await;
    // Fails closed: without the policies the write cannot be judged.
    snapshot.map_err(|_| forbidden(attributes, object, "not yet ready to handle request"))
}

#[async_trait]
impl Admission for ValidatingPolicies {
    fn handles(&self, attributes: &Attributes) -> bool {
        may_concern(&self.policies, attributes)
    }

    async fn validate(&self, attributes: &Attributes, object: &Value) -> Result<()> {
        let snapshot = fresh(&self.policies, attributes, object).await?;
        validating::dispatch(&self.surroundings, &snapshot, attributes, object).await
    }
}

#[async_trait]
impl Admission for MutatingPolicies {
    fn handles(&self, attributes: &Attributes) -> bool {
        // A deletion has no object to change.
        attributes.operation != Operation::Delete && may_concern(&self.policies, attributes)
    }

    async fn mutate(&self, attributes: &Attributes, object: &mut Value) -> Result<()> {
        let snapshot = fresh(&self.policies, attributes, object).await?;
        mutating::dispatch(&self.surroundings, &snapshot, attributes, object).await
    }
}
