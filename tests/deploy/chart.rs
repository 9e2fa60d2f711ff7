//! The Helm chart: rendered by helm, applied to a gateway, and its delegated authentication used.

use crate::support::Gateway;
use crate::{assert_flags_exist, deploy, has};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};

const ETCD: &[&str] = &[
    "--set=store=etcd",
    "--set=etcd.servers={https://a.example:2379,https://b.example:2379}",
    "--set=keysSecretName=torana-keys",
    "--set=serviceMonitor.enabled=true",
    "--set=serviceMonitor.labels.release=prometheus",
    "--set=podLabels.team=edge",
    "--set=networkPolicy.from[0].podSelector.matchLabels.role=client",
    "--set-string=env[0].name=TOKIO_WORKER_THREADS,env[0].value=2",
    "--set=tolerations[0].key=edge,tolerations[0].operator=Exists",
];
const GATEWAY: &[&str] = &["--set=mode=gateway", "--set=extraArgs={--max-watches=1000,-v=4}"];

/// The fields of a ServiceMonitor that the chart sets, as the Prometheus operator defines them.
const SERVICE_MONITOR: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: servicemonitors.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {kind: ServiceMonitor, plural: servicemonitors}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        required: [spec]
        properties:
          spec:
            type: object
            required: [endpoints, selector]
            properties:
              selector:
                type: object
                properties:
                  matchLabels: {type: object, additionalProperties: {type: string}}
                  matchExpressions:
                    type: array
                    items:
                      type: object
                      required: [key, operator]
                      properties: {key: {type: string}, operator: {type: string}, values: {type: array, items: {type: string}}}
              endpoints:
                type: array
                items:
                  type: object
                  properties:
                    port: {type: string}
                    scheme: {type: string, enum: [http, https]}
                    path: {type: string}
                    interval: {type: string, pattern: '^[0-9]+(ms|s|m|h)$'}
                    authorization:
                      type: object
                      properties: {credentials: {type: object, required: [key], properties: {name: {type: string}, key: {type: string}}}}
                    tlsConfig:
                      type: object
                      properties:
                        serverName: {type: string}
                        ca: {type: object, properties: {secret: {type: object, required: [key], properties: {name: {type: string}, key: {type: string}}}}}
                    relabelings:
                      type: array
                      items: {type: object, properties: {targetLabel: {type: string}, replacement: {type: string}}}
"#;

fn helm(args: &[&str]) -> Output {
    let chart = deploy("kubernetes/chart");
    let mut command = Command::new("helm");
    let (verb, args) = args.split_first().expect("a verb");
    command.arg(verb);
    if *verb == "template" {
        command.args(["torana", "--namespace=torana", "--kube-version=1.36.0"]);
    }
    command.arg(chart).args(args).output().expect("helm runs")
}

fn render(values: &[&str]) -> String {
    let out = helm(&[&["template"], values].concat());
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

fn refusal(values: &[&str]) -> String {
    let out = helm(&[&["template"], values].concat());
    assert!(!out.status.success(), "{values:?} is accepted");
    String::from_utf8_lossy(&out.stderr).into_owned()
}

fn get(g: &Gateway, what: &str) -> Value {
    let text = g.kubectl(&["get", "-n", "torana", what, "-o", "json"]);
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn the_chart_has_this_version_and_passes_lint() {
    let text = crate::read("kubernetes/chart/Chart.yaml");
    for field in ["version", "appVersion"] {
        let line = format!("\n{field}: {}\n", env!("CARGO_PKG_VERSION"));
        assert!(text.contains(&line), "{field}");
    }
    if has("helm") {
        let out = helm(&["lint", "--strict"]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
    }
}

#[test]
fn each_kind_of_deployment_passes_strict_server_side_validation() {
    if !has("helm") {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let g = Gateway::start(dir.path());
    // The chart's pods must satisfy the strictest standard.
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: torana\n  \
                     labels: {pod-security.kubernetes.io/enforce: restricted}\n";
    g.kubectl_in(&["apply", "-f", "-"], Some(namespace));
    g.kubectl_in(&["apply", "-f", "-"], Some(SERVICE_MONITOR));
    g.until_established("servicemonitors.monitoring.coreos.com");
    for (values, workload, expected) in [
        (&[][..], "statefulset/torana", "service/torana-pods"),
        (ETCD, "deployment/torana", "servicemonitor.monitoring.coreos.com/torana"),
        (GATEWAY, "statefulset/torana", "configmap/torana-cluster"),
    ] {
        let rendered = render(values);
        assert_flags_exist("the chart", &rendered.replace("---\n", ""));
        let apply = [
            "apply",
            "--server-side",
            "--force-conflicts",
            "--validate=strict",
            "-f",
            "-",
        ];
        let applied = g.kubectl_in(&apply, Some(&rendered));
        assert!(applied.contains(&format!("{expected} serverside-applied")), "{applied}");
        let template = get(&g, workload)["spec"]["template"].clone();
        let container = &template["spec"]["containers"][0];
        assert_eq!(container["image"], concat!("torana:", env!("CARGO_PKG_VERSION")));
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "trial", "namespace": "torana"},
            "spec": pod_spec(&template)});
        g.kubectl_in(&["create", "--validate=strict", "-f", "-"], Some(&pod.to_string()));
        g.kubectl(&["delete", "-n", "torana", "pod/trial", "--now"]);
    }
    let budget = get(&g, "poddisruptionbudget/torana");
    let labels = &get(&g, "deployment/torana")["spec"]["template"]["metadata"]["labels"];
    let selector = budget["spec"]["selector"]["matchLabels"].as_object().expect("labels");
    assert!(!selector.is_empty() && selector.iter().all(|(k, v)| labels[k] == *v));
}

/// The pod's specification, with the volume that a StatefulSet's controller would add.
fn pod_spec(template: &Value) -> Value {
    let mut spec = template["spec"].clone();
    let volumes = spec["volumes"].as_array().cloned().unwrap_or_default();
    if !volumes.iter().any(|v| v["name"] == "data") {
        let claim = json!({"name": "data", "persistentVolumeClaim": {"claimName": "data-torana-0"}});
        spec["volumes"] = [volumes, vec![claim]].concat().into();
    }
    spec
}

#[test]
fn invalid_values_are_refused() {
    if !has("helm") {
        return;
    }
    for (values, why) in [
        (&["--set=stoer=etcd"][..], "stoer"),
        (&["--set=store=etcd"], "etcd.servers"),
        (&["--set=store=etcd,etcd.servers={https://a:1}"], "keysSecretName"),
        (
            &["--set=store=etcd,etcd.servers={http://a:1},keysSecretName=k"],
            "etcd.servers.0",
        ),
        (&["--set=mode=proxy"], "mode"),
        (&["--set=extraArgs={max-watches=5}"], "extraArgs"),
        (&["--set=image.digest=latest"], "image.digest"),
        (&["--set=env[0].name=A,env[0].value=2"], "env.0.value"),
    ] {
        let text = refusal(values);
        assert!(text.contains(why), "{values:?}: {text}");
    }
}

/// `mode: gateway`: another gateway plays the cluster, whose tokens and RBAC the chart's flags and kubeconfig
/// put to use.
#[test]
fn a_gateway_delegates_to_its_cluster() {
    if !has("helm") {
        return;
    }
    let (one, two) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    let cluster = Gateway::start(one.path());
    cluster.kubectl(&["create", "namespace", "torana"]);
    let rendered = render(GATEWAY);
    cluster.kubectl_in(&["apply", "--server-side", "-f", "-"], Some(&rendered));
    let mounted = two.path().join("cluster");
    std::fs::create_dir(&mounted).expect("created");
    let put = |name: &str, text: String| std::fs::write(mounted.join(name), text).expect("written");
    let files = get(&cluster, "configmap/torana-cluster")["data"].clone();
    for (name, text) in files.as_object().expect("files") {
        let (text, server) = (text.as_str().expect("a kubeconfig"), "https://kubernetes.default.svc/");
        assert!(text.contains(server), "{text}");
        put(name, text.replace(server, &format!("{}/", cluster.url())));
    }
    put("token", cluster.kubectl(&["create", "token", "-n", "torana", "torana"]));
    put(
        "ca.crt",
        std::fs::read_to_string(one.path().join("data/pki/ca.crt")).expect("a CA"),
    );

    let args = get(&cluster, "statefulset/torana")["spec"]["template"]["spec"]["containers"][0]["args"].clone();
    let args = args.as_array().expect("flags").iter().filter_map(Value::as_str);
    let delegated: Vec<String> = args
        .filter(|a| a.starts_with("--auth"))
        .map(|a| a.replace("/etc/torana/cluster", &mounted.display().to_string()))
        .collect();
    assert!(delegated.len() >= 5, "{delegated:?}");
    let delegated: Vec<&str> = delegated.iter().map(String::as_str).collect();
    let gateway = Gateway::start_with(two.path(), &delegated);

    cluster.kubectl(&["create", "serviceaccount", "-n", "torana", "reader"]);
    let token = cluster.kubectl(&["create", "token", "-n", "torana", "reader"]);
    let listed = || as_caller(&gateway, two.path(), token.trim(), "/api/v1/namespaces");
    assert!(listed().ends_with("403"), "{}", listed());
    // Not `view`: a controller of the cluster fills it, and none runs here.
    cluster.kubectl(&[
        "create",
        "clusterrole",
        "lister",
        "--verb=list",
        "--resource=configmaps",
    ]);
    let subject = "--serviceaccount=torana:reader";
    cluster.kubectl(&[
        "create",
        "clusterrolebinding",
        "lister",
        "--clusterrole=lister",
        subject,
    ]);
    // The denial may be cached for up to half a minute; another path is another question.
    let listed = as_caller(&gateway, two.path(), token.trim(), "/api/v1/configmaps");
    assert!(listed.ends_with("200"), "{listed}");
}

/// Body and status of a GET with a token.
fn as_caller(g: &Gateway, dir: &Path, token: &str, path: &str) -> String {
    let out = Command::new("curl")
        .args(["-sS", "--max-time", "30", "-w", "%{http_code}", "--cacert"])
        .arg(dir.join("data/pki/ca.crt"))
        .arg(format!("-HAuthorization: Bearer {token}"))
        .arg(format!("{}{path}", g.url()))
        .output()
        .expect("curl is installed (make tools)");
    String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr)
}
