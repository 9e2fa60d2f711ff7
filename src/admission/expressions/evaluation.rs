//! One evaluation of expressions for a write, under upstream's budgets. Start at [`Case::evaluate`].
//!
//! Costs bound the time: an evaluation begins where the request is, with a small budget; one that needs more
//! is repeated in the compute pool, with upstream's.

use super::environment::{ANY, Expression, NAMESPACE, REQUEST};
use super::inputs::{Checks, Inputs};
use super::variables::{Variable, Variables};
use crate::tasks::compute;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;
use torana_cel::{Activation, Check, Fail, Out, PatternBudget, Val};

/// Budgets of all match conditions, and of everything else that is evaluated together; and of a single
/// expression.
#[derive(Clone, Copy, Debug)]
struct Limits {
    conditions: u64,
    evaluation: u64,
    expression: u64,
}

// `pkg/apis/cel/config.go` of apiserver: `RuntimeCELCostBudgetMatchConditions`, `RuntimeCELCostBudget` and
// `PerCallLimit`.
const UPSTREAM: Limits = Limits {
    conditions: 2_500_000,
    evaluation: 10_000_000,
    expression: 1_000_000,
};

/// The budget of an evaluation in place: less than 100 µs, besides that of regular expressions.
const QUICK: Limits = Limits {
    conditions: 2_000,
    evaluation: 2_000,
    expression: 2_000,
};

/// Estimated allocations of an evaluation, whose costs bound the sizes of its values.
const MEMORY: usize = 16 << 20;

/// The subject of a [`Case`]: a policy, a mutation of one, or the match conditions of a webhook.
pub(crate) trait Subject: Send + Sync + 'static {
    /// The result of an evaluation.
    type Findings: Send + 'static;

    /// The variables that its expressions may name.
    fn variables(&self) -> &Variables;

    fn evaluate<'a>(&'a self, run: &Run<'a>) -> Self::Findings;
}

/// Everything that an evaluation depends on.
pub(crate) struct Case<S> {
    /// The policy, mutation or conditions.
    pub subject: Arc<S>,
    /// The values that expressions can read.
    pub inputs: Inputs,
    /// Decides the authorization checks of expressions, and caches the decisions.
    pub checks: Arc<Checks>,
    /// The check of `authorizer.requestResource`.
    pub own_check: Check,
}

impl<S: Subject> Case<S> {
    /// Evaluates the subject.
    ///
    /// # Errors
    /// The compute pool takes no more work.
    pub(crate) async fn evaluate(self) -> Result<S::Findings, compute::Error> {
        loop {
            // From the beginning after each decision: evaluations have no side effects, and an interpreter that can be
            // suspended would be slower for all others.
            let (findings, sufficed) = self.attempt(QUICK, PatternBudget::quick());
            // Before `sufficed` is read: with a pending check the findings are wrong either way.
            if self.checks.decide_pending().await {
                continue;
            }
            if sufficed {
                return Ok(findings);
            }
            break;
        }
        compute::offload(MEMORY, async move {
            loop {
                let (findings, _) = self.attempt(UPSTREAM, PatternBudget::full());
                if !self.checks.decide_pending().await {
                    return findings;
                }
            }
        })
        .await
    }

    /// The findings, and whether the limits sufficed.
    fn attempt(&self, limits: Limits, patterns: PatternBudget) -> (S::Findings, bool) {
        let run = Run {
            variables: self.subject.variables(),
            inputs: &self.inputs,
            checks: &self.checks,
            own_check: &self.own_check,
            limits,
            patterns,
            remaining: Cell::new(limits.evaluation),
            spent: Cell::new(0),
            exceeded: Cell::new(false),
            authorizes: Cell::new(true),
            computed: RefCell::default(),
        };
        let findings = self.subject.evaluate(&run);
        (findings, !run.exceeded.get())
    }
}

/// The budget of an evaluation is exceeded, so it ended before its last expression. Worded as upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("validation failed due to running out of cost budget, no further validation rules will be run")]
pub(crate) struct OutOfBudget;

/// The evaluation of an expression failed. Worded as upstream; equal messages are reported once.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct EvaluationError(String);

/// An evaluation under limits.
pub(crate) struct Run<'a> {
    variables: &'a Variables,
    inputs: &'a Inputs,
    checks: &'a Checks,
    own_check: &'a Check,
    limits: Limits,
    patterns: PatternBudget,
    remaining: Cell<u64>,
    /// The costs of variables since the last expression.
    spent: Cell<u64>,
    /// True if anything was cut short by a limit.
    exceeded: Cell<bool>,
    authorizes: Cell<bool>,
    /// The variables that were read, by their places.
    computed: RefCell<HashMap<usize, Out<'a>>>,
}

impl<'a> Activation<'a> for Run<'a> {
    fn variable(&self, name: &str) -> Option<Out<'a>> {
        let inputs = self.inputs;
        Some(match name {
            "object" => Val::of(&inputs.object, &ANY),
            "oldObject" => Val::of(&inputs.old, &ANY),
            "params" => Val::of(&inputs.params, &ANY),
            "request" => Val::of(&inputs.request, &REQUEST),
            "namespaceObject" => Val::of(&inputs.namespace, &NAMESPACE),
            "authorizer" if self.authorizes.get() => Ok(Val::authorizer(self.checks)),
            "authorizer.requestResource" if self.authorizes.get() => {
                Ok(Val::resource_check(self.checks, self.own_check.clone()))
            }
            _ => return self.computed(name),
        })
    }
}

impl<'a> Run<'a> {
    /// Gives the expressions that follow the budget of match conditions.
    pub(crate) fn begin_conditions(&self) {
        self.remaining.set(self.limits.conditions);
    }

    /// Gives the expressions that follow a budget of their own.
    pub(crate) fn begin_evaluation(&self) {
        self.remaining.set(self.limits.evaluation);
    }

    /// Takes the authorizer away from the expressions that follow.
    pub(crate) fn withdraw_authorizer(&self) {
        self.authorizes.set(false);
    }

    /// A variable of the policy: evaluated when it is first read.
    fn computed(&self, name: &str) -> Option<Out<'a>> {
        let place = self.variables.place(name)?;
        // The borrow ends here: evaluating a variable may read others.
        let known = self.computed.borrow().get(&place).cloned();
        known.or_else(|| {
            let is_known = |place| self.computed.borrow().contains_key(&place);
            for earlier in self.variables.before(place, is_known) {
                // The value is cached for the expressions that read it.
                let _ = self.compute(earlier);
            }
            Some(self.compute(place))
        })
    }

    fn compute(&self, place: usize) -> Out<'a> {
        let Variable { name, expression, .. } = &self.variables.all()[place];
        let value = match expression.program.as_ref() {
            Err(why) => Err(format!("composited variable {name:?} fails to compile: {why}")),
            Ok(program) => {
                // Values of variables live until the end, so their total cost bounds their memory.
                let left = self.remaining.get().saturating_sub(self.spent.get());
                let outcome = program.evaluate_within(self, self.limits.expression.min(left), &self.patterns);
                self.spent.set(self.spent.get().saturating_add(outcome.cost));
                self.note(&outcome.value);
                outcome
                    .value
                    .map_err(|e| format!("composited variable {name:?} fails to evaluate: {e}"))
            }
        };
        let value = value.map_err(|e| Fail::Error(e.into()));
        // Errors, too: a variable is evaluated once, however often it is read.
        self.computed.borrow_mut().insert(place, value.clone());
        value
    }

    fn note(&self, value: &Out<'_>) {
        if matches!(value, Err(Fail::Cost)) {
            // Also if only a variable was cut short: its error is in findings that the full budget might not have.
            self.exceeded.set(true);
        }
    }

    /// The value of an expression, or why it has none.
    ///
    /// # Errors
    /// The budget is exceeded.
    pub(crate) fn evaluate(&self, expression: &'a Expression) -> Result<Result<Val<'a>, EvaluationError>, OutOfBudget> {
        let program = match expression.program.as_ref() {
            Ok(program) => program,
            Err(why) => return Ok(Err(EvaluationError(format!("compilation error: {why}")))),
        };
        let outcome = program.evaluate_within(self, self.limits.expression, &self.patterns);
        self.note(&outcome.value);
        // Variables are charged to the expression that read them first.
        let cost = outcome.cost.saturating_add(self.spent.take());
        let Some(left) = self.remaining.get().checked_sub(cost) else {
            self.exceeded.set(true);
            return Err(OutOfBudget);
        };
        self.remaining.set(left);
        let text = &expression.text;
        Ok(outcome
            .value
            .map_err(|e| EvaluationError(format!("expression '{text}' resulted in error: {e}"))))
    }
}
