//! An unmodified kubectl against a gateway process, for core and aggregated resources.

mod support;

use support::Gateway;

fn gateway() -> (tempfile::TempDir, Gateway) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let g = Gateway::start(dir.path());
    (dir, g)
}

const CONFIG_MAP: &str =
    "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\n  labels: {app: demo}\ndata:\n  colour: green\n";

#[test]
fn objects_are_applied_displayed_edited_patched_and_deleted() {
    let (_dir, g) = gateway();
    assert!(
        g.kubectl_in(&["apply", "-f", "-"], Some(CONFIG_MAP))
            .contains("configmap/settings created")
    );
    assert!(
        g.kubectl_in(&["apply", "-f", "-"], Some(CONFIG_MAP))
            .contains("configmap/settings unchanged")
    );
    let blue = CONFIG_MAP.replace("green", "blue");
    assert!(g.kubectl_in(&["diff", "-f", "-"], Some(CONFIG_MAP)).is_empty());
    assert!(
        g.kubectl_in(&["apply", "-f", "-"], Some(&blue))
            .contains("configmap/settings configured")
    );
    assert_eq!(
        g.kubectl(&["get", "cm", "settings", "-o", "jsonpath={.data.colour}"]),
        "blue"
    );
    assert!(
        g.kubectl(&["get", "cm", "settings", "-o", "yaml"])
            .contains("colour: blue")
    );
    let wide = g.kubectl(&["get", "configmaps", "-o", "wide", "-l", "app=demo"]);
    assert!(wide.starts_with("NAME       DATA   AGE"), "{wide}");
    assert!(
        g.kubectl(&["describe", "cm", "settings"])
            .contains("colour:\n----\nblue")
    );
    g.kubectl(&["label", "cm", "settings", "tier=gold"]);
    g.kubectl(&["annotate", "cm", "settings", "note=x"]);
    g.kubectl(&["patch", "cm", "settings", "-p", r#"{"data":{"size":"9"}}"#]);
    g.kubectl(&[
        "patch",
        "cm",
        "settings",
        "--type=json",
        "-p",
        r#"[{"op":"remove","path":"/data/colour"}]"#,
    ]);
    g.kubectl(&[
        "patch",
        "cm",
        "settings",
        "--type=merge",
        "-p",
        r#"{"metadata":{"annotations":{"note":null}}}"#,
    ]);
    assert_eq!(
        g.kubectl(&[
            "get",
            "cm",
            "settings",
            "-o",
            "jsonpath={.data} {.metadata.labels.tier}"
        ]),
        r#"{"size":"9"} gold"#
    );
    assert!(g.kubectl(&["delete", "cm", "settings"]).contains("deleted"));
    assert!(g.kubectl_fails(&["get", "cm", "settings"], None).contains("(NotFound)"));
}

#[test]
fn an_editor_session_changes_the_object() {
    let (dir, g) = gateway();
    g.kubectl(&["create", "configmap", "e", "--from-literal=k=before"]);
    let editor = dir.path().join("editor.sh");
    std::fs::write(&editor, "#!/bin/sh\nsed -i s/before/after/ \"$1\"\n").expect("the editor is written");
    let out = std::process::Command::new("kubectl")
        .env("KUBE_EDITOR", format!("sh {}", editor.display()))
        .arg("--kubeconfig")
        .arg(g.kubeconfig())
        .args(["edit", "configmap", "e"])
        .output()
        .expect("kubectl runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(g.kubectl(&["get", "cm", "e", "-o", "jsonpath={.data.k}"]), "after");
}

#[test]
fn discovery_and_explain_work() {
    let (_dir, g) = gateway();
    let resources = g.kubectl(&["api-resources"]);
    for line in [
        "configmaps                          cm",
        "namespaces                          ns",
        "leases",
        "apiservices",
        "endpointslices",
    ] {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert!(
            resources
                .lines()
                .any(|l| words.iter().all(|w| l.split_whitespace().any(|x| x == *w))),
            "{line}\n{resources}"
        );
    }
    let versions = g.kubectl(&["api-versions"]);
    assert!(versions.lines().any(|l| l == "coordination.k8s.io/v1"), "{versions}");
    let explained = g.kubectl(&["explain", "service.spec.ports"]);
    assert!(
        explained.contains("targetPort") && explained.contains("<IntOrString>"),
        "{explained}"
    );
    assert!(g.kubectl(&["version"]).contains("Server Version: v1.36"));
    assert!(g.kubectl(&["get", "--raw", "/healthz"]).contains("ok"));
    assert!(g.kubectl(&["cluster-info"]).contains("is running at"));
}

#[test]
fn a_watch_prints_changes() {
    // kubectl watches a list from the list's own version, so changes between the two requests are printed
    // too. For one object by name it watches from "0" and discards the first event, so it can miss such a
    // change.
    let (_dir, g) = gateway();
    g.kubectl(&["create", "configmap", "w"]);
    let mut watch = support::Process::spawn(
        std::process::Command::new("kubectl")
            .arg("--kubeconfig")
            .arg(g.kubeconfig())
            .args([
                "get",
                "cm",
                "--field-selector=metadata.name=w",
                "--watch",
                "-o",
                "jsonpath={.data.n}{\"\\n\"}",
                // Longer than the waits below: the watch ends with it.
                "--request-timeout=300s",
            ]),
        g.dir.join("watch.log"),
    );
    for n in ["1", "2"] {
        g.kubectl(&["patch", "cm", "w", "-p", &format!(r#"{{"data":{{"n":"{n}"}}}}"#)]);
        support::wait_for("the change is printed", || watch.log().lines().any(|l| l == n));
    }
    watch.child.kill().expect("the child is ours");
}

#[test]
fn invalid_input_gets_a_clear_error_and_changes_nothing() {
    let (_dir, g) = gateway();
    let e = g.kubectl_fails(
        &["create", "-f", "-"],
        Some("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: Bad_Name}\n"),
    );
    assert!(e.contains("a lowercase RFC 1123 subdomain must consist of"), "{e}");
    let e = g.kubectl_fails(
        &["apply", "-f", "-"],
        Some("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {k: 1}\nspec: {}\n"),
    );
    assert!(
        e.contains("unknown field \"spec\"") || e.contains("cannot unmarshal"),
        "{e}"
    );
    let e = g.kubectl_fails(
        &["create", "-f", "-"],
        Some("apiVersion: v2\nkind: Nope\nmetadata: {name: x}\n"),
    );
    assert!(e.contains("no matches for kind \"Nope\""), "{e}");
    let e = g.kubectl_fails(&["create", "cm", "x", "-n", "missing"], None);
    assert!(e.contains("namespaces \"missing\" not found"), "{e}");
    assert!(g.kubectl_fails(&["get", "cm", "x"], None).contains("NotFound"));
}

#[test]
fn an_aggregated_api_server_behaves_like_a_local_group() {
    let (_dir, g) = gateway();
    let mut example = g.with_example();
    support::wait_for("the APIService is Available", || {
        g.kubectl(&["get", "apiservice", "v1.gadgets.example.com"])
            .contains("True")
    });
    g.kubectl(&["api-resources", "--api-group=gadgets.example.com"]);
    let gadget = "apiVersion: gadgets.example.com/v1\nkind: Gadget\nmetadata: {name: one}\nspec: {size: 3}\n";
    assert!(g.kubectl_in(&["apply", "-f", "-"], Some(gadget)).contains("created"));
    assert!(
        g.kubectl_in(&["apply", "-f", "-"], Some(&gadget.replace('3', "4")))
            .contains("configured")
    );
    assert_eq!(g.kubectl(&["get", "gadget", "one", "-o", "jsonpath={.spec.size}"]), "4");
    assert!(g.kubectl(&["get", "gadgets", "-o", "wide"]).contains("one"));
    assert!(g.kubectl(&["describe", "gadget", "one"]).contains("Size:"));
    g.kubectl(&["label", "gadget", "one", "a=b"]);
    g.kubectl(&["patch", "gadget", "one", "--type=merge", "-p", r#"{"spec":{"size":5}}"#]);
    let explained = g.kubectl(&["explain", "gadget.spec"]);
    assert!(explained.contains("size"), "{explained}");
    let e = g.kubectl_fails(
        &["apply", "-f", "-"],
        Some(&gadget.replace('3', "-3").replace("one", "two")),
    );
    assert!(e.contains("spec.size"), "{e}");
    g.kubectl(&["delete", "gadget", "one"]);

    example.child.kill().expect("the child is ours");
    example.child.wait().expect("the child is ours");
    let e = g.kubectl_fails(
        &[
            "get",
            "--raw",
            "/apis/gadgets.example.com/v1/namespaces/default/gadgets",
        ],
        None,
    );
    assert!(
        e.contains("unable to handle the request")
            || e.contains("error trying to reach service")
            || e.contains("service unavailable"),
        "{e}"
    );
    assert!(
        g.kubectl(&["get", "ns"]).contains("kube-system"),
        "other groups are untouched"
    );
    assert!(g.kubectl(&["get", "apiservices"]).contains("v1.gadgets.example.com"));
}

#[test]
fn service_account_tokens_are_created_and_authenticate() {
    let (_dir, g) = gateway();
    g.kubectl(&["create", "serviceaccount", "robot"]);
    let token = g.kubectl(&["create", "token", "robot", "--duration=20m"]);
    let token = token.trim();
    assert_eq!(token.split('.').count(), 3, "{token}");
    let review =
        format!(r#"{{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{{"token":"{token}"}}}}"#);
    let said = g.kubectl_in(
        &["create", "-o", "jsonpath={.status.user.username}", "-f", "-"],
        Some(&review),
    );
    assert_eq!(said, "system:serviceaccount:default:robot");
    let bound = g.kubectl(&["create", "secret", "generic", "s"]);
    assert!(bound.contains("created"), "{bound}");
    let token = g.kubectl(&[
        "create",
        "token",
        "robot",
        "--bound-object-kind=Secret",
        "--bound-object-name=s",
    ]);
    assert_eq!(token.trim().split('.').count(), 3, "{token}");
}

const ROLE: &str = "apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: r, namespace: default}
rules:
- {apiGroups: [\"\"], resources: [pods], verbs: [get, list]}
- {apiGroups: [rbac.authorization.k8s.io], resources: [roles, rolebindings], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: rb, namespace: default}
roleRef: {kind: Role, name: r, apiGroup: rbac.authorization.k8s.io}
subjects:
- {kind: User, name: bob, apiGroup: rbac.authorization.k8s.io}
";

#[test]
fn access_is_granted_listed_and_explained() {
    let (_dir, g) = gateway();
    let said = g.kubectl_in(&["auth", "reconcile", "-f", "-"], Some(ROLE));
    assert!(
        said.contains("rolebinding.rbac.authorization.k8s.io/rb reconciled"),
        "{said}"
    );
    g.kubectl_in(&["auth", "reconcile", "-f", "-"], Some(ROLE));
    let who = g.kubectl(&["auth", "whoami", "--as=bob", "--as-group=dev"]);
    assert!(
        who.contains("bob") && who.contains("[dev system:authenticated]"),
        "{who}"
    );
    assert_eq!(g.kubectl(&["auth", "can-i", "get", "pods", "--as=bob"]).trim(), "yes");
    g.kubectl_fails(&["auth", "can-i", "delete", "pods", "--as=bob"], None);
    let list = g.kubectl(&["auth", "can-i", "--list", "--as=bob"]);
    assert!(
        list.contains("pods") && list.contains("selfsubjectreviews.authentication.k8s.io"),
        "{list}"
    );
    g.kubectl(&["get", "pods", "--as=bob"]);
    let e = g.kubectl_fails(&["get", "pods", "--as=alice"], None);
    assert!(e.contains("User \"alice\" cannot list resource \"pods\""), "{e}");
    g.kubectl(&["create", "role", "less", "--verb=get", "--resource=pods", "--as=bob"]);
    let e = g.kubectl_fails(
        &["create", "role", "more", "--verb=delete", "--resource=pods", "--as=bob"],
        None,
    );
    assert!(
        e.contains("is attempting to grant RBAC permissions not currently held"),
        "{e}"
    );
    let bind = [
        "create",
        "rolebinding",
        "x",
        "--clusterrole=cluster-admin",
        "--user=bob",
        "--as=bob",
    ];
    let e = g.kubectl_fails(&bind, None);
    assert!(e.contains("not currently held"), "{e}");
    let explain = |args: &[&str]| {
        let out = std::process::Command::new(env!("CARGO_BIN_EXE_torana"))
            .arg("explain-access")
            .args(args)
            .arg("--kubeconfig")
            .arg(g.kubeconfig())
            .output()
            .expect("it runs");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    let why = explain(&["bob", "get", "pods", "-n", "default"]);
    assert!(
        why.starts_with("allowed: ") && why.contains("RoleBinding \"rb/default\" of Role \"r\""),
        "{why}"
    );
    let why = explain(&["bob", "delete", "pods", "-n", "default"]);
    assert!(
        why.contains("close, but for the verb: RoleBinding \"rb/default\""),
        "{why}"
    );
}

#[test]
fn a_backend_sees_the_user_that_the_gateway_authenticated() {
    let (_dir, g) = gateway();
    let _example = g.with_example();
    let gadget = "apiVersion: gadgets.example.com/v1\nkind: Gadget\nmetadata: {name: one}\nspec: {size: 3}\n";
    g.kubectl_in(&["apply", "-f", "-"], Some(gadget));
    g.kubectl(&[
        "create",
        "role",
        "r",
        "--verb=get",
        "--resource=gadgets.gadgets.example.com",
    ]);
    g.kubectl(&["create", "rolebinding", "b", "--role=r", "--user=jane"]);
    // The example server sends a SubjectAccessReview for the forwarded user, so the gateway authorizes the
    // same user twice.
    g.kubectl(&["get", "gadget", "one", "--as=jane"]);
    let e = g.kubectl_fails(&["get", "gadget", "one", "--as=bob"], None);
    assert!(e.contains("User \"bob\" cannot get resource \"gadgets\""), "{e}");
    let e = g.kubectl_fails(&["delete", "gadget", "one", "--as=jane"], None);
    assert!(e.contains("User \"jane\" cannot delete resource \"gadgets\""), "{e}");
}
