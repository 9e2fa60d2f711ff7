//! The evaluation of a ValidatingAdmissionPolicy with one binding and one parameter object (upstream's
//! `validating.validator`).

use super::stored::ValidatingPolicy;
use crate::admission::expressions::{ConditionResult, EvaluationError, OutOfBudget, Run, Subject, Variables};
use torana_cel::Val;

// Bytes; upstream's limits of `validator.go`. A longer message is replaced by the static one, a longer annotation is
// cut off.
const MAX_MESSAGE: usize = 5 << 10;
const MAX_ANNOTATION: usize = 10 << 10;

/// A validation that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Index of the validation in `spec.validations`.
    pub index: usize,
    pub message: String,
    /// Empty for errors.
    pub reason: &'static str,
    pub kind: FailureKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The validation does not hold.
    False,
    /// The evaluation failed.
    Error,
    /// The evaluation ended before it.
    OutOfBudget,
}

/// The result of an evaluation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    pub failures: Vec<Failure>,
    pub annotations: Annotations,
    pub conditions: ConditionResult,
}

/// By the index of the annotation in the policy; absent for those without a value.
pub(crate) type Annotations = Vec<(usize, Result<String, EvaluationError>)>;

impl Subject for ValidatingPolicy {
    type Findings = Findings;

    fn variables(&self) -> &Variables {
        &self.common.variables
    }

    fn evaluate<'a>(&'a self, run: &Run<'a>) -> Findings {
        let conditions = self.common.conditions.evaluate_all(run);
        let mut findings = match &conditions.applies {
            // Conditions that do not hold: as if the policy did not exist.
            Ok(false) => Findings::default(),
            Err(e) => Findings::single(e.to_string(), FailureKind::Error),
            Ok(true) => self
                .results(run)
                .unwrap_or_else(|e| Findings::single(e.to_string(), FailureKind::OutOfBudget)),
        };
        findings.conditions = conditions;
        findings
    }
}

impl Findings {
    fn single(message: String, kind: FailureKind) -> Self {
        let failure = Failure {
            index: 0,
            message,
            reason: "",
            kind,
        };
        Self {
            failures: vec![failure],
            ..Self::default()
        }
    }
}

impl ValidatingPolicy {
    fn results<'a>(&'a self, run: &Run<'a>) -> Result<Findings, OutOfBudget> {
        run.begin_evaluation();
        let failures = self.failures(run)?;
        // As upstream: they compile with the authorizer, but have none.
        run.withdraw_authorizer();
        // Annotations have a budget of their own, so expensive validations do not suppress them.
        run.begin_evaluation();
        Ok(Findings {
            failures,
            annotations: self.annotations(run)?,
            ..Findings::default()
        })
    }

    fn failures<'a>(&'a self, run: &Run<'a>) -> Result<Vec<Failure>, OutOfBudget> {
        let validations = &self.validations;
        let mut failures = Vec::new();
        for (index, validation) in validations.iter().enumerate() {
            match run.evaluate(&validation.expression)? {
                Ok(Val::Bool(true)) => {}
                Ok(_) => failures.push(Failure {
                    index,
                    message: String::new(),
                    reason: validation.reason,
                    kind: FailureKind::False,
                }),
                Err(e) => failures.push(Failure {
                    index,
                    message: e.to_string(),
                    reason: "",
                    kind: FailureKind::Error,
                }),
            }
        }
        // Message expressions share the budget that the validations leave.
        for failure in failures.iter_mut().filter(|f| f.kind == FailureKind::False) {
            match self.message(run, failure.index) {
                Ok(message) => failure.message = message,
                Err(e) => {
                    failure.message = format!("failed messageExpression: {e}");
                    failure.kind = FailureKind::OutOfBudget;
                    failure.reason = "";
                }
            }
        }
        Ok(failures)
    }

    fn message<'a>(&'a self, run: &Run<'a>, index: usize) -> Result<String, OutOfBudget> {
        let validation = &self.validations[index];
        if let Some(expression) = &validation.message_expression
            && let Ok(Val::String(text)) = run.evaluate(expression)?
        {
            let text = text.trim();
            // Unusable results fall back to the static message: they must not turn a refusal into an error.
            if !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n') {
                return Ok(text.to_owned());
            }
        }
        Ok(match validation.message.as_str() {
            "" => format!("failed expression: {}", validation.expression.text.trim()),
            message => message.to_owned(),
        })
    }

    fn annotations<'a>(&'a self, run: &Run<'a>) -> Result<Annotations, OutOfBudget> {
        let mut found = Vec::new();
        for (index, (_, expression)) in self.annotations.iter().enumerate() {
            match run.evaluate(expression)? {
                Ok(Val::String(text)) => {
                    let text = text.trim();
                    // Not within a character, which slicing would panic on.
                    let end = text.floor_char_boundary(MAX_ANNOTATION);
                    if !text.is_empty() {
                        found.push((index, Ok(text[..end].to_owned())));
                    }
                }
                Ok(_) => {}
                Err(e) => found.push((index, Err(e))),
            }
        }
        Ok(found)
    }
}
