//! Translates ownership of `spec.replicas` between the managed fields of a workload and of its Scale
//! (`k8s.io/apimachinery/pkg/util/managedfields/scalehandler.go`). Start at [`to_scale`] and [`to_parent`].
//!
//! ```text
//! entry of the workload          in the Scale              in the workload after the write
//! owns spec.replicas             owns spec.replicas        unchanged if still in the Scale, else without replicas
//! does not own spec.replicas     none                      unchanged
//! -                              new                       owns spec.replicas, at the workload's version
//! ```

use super::API_VERSION;
use crate::apimachinery::apply::FieldSet;
use crate::apimachinery::apply::fieldset::PathElement;
use crate::apimachinery::value::{Str, Value};
use std::collections::{HashMap, VecDeque};

const MANAGED: [&str; 2] = ["metadata", "managedFields"];
/// The path is the same in workloads and in the Scale.
const REPLICAS: [&str; 2] = ["spec", "replicas"];

fn path() -> [PathElement; 2] {
    REPLICAS.map(|p| PathElement::Field(Str::const_new(p)))
}

fn fields(entry: &Value) -> FieldSet {
    FieldSet::decode(entry.get("fieldsV1")).unwrap_or_default()
}

fn owns(entry: &Value) -> bool {
    fields(entry).has(&path())
}

/// Identity of an entry's writer, regardless of the API version.
fn writer(entry: &Value) -> [&str; 3] {
    ["manager", "operation", "subresource"].map(|k| entry.str_at(&[k]))
}

/// The entry reduced to `spec.replicas`, at this API version.
fn of_replicas(entry: &Value, api_version: &str) -> Value {
    let mut entry = entry.clone();
    entry.set(&["apiVersion"], api_version);
    entry.set(&["fieldsV1"], FieldSet::of_fields(&[&REPLICAS]).encode());
    entry
}

/// Sets the Scale's managed fields from the workload's entries that own the replicas.
pub(super) fn to_scale(parent: &Value, api_version: &str, scale: &mut Value) {
    let owners = parent.at(&MANAGED).items().iter();
    let owners: Vec<Value> = owners
        .filter(|e| e.str_at(&["apiVersion"]) == api_version && owns(e))
        .map(|e| of_replicas(e, API_VERSION))
        .collect();
    if !owners.is_empty() {
        scale.set(&MANAGED, owners);
    }
}

/// Sets the workload's managed fields after a write of the Scale.
pub(super) fn to_parent(parent: &Value, scale: &Value, api_version: &str, new: &mut Value) {
    // An entry of the Scale matches the first unmatched entry of the same writer. Queues per writer keep this linear.
    let mut owners: Vec<Option<&Value>> = scale
        .at(&MANAGED)
        .items()
        .iter()
        .filter(|e| owns(e))
        .map(Some)
        .collect();
    let mut by_writer: HashMap<[&str; 3], VecDeque<usize>> = HashMap::new();
    for (i, owner) in owners.iter().enumerate() {
        by_writer
            .entry(writer(owner.unwrap_or(&Value::Null)))
            .or_default()
            .push_back(i);
    }
    let mut entries = Vec::new();
    for entry in parent.at(&MANAGED).items() {
        if !owns(entry) {
            entries.push(entry.clone());
        } else if let Some(i) = by_writer.get_mut(&writer(entry)).and_then(VecDeque::pop_front) {
            owners[i] = None;
            entries.push(entry.clone());
        } else {
            let rest = fields(entry).difference(&FieldSet::of_fields(&[&REPLICAS]));
            if !rest.is_empty() {
                let mut entry = entry.clone();
                entry.set(&["fieldsV1"], rest.encode());
                entries.push(entry);
            }
        }
    }
    for owner in owners.into_iter().flatten() {
        let mut entry = of_replicas(owner, api_version);
        // Upstream drops the time of these entries.
        entry.unset(&["time"]);
        entries.push(entry);
    }
    // Upstream's order of managed fields entries.
    let order = |e: &Value| {
        let text = |k: &str| e.str_at(&[k]).to_owned();
        (
            text("operation"),
            text("time"),
            text("manager"),
            text("apiVersion"),
            text("subresource"),
        )
    };
    entries.sort_by_cached_key(order);
    if entries.is_empty() {
        new.unset(&MANAGED);
    } else {
        new.set(&MANAGED, entries);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn parent() -> Value {
        json!({"metadata": {"managedFields": [
            {"apiVersion": "apps/v1", "fieldsType": "FieldsV1", "manager": "a", "operation": "Update", "time": "t",
             "fieldsV1": {"f:spec": {"f:replicas": {}, "f:paused": {}}}}]}})
    }

    #[test]
    fn scaling_moves_ownership_of_replicas_to_the_scaler() {
        let mut scale = json!({});
        to_scale(&parent(), "apps/v1", &mut scale);
        assert_eq!(scale.at(&MANAGED).items()[0].str_at(&["apiVersion"]), "autoscaling/v1");
        let mut new = parent();
        to_parent(&parent(), &scale, "apps/v1", &mut new);
        assert_eq!(new, parent());
        let other = json!({"metadata": {"managedFields": [
            {"apiVersion": "autoscaling/v1", "fieldsType": "FieldsV1", "manager": "b", "operation": "Update", "time": "u",
             "subresource": "scale", "fieldsV1": {"f:spec": {"f:replicas": {}}}}]}});
        to_parent(&parent(), &other, "apps/v1", &mut new);
        assert_eq!(
            new,
            json!({"metadata": {"managedFields": [
                {"apiVersion": "apps/v1", "fieldsType": "FieldsV1", "manager": "b", "operation": "Update", "subresource": "scale",
                 "fieldsV1": {"f:spec": {"f:replicas": {}}}},
                {"apiVersion": "apps/v1", "fieldsType": "FieldsV1", "manager": "a", "operation": "Update", "time": "t",
                 "fieldsV1": {"f:spec": {"f:paused": {}}}}]}})
        );
        to_parent(&parent(), &json!({}), "apps/v1", &mut new);
        assert_eq!(
            new.at(&MANAGED).items()[0].get("fieldsV1"),
            &json!({"f:spec": {"f:paused": {}}})
        );
    }
}
