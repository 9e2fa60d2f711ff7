//! The plugin ValidatingAdmissionPolicy: policies written as CEL expressions (upstream: `admission/plugin/policy`).
//!
//! Entry points: [`ValidatingPolicies`], and [`Policies`], which holds the compiled policies with their bindings and is fed
//! from storage. A request is judged by every policy that was acknowledged before it. [`compile_errors`] validates the
//! expressions of a policy when it is written. Which requests a policy concerns is left to [`matching`](super::matching), what
//! expressions may name and cost to [`expressions`](super::expressions).
//!
//! ```text
//! storage ──▶ 2 informers ──▶ Policies ──▶ Snapshot ── index by plural ──▶ matcher ──▶ params ──▶ evaluation ──▶ actions
//! ```

mod check;
mod evaluation;
mod params;
mod policies;
mod stored;
#[cfg(test)]
mod tests;
mod validating;

pub use check::compile_errors;
pub use policies::{Feeds, Policies};

use super::{Admission, Attributes, ObjectLookup, forbidden};
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use crate::authz::Authorizer;
use crate::telemetry::admission_policies::AdmissionPolicyMetrics;
use crate::telemetry::match_conditions::MatchConditionMetrics;
use async_trait::async_trait;
use std::sync::Arc;

/// What policies are not evaluated for: policies, so that a broken one can be mended, and reviews, which decide nothing.
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

/// What evaluations need besides the policies.
#[derive(Clone)]
pub struct Surroundings {
    /// Parameters, namespaces, and versions of resources.
    pub cluster: ObjectLookup,
    /// Decides about the checks of expressions.
    pub authorizer: Arc<dyn Authorizer>,
    /// Metrics of policies.
    pub metrics: AdmissionPolicyMetrics,
    /// Metrics of match conditions.
    pub conditions: MatchConditionMetrics,
}

/// The plugin ValidatingAdmissionPolicy.
pub struct ValidatingPolicies {
    policies: Arc<Policies>,
    surroundings: Surroundings,
}

impl ValidatingPolicies {
    /// Evaluates ValidatingAdmissionPolicies.
    pub fn new(policies: Arc<Policies>, surroundings: Surroundings) -> Self {
        Self { policies, surroundings }
    }
}

#[async_trait]
impl Admission for ValidatingPolicies {
    fn handles(&self, attributes: &Attributes) -> bool {
        self.policies.may_match(&attributes.resource.resource)
            && !EXEMPT.contains(&(&*attributes.resource.group, &*attributes.resource.resource))
    }

    async fn validate(&self, attributes: &Attributes, object: &Value) -> Result<()> {
        let snapshot = self.policies.fresh().await;
        let snapshot = snapshot.map_err(|_| forbidden(attributes, object, "not yet ready to handle request"))?;
        validating::dispatch(&self.surroundings, &snapshot, attributes, object).await
    }
}
