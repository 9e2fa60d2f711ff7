//! One mutation of a MutatingAdmissionPolicy: its expression, and what that came to (upstream: `mutating/patch`).

use super::stored::MutatingPolicy;
use crate::admission::expressions::{
    Compiler, Expression, OUT_OF_BUDGET, OutOfBudget, Returns, Run, Subject, Variables,
};
use crate::apimachinery::patch::json_patch::JsonPatch;
use crate::apimachinery::value::Value;
use std::sync::Arc;
use torana_cel::Val;

pub(super) struct Mutation {
    pub expression: Expression,
    pub kind: MutationKind,
}

/// What the value of a mutation's expression is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MutationKind {
    ApplyConfiguration,
    JsonPatch,
}

/// What a mutation does to the object.
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

impl MutationKind {
    /// The member that holds the expression.
    pub(crate) const fn member(self) -> &'static str {
        match self {
            Self::ApplyConfiguration => "applyConfiguration",
            Self::JsonPatch => "jsonPatch",
        }
    }
}

impl Mutation {
    /// Reads a mutation. The compiler allows the construction of objects.
    pub(crate) fn parse(v: &Value, compiler: &Compiler) -> Self {
        let (kind, returns) = match v.str_at(&["patchType"]) {
            "JSONPatch" => (MutationKind::JsonPatch, Returns::Patch),
            _ => (MutationKind::ApplyConfiguration, Returns::Configuration),
        };
        let text = v.str_at(&[kind.member(), "expression"]);
        Self {
            expression: compiler.compile(text, returns),
            kind,
        }
    }
}

impl Subject for Step {
    type Findings = Result<Change, String>;

    fn variables(&self) -> &Variables {
        &self.policy.common.variables
    }

    fn evaluate<'a>(&'a self, run: &Run<'a>) -> Result<Change, String> {
        let Mutation { expression, kind } = &self.policy.mutations[self.place];
        if let Some(why) = expression.error() {
            return Err(why.to_owned());
        }
        run.begin_evaluation();
        let value = run.evaluate(expression);
        let value = value.map_err(|OutOfBudget| OUT_OF_BUDGET.to_owned())??;
        match kind {
            MutationKind::ApplyConfiguration => configuration(&value),
            MutationKind::JsonPatch => patch(&value),
        }
    }
}

fn configuration(value: &Val<'_>) -> Result<Change, String> {
    let Val::Record(record) = value else {
        let of = value.type_name();
        return Err(format!(
            "unsupported return type from ApplyConfiguration expression: {of}"
        ));
    };
    // A value that shares its parts can be too large to be looked at; one that has a tree is not.
    let tree = value.to_tree()?;
    record.check_names().map_err(|why| format!("type mismatch: {why}"))?;
    Ok(Change::Configuration(tree))
}

fn patch(value: &Val<'_>) -> Result<Change, String> {
    let unencodable =
        |why| format!("JSONPath valueExpression evaluated to a type that could not marshal to JSON: {why}");
    let Val::List(operations) = value else {
        return Err("type mismatch: JSONPatchType.expression should evaluate to array".to_owned());
    };
    let tree = value.to_tree().map_err(unencodable)?;
    for operation in operations.iter() {
        if let Ok(Val::Record(operation)) = operation
            && let Some(Val::Record(value)) = operation.fields.get("value")
        {
            value.check_names().map_err(|why| format!("type mismatch: {why}"))?;
        }
    }
    let Value::Array(operations) = tree else {
        unreachable!("the tree of a list is a list")
    };
    let complete = |mut operation: Value| {
        for member in ["op", "path"] {
            if operation.get(member).is_null() {
                operation.set(&[member], "");
            }
        }
        operation
    };
    let operations = operations.into_iter().map(complete).collect();
    let patch = JsonPatch::of(operations).map_err(|refused| format!("JSON Patch: {}", refused.message))?;
    Ok(Change::Patch(patch))
}
