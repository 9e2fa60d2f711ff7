//! Tokens in Secrets: of ServiceAccounts, and for nodes that join.

use super::support::{Gateway, wait_for};
use super::{exists, gateway};

const SECRET: &str = r#"
apiVersion: v1
kind: Secret
metadata: {name: NAME, annotations: {kubernetes.io/service-account.name: robot}}
type: kubernetes.io/service-account-token
"#;

fn create_secret(g: &Gateway, name: &str) {
    g.kubectl_in(&["create", "-f", "-"], Some(&SECRET.replace("NAME", name)));
}

fn get(g: &Gateway, object: &str, path: &str) -> String {
    g.kubectl(&["get", object, "-o", &format!("jsonpath={{{path}}}")])
}

fn decoded(text: &str) -> String {
    use base64::Engine as _;
    let bytes = base64::engine::general_purpose::STANDARD.decode(text);
    String::from_utf8(bytes.expect("it is base64")).expect("it is text")
}

#[test]
fn a_secret_is_filled_with_a_token_and_deleted_with_its_account() {
    let (_dir, g) = gateway();
    g.kubectl(&["create", "serviceaccount", "robot"]);
    create_secret(&g, "t");
    wait_for("it has a token", || !get(&g, "secret/t", ".data.token").is_empty());
    assert_eq!(decoded(&get(&g, "secret/t", ".data.namespace")), "default");
    assert!(decoded(&get(&g, "secret/t", ".data.ca\\.crt")).starts_with("-----BEGIN CERTIFICATE-----"));
    let token = decoded(&get(&g, "secret/t", ".data.token"));
    g.kubectl(&["config", "set-credentials", "robot", "--token", &token]);
    let name = "jsonpath={.status.userInfo.username}";
    let who = g.kubectl(&["--user=robot", "auth", "whoami", "-o", name]);
    assert_eq!(who, "system:serviceaccount:default:robot");

    // The account lists the Secret only as long as it exists.
    let listed = r#"{"secrets":[{"name":"t"},{"name":"other"}]}"#;
    g.kubectl(&["patch", "serviceaccount", "robot", "--type=merge", "-p", listed]);
    g.kubectl(&["delete", "secret", "t"]);
    wait_for("it is not listed", || {
        get(&g, "sa/robot", ".secrets[*].name") == "other"
    });
    g.kubectl_fails(&["--user=robot", "auth", "whoami"], None);

    create_secret(&g, "t");
    wait_for("it has a token", || !get(&g, "secret/t", ".data.token").is_empty());
    g.kubectl(&["delete", "serviceaccount", "robot"]);
    wait_for("it is deleted with its account", || !exists(&g, &["secret", "t"]));
    create_secret(&g, "t");
    wait_for("one without an account is deleted", || !exists(&g, &["secret", "t"]));
}

#[test]
fn an_unused_generated_token_is_marked_and_then_deleted() {
    let (dir, g) = gateway();
    g.kubectl(&["create", "serviceaccount", "robot"]);
    for name in ["unused", "mounted", "made"] {
        create_secret(&g, name);
        let secret = format!("secret/{name}");
        wait_for("it has a token", || !get(&g, &secret, ".data.token").is_empty());
    }
    let listed = r#"{"secrets":[{"name":"unused"},{"name":"mounted"}]}"#;
    g.kubectl(&["patch", "serviceaccount", "robot", "--type=merge", "-p", listed]);
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers: [{name: c, image: i}]\n  \
               volumes: [{name: v, secret: {secretName: mounted}}]\n";
    wait_for("the default account", || exists(&g, &["sa", "default"]));
    g.kubectl_in(&["create", "-f", "-"], Some(pod));
    let tracked = "cm/kube-apiserver-legacy-service-account-token-tracking";
    let since = r#"{"data":{"since":"2020-01-01"}}"#;
    g.kubectl(&["patch", tracked, "-n", "kube-system", "--type=merge", "-p", since]);

    // The loop looks at the tokens when it starts.
    let restart = |g: Gateway| {
        drop(g);
        let period = "--legacy-service-account-token-clean-up-period=1ms";
        Gateway::start_with(dir.path(), &["--controllers=*", period])
    };
    let g = restart(g);
    let label = ".metadata.labels.kubernetes\\.io/legacy-token-invalid-since";
    wait_for("it is marked", || !get(&g, "secret/unused", label).is_empty());
    let long_ago = "kubernetes.io/legacy-token-invalid-since=2020-01-01";
    g.kubectl(&["label", "--overwrite", "secret", "unused", long_ago]);
    let g = restart(g);
    wait_for("it is deleted", || !exists(&g, &["secret", "unused"]));
    for kept in ["secret/mounted", "secret/made"] {
        assert_eq!(get(&g, kept, label), "", "{kept} is in use, or was not generated");
    }
}

const JOINING: &str = r#"
apiVersion: v1
kind: Secret
metadata: {name: bootstrap-token-abcdef, namespace: kube-system}
type: bootstrap.kubernetes.io/token
stringData: {token-id: abcdef, token-secret: 0123456789abcdef, usage-bootstrap-signing: "true"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: cluster-info, namespace: kube-public}
data: {kubeconfig: "kind: Config"}
"#;

#[test]
fn the_cluster_info_is_signed_with_tokens_until_they_expire() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let g = Gateway::start_with(dir.path(), &["--controllers=bootstrapsigner,tokencleaner"]);
    g.kubectl_in(&["create", "-f", "-"], Some(JOINING));
    let path = "jsonpath={.data.jws-kubeconfig-abcdef}";
    let signature = || g.kubectl(&["get", "cm", "cluster-info", "-n", "kube-public", "-o", path]);
    wait_for("it is signed", || !signature().is_empty());
    let before = signature();
    let other = r#"{"data":{"kubeconfig":"kind: Other"}}"#;
    g.kubectl(&[
        "patch",
        "cm",
        "cluster-info",
        "-n",
        "kube-public",
        "--type=merge",
        "-p",
        other,
    ]);
    wait_for("it is signed again", || {
        ![String::new(), before.clone()].contains(&signature())
    });

    let secret = ["secret", "bootstrap-token-abcdef", "-n", "kube-system"];
    let expired = r#"{"stringData":{"expiration":"2020-01-01T00:00:00Z"}}"#;
    g.kubectl(&[&["patch"], &secret[..], &["--type=merge", "-p", expired]].concat());
    wait_for("an expired token is deleted", || !exists(&g, &secret));
    wait_for("with its signature", || signature().is_empty());
}
