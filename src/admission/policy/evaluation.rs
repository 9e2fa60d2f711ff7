//! One evaluation of a policy, with one binding and one parameter object (upstream's `validating.validator`).
//!
//! Costs bound the time: an evaluation begins where the request is, with a small budget; one that needs more is repeated in
//! the compute pool, with upstream's.

use super::environment::{ANY, Expression, NAMESPACE, REQUEST};
use super::inputs::{Checks, Inputs};
use super::stored::Policy;
use super::variables::Variable;
use crate::tasks::compute;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use torana_cel::{Activation, Check, Fail, Out, Val};

/// Budgets of all match conditions, of all validations with their messages, and of all audit annotations; and of a
/// single expression.
#[derive(Clone, Copy, Debug)]
struct Limits {
    conditions: u64,
    evaluation: u64,
    expression: u64,
}

const UPSTREAM: Limits = Limits {
    conditions: 2_500_000,
    evaluation: 10_000_000,
    expression: 1_000_000,
};

/// What is evaluated without going to the pool: less than 100 µs.
const QUICK: Limits = Limits {
    conditions: 2_000,
    evaluation: 2_000,
    expression: 2_000,
};

/// About what an evaluation allocates: its costs bound the sizes of what it makes.
const MEMORY: usize = 16 << 20;
const MAX_MESSAGE: usize = 5 << 10;
const MAX_ANNOTATION: usize = 10 << 10;
const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// How one validation ended, if it does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// The place of the validation.
    pub index: usize,
    pub message: String,
    /// Empty for errors.
    pub reason: &'static str,
    pub kind: FailureKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureKind {
    /// The validation does not hold.
    False,
    /// It has no result.
    Error,
    /// The evaluation ended before it.
    OutOfBudget,
}

/// What an evaluation came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Findings {
    pub failures: Vec<Failure>,
    /// By the index of the annotation in the policy; absent for those without a value.
    pub annotations: Vec<(usize, Result<String, String>)>,
}

/// Everything that an evaluation depends on.
#[derive(Clone)]
pub(super) struct Case {
    pub policy: Arc<Policy>,
    pub inputs: Inputs,
    pub checks: Arc<Checks>,
    pub own_check: Check,
}

impl Case {
    /// Evaluates the policy.
    ///
    /// # Errors
    /// The compute pool takes no more work.
    pub async fn evaluate(self) -> Result<Findings, compute::Error> {
        loop {
            let findings = self.attempt(QUICK);
            if self.checks.decide_wanted().await {
                continue;
            }
            if let Some(findings) = findings {
                return Ok(findings);
            }
            break;
        }
        compute::offload(MEMORY, async move {
            loop {
                let findings = self.attempt(UPSTREAM).unwrap_or_default();
                if !self.checks.decide_wanted().await {
                    return findings;
                }
            }
        })
        .await
    }

    /// `None` if the limits are less than upstream's and do not suffice.
    fn attempt(&self, limits: Limits) -> Option<Findings> {
        let run = Run::new(self, limits);
        let findings = run.findings();
        let sufficed = limits.evaluation == UPSTREAM.evaluation || !run.exceeded.get();
        sufficed.then_some(findings)
    }
}

struct OutOfBudget;

struct Run<'a> {
    case: &'a Case,
    limits: Limits,
    remaining: Cell<u64>,
    /// The costs of variables since the last expression.
    spent: Cell<u64>,
    /// True if anything was cut short by a limit.
    exceeded: Cell<bool>,
    authorizes: Cell<bool>,
    variables: RefCell<Vec<Option<Out<'a>>>>,
}

impl<'a> Activation<'a> for Run<'a> {
    fn variable(&self, name: &str) -> Option<Out<'a>> {
        let inputs = &self.case.inputs;
        Some(match name {
            "object" => Val::of(&inputs.object, &ANY),
            "oldObject" => Val::of(&inputs.old, &ANY),
            "params" => Val::of(&inputs.params, &ANY),
            "request" => Val::of(&inputs.request, &REQUEST),
            "namespaceObject" => Val::of(&inputs.namespace, &NAMESPACE),
            "authorizer" if self.authorizes.get() => Ok(Val::authorizer(&*self.case.checks)),
            "authorizer.requestResource" if self.authorizes.get() => {
                Ok(Val::resource_check(&*self.case.checks, self.case.own_check.clone()))
            }
            _ => return self.computed(name),
        })
    }
}

impl<'a> Run<'a> {
    fn new(case: &'a Case, limits: Limits) -> Self {
        Self {
            case,
            limits,
            remaining: Cell::new(limits.evaluation),
            spent: Cell::new(0),
            exceeded: Cell::new(false),
            authorizes: Cell::new(true),
            variables: RefCell::new(vec![None; case.policy.variables.all().len()]),
        }
    }

    /// A variable of the policy: evaluated when it is first read.
    fn computed(&self, name: &str) -> Option<Out<'a>> {
        let policy: &'a Policy = &self.case.policy;
        let place = policy.variables.place(name)?;
        let known = self.variables.borrow()[place].clone();
        known.or_else(|| {
            for earlier in policy.variables.before(place) {
                if self.variables.borrow()[earlier].is_none() {
                    // Kept for what reads it.
                    let _ = self.compute(earlier);
                }
            }
            Some(self.compute(place))
        })
    }

    fn compute(&self, place: usize) -> Out<'a> {
        let policy: &'a Policy = &self.case.policy;
        let Variable { name, expression, .. } = &policy.variables.all()[place];
        let value = match expression.program.as_ref() {
            Err(why) => Err(format!("composited variable {name:?} fails to compile: {why}")),
            Ok(program) => {
                // Values of variables live until the end: what they cost together bounds their memory.
                let left = self.remaining.get().saturating_sub(self.spent.get());
                let outcome = program.evaluate(self, self.limits.expression.min(left));
                self.spent.set(self.spent.get().saturating_add(outcome.cost));
                self.note(&outcome.value);
                outcome
                    .value
                    .map_err(|e| format!("composited variable {name:?} fails to evaluate: {e}"))
            }
        };
        let value = value.map_err(|e| Fail::Error(e.into()));
        self.variables.borrow_mut()[place] = Some(value.clone());
        value
    }

    fn note(&self, value: &Out<'_>) {
        if matches!(value, Err(Fail::Cost)) {
            self.exceeded.set(true);
        }
    }

    fn evaluate(&self, expression: &'a Expression) -> Result<Result<Val<'a>, String>, OutOfBudget> {
        let program = match expression.program.as_ref() {
            Ok(program) => program,
            Err(why) => return Ok(Err(format!("compilation error: {why}"))),
        };
        let outcome = program.evaluate(self, self.limits.expression);
        self.note(&outcome.value);
        let cost = outcome.cost.saturating_add(self.spent.take());
        let Some(left) = self.remaining.get().checked_sub(cost) else {
            self.exceeded.set(true);
            return Err(OutOfBudget);
        };
        self.remaining.set(left);
        let text = &expression.text;
        Ok(outcome
            .value
            .map_err(|e| format!("expression '{text}' resulted in error: {e}")))
    }

    fn findings(&self) -> Findings {
        match self.applies() {
            Ok(true) => {}
            Ok(false) => return Findings::default(),
            Err(why) => return self.single(why, FailureKind::Error),
        }
        self.remaining.set(self.limits.evaluation);
        let Ok(failures) = self.failures() else {
            return self.single(OUT_OF_BUDGET.to_owned(), FailureKind::OutOfBudget);
        };
        // As upstream: they compile with the authorizer, but have none.
        self.authorizes.set(false);
        self.remaining.set(self.limits.evaluation);
        match self.annotations() {
            Ok(annotations) => Findings { failures, annotations },
            Err(OutOfBudget) => self.single(OUT_OF_BUDGET.to_owned(), FailureKind::OutOfBudget),
        }
    }

    fn single(&self, message: String, kind: FailureKind) -> Findings {
        let failure = Failure {
            index: 0,
            message,
            reason: "",
            kind,
        };
        Findings {
            failures: vec![failure],
            annotations: Vec::new(),
        }
    }

    /// Whether all match conditions hold. One that is false outweighs the errors of others.
    fn applies(&self) -> Result<bool, String> {
        self.remaining.set(self.limits.conditions);
        let mut errors = Vec::new();
        for condition in &self.case.policy.conditions {
            match self.evaluate(condition) {
                Ok(Ok(Val::Bool(false))) => return Ok(false),
                Ok(Ok(_)) => {}
                Ok(Err(why)) if errors.contains(&why) => {}
                Ok(Err(why)) => errors.push(why),
                Err(OutOfBudget) => return Err(OUT_OF_BUDGET.to_owned()),
            }
        }
        match errors.as_slice() {
            [] => Ok(true),
            [one] => Err(one.clone()),
            all => Err(format!("[{}]", all.join(", "))),
        }
    }

    fn failures(&self) -> Result<Vec<Failure>, OutOfBudget> {
        let validations = &self.case.policy.validations;
        let mut failures = Vec::new();
        for (index, validation) in validations.iter().enumerate() {
            match self.evaluate(&validation.expression)? {
                Ok(Val::Bool(true)) => {}
                Ok(_) => failures.push(Failure {
                    index,
                    message: String::new(),
                    reason: validation.reason,
                    kind: FailureKind::False,
                }),
                Err(message) => failures.push(Failure {
                    index,
                    message,
                    reason: "",
                    kind: FailureKind::Error,
                }),
            }
        }
        // Messages have what budget the validations leave.
        for failure in failures.iter_mut().filter(|f| f.kind == FailureKind::False) {
            match self.message(failure.index) {
                Ok(message) => failure.message = message,
                Err(OutOfBudget) => {
                    failure.message = format!("failed messageExpression: {OUT_OF_BUDGET}");
                    failure.kind = FailureKind::OutOfBudget;
                    failure.reason = "";
                }
            }
        }
        Ok(failures)
    }

    fn message(&self, index: usize) -> Result<String, OutOfBudget> {
        let validation = &self.case.policy.validations[index];
        if let Some(expression) = &validation.message_expression
            && let Ok(Val::String(text)) = self.evaluate(expression)?
        {
            let text = text.trim();
            if !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n') {
                return Ok(text.to_owned());
            }
        }
        Ok(match validation.message.as_str() {
            "" => format!("failed expression: {}", validation.expression.text.trim()),
            message => message.to_owned(),
        })
    }

    fn annotations(&self) -> Result<Vec<(usize, Result<String, String>)>, OutOfBudget> {
        let mut found = Vec::new();
        for (index, (_, expression)) in self.case.policy.annotations.iter().enumerate() {
            match self.evaluate(expression)? {
                Ok(Val::String(text)) => {
                    let text = text.trim();
                    let end = text.floor_char_boundary(MAX_ANNOTATION);
                    if !text.is_empty() {
                        found.push((index, Ok(text[..end].to_owned())));
                    }
                }
                Ok(_) => {}
                Err(why) => found.push((index, Err(why))),
            }
        }
        Ok(found)
    }
}
