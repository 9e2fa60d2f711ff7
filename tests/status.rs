//! `torana status` and `/debug/aggregator` of a running gateway.

#![allow(
    clippy::unwrap_used,
    reason = "`allow-unwrap-in-tests` does not cover helper functions"
)]

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use support::{Gateway, wait_for};
use torana::apimachinery::Value;
use torana::apimachinery::codec::{json, yaml};

const BROKEN: &str = "
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.broken.example.com}
spec: {group: broken.example.com, version: v1, groupPriorityMinimum: 1000, versionPriority: 15,
       service: {namespace: default, name: absent}}
";
const FAR: &str = "
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata:
  name: v1.far.example.com
  annotations:
    torana.dev/backend-urls: https://127.0.0.1:1;weight=2, https://127.0.0.1:2;failover=1
    torana.dev/backend-ca-from: configmap/default/roots
    torana.dev/backend-max-requests-inflight: \"7\"
spec: {group: far.example.com, version: v1, groupPriorityMinimum: 1000, versionPriority: 15,
       service: {namespace: default, name: absent}}
";

fn status(kubeconfig: &std::path::Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_torana"))
        .args(["status", "--kubeconfig"])
        .arg(kubeconfig)
        .args(args)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn every_output_format_names_the_problem_and_a_hint() {
    let dir = tempfile::tempdir().unwrap();
    let g = Gateway::start(dir.path());
    g.kubectl_in(&["apply", "-f", "-"], Some(BROKEN));
    g.kubectl_in(&["apply", "-f", "-"], Some(FAR));
    let ask = |args: &[&str]| {
        let out = status(&g.kubeconfig(), args);
        assert!(out.status.success(), "{}", text(&out.stderr));
        text(&out.stdout)
    };
    wait_for("both are checked", || {
        let output = ask(&[]);
        output.contains("False (ServiceNotFound)") && output.contains("False (ReferenceNotFound)")
    });
    let table = ask(&[]);
    for expected in [
        "v1.broken.example.com: service/absent in \"default\" is not present",
        "create the Service, or delete the APIService if its server is gone for good",
        "v1.far.example.com: configmap \"default/roots\" is not present",
        "create or correct the object that the annotation names",
        "0/7",
        "Missing",
    ] {
        assert!(table.contains(expected), "{expected}:\n{table}");
    }
    let wide = ask(&["-o", "wide", "--all"]);
    assert!(wide.contains("OPENAPI-V3") && wide.contains("v1.apps"), "{wide}");
    let (of_json, of_yaml) = (
        json::decode(ask(&["-o", "json"]).as_bytes()).unwrap(),
        yaml::decode(ask(&["-o", "yaml"]).as_bytes()).unwrap(),
    );
    let far = |v: &Value| {
        let items = v.get("items").items();
        items
            .iter()
            .find(|i| i.str_at(&["name"]) == "v1.far.example.com")
            .cloned()
            .unwrap()
    };
    assert_eq!(far(&of_json).str_at(&["reason"]), "ReferenceNotFound");
    assert_eq!(far(&of_json).get("message"), far(&of_yaml).get("message"));

    // With the CA present the backend is probed, but nothing listens there: the page reports both problems.
    let roots = dir.path().join("data/pki/ca.crt");
    let from = format!("--from-file=ca.crt={}", roots.display());
    g.kubectl(&["create", "configmap", "roots", "-n", "default", &from]);
    let page = || g.curl(&["-H", "Accept: text/html", "/debug/aggregator"]).unwrap();
    wait_for("the endpoints are shown", || page().contains("Ejected"));
    let html = page();
    for expected in [
        "2 of 2 backends are unavailable",
        "127.0.0.1:1",
        "weight 2",
        "failover 1",
        "connection refused",
        "discovery: <span class=Missing>",
    ] {
        assert!(html.contains(expected), "{expected}:\n{html}");
    }
}

#[test]
fn watch_mode_survives_a_restart_and_exits_zero_on_ctrl_c() {
    let dir = tempfile::tempdir().unwrap();
    let g = Gateway::start(dir.path());
    g.kubectl_in(&["apply", "-f", "-"], Some(BROKEN));
    for signal in ["INT", "TERM"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_torana"))
            .args(["status", "--watch", "--kubeconfig"])
            .arg(g.kubeconfig())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for _ in 0..2 {
            let head = lines.by_ref().map(Result::unwrap).find(|l| l.starts_with("NAME "));
            assert!(head.is_some(), "another look");
        }
        let sent = Command::new("kill")
            .arg(format!("-{signal}"))
            .arg(child.id().to_string())
            .status();
        assert!(sent.unwrap().success());
        let ended = child.wait_with_output().unwrap();
        assert_eq!((ended.status.code(), text(&ended.stderr)), (Some(0), String::new()));
    }

    // An unreachable server is an error at the start of `--watch`; later it is reported, and the command
    // retries.
    let kubeconfig = dir.path().join("kept");
    std::fs::copy(g.kubeconfig(), &kubeconfig).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_torana"))
        .args(["status", "-w", "-o", "json", "--kubeconfig"])
        .arg(&kubeconfig)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut first).unwrap();
    assert_eq!(first, "{\n");
    drop(g);
    let mut line = String::new();
    BufReader::new(child.stderr.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert!(line.ends_with("; retrying\n"), "{line}");
    assert!(child.try_wait().unwrap().is_none(), "it goes on");
    child.kill().unwrap();
    child.wait().unwrap();
    let refused = status(&kubeconfig, &["--watch"]);
    assert_eq!(refused.status.code(), Some(1));
}

#[test]
fn the_status_page_requires_get_on_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let g = Gateway::start(dir.path());
    let jane = dir.path().join("jane");
    let data = format!("--data-dir={}", dir.path().join("data").display());
    let made = Command::new(env!("CARGO_BIN_EXE_torana"))
        .args(["kubeconfig", "jane", &data])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", text(&made.stderr));
    std::fs::write(&jane, made.stdout).unwrap();
    let refused = status(&jane, &[]);
    let error = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        error.contains("User \"jane\" cannot get path \"/debug/aggregator\""),
        "{error}"
    );
    let as_whom = |accept: &str, user: &str| {
        let (accept, user) = (format!("Accept: {accept}"), format!("Impersonate-User: {user}"));
        let args = [
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "-H",
            &accept,
            "-H",
            &user,
            "/debug/aggregator",
        ];
        g.curl(&args).unwrap_or_else(|e| e).chars().take(3).collect::<String>()
    };
    for accept in ["application/json", "text/html"] {
        assert_eq!(as_whom(accept, "jane"), "403");
        assert_eq!(as_whom(accept, "system:anonymous"), "403");
    }
    g.kubectl(&[
        "create",
        "clusterrole",
        "night",
        "--verb=get",
        "--non-resource-url=/debug/aggregator",
    ]);
    g.kubectl(&[
        "create",
        "clusterrolebinding",
        "night",
        "--clusterrole=night",
        "--user=jane",
    ]);
    wait_for("the role applies", || status(&jane, &[]).status.success());
    assert_eq!(as_whom("text/html", "jane"), "200");
}
