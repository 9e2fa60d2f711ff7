//! A gateway process: signals, a second instance on one directory, anonymous access, files on disk, metrics.

mod support;

use std::process::Command;
use std::time::Duration;
use support::Gateway;

fn torana(args: &[&str]) -> (Option<i32>, String, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_torana"))
        .args(args)
        .output()
        .expect("the binary runs");
    let text = |b: Vec<u8>| String::from_utf8_lossy(&b).into_owned();
    (out.status.code(), text(out.stdout), text(out.stderr))
}

#[test]
fn a_malformed_token_file_is_refused_with_its_line() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let data = format!("--data-dir={}", dir.path().join("data").display());
    let tokens = dir.path().join("tokens.csv");
    std::fs::write(&tokens, "good,user,uid\nbad-line\n").expect("written");
    let (code, _, err) = torana(&["serve", &data, &format!("--token-auth-file={}", tokens.display())]);
    assert!(
        code != Some(0) && err.contains("--token-auth-file") && err.contains("tokens.csv") && err.contains('2'),
        "{err}"
    );
    assert!(!err.contains("panicked"), "{err}");
}

#[test]
fn a_second_instance_on_the_same_directory_is_refused() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let g = Gateway::start(dir.path());
    let data = format!("--data-dir={}", dir.path().join("data").display());
    let (code, _, err) = torana(&["serve", &data, "--bind-address=127.0.0.1", "--secure-port=0"]);
    assert!(code != Some(0), "it is refused");
    assert!(err.contains(&dir.path().join("data").display().to_string()), "{err}");
    assert!(g.curl(&["/readyz"]).is_ok(), "the first instance keeps running");
}

#[test]
fn sigterm_ends_watches_cleanly_and_exits_0() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut g = Gateway::start(dir.path());
    let pki = dir.path().join("data/pki");
    let mut watch = support::Process::spawn(
        Command::new("curl")
            .args(["-sS", "-N", "--cacert"])
            .arg(pki.join("ca.crt"))
            .arg("--cert")
            .arg(pki.join("admin.crt"))
            .arg("--key")
            .arg(pki.join("admin.key"))
            .arg(format!("{}/api/v1/namespaces?watch=1", g.url())),
        dir.path().join("watch.log"),
    );
    support::wait_for("the watch runs", || watch.log().contains("kube-system"));
    g.process.signal("TERM");
    assert_eq!(g.process.wait(Duration::from_secs(30)), Some(0), "{}", g.process.log());
    assert_eq!(
        watch.wait(Duration::from_secs(10)),
        Some(0),
        "the watch ends as a complete response"
    );
}

#[test]
fn keys_are_private_and_a_second_start_keeps_them() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let g = Gateway::start(dir.path());
    let pki = dir.path().join("data/pki");
    let mut keys = 0;
    for entry in std::fs::read_dir(&pki).expect("the PKI is there") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|e| e == "key") {
            let mode = std::fs::metadata(&path).expect("it is there").permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{}", path.display());
            keys += 1;
        }
    }
    assert!(keys >= 6, "{keys} keys");
    let before = std::fs::read(pki.join("ca.crt")).expect("it is there");
    let g = g.crash_and_restart();
    assert_eq!(std::fs::read(pki.join("ca.crt")).expect("it is there"), before);
    drop(g);
}

#[test]
fn anonymous_clients_see_health_and_version_only() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let g = Gateway::start(dir.path());
    let get = |path: &str| {
        let out = Command::new("curl")
            .args(["-sS", "-o", "/dev/null", "-w", "%{http_code}", "--cacert"])
            .arg(dir.path().join("data/pki/ca.crt"))
            .arg(format!("{}{path}", g.url()))
            .output()
            .expect("curl runs");
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    for path in ["/healthz", "/livez", "/readyz", "/version"] {
        assert_eq!(get(path), "200", "{path}");
    }
    for path in [
        "/",
        "/livez/ping",
        "/api",
        "/apis",
        "/metrics",
        "/api/v1/namespaces",
        "/api/v1/namespaces/kube-system/secrets",
        "/nope",
    ] {
        assert_eq!(get(path), "403", "{path}");
    }
}

#[test]
fn the_metrics_include_the_watch_caches() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let g = Gateway::start_with(
        dir.path(),
        &[
            "--watch-cache-max-bytes=1000",
            "--watch-cache-max-encoding-bytes=5000000",
        ],
    );
    g.kubectl(&["create", "configmap", "one"]);
    let protobuf = "Accept: application/vnd.kubernetes.protobuf";
    for path in ["/api/v1/configmaps", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn"] {
        g.curl(&["-H", protobuf, "-o", "/dev/null", path])
            .expect("it is served");
    }
    let text = g.curl(&["/metrics"]).expect("they are served");
    let value = |series: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(series)?.strip_prefix(' '));
        let line = line.unwrap_or_else(|| panic!("{series} is missing"));
        line.trim().parse::<f64>().expect("a number")
    };
    for (series, at_least) in [
        (
            "apiserver_cache_list_total{group=\"\",index=\"\",resource=\"configmaps\"}",
            1.0,
        ),
        (
            "apiserver_cache_list_total{group=\"\",index=\"f:spec.nodeName\",resource=\"pods\"}",
            1.0,
        ),
        (
            "apiserver_cache_list_fetched_objects_total{group=\"\",index=\"\",resource=\"configmaps\"}",
            1.0,
        ),
        (
            "apiserver_watch_cache_initializations_total{group=\"apps\",resource=\"deployments\"}",
            1.0,
        ),
        (
            "apiserver_watch_cache_events_received_total{group=\"\",resource=\"configmaps\"}",
            1.0,
        ),
        (
            "apiserver_watch_cache_resource_version{group=\"\",resource=\"configmaps\"}",
            2.0,
        ),
        (
            "apiserver_storage_consistency_checks_total{group=\"\",resource=\"pods\",status=\"failure\"}",
            0.0,
        ),
        ("apiserver_terminated_watchers_total{group=\"\",resource=\"pods\"}", 0.0),
        ("watch_cache_capacity{group=\"\",resource=\"configmaps\"}", 1.0),
        ("apiserver_storage_objects{resource=\"configmaps\"}", 1.0),
        (
            "torana_watch_cache_bytes{group=\"\",part=\"objects\",resource=\"configmaps\"}",
            100.0,
        ),
        ("torana_watch_cache_used_bytes{part=\"objects\"}", 1000.0),
        ("torana_watch_cache_used_bytes{part=\"encodings\"}", 50.0),
        ("torana_watch_cache_limit_bytes{part=\"all\"}", 1000.0),
        ("torana_watch_cache_encodings_total{result=\"made\"}", 1.0),
        // Even a few objects exceed the limit: a warning is logged, and everything is still served.
        ("torana_watch_cache_over_limit", 1.0),
    ] {
        assert!(value(series) >= at_least, "{series}: {}", value(series));
    }
    assert_eq!(value("torana_watch_cache_limit_bytes{part=\"all\"}"), 1000.0);
    assert!(
        g.process.log().contains("--watch-cache-max-bytes"),
        "the log has a warning"
    );
}

#[test]
fn post_start_hooks_and_metrics_have_upstreams_names() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let g = Gateway::start(dir.path());
    for path in [
        "/readyz/poststarthook/bootstrap-controller",
        "/livez/poststarthook/start-cluster-authentication-info-controller",
        "/healthz/poststarthook/start-service-ip-repair-controllers",
    ] {
        assert_eq!(g.curl(&[path]).as_deref(), Ok("ok"), "{path}");
    }
    let names = [
        "aggregator-reload-proxy-client-cert",
        "apiservice-discovery-controller",
        "apiservice-openapi-controller",
        "apiservice-openapiv3-controller",
        "apiservice-registration-controller",
        "apiservice-status-local-available-controller",
        "apiservice-status-remote-available-controller",
        "apiservice-wait-for-first-sync",
        "bootstrap-controller",
        "crd-informer-synced",
        "generic-apiserver-start-informers",
        "kube-apiserver-autoregistration",
        "priority-and-fairness-config-consumer",
        "priority-and-fairness-config-producer",
        "priority-and-fairness-filter",
        "rbac/bootstrap-roles",
        "scheduling/bootstrap-system-priority-classes",
        "start-apiextensions-controllers",
        "start-apiextensions-informers",
        "start-apiserver-admission-initializer",
        "start-cluster-authentication-info-controller",
        "start-kube-aggregator-informers",
        "start-kube-apiserver-identity-lease-controller",
        "start-kube-apiserver-identity-lease-garbage-collector",
        "start-kubernetes-service-cidr-controller",
        "start-legacy-token-tracking-controller",
        "start-service-ip-repair-controllers",
        "start-system-namespaces-controller",
        "storage-readiness",
    ];
    for endpoint in ["healthz", "livez", "readyz"] {
        let checks = g.curl(&[&format!("/{endpoint}?verbose")]).expect("it is served");
        let hooks = checks.lines().filter_map(|l| l.strip_prefix("[+]poststarthook/"));
        let mut hooks: Vec<_> = hooks.filter_map(|l| l.strip_suffix(" ok")).collect();
        hooks.sort_unstable();
        assert_eq!(hooks, names, "{endpoint}");
    }
    let listed = g.curl(&["/"]).expect("it is served");
    for path in ["/apis/", "/openapi/v3/", "/livez/poststarthook/bootstrap-controller"] {
        assert!(listed.contains(&format!("\"{path}\"")), "{path} in {listed}");
    }
    let metrics = g.curl(&["-i", "/metrics"]).expect("it is served");
    assert!(metrics.to_ascii_lowercase().contains("\nprocess-start-time-unix: "));
}

/// The service manager's side of `sd_notify(3)`.
#[test]
fn systemd_is_notified_of_readiness_watchdog_and_shutdown() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&path).expect("a socket");
    manager
        .set_read_timeout(Some(Duration::from_secs(60)))
        .expect("a time limit");
    let receive = || {
        let mut buffer = [0; 1024];
        let n = manager.recv(&mut buffer).expect("a notification within a minute");
        String::from_utf8_lossy(&buffer[..n]).into_owned()
    };
    let mut gateway = support::Process::spawn(
        Command::new(env!("CARGO_BIN_EXE_torana"))
            .args(["serve", "--bind-address=127.0.0.1", "--secure-port=0"])
            .arg(format!("--data-dir={}", dir.path().join("data").display()))
            .env("NOTIFY_SOCKET", &path)
            .env("WATCHDOG_USEC", "100000"),
        dir.path().join("log"),
    );
    assert!(receive().starts_with("READY=1"), "readiness comes first");
    for _ in 0..3 {
        assert_eq!(receive().trim(), "WATCHDOG=1");
    }
    gateway.signal("TERM");
    support::wait_for("the shutdown is announced", || receive().trim() == "STOPPING=1");
    assert_eq!(gateway.wait(Duration::from_secs(30)), Some(0), "{}", gateway.log());
}

/// The directory of certificates of a kube-apiserver. Its file is a CA bundle for clients, too, as there.
#[test]
fn certificates_of_the_cert_dir_are_served() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let certificates = dir.path().join("certs");
    let flag = format!("--cert-dir={}", certificates.display());
    let data = dir.path().join("data");
    let kubeconfig = data.join("admin.kubeconfig");
    let served = || {
        let _ = std::fs::remove_file(&kubeconfig);
        let process = support::Process::spawn(
            Command::new(env!("CARGO_BIN_EXE_torana"))
                .args(["serve", "--bind-address=127.0.0.1", "--secure-port=0", &flag])
                .arg(format!("--data-dir={}", data.display())),
            dir.path().join("log"),
        );
        // With the CA of the kubeconfig.
        let health = format!("--kubeconfig={}", kubeconfig.display());
        support::wait_for("the gateway is ready", || torana(&["health", &health]).0 == Some(0));
        let text = std::fs::read_to_string(&kubeconfig).expect("it is written");
        let url = text.lines().find_map(|line| line.trim().strip_prefix("server: "));
        let out = Command::new("curl")
            .args(["-sS", "--cacert"])
            .arg(certificates.join("apiserver.crt"))
            .arg(format!("{}/livez", url.expect("it names the server").trim_matches('"')))
            .output()
            .expect("curl runs");
        assert_eq!(out.stdout, b"ok", "{}", String::from_utf8_lossy(&out.stderr));
        assert!(!data.join("pki/apiserver.crt").exists());
        drop(process);
    };
    served();

    // One's own certificate, which is served and trusted by the kubeconfig as it is.
    let key = rcgen::KeyPair::generate().expect("a key");
    let params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("names");
    let certificate = params.self_signed(&key).expect("signed").pem();
    std::fs::write(certificates.join("apiserver.crt"), &certificate).expect("written");
    std::fs::write(certificates.join("apiserver.key"), key.serialize_pem()).expect("written");
    served();
    let kept = std::fs::read_to_string(certificates.join("apiserver.crt")).expect("it is there");
    assert_eq!(kept, certificate);
}

#[test]
fn a_certificate_verifies_service_account_tokens() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let key = rcgen::KeyPair::generate().expect("a key");
    let params = rcgen::CertificateParams::new(vec!["service-accounts".to_owned()]).expect("names");
    let (signing, verifying) = (dir.path().join("sa.key"), dir.path().join("sa.crt"));
    std::fs::write(&signing, key.serialize_pem()).expect("written");
    std::fs::write(&verifying, params.self_signed(&key).expect("signed").pem()).expect("written");
    let g = Gateway::start_with(
        dir.path(),
        &[
            &format!("--service-account-signing-key-file={}", signing.display()),
            &format!("--service-account-key-file={}", verifying.display()),
        ],
    );
    g.kubectl(&["create", "serviceaccount", "ci"]);
    let token = g.kubectl(&["create", "token", "ci"]);
    let out = Command::new("curl")
        .args(["-sS", "--cacert"])
        .arg(dir.path().join("data/pki/ca.crt"))
        .args(["-H", &format!("Authorization: Bearer {}", token.trim())])
        .arg(format!("{}/apis/authentication.k8s.io/v1/selfsubjectreviews", g.url()))
        .args(["-H", "Content-Type: application/json", "-d"])
        .arg(r#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}"#)
        .output()
        .expect("curl runs");
    let reviewed = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(reviewed.contains("system:serviceaccount:default:ci"), "{reviewed}");
}
