//! The CEL expressions of admission policies and webhooks: their variables, their compilation, and their
//! evaluation (upstream: `admission/plugin/cel`).
//!
//! Entry points: [`Compiler`]; [`Case`], which evaluates a [`Subject`] under upstream's budgets; and
//! [`Conditions`], the match conditions of a policy or a webhook. What a result means is left to the caller.
//! [`TypeChecker`] compiles where types are known.
//!
//! ```text
//! Case::evaluate ──▶ attempt with a small budget ──▶ decide a check, repeat ──▶ attempt in the compute pool
//! ```

mod conditions;
mod environment;
mod evaluation;
mod inputs;
mod typed;
mod variables;

pub(crate) use conditions::{ConditionResult, Conditions};
pub(crate) use environment::{CompileError, Compiler, Expression, Returns};
pub(crate) use evaluation::{Case, EvaluationError, OutOfBudget, Run, Subject};
pub(crate) use inputs::{Checks, Inputs, namespace, own_check};
pub(crate) use typed::TypeChecker;
pub(crate) use variables::Variables;
