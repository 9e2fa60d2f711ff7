use super::*;
use crate::admission::testing::{ask, cluster, request, update};
use crate::authz::AlwaysDeny;
use crate::json;
use crate::request::UserInfo;

fn plugin() -> NodeRestriction {
    let node = json!({"metadata": {"name": "n", "uid": "node-uid"}});
    let pod = |name: &str, node: &str| {
        json!({"metadata": {"name": (name), "namespace": "ns", "uid": "pod-uid"}, "spec": {"nodeName": (node),
            "volumes": [{"projected": {"sources": [{"serviceAccountToken": {"audience": "vault"}}]}}]}})
    };
    let mounting = |name: &str, volumes: Value| {
        json!({"metadata": {"name": (name), "namespace": "ns", "uid": "pod-uid"},
            "spec": {"nodeName": "n", "volumes": volumes}})
    };
    let claims = |names: &[&str]| -> Value {
        let volumes = names
            .iter()
            .map(|n| json!({"persistentVolumeClaim": {"claimName": (*n)}}));
        volumes.collect::<Vec<_>>().into()
    };
    let claim = |name: &str, volume: &str| json!({"metadata": {"name": (name), "namespace": "ns"}, "spec": {"volumeName": (volume)}});
    let driver = |name: &str| json!({"metadata": {"name": (name)}, "spec": {"tokenRequests": [{"audience": "disks"}]}});
    let pods = vec![
        pod("mine", "n"),
        pod("other", "m"),
        mounting("claims", claims(&["gone", "loose", "here", "old"])),
        mounting("lost", claims(&["gone", "loose"])),
        mounting("inline", json!([{"csi": {"driver": "nobody"}}])),
        mounting("migrated", claims(&["old"])),
    ];
    let volumes = vec![
        json!({"metadata": {"name": "pv"}, "spec": {"csi": {"driver": "disk.example.com"}}}),
        json!({"metadata": {"name": "pd"}, "spec": {"gcePersistentDisk": {"pdName": "d"}}}),
    ];
    let cluster = cluster(&[
        ("", "nodes", vec![node]),
        ("", "pods", pods),
        (
            "",
            "persistentvolumeclaims",
            vec![claim("here", "pv"), claim("old", "pd"), claim("loose", "")],
        ),
        ("", "persistentvolumes", volumes),
        (
            "storage.k8s.io",
            "csidrivers",
            vec![driver("disk.example.com"), driver("pd.csi.storage.gke.io")],
        ),
    ]);
    NodeRestriction::new(cluster, Arc::new(AlwaysDeny))
}

fn by_node(attributes: Attributes) -> Attributes {
    Attributes {
        user: Arc::new(UserInfo::system("system:node:n", &["system:nodes"])),
        ..attributes
    }
}

async fn refusal(attributes: Attributes, object: &Value) -> String {
    let outcome = ask(&plugin(), &by_node(attributes), object).await;
    outcome.map_or_else(|why| why, |_| String::new())
}

fn create(group: &str, plural: &str, name: &str) -> Attributes {
    request(Operation::Create, group, plural, name)
}

#[tokio::test]
async fn other_users_are_not_restricted() {
    let object = json!({"metadata": {"name": "m"}});
    let free = create("", "nodes", "m");
    assert!(ask(&plugin(), &free, &object).await.is_ok());
    let nameless = Attributes {
        user: Arc::new(UserInfo::system("system:node:", &["system:nodes"])),
        ..free
    };
    let refused = ask(&plugin(), &nameless, &object).await.unwrap_err();
    assert!(refused.ends_with("could not determine node from user \"system:node:\""));
}

#[tokio::test]
async fn a_node_may_update_only_parts_of_its_own_node() {
    let node = |labels: Value| json!({"metadata": {"name": "n", "labels": (labels.as_object().map(|m| m.keys().map(|k| (k.to_owned(), "x")).collect::<std::collections::BTreeMap<_, _>>()))}});
    assert_eq!(
        refusal(create("", "nodes", "m"), &json!({"metadata": {"name": "m"}})).await,
        "nodes \"m\" is forbidden: node \"n\" is not allowed to modify node \"m\""
    );
    let fine = node(json!({"kubernetes.io/os": 1, "mine": 1, "a.node.kubernetes.io/x": 1}));
    assert_eq!(refusal(create("", "nodes", "n"), &fine).await, "");
    let labelled = node(json!({"x.k8s.io/b": 1, "node-restriction.kubernetes.io/a": 1}));
    assert!(refusal(create("", "nodes", "n"), &labelled).await.ends_with(
        "node \"n\" is not allowed to set the following labels: node-restriction.kubernetes.io/a, x.k8s.io/b"
    ));
    let refused = refusal(update("", "nodes", labelled), &fine).await;
    assert!(
        refused
            .ends_with("is forbidden: is not allowed to modify labels: node-restriction.kubernetes.io/a, x.k8s.io/b")
    );
    let mut tainted = fine.clone();
    tainted.set(&["spec", "taints"], json!([{"key": "k"}]));
    let refused = refusal(update("", "nodes", fine), &tainted).await;
    assert!(refused.ends_with("node \"n\" is not allowed to modify taints"));
}

#[tokio::test]
async fn a_node_may_create_only_mirror_pods_it_owns() {
    let mut pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n"}});
    let of = async |pod: &Value| refusal(create("", "pods", "p"), pod).await;
    assert!(of(&pod).await.ends_with("node \"n\" can only create mirror pods"));
    pod.set(&["metadata", "annotations", "kubernetes.io/config.mirror"], "h");
    assert!(of(&pod).await.ends_with("with an owner reference set to itself"));
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "x", "controller": true}]);
    pod.set(&["metadata", "ownerReferences"], owner);
    assert!(of(&pod).await.ends_with("node n UID mismatch: expected x got node-uid"));
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "node-uid", "controller": true}]);
    pod.set(&["metadata", "ownerReferences"], owner);
    assert_eq!(of(&pod).await, "");
    pod.set(&["spec", "volumes"], json!([{"configMap": {"name": "c"}}]));
    assert!(
        of(&pod)
            .await
            .ends_with("can not create pods that reference configmaps")
    );
}

#[tokio::test]
async fn a_node_may_delete_and_update_only_its_own_pods() {
    let pod = |node: &str| json!({"metadata": {"name": "p"}, "spec": {"nodeName": (node)}});
    let delete = |node: &str| Attributes {
        operation: Operation::Delete,
        ..update("", "pods", pod(node))
    };
    assert_eq!(refusal(delete("n"), &Value::Null).await, "");
    assert!(
        refusal(delete("m"), &Value::Null)
            .await
            .ends_with("with spec.nodeName set to itself")
    );
    assert_eq!(refusal(update("", "pods/status", pod("n")), &pod("n")).await, "");
    let mut labelled = pod("n");
    labelled.set(&["metadata", "labels", "a"], "b");
    let refused = refusal(update("", "pods/status", pod("n")), &labelled).await;
    assert!(refused.ends_with("cannot update labels through pod status"));
    for (name, ends) in [
        ("mine", ""),
        ("other", "can only evict pods with spec.nodeName set to itself"),
        ("absent", "pod \"absent\" not found"),
    ] {
        let refused = refusal(create("", "pods/eviction", name), &json!({})).await;
        assert!(
            refused.ends_with(ends) && refused.is_empty() == ends.is_empty(),
            "{refused}"
        );
    }
    let refused = refusal(create("", "pods/binding", "mine"), &json!({})).await;
    assert!(refused.ends_with("unexpected pod subresource \"binding\", only 'status' and 'eviction' are allowed"));
}

#[tokio::test]
async fn tokens_require_a_pod_on_the_node_and_an_audience_it_uses() {
    let token = |pod: &str, uid: &str, audience: &str| {
        json!({"spec": {"audiences": [(audience)],
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": (pod), "uid": (uid)}}})
    };
    let of = async |object: Value| refusal(create("", "serviceaccounts/token", "robot"), &object).await;
    assert_eq!(of(token("mine", "pod-uid", "vault")).await, "");
    assert!(
        of(json!({"spec": {}}))
            .await
            .ends_with("node requested token not bound to a pod")
    );
    assert!(of(token("mine", "", "vault")).await.ends_with("without a uid"));
    assert!(
        of(token("mine", "old", "vault"))
            .await
            .contains("does not match the UID in record")
    );
    assert!(
        of(token("other", "pod-uid", "vault"))
            .await
            .ends_with("on a different node")
    );
    assert!(of(token("mine", "pod-uid", "else")).await.ends_with(
        "audience \"else\" not found in pod spec volume, system:node:n is not authorized to request tokens for this audience"
    ));
}

#[tokio::test]
async fn audiences_of_a_pods_csi_drivers_are_allowed() {
    let of = async |pod: &str| {
        let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": (pod), "uid": "pod-uid"});
        let object = json!({"spec": {"audiences": ["disks"], "boundObjectRef": bound}});
        refusal(create("", "serviceaccounts/token", "robot"), &object).await
    };
    assert_eq!(of("claims").await, "");
    assert_eq!(of("migrated").await, "");
    for (pod, why) in [
        (
            "lost",
            "[persistentvolumeclaim \"gone\" not found, persistentvolume \"\" not found]",
        ),
        ("inline", "csidriver.storage.k8s.io \"nobody\" not found"),
    ] {
        let refused = of(pod).await;
        assert!(
            refused.ends_with(&format!("error validating audience \"disks\": {why}")),
            "{refused}"
        );
    }
}

#[tokio::test]
async fn leases_csi_nodes_slices_and_claims_are_restricted() {
    let named = |name: &str| json!({"metadata": {"name": (name)}});
    let mut lease = create("coordination.k8s.io", "leases", "");
    let refused = refusal(lease.clone(), &named("n")).await;
    assert!(refused.ends_with("can only access leases in the \"kube-node-lease\" system namespace"));
    lease.namespace = "kube-node-lease".to_owned();
    assert_eq!(refusal(lease.clone(), &named("n")).await, "");
    assert!(
        refusal(lease, &named("m"))
            .await
            .ends_with("same name as the requesting node")
    );
    let csi = || create("storage.k8s.io", "csinodes", "m");
    assert!(
        refusal(csi(), &named("m"))
            .await
            .ends_with("CSINode with the same name as the requesting node")
    );
    let slice = json!({"spec": {"nodeName": "m"}});
    let refused = refusal(create("resource.k8s.io", "resourceslices", "s"), &slice).await;
    assert!(refused.ends_with("can only create ResourceSlice with the same NodeName as the requesting node"));
    let claim = json!({"metadata": {"name": "c"}, "status": {"phase": "Bound"}});
    let mut grown = claim.clone();
    grown.set(&["status", "capacity", "storage"], "2Gi");
    assert_eq!(
        refusal(update("", "persistentvolumeclaims/status", claim.clone()), &grown).await,
        ""
    );
    grown.set(&["status", "phase"], "Lost");
    let refused = refusal(update("", "persistentvolumeclaims/status", claim.clone()), &grown).await;
    assert!(refused.contains("is not allowed to update fields other than"));
    assert!(
        refusal(update("", "persistentvolumeclaims", claim.clone()), &claim)
            .await
            .ends_with("may only update PVC status")
    );
}
