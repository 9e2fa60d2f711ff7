//! Validation of a policy's expressions when it is written. The strategies of the policies call it and turn the
//! results into field errors.

use super::stored::{Common, MutatingPolicy, StoredPolicy as _, ValidatingPolicy};
use crate::admission::expressions::Expression;
use crate::apimachinery::value::Value;

/// An expression that does not compile: its path below `spec`, its source, and upstream's message.
pub(crate) type CompileError = (String, String, String);

/// The expressions of a ValidatingAdmissionPolicy that do not compile, besides match conditions.
pub(crate) fn compile_errors(policy: &Value) -> Vec<CompileError> {
    let parsed = ValidatingPolicy::parse(policy);
    let mut errors = Errors::default();
    errors.check_variables(&parsed.common);
    for (i, validation) in parsed.validations.iter().enumerate() {
        errors.check(|| format!("validations[{i}].expression"), &validation.expression);
        if let Some(message) = &validation.message_expression {
            errors.check(|| format!("validations[{i}].messageExpression"), message);
        }
    }
    for (i, (_, annotation)) in parsed.annotations.iter().enumerate() {
        errors.check(|| format!("auditAnnotations[{i}].valueExpression"), annotation);
    }
    errors.0
}

/// The expressions of a MutatingAdmissionPolicy that do not compile, besides match conditions.
pub(crate) fn mutation_errors(policy: &Value) -> Vec<CompileError> {
    let parsed = MutatingPolicy::parse(policy);
    let mut errors = Errors::default();
    errors.check_variables(&parsed.common);
    for (i, mutation) in parsed.mutations.iter().enumerate() {
        let member = mutation.kind.member();
        errors.check(|| format!("mutations[{i}].{member}.expression"), &mutation.expression);
    }
    errors.0
}

#[derive(Default)]
struct Errors(Vec<CompileError>);

impl Errors {
    fn check(&mut self, at: impl FnOnce() -> String, expression: &Expression) {
        if let Some(why) = expression.error()
            // Empty ones are reported as required by the caller.
            && !expression.text.trim().is_empty()
        {
            self.0.push((at(), expression.text.clone(), why.to_string()));
        }
    }

    fn check_variables(&mut self, policy: &Common) {
        for (i, variable) in policy.variables.all().iter().enumerate() {
            self.check(|| format!("variables[{i}].expression"), &variable.expression);
        }
    }
}
