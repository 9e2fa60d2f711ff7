//! Who owns the replicas: an entry of the workload's managed fields, seen as one of the Scale's, and back
//! (`k8s.io/apimachinery/pkg/util/managedfields/scalehandler.go`).
//!
//! ```text
//! entry of the workload          in the Scale              after the write, in the workload
//! owns spec.replicas             one of spec.replicas      as it was, where the Scale still has it; else without
//! owns something else, or none   none                      as it was
//! -                              new                       one of spec.replicas, at the workload's version
//! ```

use super::API_VERSION;
use crate::apimachinery::apply::FieldSet;
use crate::apimachinery::apply::fieldset::PathElement;
use crate::apimachinery::value::{Str, Value};
use std::collections::{HashMap, VecDeque};

const MANAGED: [&str; 2] = ["metadata", "managedFields"];
/// Of the workloads as of the Scale.
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

/// Who wrote, whatever the version.
fn writer(entry: &Value) -> [&str; 3] {
    ["manager", "operation", "subresource"].map(|k| entry.str_at(&[k]))
}

fn of_replicas(entry: &Value, api_version: &str) -> Value {
    let mut entry = entry.clone();
    entry.set(&["apiVersion"], api_version);
    entry.set(&["fieldsV1"], FieldSet::of_fields(&[&REPLICAS]).encode());
    entry
}

/// Gives the Scale the entries that own the replicas.
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

/// Gives the workload the entries that follow from the Scale's.
pub(super) fn to_parent(parent: &Value, scale: &Value, api_version: &str, new: &mut Value) {
    // Each takes the place of the first of the same writer.
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
        // Upstream keeps no time for them.
        entry.unset(&["time"]);
        entries.push(entry);
    }
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
    fn the_replicas_move_to_who_scales() {
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
