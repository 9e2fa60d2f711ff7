//! Auditing in a gateway process: the log and the webhook record the same events without secrets, connections
//! and aggregated groups are recorded, and an invalid policy is refused.

mod support;

use base64::Engine;
use rustls::pki_types::PrivateKeyDer;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::Gateway;
use support::kubelet::{Kubelet, flags, make_node};
use torana::apimachinery::codec::json;
use torana::apimachinery::value::Value;

/// A webhook that collects EventLists. It rejects the first one to test the retry.
struct Collector {
    events: Arc<Mutex<Vec<Value>>>,
    kubeconfig: PathBuf,
}

impl Collector {
    fn start(dir: &Path) -> Self {
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
        let cert = params.self_signed(&key).expect("a certificate");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the defaults are safe")
            .with_no_client_auth()
            .with_single_cert(
                vec![cert.der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).expect("a key"),
            )
            .expect("the key fits");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let events = Arc::new(Mutex::new(Vec::new()));
        let (config, kept) = (Arc::new(config), events.clone());
        std::thread::spawn(move || {
            let mut turned_away = false;
            for tcp in listener.incoming().flatten() {
                let Ok(connection) = rustls::ServerConnection::new(config.clone()) else {
                    return;
                };
                let mut io = rustls::StreamOwned::new(connection, tcp);
                let Ok(body) = read(&mut io) else { continue };
                let status = if std::mem::replace(&mut turned_away, true) {
                    let list = json::decode(&body).expect("it is JSON");
                    assert_eq!(list.str_at(&["kind"]), "EventList");
                    kept.lock()
                        .expect("no code panics while holding it")
                        .extend(list.get("items").items().iter().cloned());
                    "200 OK"
                } else {
                    "503 Service Unavailable"
                };
                // A sender that disconnects has already delivered its events, so a failed response does not
                // matter.
                let _ = write!(
                    io,
                    "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                );
                let _ = io.flush();
            }
        });
        let ca = base64::engine::general_purpose::STANDARD.encode(cert.pem());
        let text = format!(
            "current-context: x\ncontexts: [{{name: x, context: {{cluster: c}}}}]\nclusters:\n- name: c\n  cluster: \
             {{server: 'https://127.0.0.1:{port}/audit', certificate-authority-data: {ca}}}\n"
        );
        let kubeconfig = dir.join("webhook.kubeconfig");
        std::fs::write(&kubeconfig, text).expect("written");
        Self { events, kubeconfig }
    }
}

fn read(io: &mut impl Read) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        io.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let length = head.lines().find_map(|l| l.strip_prefix("content-length:"));
    let length = length.and_then(|l| l.trim().parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    io.read_exact(&mut body)?;
    Ok(body)
}

fn policy(dir: &Path, rules: &str) -> String {
    let path = dir.join("policy.yaml");
    let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n{rules}");
    std::fs::write(&path, text).expect("written");
    format!("--audit-policy-file={}", path.display())
}

fn log_flag(dir: &Path) -> String {
    format!("--audit-log-path={}", dir.join("audit/audit.log").display())
}

fn logged(dir: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(dir.join("audit/audit.log")).expect("the log is there");
    text.lines()
        .map(|l| json::decode(l.as_bytes()).expect("each line is JSON"))
        .collect()
}

fn stop(g: &mut Gateway) {
    g.process.signal("TERM");
    assert_eq!(g.process.wait(Duration::from_secs(60)), Some(0), "{}", g.process.log());
}

/// The event of a stage for a resource and subresource.
fn find<'a>(events: &'a [Value], stage: &str, resource: &str, subresource: &str) -> &'a Value {
    let found = events.iter().find(|e| {
        e.str_at(&["stage"]) == stage
            && e.str_at(&["objectRef", "resource"]) == resource
            && e.str_at(&["objectRef", "subresource"]) == subresource
    });
    found.unwrap_or_else(|| panic!("{stage} of {resource}/{subresource}"))
}

#[test]
fn log_and_webhook_record_the_same_events_without_secrets() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let collector = Collector::start(dir.path());
    let flags = [
        policy(dir.path(), "- level: Metadata\n"),
        log_flag(dir.path()),
        format!("--audit-webhook-config-file={}", collector.kubeconfig.display()),
        "--audit-webhook-batch-max-wait=50ms".to_owned(),
        "--audit-webhook-batch-throttle-enable=false".to_owned(),
        "--audit-webhook-initial-backoff=10ms".to_owned(),
    ];
    let mut g = Gateway::start_with(dir.path(), &flags.each_ref().map(String::as_str));
    g.kubectl(&["create", "secret", "generic", "s", "--from-literal=password=hush-hush"]);
    g.kubectl(&["get", "secret", "s", "-o", "yaml"]);
    g.kubectl(&["create", "serviceaccount", "robot"]);
    let token = g.kubectl(&["create", "token", "robot"]);
    g.kubectl_fails(&["--as=jane", "get", "nodes"], None);
    stop(&mut g);

    let lines = logged(dir.path());
    let posted = collector
        .events
        .lock()
        .expect("no code panics while holding it")
        .clone();
    let keys = |events: &[Value]| -> BTreeSet<String> {
        let key = |e: &Value| format!("{} {}", e.str_at(&["auditID"]), e.str_at(&["stage"]));
        events.iter().map(key).collect()
    };
    assert_eq!(keys(&lines), keys(&posted), "shutdown loses no event");
    assert_eq!(lines.len(), posted.len());

    let all = format!("{lines:?}{posted:?}");
    let encoded = base64::engine::general_purpose::STANDARD.encode("hush-hush");
    for secret in ["hush-hush", &encoded, token.trim(), "requestObject", "responseObject"] {
        assert!(!all.contains(secret), "{secret}");
    }
    let made = find(&lines, "ResponseComplete", "secrets", "");
    assert_eq!(made.str_at(&["objectRef", "name"]), "s");
    assert_eq!(made.at(&["responseStatus", "code"]).as_i64(), Some(201));
    let issued = find(&lines, "ResponseComplete", "serviceaccounts", "token");
    let id = issued.str_at(&["annotations", "authentication.kubernetes.io/issued-credential-id"]);
    assert!(id.starts_with("JTI="), "{issued:?}");
    let refused = find(&lines, "ResponseComplete", "nodes", "");
    assert_eq!(refused.str_at(&["impersonatedUser", "username"]), "jane");
    assert_eq!(
        refused.str_at(&["annotations", "authorization.k8s.io/decision"]),
        "forbid"
    );

    let mode = std::fs::metadata(dir.path().join("audit/audit.log"))
        .expect("it is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn bodies_pod_security_and_connections_are_recorded() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let kubelet = Kubelet::start(dir.path());
    let mut all = vec![
        policy(
            dir.path(),
            "- level: RequestResponse\n  omitManagedFields: true\n  omitStages: [RequestReceived]\n",
        ),
        log_flag(dir.path()),
    ];
    all.extend(flags(dir.path()));
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let mut g = Gateway::start_with(dir.path(), &all);
    make_node(&g, kubelet.port);
    g.kubectl(&[
        "label",
        "namespace",
        "default",
        "pod-security.kubernetes.io/audit=baseline",
    ]);
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {nodeName: worker, hostNetwork: true, \
               automountServiceAccountToken: false, containers: [{name: main, image: a}]}\n";
    g.kubectl_in(&["create", "-f", "-"], Some(pod));
    g.kubectl(&["exec", "p", "--", "echo", "a b"]);
    stop(&mut g);

    let lines = logged(dir.path());
    assert!(lines.iter().all(|e| e.str_at(&["stage"]) != "RequestReceived"));
    assert!(!format!("{lines:?}").contains("managedFields"));
    let made = find(&lines, "ResponseComplete", "pods", "");
    let notes = made.get("annotations");
    assert_eq!(
        notes.str_at(&["pod-security.kubernetes.io/enforce-policy"]),
        "privileged:latest"
    );
    let violations = notes.str_at(&["pod-security.kubernetes.io/audit-violations"]);
    assert!(
        violations.starts_with("would violate PodSecurity \"baseline:latest\""),
        "{violations}"
    );
    assert_eq!(
        made.str_at(&["requestObject", "spec", "restartPolicy"]),
        "Always",
        "with defaults"
    );
    assert!(!made.str_at(&["responseObject", "metadata", "uid"]).is_empty());
    let patches: Vec<Value> = lines
        .iter()
        .filter(|e| e.str_at(&["verb"]) == "patch")
        .cloned()
        .collect();
    let patched = find(&patches, "ResponseComplete", "nodes", "status");
    assert!(
        !patched.at(&["requestObject", "status", "addresses"]).is_null(),
        "the patch itself"
    );
    for stage in ["ResponseStarted", "ResponseComplete"] {
        let exec = find(&lines, stage, "pods", "exec");
        assert_eq!(exec.at(&["responseStatus", "code"]).as_i64(), Some(101), "{stage}");
    }
}

#[test]
fn requests_to_aggregated_groups_are_recorded_without_objects() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let flags = [policy(dir.path(), "- level: RequestResponse\n"), log_flag(dir.path())];
    let mut g = Gateway::start_with(dir.path(), &flags.each_ref().map(String::as_str));
    let example = g.with_example();
    let path = "/apis/gadgets.example.com/v1/namespaces/default/gadgets";
    g.curl(&["-H", "Audit-ID: across-the-hop", path])
        .expect("the group answers");
    drop(example);
    stop(&mut g);
    let lines = logged(dir.path());
    let seen: Vec<&Value> = lines
        .iter()
        .filter(|e| e.str_at(&["auditID"]) == "across-the-hop")
        .collect();
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert_eq!(seen[1].str_at(&["objectRef", "apiGroup"]), "gadgets.example.com");
    assert_eq!(seen[1].at(&["responseStatus", "code"]).as_i64(), Some(200));
    assert!(seen[1].get("responseObject").is_null(), "{:?}", seen[1]);
}

#[test]
fn an_invalid_policy_is_refused_with_its_line() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let out = Command::new(env!("CARGO_BIN_EXE_torana"))
        .arg("serve")
        .arg(format!("--data-dir={}", dir.path().join("data").display()))
        .arg(policy(dir.path(), "- level: Metadata\n  verb: [get]\n"))
        .arg(log_flag(dir.path()))
        .output()
        .expect("the binary runs");
    let text = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success());
    for part in [
        "--audit-policy-file",
        "policy.yaml",
        "line 5",
        "rules[0].verb",
        "unknown field",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
