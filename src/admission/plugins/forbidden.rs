//! The shape in which plugins refuse.

use crate::admission::Attributes;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::Status;
use crate::apimachinery::value::Value;

/// 403 `<resource> "<name>" is forbidden: <why>`, as upstream's `admission.NewForbidden`: the name is the request's, else
/// the object's, else the base it would be generated from.
pub fn forbidden(attributes: &Attributes, object: &Value, why: &str) -> Status {
    let names = [&*attributes.name, object.name(), object.meta("generateName")];
    let name = names.into_iter().find(|n| !n.is_empty());
    let unnamed = match object.get("metadata").is_null() {
        true => "Unknown/errorGettingName",
        false => "Unknown",
    };
    let name = name.unwrap_or(unnamed);
    Status::forbidden(&attributes.resource.group_resource(), name, why)
}
