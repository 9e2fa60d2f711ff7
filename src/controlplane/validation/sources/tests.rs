use super::*;
use crate::apimachinery::field::aggregate;
use crate::json;

fn errors(holder: Value, owner: SourceOwner<'_>) -> String {
    let mut out = ErrorList::new();
    let keys: Vec<String> = holder
        .as_object()
        .into_iter()
        .flat_map(|m| m.keys())
        .map(str::to_owned)
        .collect();
    for key in keys {
        source(&mut out, &holder, &key, &FieldPath::new("v"), owner);
    }
    aggregate(&out)
}

fn pod(holder: Value) -> String {
    errors(holder, SourceOwner::Pod("data"))
}

fn persistent(holder: Value) -> String {
    errors(holder, SourceOwner::Persistent("data"))
}

#[test]
fn iscsi_names_follow_their_scheme() {
    let of = |iqn: &str| pod(json!({"iscsi": {"targetPortal": "a:1", "iqn": iqn}}));
    assert_eq!(of("iqn.2026-01.com.example:storage:a"), "[]");
    assert_eq!(of("eui.0123456789abcdef"), "[]");
    assert_eq!(
        of("iqn.2026.example"),
        "v.iscsi.iqn: Invalid value: \"iqn.2026.example\": must be valid format"
    );
    assert_eq!(
        of("x"),
        "v.iscsi.iqn: Invalid value: \"x\": must be valid format starting with iqn, eui, or naa"
    );
    let persistent = persistent(json!({"iscsi": {"targetPortal": "a:1", "iqn": "x", "secretRef": {}}}));
    assert_eq!(
        persistent,
        "[v.iscsi.iqn: Invalid value: \"x\": must be valid format, v.iscsi.secretRef.name: Required value]"
    );
}

#[test]
fn azure_disk_uris_depend_on_the_kind() {
    let disk = |kind: &str, uri: &str| pod(json!({"azureDisk": {"diskName": "d", "diskURI": uri, "kind": kind}}));
    assert_eq!(disk("Managed", "/subscriptions/x"), "[]");
    assert_eq!(disk("Shared", "https://x"), "[]");
    assert!(
        disk("Shared", "x").starts_with("v.azureDisk.diskURI: Unsupported value: \"x\": supported values: \"https://")
    );
}

#[test]
fn persistent_volume_secrets_require_a_namespace() {
    let reference = json!({"csi": {"driver": "d", "volumeHandle": "h", "nodeExpandSecretRef": {"name": "s"}}});
    assert_eq!(
        persistent(reference),
        "v.csi.nodeExpandSecretRef.namespace: Required value"
    );
    let cinder = json!({"cinder": {"volumeID": "a", "secretRef": {"name": "s"}}});
    assert_eq!(
        persistent(cinder.clone()),
        "v.cinder.secretRef.namespace: Required value"
    );
    assert_eq!(pod(cinder), "[]");
}

#[test]
fn source_errors_match_upstream() {
    for (holder, want) in [
        (
            json!({"nfs": {"server": "s"}}),
            "[v.nfs.path: Required value, v.nfs.path: Invalid value: \"\": must be an absolute path]",
        ),
        (json!({"rbd": {"image": "i"}}), "v.rbd.monitors: Required value"),
        (json!({"cephfs": {}}), "v.cephfs.monitors: Required value"),
        (
            json!({"flocker": {}}),
            "v.flocker: Required value: one of datasetName and datasetUUID is required",
        ),
        (
            json!({"quobyte": {"registry": "a", "volume": "v"}}),
            "v.quobyte.registry: Invalid value: \"a\": must be a host:port pair or multiple pairs separated by commas",
        ),
        (json!({"storageos": {}}), "v.storageos.volumeName: Required value"),
        (
            json!({"flexVolume": {"driver": "d", "options": {"K8S.io/a": "b"}}}),
            "v.flexVolume.options[K8S.io/a]: Invalid value: \"K8S.io/a\": kubernetes.io and k8s.io namespaces are reserved",
        ),
        (
            json!({"awsElasticBlockStore": {"volumeID": "a", "partition": 256}}),
            "v.awsElasticBlockStore.partition: Invalid value: 256: must be between 1 and 255, inclusive",
        ),
        (
            json!({"csi": {"driver": "d", "nodePublishSecretRef": {"name": "A"}}}),
            "v.csi.name: Invalid value: \"A\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        ),
    ] {
        assert_eq!(pod(holder), want);
    }
}

#[test]
fn file_paths_stay_within_the_volume() {
    let at = |path: &str| pod(json!({"configMap": {"name": "c", "items": [{"key": "k", "path": path}]}}));
    assert_eq!(at("a/b"), "[]");
    let field = "v.configMap.items[0].path: Invalid value";
    assert_eq!(
        at(".."),
        format!("[{field}: \"..\": must not contain '..', {field}: \"..\": must not start with '..']")
    );
    assert_eq!(at("..x"), format!("{field}: \"..x\": must not start with '..'"));
}
