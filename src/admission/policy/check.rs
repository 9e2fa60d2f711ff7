//! Validation of a policy's expressions when it is written.

use super::stored::Policy;
use crate::admission::expressions::Expression;
use crate::apimachinery::value::Value;

/// The expressions that do not compile, besides match conditions: the path below `spec`, the expression and upstream's text.
pub fn compile_errors(policy: &Value) -> Vec<(String, String, String)> {
    let parsed = Policy::parse(policy);
    let mut errors = Vec::new();
    let mut check = |at: String, expression: &Expression| {
        if let Some(why) = expression.error()
            && !expression.text.trim().is_empty()
        {
            errors.push((at, expression.text.clone(), why.to_owned()));
        }
    };
    for (i, variable) in parsed.variables.all().iter().enumerate() {
        check(format!("variables[{i}].expression"), &variable.expression);
    }
    for (i, validation) in parsed.validations.iter().enumerate() {
        check(format!("validations[{i}].expression"), &validation.expression);
        if let Some(message) = &validation.message_expression {
            check(format!("validations[{i}].messageExpression"), message);
        }
    }
    for (i, (_, annotation)) in parsed.annotations.iter().enumerate() {
        check(format!("auditAnnotations[{i}].valueExpression"), annotation);
    }
    errors
}
