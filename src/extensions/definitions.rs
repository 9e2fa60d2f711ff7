//! CustomResourceDefinition objects: defaults, validation, what an update may change, and the conditions that
//! follow from their content.
//!
//! [`CustomResourceDefinition`] is the strategy of their row in `controlplane`; [`conditions`] has pure
//! functions for the controllers. Schemas are checked by [`schema::definition`](crate::schema::definition);
//! serving the defined resources is left to the other modules of `extensions`.

mod approval;
pub(crate) mod conditions;
mod internal;
mod printed;
mod strategy;
mod validation;

pub(crate) use approval::is_protected;
pub(crate) use strategy::CustomResourceDefinition;

use crate::apimachinery::value::Value;

/// True if a definition has a condition with the status True.
fn is_condition_true(definition: &Value, condition: &str) -> bool {
    let conditions = definition.at(&["status", "conditions"]).items().iter();
    conditions
        .filter(|c| c.str_at(&["type"]) == condition)
        .any(|c| c.str_at(&["status"]) == "True")
}
