//! Validation of the fields that a Scale shows (upstream's `ValidateScaleSpec` and `ValidateScaleStatus`).

use super::{Path, ScalePaths};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::value::Value;
use crate::registry::Strategy;

/// The strategy of a kind with the scale subresource, for
/// [`SchemaStrategy`](crate::schema::SchemaStrategy) to delegate to.
pub(crate) struct ScaleStrategy(pub ScalePaths);

impl ScaleStrategy {
    fn replicas(path: &Path, object: &Value, errors: &mut ErrorList) {
        // As upstream, the field is the path with its leading dot.
        let at = FieldPath::new(&path.text);
        let (shown, why) = match path.integer(object) {
            // Upstream shows 0 where the value has another type.
            Err(e) => (0, e.to_string()),
            Ok(Some(n)) if n < 0 => (n, "should be a non-negative integer".to_owned()),
            // Scale is an `int32` in Go, so larger numbers could not be represented.
            Ok(Some(n)) if n > i64::from(i32::MAX) => (n, format!("should be less than or equal to {}", i32::MAX)),
            Ok(_) => return,
        };
        errors.push(FieldError::invalid(&at, shown, why));
    }

    fn status(&self, object: &Value, errors: &mut ErrorList) {
        Self::replicas(&self.0.observed, object, errors);
        if let Some(path) = &self.0.selector
            && let Err(e) = path.string(object)
        {
            errors.push(FieldError::invalid(&FieldPath::new(&path.text), "", e.to_string()));
        }
    }
}

impl Strategy for ScaleStrategy {
    fn validate_create(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        Self::replicas(&self.0.wanted, object, &mut errors);
        self.status(object, &mut errors);
        errors
    }

    // The desired replicas belong to the spec and are not validated with the status.
    fn validate_status_update(&self, new: &Value, _old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        self.status(new, &mut errors);
        errors
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn replicas_are_numbers_of_32_bits() {
        let strategy = ScaleStrategy(super::super::tests::paths());
        let errors = |object: Value| -> Vec<String> {
            strategy
                .validate_create(&object)
                .iter()
                .map(ToString::to_string)
                .collect()
        };
        assert_eq!(
            errors(json!({"spec": {"deep": {"size": 3}}, "status": {"n": 0}})),
            Vec::<String>::new()
        );
        assert_eq!(
            errors(json!({"spec": {"deep": {"size": -1}}, "status": {"n": (1i64 << 31), "selector": 5}})),
            [
                ".spec.deep.size: Invalid value: -1: should be a non-negative integer",
                ".status.n: Invalid value: 2147483648: should be less than or equal to 2147483647",
                ".status.selector: Invalid value: \"\": .status.selector accessor error: 5 is of the type int64, expected string",
            ]
        );
        let in_status = strategy.validate_status_update(&json!({"spec": {"deep": {"size": -1}}}), &Value::Null);
        assert!(in_status.is_empty());
    }
}
