use super::refs::{Pod, Volume};
use super::*;
use crate::authz::Decision;
use crate::json;
use crate::request::RequestInfo;
use http::Method;

fn view() -> View {
    let mut view = View::default();
    let pod = Pod::parse(
        &json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {"nodeName": "n1",
        "serviceAccountName": "sa",
        "imagePullSecrets": [{"name": "pull"}],
        "containers": [{"env": [{"valueFrom": {"configMapKeyRef": {"name": "cm"}}}]}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "pvc"}},
                    {"name": "e", "ephemeral": {}}]}}),
    );
    view.set_pod("n/p", None, Some(&pod));
    let mirror = Pod::parse(
        &json!({"metadata": {"name": "m", "namespace": "n", "annotations": {"kubernetes.io/config.mirror": "x"}},
        "spec": {"nodeName": "n1", "imagePullSecrets": [{"name": "stolen"}]}}),
    );
    view.set_pod("n/m", None, Some(&mirror));
    let pv = Volume::parse(&json!({"spec": {"claimRef": {"namespace": "n", "name": "pvc"},
        "csi": {"nodePublishSecretRef": {"name": "csi", "namespace": "other"}, "controllerPublishSecretRef": {"name": "no"}}}}));
    view.set_volume("pv", Some(&Arc::new(pv)));
    view.set_direct(ObjectKind::Attachment, "va", None, Some(&"n1".into()));
    view
}

async fn ask(node: &Node, user: &str, method: Method, uri: &str) -> Verdict {
    let user = UserInfo::system(user, &["system:nodes"]);
    let info = RequestInfo::resolve(&method, &uri.parse().unwrap()).unwrap();
    node.authorize(&Attributes::of(&user, &info)).await
}

fn node() -> Node {
    let rule =
        PolicyRule::parse(&json!({"apiGroups": [""], "resources": ["services"], "verbs": ["get", "list", "watch"]}));
    Node::new(Graph::fixed(view()), vec![rule])
}

#[tokio::test]
async fn a_node_may_read_only_objects_that_its_pods_reference() {
    let n = node();
    let core = "/api/v1/namespaces/n";
    for path in [
        "/secrets/pull",
        "/configmaps/cm",
        "/persistentvolumeclaims/pvc",
        "/persistentvolumeclaims/p-e",
        "/pods/p",
        "/pods/m",
        "/serviceaccounts/sa",
    ] {
        let uri = format!("{core}{path}");
        let v = ask(&n, "system:node:n1", Method::GET, &uri).await;
        assert_eq!(v.decision, Decision::Allow, "{path}: {}", v.reason);
        let v = ask(&n, "system:node:n2", Method::GET, &uri).await;
        assert_eq!(
            v.reason, "no relationship found between node 'n2' and this object",
            "{path}"
        );
    }
    for uri in [
        "/api/v1/persistentvolumes/pv",
        "/api/v1/namespaces/other/secrets/csi",
        "/apis/storage.k8s.io/v1/volumeattachments/va",
        "/api/v1/services",
        "/api/v1/nodes/n1",
        "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1",
    ] {
        let v = ask(&n, "system:node:n1", Method::GET, uri).await;
        assert_eq!(v.decision, Decision::Allow, "{uri}: {}", v.reason);
    }
    for uri in ["/api/v1/namespaces/n/secrets/stolen", "/api/v1/namespaces/n/secrets/no"] {
        assert_eq!(
            ask(&n, "system:node:n1", Method::GET, uri).await.decision,
            Decision::NoOpinion
        );
    }
}

#[tokio::test]
async fn denial_reasons_match_upstream() {
    let n = node();
    for (method, uri, reason) in [
        (
            Method::DELETE,
            "/api/v1/namespaces/n/secrets/pull",
            "can only read resources of this type",
        ),
        (
            Method::GET,
            "/api/v1/secrets",
            "can only read namespaced object of this type",
        ),
        (Method::GET, "/api/v1/namespaces/n/secrets", "No Object name found"),
        (
            Method::GET,
            "/api/v1/namespaces/n/persistentvolumeclaims",
            "can only get individual resources of this type",
        ),
        (
            Method::GET,
            "/api/v1/nodes",
            "node 'n1' cannot read all nodes, only its own Node object",
        ),
        (
            Method::GET,
            "/api/v1/nodes/n2",
            "node 'n1' cannot read 'n2', only its own Node object",
        ),
        (
            Method::GET,
            "/api/v1/pods",
            "can only list/watch pods with spec.nodeName field selector",
        ),
        (
            Method::POST,
            "/api/v1/namespaces/n/serviceaccounts/other/token",
            "no relationship found between node 'n1' and this object",
        ),
        (
            Method::POST,
            "/api/v1/namespaces/n/serviceaccounts",
            "can only create tokens for individual service accounts",
        ),
        (
            Method::GET,
            "/apis/coordination.k8s.io/v1/namespaces/n/leases/n1",
            "can only access leases in the \"kube-node-lease\" system namespace",
        ),
        (
            Method::PUT,
            "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n2",
            "can only access node lease with the same name as the requesting node",
        ),
        (
            Method::GET,
            "/apis/storage.k8s.io/v1/csinodes/n2",
            "can only access CSINode with the same name as the requesting node",
        ),
        (Method::GET, "/api/v1/namespaces/n/endpoints/x", ""),
    ] {
        let v = ask(&n, "system:node:n1", method, uri).await;
        assert_eq!((v.decision, &*v.reason), (Decision::NoOpinion, reason), "{uri}");
    }
    let v = ask(&n, "system:node:", Method::GET, "/api/v1/nodes").await;
    assert_eq!(v.reason, r#"unknown node for user "system:node:""#);
}

#[tokio::test]
async fn long_field_selectors_are_not_parsed() {
    let n = node();
    let own = "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1";
    let long = format!("{own}{}", ",a%3Db".repeat(1_000));
    for (uri, decision) in [(own, Decision::Allow), (&*long, Decision::NoOpinion)] {
        assert_eq!(ask(&n, "system:node:n1", Method::GET, uri).await.decision, decision);
    }
}

#[test]
fn references_are_dropped_with_the_last_pod() {
    let mut view = view();
    let pod = |secret: &str| {
        Pod::parse(
            &json!({"metadata": {"name": "q", "namespace": "n"}, "spec": {"nodeName": "n1",
            "imagePullSecrets": [{"name": secret}]}}),
        )
    };
    let (a, b) = (pod("pull"), pod("b"));
    view.set_pod("n/q", None, Some(&a));
    view.set_pod("n/q", Some(&a), Some(&b));
    assert!(
        view.reaches("n1", ObjectKind::Secret, "n", "pull"),
        "the other pod still needs it"
    );
    view.set_pod("n/q", Some(&b), None);
    assert!(!view.reaches("n1", ObjectKind::Secret, "n", "b"));
    view.set_volume("pv", None);
    assert!(!view.reaches("n1", ObjectKind::Secret, "other", "csi"));
}
