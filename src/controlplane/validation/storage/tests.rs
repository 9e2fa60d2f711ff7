use super::*;
use crate::apimachinery::field::aggregate;
use crate::json;

#[test]
fn errors_match_the_recordings() {
    let cases: [(fn(&Value) -> ErrorList, Value, &str); 4] = [
        (
            attributes_class,
            json!({"driverName": "", "parameters": {"a": "b"}}),
            "driverName: Required value",
        ),
        (
            attributes_class,
            json!({"driverName": "d.example.com"}),
            "parameters: Required value: must contain at least one key/value pair",
        ),
        (
            csi_node,
            json!({"spec": {"drivers": [{"name": "a.b", "nodeID": "x"}, {"name": "a.b", "nodeID": ""}]}}),
            "[spec.drivers[1].nodeID: Required value, spec.drivers[1].name: Duplicate value: \"a.b\"]",
        ),
        (
            volume_attachment,
            json!({"spec": {"attacher": "d.example.com", "nodeName": "n", "source": {}}}),
            "spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName",
        ),
    ];
    for (check, v, want) in cases {
        assert_eq!(aggregate(&check(&v)), want);
    }
}

#[test]
fn attachment_spec_is_immutable() {
    let old =
        json!({"spec": {"attacher": "d.example.com", "nodeName": "n", "source": {"persistentVolumeName": "pv1"}}});
    let mut new = old.clone();
    new.set(&["spec", "nodeName"], "other");
    assert_eq!(
        aggregate(&volume_attachment_update(&new, &old)),
        "spec: Invalid value: {\"Attacher\":\"d.example.com\",\"Source\":{\"PersistentVolumeName\":\"pv1\",\"InlineVolumeSpec\":null},\"NodeName\":\"other\"}: field is immutable"
    );
}

#[test]
fn inline_volumes_print_in_internal_form() {
    let old = json!({"spec": {"attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "pv1"}}});
    let mut new = old.clone();
    new.set(&["spec", "attacher"], "a&b");
    new.set(
        &["spec", "source", "inlineVolumeSpec"],
        json!({"mountOptions": [], "nfs": {"server": "s", "path": "p"}, "storageClassName": "c",
            "claimRef": {"kind": "K"}}),
    );
    let shown = aggregate(&volume_attachment_update(&new, &old));
    for part in [
        r#"spec: Invalid value: {"Attacher":"a\u0026b","Source":{"PersistentVolumeName":"pv1","InlineVolumeSpec":{"Capacity":null,"GCEPersistentDisk":null,"#,
        r#""NFS":{"Server":"s","Path":"p","ReadOnly":false},"RBD":null,"#,
        r#""CSI":null,"AccessModes":null,"ClaimRef":{"Kind":"K","Namespace":"","Name":"","UID":"","APIVersion":"","ResourceVersion":"","FieldPath":""},"PersistentVolumeReclaimPolicy":"","StorageClassName":"c","MountOptions":[],"VolumeMode":null,"NodeAffinity":null,"VolumeAttributesClassName":null}},"NodeName":"n"}: field is immutable"#,
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
}

#[test]
fn immutable_fields_print_as_their_types_in_go() {
    let immutable = |errors: ErrorList| -> Vec<String> {
        let all = errors.iter().map(ToString::to_string);
        all.filter(|e| e.ends_with("immutable")).collect()
    };
    let of =
        |mode: &str, name: &str| json!({"provisioner": (name), "reclaimPolicy": "Retain", "volumeBindingMode": (mode)});
    assert_eq!(
        immutable(storage_class_update(&of("a\u{7}", "b\u{7}"), &of("Immediate", "p"))),
        [
            r#"provisioner: Invalid value: "b\a": field is immutable"#,
            r#"volumeBindingMode: Invalid value: "a\u0007": field is immutable"#,
        ]
    );
    let of = |key: &str| {
        json!({"storageClassName": (key), "capacity": "1",
            "nodeTopology": {"matchExpressions": [{"operator": "Exists", "key": (key)}], "matchLabels": {"a": "b"}}})
    };
    assert_eq!(
        immutable(csi_storage_capacity_update(&of("k"), &of("x"))),
        [
            r#"nodeTopology: Invalid value: {"matchLabels":{"a":"b"},"matchExpressions":[{"key":"k","operator":"Exists"}]}: field is immutable"#,
            r#"storageClassName: Invalid value: "k": field is immutable"#,
        ]
    );
    let (everywhere, nowhere) = (
        json!({"storageClassName": "c", "nodeTopology": {}}),
        json!({"storageClassName": "c"}),
    );
    assert_eq!(
        immutable(csi_storage_capacity_update(&everywhere, &nowhere)),
        ["nodeTopology: Invalid value: {}: field is immutable"]
    );
    assert_eq!(
        immutable(csi_storage_capacity_update(&everywhere, &everywhere)),
        [""; 0]
    );
    let of = |names: [&str; 2], id: &str| {
        let driver = |name: &str| json!({"name": (name), "nodeID": (format!("{name}-{id}"))});
        json!({"spec": {"drivers": [(driver(names[0])), (driver(names[1]))]}})
    };
    let shown = immutable(csi_node_update(&of(["b", "a"], "1"), &of(["a", "b"], "0")));
    // In the order of the stored drivers.
    let ids: Vec<bool> = shown.iter().map(|e| e.contains("a-1")).collect();
    assert_eq!(ids, [true, false], "{shown:?}");
}

#[test]
fn empty_binding_mode_is_unsupported() {
    let v = json!({"provisioner": "a.io/b", "reclaimPolicy": "", "volumeBindingMode": ""});
    assert_eq!(
        crate::apimachinery::field::aggregate(&storage_class(&v)),
        "volumeBindingMode: Unsupported value: \"\": supported values: \"Immediate\", \"WaitForFirstConsumer\""
    );
}
