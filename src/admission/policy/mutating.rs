//! Evaluates the mutating policies that concern a write one after the other, and applies the results
//! (upstream's `mutating.dispatcher`).
//!
//! ```text
//! round 0: every policy that matches. A mutation asks for round 1, and marks the IfNeeded policies.
//! round 1: the marked ones that still match.
//! ```

use super::mutation::{Change, MutationError, Step};
use super::params::Misconfigured;
use super::policies::Snapshot;
use super::selection::Selection;
use super::stored::{Binding, Common, MutatingPolicy};
use super::{MutatingPolicies, Surroundings};
use crate::admission::expressions::{self, Case, Checks, CompileError, Inputs};
use crate::admission::reinvocation::Rounds;
use crate::admission::versioned::Versioned;
use crate::admission::{Attributes, ServedKind, forbidden};
use crate::apimachinery::codec::json;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Cause, Result, Status};
use crate::apimachinery::value::Value;
use crate::tasks::compute;
use crate::telemetry::admission_policies::MutatingPolicyMetrics;
use crate::telemetry::match_conditions::ConditionLabels;
use std::sync::Arc;
use std::time::Instant;
use torana_cel::Unusable;

#[cfg(test)]
mod tests;

/// A write with more mutations than these is evaluated in the compute pool.
const FEW: usize = 8;
/// Estimated allocations of the mutations at any one time, besides their evaluation.
const MEMORY: usize = 16 << 20;
/// Maximum size of an object after mutations: that of an object sent by a client.
const MAX_OBJECT: usize = 3 << 20;
/// Maximum number of errors that are reported.
const MAX_ERRORS: usize = 100;

/// A policy to evaluate with a binding and a parameter object.
struct Invocation {
    policy: Arc<MutatingPolicy>,
    binding: Arc<Binding>,
    target: ServedKind,
    params: Arc<Value>,
}

/// Why a mutation changes nothing.
enum Failure {
    /// The failure policy decides.
    Error(MutationError),
    /// The write is refused.
    Refused(Status),
}

/// The errors of policies that do not ignore them.
#[derive(Default)]
struct Errors {
    messages: Vec<String>,
    /// The reason of the first.
    reason: &'static str,
}

/// The mutation of one write.
struct Mutator {
    surroundings: Surroundings<MutatingPolicyMetrics>,
    attributes: Attributes,
    invocations: Vec<Invocation>,
    checks: Arc<Checks>,
    namespace: Arc<Value>,
    /// The inputs of expressions besides the object, by version.
    known: Vec<(ServedKind, Inputs)>,
    errors: Errors,
    rounds: Rounds<MutatingPolicies>,
}

pub(super) async fn dispatch(
    surroundings: &Surroundings<MutatingPolicyMetrics>,
    snapshot: &Snapshot<MutatingPolicy>,
    attributes: &Attributes,
    object: &mut Value,
) -> Result<()> {
    // Before the selection: a second round that has nothing to do costs no lookups.
    let rounds = Rounds::begin(&attributes.reinvocation, object);
    if rounds.are_over() {
        return Ok(());
    }
    let selection = Selection::new(&surroundings.cluster, attributes);
    let mut errors = Errors::default();
    let mut invocations = Vec::new();
    let labels = selection.labels(object);
    for active in snapshot.candidates(&attributes.resource.resource) {
        let policy = &active.policy;
        if selection.rules_out(&policy.common, &labels) {
            continue;
        }
        let target = match selection.version(&policy.common, object).await? {
            Ok(Some(target)) => target,
            Ok(None) => continue,
            Err(why) => {
                errors.misconfigured(&policy.common, None, &why);
                continue;
            }
        };
        for binding in active.bindings() {
            match selection.params(&policy.common, binding, object).await? {
                Ok(params) => invocations.extend(params.into_iter().map(|params| Invocation {
                    policy: policy.clone(),
                    binding: binding.clone(),
                    target: target.clone(),
                    params,
                })),
                Err(why) => errors.misconfigured(&policy.common, Some(binding), &why),
            }
        }
    }
    let mut mutator = Mutator {
        surroundings: surroundings.clone(),
        attributes: attributes.clone(),
        namespace: Arc::default(),
        checks: Arc::new(Checks::new(surroundings.authorizer.clone(), attributes.user.clone())),
        known: Vec::new(),
        invocations,
        errors,
        rounds,
    };
    if !mutator.invocations.is_empty() {
        mutator.namespace = selection.namespace().await?;
        // Per invocation, because each parameter object repeats the policy's mutations.
        let mutations: usize = mutator.invocations.iter().map(|i| i.policy.mutations.len()).sum();
        let is_large = compute::is_large(object);
        let work = mutator.run(std::mem::take(object));
        // Each mutation copies and encodes the object.
        let outcome = match mutations <= FEW && !is_large {
            true => work.await,
            false => compute::offload(MEMORY, work).await.map_err(|_| busy())?,
        };
        (mutator, *object) = outcome?;
    }
    // After all policies ran: the response lists the errors of all of them.
    mutator.errors.refusal(attributes, object)?;
    mutator.rounds.end(&attributes.reinvocation, object);
    Ok(())
}

fn busy() -> Status {
    Status::too_many_requests("too many requests, please try again later", 1)
}

impl Mutator {
    async fn run(mut self, object: Value) -> Result<(Self, Value)> {
        let (cluster, attributes) = (self.surroundings.cluster.clone(), self.attributes.clone());
        let mut versioned = Versioned::new(&cluster, &attributes, object);
        let mut mutated = false;
        for invocation in std::mem::take(&mut self.invocations) {
            mutated |= self.invoke(&invocation, &mut versioned).await?;
        }
        if mutated {
            // Even if the object is the same in the end, as upstream.
            self.rounds.mark_called();
            attributes.reinvocation.request();
        }
        let object = versioned.finish().await?;
        Ok((self, object))
    }

    /// Returns true if a mutation was applied.
    async fn invoke(&mut self, invocation: &Invocation, versioned: &mut Versioned<'_>) -> Result<bool> {
        let Invocation { policy, binding, .. } = invocation;
        versioned.convert_to(&invocation.target).await?;
        if !self.applies(invocation, versioned.object()).await? {
            return Ok(false);
        }
        let key = invocation.key();
        // After the conditions, as upstream's dispatcher: their errors count in round 1, too.
        if !self.rounds.includes(&key) {
            return Ok(false);
        }
        let mut mutated = false;
        for place in 0..policy.mutations.len() {
            // DELETE and CONNECT have no object to change.
            if versioned.object().is_null() {
                break;
            }
            self.attributes.in_time()?;
            let began = Instant::now();
            let outcome = self.mutate(invocation, place, versioned.object()).await;
            let count = |error_type| {
                let (policy, binding) = (&policy.common.name, &binding.name);
                let metrics = &self.surroundings.metrics;
                metrics.checked(policy, binding, error_type, began.elapsed());
            };
            match outcome {
                Ok(object) => {
                    count("no_error");
                    // The former object is dropped by `set`, which takes long for a large one.
                    compute::leave_reactor_with(&object).await;
                    versioned.set(object);
                    mutated = true;
                }
                Err(Failure::Refused(status)) => {
                    count("invalid_error");
                    return Err(status);
                }
                Err(Failure::Error(e)) => {
                    count(error_type(&e));
                    let why = e.to_string();
                    self.errors.push(&policy.common, Some(binding), &why, "Invalid");
                }
            }
        }
        if policy.reinvoke {
            self.rounds.called(key);
        }
        Ok(mutated)
    }

    /// The inputs of expressions.
    async fn inputs(&mut self, invocation: &Invocation, object: &Value) -> Result<Inputs> {
        let target = &invocation.target;
        let shared = match self.known.iter().find(|(of, _)| of == target) {
            Some((_, known)) => known.clone(),
            None => {
                let (cluster, nothing) = (&self.surroundings.cluster, (&Value::Null, target));
                let made = Inputs::new(cluster, &self.attributes, nothing, target).await?;
                self.known.push((target.clone(), made.clone()));
                made
            }
        };
        Ok(Inputs {
            object: Arc::new(object.clone()),
            namespace: self.namespace.clone(),
            params: invocation.params.clone(),
            ..shared
        })
    }

    /// Whether the match conditions hold.
    async fn applies(&mut self, invocation: &Invocation, object: &Value) -> Result<bool> {
        let policy = &invocation.policy.common;
        if policy.conditions.is_empty() {
            return Ok(true);
        }
        let case = Case {
            subject: policy.conditions.clone(),
            inputs: self.inputs(invocation, object).await?,
            checks: self.checks.clone(),
            own_check: expressions::own_check(&self.attributes),
        };
        let judged = case.evaluate().await.map_err(|_| busy())?;
        let labels = ConditionLabels {
            name: &policy.name,
            kind: "policy",
            // Upstream's label, although the policy mutates.
            step: "validate",
            operation: self.attributes.operation.as_str(),
        };
        self.surroundings
            .conditions
            .evaluated(labels, judged.took, judged.errors);
        Ok(judged.applies.unwrap_or_else(|e| {
            let why = e.to_string();
            self.errors.push(policy, Some(&invocation.binding), &why, "Invalid");
            false
        }))
    }

    async fn mutate(
        &mut self,
        invocation: &Invocation,
        place: usize,
        object: &Value,
    ) -> std::result::Result<Value, Failure> {
        let step = Step {
            policy: invocation.policy.clone(),
            place,
        };
        let case = Case {
            subject: Arc::new(step),
            inputs: self.inputs(invocation, object).await?,
            checks: self.checks.clone(),
            own_check: expressions::own_check(&self.attributes),
        };
        let change = case.evaluate().await.map_err(|_| busy())?;
        let mutated = self.change(&invocation.target, object, change?).await?;
        if (mutated.api_version(), ObjectView::kind(&mutated)) != (object.api_version(), ObjectView::kind(object)) {
            return Err(Status::internal("failed to convert object: a mutation changed its kind").into());
        }
        // A few mutations that each double a field could otherwise exhaust the memory.
        if json::to_vec(&mutated).len() > MAX_OBJECT {
            return Err(Status::too_large(&format!("limit is {MAX_OBJECT}")).into());
        }
        Ok(mutated)
    }

    async fn change(&self, target: &ServedKind, object: &Value, change: Change) -> std::result::Result<Value, Failure> {
        let (cluster, subresource) = (&self.surroundings.cluster, &self.attributes.subresource);
        match change {
            Change::Configuration(mut configuration) => {
                for member in ["apiVersion", "kind"] {
                    // The expression cannot set them, but the merge needs the type.
                    configuration.set(&[member], object.get(member).clone());
                }
                let merged = cluster.overlay(target, subresource, object, &configuration).await?;
                // Only the merge is the policy's own error; a kind that is not served ends the write above.
                let mut merged = merged.map_err(MutationError::from)?;
                let completed = cluster.complete(target, subresource, &mut merged).await;
                completed.map_err(MutationError::Incomplete)?;
                Ok(merged)
            }
            Change::Patch(patch) => {
                let mut patched = match patch.apply_explained(object.clone()) {
                    Ok(patched) => patched,
                    // A test that fails leaves the object as it is.
                    Err(why) if why.test_failed => return Ok(object.clone()),
                    Err(why) => return Err(MutationError::Patch(why.text).into()),
                };
                let completed = cluster.complete(target, subresource, &mut patched).await;
                let unknown = completed.map_err(|status| Status::internal(status.message))?;
                match unknown.as_slice() {
                    [] => Ok(patched),
                    all => Err(Status::internal(format!("strict decoding error: {}", all.join(", "))).into()),
                }
            }
        }
    }
}

/// The label of upstream's metric, which counts failed instantiations as invalid.
fn error_type(e: &MutationError) -> &'static str {
    match e {
        MutationError::Compile(CompileError::Unusable(Unusable::Compilation(_))) => "compile_error",
        MutationError::OutOfBudget(_) => "out_of_budget",
        _ => "invalid_error",
    }
}

impl Invocation {
    /// Identifies the invocation between the rounds.
    fn key(&self) -> String {
        // With the parameter object, since a policy is invoked once for each.
        let (namespace, name) = (self.params.namespace(), self.params.name());
        format!("{}/{}/{namespace}/{name}", self.policy.common.name, self.binding.name)
    }
}

impl Errors {
    fn misconfigured(&mut self, policy: &Common, binding: Option<&Binding>, why: &Misconfigured) {
        self.push(policy, binding, &why.to_string(), "Forbidden");
    }

    fn push(&mut self, policy: &Common, binding: Option<&Binding>, why: &str, reason: &'static str) {
        // Thousands of parameter objects may fail alike.
        if policy.ignores_errors || self.messages.len() >= MAX_ERRORS {
            return;
        }
        if self.messages.is_empty() {
            self.reason = reason;
        }
        let policy = &policy.name;
        self.messages.push(match binding {
            Some(binding) => format!(
                "policy '{policy}' with binding '{}' denied request: {why}",
                binding.name
            ),
            None => format!("policy {:?} denied request: {why}", policy.as_str()),
        });
    }

    /// The refusal, if there are errors: always a 403, whatever its reason.
    fn refusal(&mut self, attributes: &Attributes, object: &Value) -> Result<()> {
        let Some(first) = self.messages.first() else {
            return Ok(());
        };
        let mut status = forbidden(attributes, object, "admission request denied by policy");
        status.message.clone_from(first);
        status.reason = self.reason;
        let causes = self.messages.drain(..).map(|message| Cause {
            message,
            ..Cause::default()
        });
        status.details_mut().causes.extend(causes);
        Err(status)
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Refused(status)
    }
}

impl From<MutationError> for Failure {
    fn from(e: MutationError) -> Self {
        Self::Error(e)
    }
}
