//! The 403 Status with which plugins reject a request, as upstream's `admission.NewForbidden`.

use super::Attributes;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::Status;
use crate::apimachinery::value::Value;

/// A 403 `<resource> "<name>" is forbidden: <why>`. The name is that of the request, else of the object, else
/// its `generateName`.
pub(crate) fn forbidden(attributes: &Attributes, object: &Value, why: impl AsRef<str>) -> Status {
    let names = [&*attributes.name, object.name(), object.meta("generateName")];
    let name = names.into_iter().find(|n| !n.is_empty());
    // Upstream's accessor fails on an object without metadata, and this is the name it substitutes then.
    let unnamed = match !object.is_null() && object.get("metadata").is_null() {
        true => "Unknown/errorGettingName",
        false => "Unknown",
    };
    let name = name.unwrap_or(unnamed);
    Status::forbidden(&attributes.resource.group_resource(), name, why.as_ref())
}
