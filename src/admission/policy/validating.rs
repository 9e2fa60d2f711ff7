//! Evaluates the policies that concern a write, and carries out the actions of their bindings (upstream's
//! `validating.dispatcher`).

use super::Surroundings;
use super::evaluation::{Failure, FailureKind, Findings};
use super::params::Misconfigured;
use super::policies::{Active, Snapshot};
use super::selection::Selection;
use super::stored::{Binding, Common, ValidatingPolicy};
use crate::admission::expressions::{self, Case, Checks, ConditionResult, Inputs};
use crate::admission::versions::own;
use crate::admission::{Attributes, ServedKind, forbidden};
use crate::apimachinery::codec::json;
use crate::apimachinery::status::{Cause, Result, Status};
use crate::apimachinery::value::Value;
use crate::telemetry::admission_policies::{AdmissionPolicyMetrics, PolicyLabels};
use crate::telemetry::match_conditions::ConditionLabels;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

const FAILURE_ANNOTATION: &str = "validation.policy.admission.k8s.io/validation_failure";

/// A reason to refuse the write. Only the first one is reported.
struct Denial {
    message: String,
    reason: &'static str,
}

/// The distinct values of an audit annotation, in order of appearance: as many as there are parameters, of up to
/// 10 kB each.
#[derive(Default)]
struct Values {
    text: String,
    seen: HashSet<String>,
    is_full: bool,
}

impl Values {
    /// Maximum size of all values of one key, in bytes. Upstream has no limit.
    const MAX_BYTES: usize = 1 << 20;

    fn add(&mut self, value: String) {
        if self.is_full || self.seen.contains(&value) {
            return;
        }
        if !self.seen.is_empty() {
            self.text.push_str(", ");
        }
        // Checked before the value is appended; the marker then ends the text for good.
        self.is_full = self.text.len() + value.len() > Self::MAX_BYTES;
        self.text.push_str(if self.is_full { "..." } else { &value });
        self.seen.insert(value);
    }
}

/// The state of one write.
struct Dispatch<'a> {
    surroundings: &'a Surroundings<AdmissionPolicyMetrics>,
    attributes: &'a Attributes,
    object: &'a Value,
    selection: Selection<'a>,
    checks: Arc<Checks>,
    denial: Option<Denial>,
    /// The values of audit annotations, by key, each once.
    annotations: BTreeMap<String, Values>,
}

/// Evaluates the policies of a snapshot for a write.
///
/// # Errors
/// A policy denies it, or its namespace does not exist.
pub(crate) async fn dispatch(
    surroundings: &Surroundings<AdmissionPolicyMetrics>,
    snapshot: &Snapshot<ValidatingPolicy>,
    attributes: &Attributes,
    object: &Value,
) -> Result<()> {
    let mut dispatch = Dispatch {
        surroundings,
        attributes,
        object,
        selection: Selection::new(&surroundings.cluster, attributes),
        checks: Arc::new(Checks::new(surroundings.authorizer.clone(), attributes.user.clone())),
        denial: None,
        annotations: BTreeMap::new(),
    };
    let labels = dispatch.selection.labels(object);
    for active in snapshot.candidates(&attributes.resource.resource) {
        if !dispatch.selection.rules_out(&active.policy.common, &labels) {
            dispatch.policy(active).await?;
        }
    }
    dispatch.finish()
}

impl Dispatch<'_> {
    async fn policy(&mut self, active: &Active<ValidatingPolicy>) -> Result<()> {
        let policy = &active.policy;
        // Once per policy: the criteria do not depend on the binding.
        let target = match self.selection.version(&policy.common, self.object).await? {
            Ok(Some(target)) => target,
            Ok(None) => return Ok(()),
            Err(why) => {
                self.misconfigured(&policy.common, None, &why);
                return Ok(());
            }
        };
        let mut inputs = None;
        for binding in active.bindings() {
            let params = match self.selection.params(&policy.common, binding, self.object).await? {
                Ok(params) => params,
                Err(why) => {
                    self.misconfigured(&policy.common, Some(binding), &why);
                    continue;
                }
            };
            for param in params {
                // Made for the first binding, and shared by all.
                let shared = match &inputs {
                    Some(shared) => shared,
                    None => inputs.insert(self.inputs(&target).await?),
                };
                let case = Case {
                    subject: policy.clone(),
                    inputs: Inputs {
                        params: param,
                        ..Inputs::clone(shared)
                    },
                    checks: self.checks.clone(),
                    own_check: expressions::own_check(self.attributes),
                };
                let began = Instant::now();
                let findings = case.evaluate().await;
                let findings =
                    findings.map_err(|_| Status::too_many_requests("too many requests, please try again later", 1))?;
                self.act(policy, binding, findings, began.elapsed());
            }
        }
        Ok(())
    }

    async fn inputs(&self, target: &ServedKind) -> Result<Inputs> {
        let namespace = self.selection.namespace().await?;
        let object = (self.object, &own(self.attributes));
        Ok(Inputs {
            namespace,
            ..Inputs::new(&self.surroundings.cluster, self.attributes, object, target).await?
        })
    }

    fn deny(&mut self, message: String, reason: &'static str) {
        // The evaluation goes on: warnings and audit annotations of later policies are wanted nevertheless.
        self.denial.get_or_insert(Denial { message, reason });
    }

    /// A configuration error denies the request regardless of the binding's actions, unless the policy
    /// ignores errors.
    fn misconfigured(&mut self, policy: &Common, binding: Option<&Binding>, why: &Misconfigured) {
        if policy.ignores_errors {
            return;
        }
        self.deny(denied(policy, binding, &why.to_string()), "Invalid");
    }

    fn act(&mut self, of: &ValidatingPolicy, binding: &Binding, findings: Findings, took: Duration) {
        let policy = &of.common;
        if !policy.conditions.is_empty() {
            let labels = ConditionLabels {
                name: &policy.name,
                kind: "policy",
                step: "validate",
                operation: self.attributes.operation.as_str(),
            };
            let ConditionResult { took, errors, .. } = findings.conditions;
            self.surroundings.conditions.evaluated(labels, took, errors);
        }
        for failure in &findings.failures {
            let count = |action| {
                let labels = PolicyLabels {
                    policy: &policy.name,
                    binding: &binding.name,
                    error_type: match failure.kind {
                        FailureKind::OutOfBudget => "out_of_budget",
                        FailureKind::False | FailureKind::Error => "invalid_error",
                    },
                    action,
                };
                self.surroundings.metrics.checked(labels, took);
            };
            // The failure policy covers errors only; a validation that is false always counts.
            if failure.kind != FailureKind::False && policy.ignores_errors {
                count("allow");
                continue;
            }
            let actions = binding.actions;
            if actions.warn {
                count("warn");
                let (p, b, message) = (&policy.name, &binding.name, &failure.message);
                self.attributes.warnings.add(format!(
                    "Validation failed for ValidatingAdmissionPolicy '{p}' with binding '{b}': {message}"
                ));
            }
            if actions.audit {
                count("audit");
                self.annotate_failure(policy, binding, failure);
            }
            if actions.deny {
                count("deny");
                self.deny(
                    denied(policy, Some(binding), &failure.message),
                    match failure.reason {
                        "" => "Invalid",
                        reason => reason,
                    },
                );
            }
        }
        for (index, value) in findings.annotations {
            match value {
                Ok(value) => {
                    let values = self.annotations.entry(of.annotations[index].0.clone()).or_default();
                    values.add(value);
                }
                Err(_) if policy.ignores_errors => {}
                Err(e) => self.deny(denied(policy, Some(binding), &e.to_string()), "Invalid"),
            }
        }
    }

    fn annotate_failure(&self, policy: &Common, binding: &Binding, failure: &Failure) {
        let actions = binding.actions;
        let named = [(actions.deny, "Deny"), (actions.warn, "Warn"), (actions.audit, "Audit")];
        let named: Vec<&str> = named.into_iter().filter(|(on, _)| *on).map(|(_, name)| name).collect();
        let mut details = crate::json!({});
        details.set(&["message"], failure.message.as_str());
        details.set(&["policy"], policy.name.as_str());
        details.set(&["binding"], binding.name.as_str());
        details.set(&["expressionIndex"], failure.index as i64);
        details.set(&["validationActions"], named);
        let list = Value::from(vec![details]);
        self.attributes
            .audit
            .annotate(FAILURE_ANNOTATION, json::to_string(&list));
    }

    fn finish(self) -> Result<()> {
        // Also if the write is denied: the audit event explains it.
        for (key, values) in self.annotations {
            self.attributes.audit.annotate(&key, values.text);
        }
        let Some(Denial { message, reason }) = self.denial else {
            return Ok(());
        };
        let mut status = forbidden(self.attributes, self.object, &message);
        status.reason = reason;
        // Upstream's `reasonToCode`; `forbidden` set 403.
        status.code = match reason {
            "Forbidden" => 403,
            "Unauthorized" => 401,
            "RequestEntityTooLarge" => 413,
            _ => 422,
        };
        status.details_mut().causes.push(Cause {
            message,
            ..Cause::default()
        });
        Err(status)
    }
}

fn denied(policy: &Common, binding: Option<&Binding>, why: &str) -> String {
    let policy = &policy.name;
    match binding {
        Some(binding) => {
            let binding = &binding.name;
            format!("ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {why}")
        }
        None => format!("ValidatingAdmissionPolicy '{policy}' denied request: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::Values;

    #[test]
    fn values_of_annotations_are_distinct_and_bounded() {
        let mut values = Values::default();
        for value in ["a", "b", "a", "c", "b"] {
            values.add(value.to_owned());
        }
        assert_eq!(values.text, "a, b, c");
        for n in 0..300 {
            values.add(format!("{n:010000}"));
        }
        assert!(values.text.ends_with(", ...") && values.text.len() < Values::MAX_BYTES + 10);
    }
}
