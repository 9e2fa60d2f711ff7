//! [`Conditions`]: the match conditions of a policy or a webhook (upstream: `webhook/matchconditions`).

use super::evaluation::{EvaluationError, OutOfBudget, Run, Subject};
use super::{Compiler, Expression, Returns, Variables};
use crate::apimachinery::value::Value;
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use torana_cel::Val;

/// Conditions that must all hold.
pub(crate) struct Conditions(Vec<Expression>);

/// The result of evaluating conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConditionResult {
    /// Whether all conditions hold. One that is false outweighs the errors of others.
    pub applies: Result<bool, ConditionError>,
    /// How many could not be evaluated.
    pub errors: usize,
    /// How long it took.
    pub took: Duration,
}

/// Why conditions could not be evaluated, worded as upstream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConditionError {
    #[error(transparent)]
    OutOfBudget(#[from] OutOfBudget),
    #[error(transparent)]
    One(EvaluationError),
    #[error("[{0}]")]
    Several(String),
}

/// The result if there are no conditions: they hold.
impl Default for ConditionResult {
    fn default() -> Self {
        Self {
            applies: Ok(true),
            errors: 0,
            took: Duration::ZERO,
        }
    }
}

impl Conditions {
    /// Compiles a list of `matchConditions`, which cannot name variables.
    pub(crate) fn parse(list: &Value, has_params: bool) -> Self {
        let list = list.items();
        if list.is_empty() {
            return Self(Vec::new());
        }
        // With the authorizer: conditions may check permissions, as upstream's.
        let compiler = Compiler::new(has_params, true);
        let compile = |c: &Value| compiler.compile(c.str_at(&["expression"]), Returns::Bool);
        Self(list.iter().map(compile).collect())
    }

    /// True if there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Evaluates the conditions under their own budget.
    pub(crate) fn evaluate_all<'a>(&'a self, run: &Run<'a>) -> ConditionResult {
        if self.0.is_empty() {
            return ConditionResult::default();
        }
        // Conditions and the expressions of the policy have separate budgets, as upstream.
        run.begin_conditions();
        let began = Instant::now();
        let mut errors = Vec::new();
        let applies = self.all_hold(run, &mut errors);
        ConditionResult {
            errors: errors.len(),
            applies: match (applies, aggregate(errors)) {
                (Err(e), _) => Err(e.into()),
                // Whether they apply is unknown, so the failure policy decides.
                (Ok(true), Some(e)) => Err(e),
                (Ok(applies), _) => Ok(applies),
            },
            took: began.elapsed(),
        }
    }

    /// False if a condition is false; those that fail count as true.
    fn all_hold<'a>(&'a self, run: &Run<'a>, errors: &mut Vec<EvaluationError>) -> Result<bool, OutOfBudget> {
        for condition in &self.0 {
            match run.evaluate(condition)? {
                // Ends the evaluation: one false condition decides, whatever the others would return.
                Ok(Val::Bool(false)) => return Ok(false),
                Ok(_) => {}
                Err(why) => errors.push(why),
            }
        }
        Ok(true)
    }
}

/// Upstream's `utilerrors.NewAggregate`, which lists equal errors once. Validation allows 64 conditions, so comparing
/// each with each is cheap.
fn aggregate(errors: Vec<EvaluationError>) -> Option<ConditionError> {
    let mut distinct: Vec<EvaluationError> = Vec::new();
    for error in errors {
        if !distinct.contains(&error) {
            distinct.push(error);
        }
    }
    match distinct.as_slice() {
        [] => None,
        [one] => Some(ConditionError::One(one.clone())),
        all => {
            let texts: Vec<String> = all.iter().map(EvaluationError::to_string).collect();
            Some(ConditionError::Several(texts.join(", ")))
        }
    }
}

static NO_VARIABLES: LazyLock<Variables> = LazyLock::new(Variables::default);

/// The conditions of a webhook, which has no other expressions.
impl Subject for Conditions {
    type Findings = ConditionResult;

    fn variables(&self) -> &Variables {
        &NO_VARIABLES
    }

    fn evaluate<'a>(&'a self, run: &Run<'a>) -> ConditionResult {
        self.evaluate_all(run)
    }
}
