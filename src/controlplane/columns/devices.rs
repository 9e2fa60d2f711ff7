//! Columns of the kinds of resource.k8s.io and of RuntimeClasses (node.k8s.io).

use super::cells::{age, name};
use super::text::{AGE, NAME};
use super::{Heading, table};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::Value;
use crate::registry::resource::Columns;

const N: Heading = ("Name", "string", 0, NAME);
const A: Heading = ("Age", "string", 0, AGE);

const SLICE_NODE: &str = "NodeName identifies the node which provides the resources in this pool. A field selector can be used to list only ResourceSlice objects belonging to a certain node.\n\nThis field can be used to limit access from nodes to ResourceSlices with the same node name. It also indicates to autoscalers that adding new nodes of the same type as some old node might also make new resources available.\n\nExactly one of NodeName, NodeSelector, AllNodes, and PerDeviceNodeSelection must be set. This field is immutable.";
const SLICE_DRIVER: &str = "Driver identifies the DRA driver providing the capacity information. A field selector can be used to list only ResourceSlice objects with a certain driver name.\n\nMust be a DNS subdomain and should end with a DNS domain owned by the vendor of the driver. It should use only lower case characters. This field is immutable.";
const SLICE_POOL: &str = "Name is used to identify the pool. For node-local devices, this is often the node name, but this is not required.\n\nIt must not be longer than 253 characters and must consist of one or more DNS sub-domains separated by slashes. This field is immutable.";
const CLAIM_STATE: &str = "A summary of the current state (allocated, pending, reserved, etc.).";

/// Columns of kinds that print only name and age: DeviceClasses and ResourceClaimTemplates.
pub(crate) fn named() -> Columns {
    table(&[N, A], &[], |o| vec![name(o), age(o)])
}

pub(crate) fn runtime_classes() -> Columns {
    table(&[N, ("Handler", "string", 0, ""), A], &["handler"], |o| {
        vec![name(o), o.str_at(&["handler"]).into(), age(o)]
    })
}

pub(crate) fn claims() -> Columns {
    table(
        &[N, ("State", "string", 0, CLAIM_STATE), A],
        &["metadata.deletionTimestamp", "status.{allocation.#,reservedFor.#}"],
        |o| vec![name(o), state(o).into(), age(o)],
    )
}

fn state(o: &Value) -> String {
    let mut words: Vec<&str> = Vec::new();
    if o.is_being_deleted() {
        words.push("deleted");
    }
    if o.at(&["status", "allocation"]).is_null() {
        // A claim that is being deleted will not be allocated any more, so it is not pending.
        if words.is_empty() {
            words.push("pending");
        }
    } else {
        words.push("allocated");
        if !o.at(&["status", "reservedFor"]).items().is_empty() {
            words.push("reserved");
        }
    }
    words.join(",")
}

pub(crate) fn slices() -> Columns {
    let headings = [
        N,
        ("Node", "string", 0, SLICE_NODE),
        ("Driver", "string", 0, SLICE_DRIVER),
        ("Pool", "string", 0, SLICE_POOL),
        A,
    ];
    table(&headings, &["spec.{nodeName,driver,pool.name}"], |o| {
        vec![
            name(o),
            o.str_at(&["spec", "nodeName"]).into(),
            o.str_at(&["spec", "driver"]).into(),
            o.str_at(&["spec", "pool", "name"]).into(),
            age(o),
        ]
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn claim_state_lists_deleted_allocated_and_reserved() {
        assert_eq!(state(&json!({"status": {}})), "pending");
        let mut v = json!({"metadata": {}, "status": {"allocation": {}, "reservedFor": [{"uid": "u"}]}});
        assert_eq!(state(&v), "allocated,reserved");
        v.set_meta("deletionTimestamp", "2026-01-01T00:00:00Z");
        assert_eq!(state(&v), "deleted,allocated,reserved");
        v.unset(&["status"]);
        assert_eq!(state(&v), "deleted");
    }
}
