//! Owners as users and controllers set them.

use super::support::{Gateway, wait_for};
use super::{exists, gateway};

fn uid(g: &Gateway, object: &str) -> String {
    g.kubectl(&["get", object, "-o", "jsonpath={.metadata.uid}"])
}

/// Creates the objects of a Deployment by hand, as its controller would.
fn rollout(g: &Gateway) {
    let metadata = |name: &str, kind: &str, owner: &str| {
        let uid = uid(g, &format!("{kind}/{owner}"));
        format!(
            "{{name: {name}, labels: {{app: d}}, ownerReferences: [{{apiVersion: apps/v1, kind: {kind}, name: {owner}, \
             uid: {uid}, controller: true, blockOwnerDeletion: true}}]}}"
        )
    };
    let spec = "spec:\n  selector: {matchLabels: {app: d}}\n  template:\n    metadata: {labels: {app: d}}\n    \
                spec: {containers: [{name: c, image: i}]}\n";
    let create = |text: &str| g.kubectl_in(&["create", "-f", "-"], Some(text));
    create(&format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: d}}\n{spec}"
    ));
    let set = metadata("rs", "Deployment", "d");
    create(&format!(
        "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {set}\n{spec}"
    ));
    for name in ["p0", "p1"] {
        let pod = metadata(name, "ReplicaSet", "rs");
        create(&format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {pod}\nspec: {{containers: [{{name: c, image: i}}]}}\n"
        ));
    }
}

#[test]
fn objects_of_a_deployment_are_deleted_with_it_or_orphaned() {
    let (_dir, g) = gateway();
    wait_for("the default account", || exists(&g, &["sa", "default"]));
    for policy in ["foreground", "background"] {
        rollout(&g);
        g.kubectl(&[
            "delete",
            "deployment",
            "d",
            &format!("--cascade={policy}"),
            "--timeout=30s",
        ]);
        wait_for("all are gone", || !exists(&g, &["deployments,replicasets,pods"]));
    }
    rollout(&g);
    g.kubectl(&["delete", "deployment", "d", "--cascade=orphan", "--timeout=30s"]);
    let owners = "jsonpath={.metadata.ownerReferences}";
    assert_eq!(g.kubectl(&["get", "replicaset", "rs", "-o", owners]), "");
    assert_eq!(g.kubectl(&["get", "pods", "-o", "name"]).lines().count(), 2);
    g.kubectl(&["delete", "replicaset", "rs", "--cascade=foreground", "--timeout=30s"]);
    assert!(!exists(&g, &["pods"]), "they go first");
}

#[test]
fn an_owner_in_another_namespace_is_reported() {
    let (_dir, g) = gateway();
    for namespace in ["here", "there"] {
        g.kubectl(&["create", "namespace", namespace]);
    }
    g.kubectl(&["create", "secret", "generic", "owner", "-n", "there"]);
    let uid = g.kubectl(&[
        "get",
        "secret",
        "owner",
        "-n",
        "there",
        "-o",
        "jsonpath={.metadata.uid}",
    ]);
    let references = format!("ownerReferences: [{{apiVersion: v1, kind: Secret, name: owner, uid: {uid}}}]");
    let dependent =
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: d\n  namespace: here\n  {references}\n");
    let namespace = format!("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: wide\n  {references}\n");
    g.kubectl_in(&["create", "-f", "-"], Some(&format!("{dependent}---\n{namespace}")));
    let events = |namespace: &str, kind: &str| {
        let of = format!("--field-selector=reason=OwnerRefInvalidNamespace,involvedObject.kind={kind}");
        let line = "jsonpath={range .items[*]}{.source.component}: {.message}{end}";
        g.kubectl(&["get", "events", "-n", namespace, &of, "-o", line])
    };
    let expected = |namespace: &str| {
        format!(
            "garbage-collector-controller: ownerRef [v1/Secret, namespace: {namespace}, name: owner, uid: {uid}] does not \
             exist in namespace \"{namespace}\""
        )
    };
    wait_for("it is reported", || events("here", "ConfigMap") == expected("here"));
    wait_for("it is deleted", || !exists(&g, &["configmap", "d", "-n", "here"]));
    // A cluster-scoped object cannot have such an owner, and stays.
    wait_for("it is reported", || events("default", "Namespace") == expected(""));
    assert!(exists(&g, &["namespace", "wide"]));
}
