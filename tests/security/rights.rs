//! Privilege escalation with a node's credential, and with certificate signing requests, is refused.

use crate::revocation_rounds::Administrator;
use crate::support::Gateway;
use crate::wire::{Ca, Caller, GatewayResponse};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::string::{BmpString, Ia5String, PrintableString, TeletexString, UniversalString};
use rcgen::{CertificateParams, DnType, DnValue, KeyPair};
use std::path::Path;
use torana::apimachinery::Value;
use torana::apimachinery::codec::json;
use torana::json;

const ACCOUNTS: &str = "/api/v1/namespaces/kube-system/serviceaccounts";
const PODS: &str = "/api/v1/namespaces/kube-system/pods";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

fn post(caller: &mut Caller, path: &str, token: Option<&str>, body: &Value) -> GatewayResponse {
    let text = String::from_utf8(json::to_vec(body)).expect("JSON is text");
    let authorization = token.map(|t| format!("Bearer {t}"));
    let headers: Vec<_> = authorization.iter().map(|a| ("Authorization", a.as_str())).collect();
    caller.send("POST", path, &headers, &text)
}

/// A gateway with a privileged service account and two nodes, an administrator, and the first node's
/// credential.
fn with_a_node(dir: &Path, flags: &[&str]) -> (Gateway, Administrator, Caller) {
    let g = Gateway::start_with(dir, flags);
    let mut admin = Administrator::of(&g);
    admin.create(ACCOUNTS, &json!({"metadata": {"name": "boss"}}));
    for name in ["n1", "n2"] {
        admin.create("/api/v1/nodes", &json!({"metadata": {"name": name}}));
    }
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"});
    let subjects = json!([{"kind": "ServiceAccount", "name": "boss", "namespace": "kube-system"}]);
    admin.create(
        BINDINGS,
        &json!({"metadata": {"name": "boss"}, "roleRef": role, "subjects": subjects}),
    );
    let identity = Ca::of(&g.dir.join("data/pki"), "client-ca").client("system:node:n1", &["system:nodes"]);
    let node = Caller::of(&g, Some(&identity));
    (g, admin, node)
}

fn pod(node: &str) -> Value {
    json!({"metadata": {"name": "p"}, "spec": {"nodeName": node, "serviceAccountName": "boss",
        "containers": [{"name": "c", "image": "i"}]}})
}

fn bound_to(pod: &Value) -> Value {
    let uid = pod.str_at(&["metadata", "uid"]);
    json!({"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid}}})
}

#[test]
fn without_node_restriction_a_node_is_cluster_admin_in_three_requests() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (g, _, mut node) = with_a_node(dir.path(), &["--disable-admission-plugins=NodeRestriction"]);
    let warning = "any kubelet's credential is as good as cluster-admin's";
    assert!(
        g.process.log().contains(warning),
        "start-up warns:\n{}",
        g.process.log()
    );

    let made = post(&mut node, PODS, None, &pod("n1"));
    assert_eq!(made.code, 201, "a pod that runs as the account: {made:?}");
    let token = post(
        &mut node,
        &format!("{ACCOUNTS}/boss/token"),
        None,
        &bound_to(&made.json()),
    );
    assert_eq!(token.code, 201, "a token of it: {token:?}");
    let token = token.json().str_at(&["status", "token"]).to_owned();
    let ca = std::fs::read(g.dir.join("data/pki/ca.crt")).expect("it was generated");
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"});
    let subjects = json!([{"kind": "User", "name": "system:node:n1", "apiGroup": "rbac.authorization.k8s.io"}]);
    let binding = json!({"metadata": {"name": "mine"}, "roleRef": role, "subjects": subjects});
    let bound = post(&mut Caller::new(&g.url(), &ca, None), BINDINGS, Some(&token), &binding);
    assert_eq!(bound.code, 201, "everything, for the node: {bound:?}");
}

#[test]
fn by_default_a_node_cannot_gain_rights() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (g, mut admin, mut node) = with_a_node(dir.path(), &[]);
    assert!(!g.process.log().contains("NodeRestriction"), "nothing to warn of");
    let mut refused = |method: &str, path: &str, body: &Value, why: &str| {
        let text = match body {
            Value::Null => String::new(),
            body => String::from_utf8(json::to_vec(body)).expect("JSON is text"),
        };
        let answer = node.send(method, path, &[], &text);
        assert_eq!(answer.code, 403, "{method} {path}: {answer:?}");
        assert!(answer.body.contains(why), "{method} {path}: {answer:?}");
    };
    refused("POST", PODS, &pod("n1"), "can only create mirror pods");
    let mut mirror = pod("n1");
    mirror.unset(&["spec", "serviceAccountName"]);
    mirror.set(&["metadata", "annotations", "kubernetes.io/config.mirror"], "x");
    refused("POST", PODS, &mirror, "owner reference set to itself");

    let elsewhere = admin.create(PODS, &pod("n2"));
    let tokens = format!("{ACCOUNTS}/boss/token");
    refused(
        "POST",
        &tokens,
        &bound_to(&elsewhere),
        "no relationship found between node",
    );
    refused(
        "DELETE",
        &format!("{PODS}/p"),
        &Value::Null,
        "can only delete pods with spec.nodeName set to itself",
    );

    let mut other = admin.send("GET", "/api/v1/nodes/n2", &Value::Null);
    other.set(&["metadata", "labels", "x"], "y");
    refused("PUT", "/api/v1/nodes/n2", &other, "is not allowed to modify node");
    refused(
        "PUT",
        "/api/v1/nodes/n2/status",
        &other,
        "is not allowed to modify node",
    );
    let mut own = admin.send("GET", "/api/v1/nodes/n1", &Value::Null);
    own.set(&["metadata", "labels", "node-restriction.kubernetes.io/trusted"], "y");
    refused("PUT", "/api/v1/nodes/n1", &own, "is not allowed to modify labels");
    let mut own = admin.send("GET", "/api/v1/nodes/n1", &Value::Null);
    own.set(&["spec", "taints"], json!([{"key": "k", "effect": "NoSchedule"}]));
    refused("PUT", "/api/v1/nodes/n1", &own, "is not allowed to modify taints");
}

#[test]
fn a_node_can_still_do_a_kubelets_work() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (_g, mut admin, mut node) = with_a_node(dir.path(), &[]);
    let mut done = |method: &str, path: &str, body: &Value| {
        let text = String::from_utf8(json::to_vec(body)).expect("JSON is text");
        let answer = node.send(method, path, &[], &text);
        assert!(answer.code < 300, "{method} {path}: {answer:?}");
    };
    let own = admin.send("GET", "/api/v1/nodes/n1", &Value::Null);
    done("PUT", "/api/v1/nodes/n1/status", &own);
    let lease = json!({"metadata": {"name": "n1"}, "spec": {"holderIdentity": "n1"}});
    done(
        "POST",
        "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
        &lease,
    );
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n1", "controller": true,
        "uid": (own.str_at(&["metadata", "uid"]))});
    let mut mirror = pod("n1");
    mirror.unset(&["spec", "serviceAccountName"]);
    mirror.set(&["metadata", "name"], "mirror");
    mirror.set(&["metadata", "annotations", "kubernetes.io/config.mirror"], "x");
    mirror.set(&["metadata", "ownerReferences"], json!([owner]));
    done("POST", PODS, &mirror);
    let assigned = admin.create(PODS, &pod("n1"));
    done("POST", &format!("{ACCOUNTS}/boss/token"), &bound_to(&assigned));
}

fn csr(organization: DnValue) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::OrganizationName, organization);
    let key = KeyPair::generate().expect("a key");
    params.serialize_request(&key).expect("a request").pem().expect("PEM")
}

fn asking(name: &str, pem: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"signerName": "kubernetes.io/kube-apiserver-client",
        "usages": ["client auth"], "request": (STANDARD.encode(pem))}})
}

#[test]
fn requests_for_a_masters_certificate_are_refused_in_any_encoding() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let g = Gateway::start(dir.path());
    let identity = Ca::of(&g.dir.join("data/pki"), "client-ca").client("root", &["system:masters"]);
    let mut caller = Caller::of(&g, Some(&identity));
    let masters = "system:masters";
    let spellings = [
        DnValue::Utf8String(masters.into()),
        DnValue::PrintableString(PrintableString::try_from(masters).expect("it can be printed")),
        DnValue::Ia5String(Ia5String::try_from(masters).expect("it is ASCII")),
        DnValue::TeletexString(TeletexString::try_from(masters).expect("it is ASCII")),
        DnValue::BmpString(BmpString::try_from(masters).expect("it is text")),
        DnValue::UniversalString(UniversalString::try_from(masters).expect("it is text")),
    ];
    for spelling in spellings {
        let answer = post(&mut caller, REQUESTS, None, &asking("hidden", &csr(spelling.clone())));
        let why = "signer with system:masters group is not allowed";
        assert!(
            answer.code == 403 && answer.body.contains(why),
            "{spelling:?}: {answer:?}"
        );
    }
    let demo = csr(DnValue::Utf8String("demo".into()));
    let hidden = csr(DnValue::Utf8String(masters.into()));
    for pem in [
        format!("{demo}{hidden}"),
        format!("{hidden}{demo}"),
        format!("x\n{demo}"),
        format!("{demo}x"),
    ] {
        let answer = post(&mut caller, REQUESTS, None, &asking("second", &pem));
        let why = "PEM block type must be CERTIFICATE REQUEST";
        assert!(answer.code == 422 && answer.body.contains(why), "{pem}: {answer:?}");
    }
    let answer = post(&mut caller, REQUESTS, None, &asking("demo", &demo));
    assert_eq!(answer.code, 201, "{answer:?}");
    let stored = caller.get(&format!("{REQUESTS}/demo"), &[]).json();
    assert_eq!(
        stored.str_at(&["spec", "request"]),
        STANDARD.encode(&demo),
        "the checked bytes are the stored bytes"
    );
}
