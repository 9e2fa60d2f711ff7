//! Query parameters and options objects of the verbs, parsed and validated like upstream.
//!
//! [`Query`] is the parsed query string; each submodule builds the options of a verb from it.

pub(crate) mod connect;
pub(crate) mod delete;
pub(crate) mod list;
pub(crate) mod query;
pub(crate) mod write;

pub(crate) use delete::DeleteQuery;
pub(crate) use list::ListQuery;
pub(crate) use query::Query;
pub(crate) use write::{FieldValidation, WriteQuery};

use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;

/// 422 if an options object has errors.
pub(crate) fn check(kind: &str, errors: &ErrorList) -> Result<()> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid("meta.k8s.io", kind, "", errors))
}

/// Checks that `dryRun` contains only `All`, any number of times.
pub(crate) fn check_dry_run(values: &[String], errors: &mut ErrorList) {
    if values.iter().any(|v| v != "All") {
        let shown: Vec<Value> = values.iter().map(|v| Value::from(v.as_str())).collect();
        errors.push(FieldError::not_supported(
            &FieldPath::new("dryRun"),
            Value::Array(shown),
            &["All"],
        ));
    }
}
