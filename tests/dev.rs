//! `torana dev` as a developer uses it.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use support::{Process, wait_for};

const MANIFESTS: &str = r#"
apiVersion: shop.example.com/v1
kind: Widget
metadata: {name: w, namespace: shop}
---
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: shop}
spec: {containers: [{name: c, image: i}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.shop.example.com}
spec:
  group: shop.example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"#;

fn dev(dir: &Path, args: &[&str]) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_torana"));
    command.arg("dev").arg("--secure-port=0").args(args);
    command.env("KUBECONFIG", dir.join("kubeconfig"));
    Process::spawn(&mut command, dir.join("dev.log"))
}

fn kubectl(config: &Path, args: &[&str]) -> String {
    let out = Command::new("kubectl")
        .arg("--kubeconfig")
        .arg(config)
        .args(args)
        .output();
    let out = out.expect("kubectl is installed (make tools)");
    assert!(
        out.status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8_lossy(&out.stdout).into_owned()
}

#[test]
fn a_session_applies_manifests_and_leaves_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let manifests = dir.path().join("manifests");
    std::fs::create_dir(&manifests).expect("a directory");
    std::fs::write(manifests.join("a.yaml"), MANIFESTS).expect("a manifest");
    let config = dir.path().join("kubeconfig");
    std::fs::write(&config, "kind: Config\ncurrent-context: mine\n").expect("a kubeconfig");

    let apply = format!("--apply={}", manifests.display());
    let mut process = dev(dir.path(), &["--ephemeral", "--merge-kubeconfig", &apply]);
    for line in [
        "customresourcedefinition/widgets.shop.example.com created",
        "widget/w in shop created",
        "pod/p in shop created",
    ] {
        wait_for(line, || process.log().contains(line));
    }
    assert_eq!(kubectl(&config, &["config", "current-context"]).trim(), "torana");
    assert_eq!(
        kubectl(&config, &["get", "widgets,pods", "-n", "shop", "-o", "name"])
            .lines()
            .count(),
        2
    );

    let more = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: later, namespace: shop}\n";
    std::fs::write(manifests.join("b.yaml"), more).expect("a manifest");
    let created = "configmap/later in shop created";
    wait_for(created, || process.log().contains(created));
    std::fs::write(manifests.join("b.yaml"), format!("{more}data: {{a: b}}\n")).expect("a manifest");
    let configured = "configmap/later in shop configured";
    wait_for(configured, || process.log().contains(configured));

    let log = process.log();
    let store = log
        .lines()
        .find_map(|l| l.trim().strip_prefix("store"))
        .expect("it names the store");
    let store = PathBuf::from(store.split_whitespace().next().expect("a directory"));
    assert!(store.join("pki").is_dir());
    process.signal("INT");
    assert_eq!(process.wait(Duration::from_secs(20)), Some(0));
    assert!(!store.exists());
    assert_eq!(
        kubectl(&config, &["config", "view", "-o", "jsonpath={.current-context}"]),
        "mine"
    );
    assert!(
        !std::fs::read_to_string(&config)
            .expect("it is there")
            .contains("torana")
    );
}

#[test]
fn a_manifest_that_cannot_be_applied_is_reported_and_the_others_are_applied() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let manifests = dir.path().join("manifests");
    std::fs::create_dir(&manifests).expect("a directory");
    let bad = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: \"NO\"}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: good}\n";
    std::fs::write(manifests.join("a.yaml"), bad).expect("a manifest");
    let apply = format!("--apply={}", manifests.display());
    let process = dev(dir.path(), &["--ephemeral", &apply]);
    for line in [
        "configmap/good created",
        "error: configmap/NO: ConfigMap \"NO\" is invalid",
    ] {
        wait_for(line, || process.log().contains(line));
    }
}
