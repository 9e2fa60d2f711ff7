//! One mutation of a MutatingAdmissionPolicy: its expression, and the change that results (upstream:
//! `mutating/patch`).

use super::stored::{MutatingPolicy, Mutation, MutationKind};
use crate::admission::expressions::{CompileError, EvaluationError, OutOfBudget, Run, Subject, Variables};
use crate::apimachinery::apply::OverlayError;
use crate::apimachinery::patch::json_patch::JsonPatch;
use crate::apimachinery::status::Status;
use crate::apimachinery::value::Value;
use std::sync::Arc;
use torana_cel::{TreeError, Val, WrongNames};

/// The change that a mutation makes to the object.
#[derive(Debug)]
pub(super) enum Change {
    /// This configuration is to be merged into it.
    Configuration(Value),
    Patch(JsonPatch),
}

/// The mutation of a policy at a place, to be evaluated.
pub(super) struct Step {
    pub policy: Arc<MutatingPolicy>,
    pub place: usize,
}

/// Why a mutation failed, worded as upstream. The failure policy decides what that means for the write.
#[derive(Debug, thiserror::Error)]
pub(super) enum MutationError {
    #[error(transparent)]
    Compile(#[from] CompileError),
    #[error(transparent)]
    OutOfBudget(#[from] OutOfBudget),
    #[error(transparent)]
    Evaluation(#[from] EvaluationError),
    /// The value is not an object but of this type.
    #[error("unsupported return type from ApplyConfiguration expression: {0}")]
    NotConfiguration(String),
    #[error("type mismatch: JSONPatchType.expression should evaluate to array")]
    NotPatch,
    /// The value is too large, or cannot be represented in JSON.
    #[error(transparent)]
    NoTree(#[from] TreeError),
    #[error("JSONPath valueExpression evaluated to a type that could not marshal to JSON: {0}")]
    Unencodable(TreeError),
    /// The type of a constructed object does not match the field it is assigned to.
    #[error("type mismatch: {0}")]
    Names(#[from] WrongNames),
    /// The operations are not a valid patch, or cannot be applied.
    #[error("JSON Patch: {0}")]
    Patch(String),
    /// The configuration cannot be merged.
    #[error("error applying patch: {0}")]
    Overlay(#[from] OverlayError),
    /// The result is not a valid object of its kind.
    #[error(transparent)]
    Incomplete(Status),
}

impl Subject for Step {
    type Findings = Result<Change, MutationError>;

    fn variables(&self) -> &Variables {
        &self.policy.common.variables
    }

    fn evaluate<'a>(&'a self, run: &Run<'a>) -> Result<Change, MutationError> {
        let Mutation { expression, kind } = &self.policy.mutations[self.place];
        // Before the evaluation, which would report it in other words.
        if let Some(e) = expression.error() {
            return Err(e.clone().into());
        }
        run.begin_evaluation();
        let value = run.evaluate(expression)??;
        match kind {
            MutationKind::ApplyConfiguration => configuration(&value),
            MutationKind::JsonPatch => patch(&value),
        }
    }
}

fn configuration(value: &Val<'_>) -> Result<Change, MutationError> {
    let Val::Record(record) = value else {
        return Err(MutationError::NotConfiguration(value.type_name().to_string()));
    };
    // A value that shares its parts can be too large to be looked at; one that has a tree is not.
    let tree = value.to_tree()?;
    record.check_names()?;
    Ok(Change::Configuration(tree))
}

fn patch(value: &Val<'_>) -> Result<Change, MutationError> {
    let Val::List(operations) = value else {
        return Err(MutationError::NotPatch);
    };
    let tree = value.to_tree().map_err(MutationError::Unencodable)?;
    for operation in operations.iter() {
        if let Ok(Val::Record(operation)) = operation
            && let Some(Val::Record(value)) = operation.fields.get("value")
        {
            // Type names are paths of the field, so a value that was constructed for another field is detected.
            value.check_names()?;
        }
    }
    let Value::Array(operations) = tree else {
        unreachable!("the tree of a list is a list")
    };
    let complete = |mut operation: Value| {
        for member in ["op", "path"] {
            // Go's zero values: upstream builds typed operations, whose absent members become empty strings.
            if operation.get(member).is_null() {
                operation.set(&[member], "");
            }
        }
        operation
    };
    let operations = operations.into_iter().map(complete).collect();
    let patch = JsonPatch::of(operations).map_err(|status| MutationError::Patch(status.message))?;
    Ok(Change::Patch(patch))
}
