//! [`charged`]: a quota with new recorded usage, as admission stores it.

use super::amounts::Amounts;
use crate::api;
use crate::api::apply_schema::ApplyType;
use crate::apimachinery::apply::{FieldSet, Writer, update_managed_fields};
use crate::apimachinery::time;
use crate::apimachinery::value::Value;
use crate::storage::{Draft, Entry};

/// Field manager of the usage: upstream's server writes quota status through its own API under this name.
const MANAGER: &str = "kube-apiserver";

/// The quota with a new `status.used`. The fields that change are attributed to the server's field manager.
pub(super) fn charged(entry: &Entry, quota: &Value, used: &Amounts) -> Draft {
    let mut new = quota.clone();
    for (name, quantity) in used {
        let now = new.at(&["status", "used", name]);
        // Amounts that are equal keep their notation, so that managed fields do not change for them.
        if super::super::resources::quantity(now) != Some(*quantity) {
            new.set(&["status", "used", name], quantity.to_string());
        }
    }
    if let Some(kind) = api::by_gvk("", "v1", "ResourceQuota") {
        let writer = Writer {
            manager: MANAGER,
            subresource: "status",
            api_version: "v1",
            now: &time::now(),
        };
        // The status subresource never owns the spec.
        let reset = FieldSet::of_fields(&[&["spec"]]);
        update_managed_fields(ApplyType::Root(kind), Some(quota), &mut new, &writer, &reset);
    }
    Draft::new(&new, entry.fields.to_vec())
}
