//! Columns of volumes, claims, the kinds of storage.k8s.io, and ResourceQuotas.

use super::cells::{age, name};
use super::text::{AGE, NAME};
use super::words::*;
use super::{Heading, table};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::strings;
use crate::registry::resource::Columns;

const N: Heading = ("Name", "string", 0, NAME);
const A: Heading = ("Age", "string", 0, AGE);

/// Access modes in short form, such as `RWO,ROX`: in a fixed order, without duplicates.
fn access_modes(v: &Value) -> String {
    let given = strings(v);
    [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ]
    .iter()
    .filter(|(mode, _)| given.contains(mode))
    .map(|(_, short)| *short)
    .collect::<Vec<_>>()
    .join(",")
}

fn phase(o: &Value) -> Value {
    // Deletion is not a phase: a volume in use stays `Bound` while a protection finalizer delays the deletion.
    if o.is_being_deleted() {
        "Terminating".into()
    } else {
        o.str_at(&["status", "phase"]).into()
    }
}

fn class(o: &Value) -> Value {
    // The beta annotation still takes precedence over the field (`GetPersistentVolumeClass`).
    match o.annotation("volume.beta.kubernetes.io/storage-class") {
        Some(c) => c.into(),
        None => o.str_at(&["spec", "storageClassName"]).into(),
    }
}

fn unset(v: &Value) -> Value {
    v.as_str().unwrap_or("<unset>").into()
}

pub(crate) fn persistent_volumes() -> Columns {
    let headings = [
        N,
        ("Capacity", "string", 0, PV_CAPACITY),
        ("Access Modes", "string", 0, PV_ACCESS_MODES),
        ("Reclaim Policy", "string", 0, PV_RECLAIM_POLICY),
        ("Status", "string", 0, PV_STATUS),
        ("Claim", "string", 0, PV_CLAIM),
        ("StorageClass", "string", 0, PV_STORAGECLASS),
        ("VolumeAttributesClass", "string", 0, PV_VOLUMEATTRIBUTESCLASS),
        ("Reason", "string", 0, PV_REASON),
        A,
        ("VolumeMode", "string", 1, PV_VOLUMEMODE),
    ];
    table(
        &headings,
        &[
            "metadata.{deletionTimestamp,annotations}",
            "spec.{capacity,accessModes,persistentVolumeReclaimPolicy,storageClassName}",
            "spec.{volumeAttributesClassName,volumeMode}",
            "spec.claimRef.{namespace,name}",
            "status.{phase,reason}",
        ],
        |o| {
            let spec = o.get("spec");
            let claim = spec.get("claimRef");
            let claim = if claim.is_null() {
                String::new()
            } else {
                format!("{}/{}", claim.str_at(&["namespace"]), claim.str_at(&["name"]))
            };
            vec![
                name(o),
                spec.str_at(&["capacity", "storage"]).into(),
                access_modes(spec.get("accessModes")).into(),
                spec.str_at(&["persistentVolumeReclaimPolicy"]).into(),
                phase(o),
                claim.into(),
                class(o),
                unset(spec.get("volumeAttributesClassName")),
                o.str_at(&["status", "reason"]).into(),
                age(o),
                unset(spec.get("volumeMode")),
            ]
        },
    )
}

pub(crate) fn persistent_volume_claims() -> Columns {
    let headings = [
        N,
        ("Status", "string", 0, PVC_STATUS),
        ("Volume", "string", 0, PVC_VOLUME),
        ("Capacity", "string", 0, PVC_CAPACITY),
        ("Access Modes", "string", 0, PVC_ACCESS_MODES),
        ("StorageClass", "string", 0, PVC_STORAGECLASS),
        ("VolumeAttributesClass", "string", 0, PVC_VOLUMEATTRIBUTESCLASS),
        A,
        ("VolumeMode", "string", 1, PVC_VOLUMEMODE),
    ];
    table(
        &headings,
        &[
            "metadata.{deletionTimestamp,annotations}",
            "spec.{volumeName,storageClassName,volumeAttributesClassName,volumeMode}",
            "status.{phase,capacity,accessModes}",
        ],
        |o| {
            let spec = o.get("spec");
            let volume = spec.str_at(&["volumeName"]);
            // An unbound claim prints no capacity or modes, whatever its status holds.
            let (capacity, modes) = if volume.is_empty() {
                ("", String::new())
            } else {
                let capacity = o.at(&["status", "capacity", "storage"]).as_str();
                // A missing quantity is zero in Go and prints as such once the claim is bound.
                (capacity.unwrap_or("0"), access_modes(o.at(&["status", "accessModes"])))
            };
            vec![
                name(o),
                phase(o),
                volume.into(),
                capacity.into(),
                modes.into(),
                class(o),
                unset(spec.get("volumeAttributesClassName")),
                age(o),
                unset(spec.get("volumeMode")),
            ]
        },
    )
}

pub(crate) fn resource_quotas() -> Columns {
    let headings = [
        N,
        ("Request", "string", 0, QUOTA_REQUEST),
        ("Limit", "string", 0, QUOTA_LIMIT),
        A,
    ];
    table(&headings, &["status.{hard,used}"], |o| {
        let hard = o.at(&["status", "hard"]);
        let (mut requests, mut limits) = (Vec::new(), Vec::new());
        for (key, most) in hard.as_object().into_iter().flat_map(|m| m.iter()) {
            let used = o.at(&["status", "used", key]);
            let cell = format!(
                "{key}: {}/{}",
                used.as_str().unwrap_or("0"),
                most.as_str().unwrap_or("0")
            );
            // Everything else, object counts included, goes under the heading for requests.
            if key.starts_with("limits.") {
                limits.push(cell);
            } else {
                requests.push(cell);
            }
        }
        vec![name(o), requests.join(", ").into(), limits.join(", ").into(), age(o)]
    })
}

/// The `Name` cell, with ` (default)` appended if one of the annotations `keys` marks the class as the
/// default.
pub(super) fn default_name(o: &Value, keys: &[&str]) -> Value {
    if keys.iter().any(|k| o.annotation(k) == Some("true")) {
        format!("{} (default)", o.name()).into()
    } else {
        name(o)
    }
}

pub(crate) fn storage_classes() -> Columns {
    let headings = [
        N,
        ("Provisioner", "string", 0, SC_PROVISIONER),
        ("ReclaimPolicy", "string", 0, SC_RECLAIMPOLICY),
        ("VolumeBindingMode", "string", 0, SC_VOLUMEBINDINGMODE),
        ("AllowVolumeExpansion", "string", 0, SC_ALLOWVOLUMEEXPANSION),
        A,
    ];
    table(
        &headings,
        &[
            "metadata.annotations",
            "{provisioner,reclaimPolicy,volumeBindingMode,allowVolumeExpansion}",
        ],
        |o| {
            let keys = [
                "storageclass.kubernetes.io/is-default-class",
                "storageclass.beta.kubernetes.io/is-default-class",
            ];
            vec![
                default_name(o, &keys),
                o.str_at(&["provisioner"]).into(),
                o.str_at(&["reclaimPolicy"]).into(),
                o.str_at(&["volumeBindingMode"]).into(),
                (o.get("allowVolumeExpansion").as_bool() == Some(true)).into(),
                age(o),
            ]
        },
    )
}

pub(crate) fn volume_attributes_classes() -> Columns {
    table(
        &[
            N,
            (
                "DriverName",
                "string",
                0,
                "Name of the CSI driver This field is immutable.",
            ),
            A,
        ],
        &["driverName"],
        |o| vec![name(o), o.str_at(&["driverName"]).into(), age(o)],
    )
}

pub(crate) fn csi_nodes() -> Columns {
    table(
        &[N, ("Drivers", "integer", 0, CSINODE_DRIVERS), A],
        &["spec.drivers.#"],
        |o| {
            let drivers = o.at(&["spec", "drivers"]).items().len() as i64;
            vec![name(o), drivers.into(), age(o)]
        },
    )
}

pub(crate) fn csi_drivers() -> Columns {
    let headings = [
        N,
        ("AttachRequired", "boolean", 0, CSIDRIVER_ATTACHREQUIRED),
        ("PodInfoOnMount", "boolean", 0, CSIDRIVER_PODINFOONMOUNT),
        ("StorageCapacity", "boolean", 0, CSIDRIVER_STORAGECAPACITY),
        ("TokenRequests", "string", 0, CSIDRIVER_TOKENREQUESTS),
        ("RequiresRepublish", "boolean", 0, CSIDRIVER_REQUIRESREPUBLISH),
        ("Modes", "string", 0, CSIDRIVER_MODES),
        A,
    ];
    table(
        &headings,
        &[
            "spec.{attachRequired,podInfoOnMount,storageCapacity,tokenRequests.audience}",
            "spec.{requiresRepublish,volumeLifecycleModes}",
        ],
        |o| {
            let spec = o.get("spec");
            let flag = |key: &str, default: bool| Value::from(spec.get(key).as_bool().unwrap_or(default));
            let audiences: Vec<&str> = spec
                .get("tokenRequests")
                .items()
                .iter()
                .map(|t| t.str_at(&["audience"]))
                .collect();
            let tokens = if audiences.is_empty() {
                "<unset>".to_owned()
            } else {
                audiences.join(",")
            };
            let modes = super::cells::none_if_empty(strings(spec.get("volumeLifecycleModes")).join(","));
            vec![
                name(o),
                // Defaulting sets these flags; the fallbacks repeat its values for objects stored without
                // them.
                flag("attachRequired", true),
                flag("podInfoOnMount", false),
                flag("storageCapacity", false),
                tokens.into(),
                flag("requiresRepublish", false),
                modes.into(),
                age(o),
            ]
        },
    )
}

pub(crate) fn volume_attachments() -> Columns {
    let headings = [
        N,
        ("Attacher", "string", 0, ATTACHMENT_ATTACHER),
        ("PV", "string", 0, ATTACHMENT_PV),
        ("Node", "string", 0, ATTACHMENT_NODE),
        ("Attached", "boolean", 0, ATTACHMENT_ATTACHED),
        A,
    ];
    table(
        &headings,
        &[
            "spec.{attacher,nodeName,source.persistentVolumeName}",
            "status.attached",
        ],
        |o| {
            vec![
                name(o),
                o.str_at(&["spec", "attacher"]).into(),
                o.str_at(&["spec", "source", "persistentVolumeName"]).into(),
                o.str_at(&["spec", "nodeName"]).into(),
                (o.at(&["status", "attached"]).as_bool() == Some(true)).into(),
                age(o),
            ]
        },
    )
}

const ATTACHMENT_ATTACHER: &str = "attacher indicates the name of the volume driver that MUST handle this request. This is the name returned by GetPluginName().";
const ATTACHMENT_PV: &str = "persistentVolumeName represents the name of the persistent volume to attach.";
const ATTACHMENT_NODE: &str = "nodeName represents the node that the volume should be attached to.";
const ATTACHMENT_ATTACHED: &str = "attached indicates the volume is successfully attached. This field must only be set by the entity completing the attach operation, i.e. the external-attacher.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn access_modes_are_abbreviated_in_fixed_order() {
        assert_eq!(
            access_modes(&json!(["ReadWriteMany", "ReadWriteOnce", "ReadWriteOnce"])),
            "RWO,RWX"
        );
    }

    #[test]
    fn quota_prints_used_and_hard() {
        let o = json!({"metadata": {"name": "q"}, "status": {"hard": {"cpu": "1", "limits.cpu": "2"}, "used": {"cpu": "500m"}}});
        assert_eq!(
            (resource_quotas().cells)(&o)[1..3],
            ["cpu: 500m/1".into(), "limits.cpu: 0/2".into()]
        );
    }
}
