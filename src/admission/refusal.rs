//! How a plugin says no: 403, about what the request names. As upstream's `admission.NewForbidden`.

use super::Attributes;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::Status;
use crate::apimachinery::value::Value;

/// 403 `<resource> "<name>" is forbidden: <why>`. The name is the request's, else the object's, else the base of the
/// name that will be generated.
pub fn forbidden(attributes: &Attributes, object: &Value, why: impl AsRef<str>) -> Status {
    let names = [&*attributes.name, object.name(), object.meta("generateName")];
    let name = names.into_iter().find(|n| !n.is_empty());
    // An object without metadata has no name that could be asked for.
    let unnamed = match !object.is_null() && object.get("metadata").is_null() {
        true => "Unknown/errorGettingName",
        false => "Unknown",
    };
    let name = name.unwrap_or(unnamed);
    Status::forbidden(&attributes.resource.group_resource(), name, why.as_ref())
}
