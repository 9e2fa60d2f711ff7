//! A backend that is dead, hung, slow, talking garbage, cut in mid-stream or presenting a wrong certificate costs its own
//! group and nothing else: the client gets upstream's answer, other groups and discovery are untouched.

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};
use support::Gateway;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use torana::apimachinery::Value;
use torana::client::{Client, ClientConfig, ClientError};
use torana::json;

type Tls = tokio_rustls::server::TlsStream<tokio::net::TcpStream>;

/// How the backend treats `/apis/faulty.example.com/v1/things/<this>`; everything else it answers properly.
async fn misbehave(mut io: Tls, what: &str) {
    match what {
        "hang" => {
            let mut rest = Vec::new();
            let _ = io.read_to_end(&mut rest).await;
        }
        "garbage" => {
            let _ = io.write_all(b"\x00\x01 this is no HTTP at all\r\n\r\n").await;
            let _ = io.shutdown().await;
        }
        "cut" => {
            let _ = io
                .write_all(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"half\":",
                )
                .await;
            let _ = io.flush().await;
            drop(io);
        }
        "redirect" => {
            let _ = io
                .write_all(b"HTTP/1.1 302 Found\r\nLocation: https://evil.example/\r\nContent-Length: 0\r\n\r\n")
                .await;
            let _ = io.shutdown().await;
        }
        _ => {
            let body =
                r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"faulty.example.com/v1","resources":[]}"#;
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            let _ = io.write_all(head.as_bytes()).await;
            let _ = io.shutdown().await;
        }
    }
}

async fn backend(cert: &rcgen::CertifiedKey<rcgen::KeyPair>) -> u16 {
    let key = rustls::pki_types::PrivateKeyDer::try_from(cert.signing_key.serialize_der()).expect("a key");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the defaults are safe")
        .with_no_client_auth()
        .with_single_cert(vec![cert.cert.der().clone()], key)
        .expect("the key fits");
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut io) = acceptor.accept(tcp).await else { return };
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match io.read_u8().await {
                        Ok(b) => head.push(b),
                        Err(_) => return,
                    }
                }
                let text = String::from_utf8_lossy(&head).into_owned();
                let target = text.split_whitespace().nth(1).unwrap_or("");
                let path = target.split('?').next().unwrap_or("").to_owned();
                misbehave(io, path.rsplit('/').next().unwrap_or("")).await;
            });
        }
    });
    port
}

fn certificate() -> rcgen::CertifiedKey<rcgen::KeyPair> {
    let names = vec!["faulty.default.svc".to_owned(), "localhost".to_owned()];
    rcgen::generate_simple_self_signed(names).expect("a certificate")
}

async fn register(api: &Client, port: u16, bundle: &str) {
    use base64::Engine;
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "faulty"},
        "spec": {"type": "ExternalName", "externalName": "localhost"}});
    api.create_or_patch("/api/v1/namespaces/default/services", &service)
        .await
        .expect("the service is stored");
    let mut object = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.faulty.example.com"},
        "spec": {"group": "faulty.example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 10,
            "service": {"name": "faulty", "namespace": "default"}}});
    object.set(&["spec", "service", "port"], i64::from(port));
    object.set(
        &["spec", "caBundle"],
        base64::engine::general_purpose::STANDARD.encode(bundle),
    );
    api.create_or_patch("/apis/apiregistration.k8s.io/v1/apiservices", &object)
        .await
        .expect("the APIService is stored");
}

async fn condition(api: &Client) -> (String, String, String) {
    let o = api
        .get("/apis/apiregistration.k8s.io/v1/apiservices/v1.faulty.example.com")
        .await
        .expect("it is there");
    let c = o
        .at(&["status", "conditions"])
        .items()
        .first()
        .cloned()
        .unwrap_or(Value::Null);
    (
        c.str_at(&["status"]).into(),
        c.str_at(&["reason"]).into(),
        c.str_at(&["message"]).into(),
    )
}

async fn until_condition(api: &Client, status: &str, reason: &str) -> String {
    let until = Instant::now() + Duration::from_secs(45);
    loop {
        let (s, r, m) = condition(api).await;
        if s == status && r == reason {
            return m;
        }
        assert!(
            Instant::now() < until,
            "Available={status} {reason} is reached; it is {s} {r} {m}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn thing(api: &Client, name: &str) -> ClientError {
    let path = format!("/apis/faulty.example.com/v1/things/{name}?timeout=2s");
    api.get(&path).await.expect_err("the backend misbehaves")
}

async fn others_are_untouched(api: &Client) {
    let t = Instant::now();
    api.get("/api/v1/namespaces/default/configmaps")
        .await
        .expect("core is served");
    api.get("/apis").await.expect("discovery is served");
    api.get("/apis/coordination.k8s.io/v1")
        .await
        .expect("other groups are served");
    assert!(t.elapsed() < Duration::from_secs(2), "nothing waits for the backend");
}

fn setup() -> (tempfile::TempDir, Gateway, tokio::runtime::Runtime, Client) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let g = Gateway::start(dir.path());
    let config = ClientConfig::from_kubeconfig(&g.kubeconfig()).expect("the gateway wrote it");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    (dir, g, runtime, Client::try_new(&config).expect("it is complete"))
}

#[test]
fn each_way_to_misbehave_gets_upstreams_answer() {
    let (_dir, _g, runtime, api) = setup();
    runtime.block_on(async {
        let cert = certificate();
        let port = backend(&cert).await;
        register(&api, port, &cert.cert.pem()).await;
        until_condition(&api, "True", "Passed").await;

        let e = thing(&api, "hang").await;
        assert_eq!(e.code(), Some(504), "{e}");
        others_are_untouched(&api).await;
        let e = thing(&api, "garbage").await;
        assert_eq!(e.code(), Some(503), "{e}");
        assert!(e.to_string().contains("error trying to reach service"), "{e}");
        let e = thing(&api, "redirect").await;
        assert_eq!(e.code(), Some(502), "{e}");
        assert!(
            e.to_string()
                .contains("the backend attempted to redirect this request, which is not permitted"),
            "{e}"
        );
        let e = thing(&api, "cut").await;
        assert!(
            matches!(e, ClientError::Transport(_)),
            "a stream that breaks is no answer: {e}"
        );
        others_are_untouched(&api).await;
        api.get("/apis/faulty.example.com/v1")
            .await
            .expect("the group is served all the while");
    });
}

#[test]
fn a_dead_backend_is_503_and_said_in_the_condition() {
    let (_dir, _g, runtime, api) = setup();
    runtime.block_on(async {
        let cert = certificate();
        // A port nobody listens on: bound and given back.
        let port = TcpListener::bind("127.0.0.1:0")
            .await
            .and_then(|l| l.local_addr())
            .expect("a free port")
            .port();
        register(&api, port, &cert.cert.pem()).await;
        let message = until_condition(&api, "False", "FailedDiscoveryCheck").await;
        assert!(message.contains("connection refused"), "{message}");
        let e = api.get("/apis/faulty.example.com/v1").await.expect_err("it is dead");
        assert_eq!(
            (e.code(), e.to_string().contains("service unavailable")),
            (Some(503), true),
            "{e}"
        );
        others_are_untouched(&api).await;
    });
}

#[test]
fn a_wrong_certificate_is_refused_and_a_corrected_bundle_heals() {
    let (_dir, _g, runtime, api) = setup();
    runtime.block_on(async {
        let (cert, other) = (certificate(), certificate());
        let port = backend(&cert).await;
        register(&api, port, &other.cert.pem()).await;
        let message = until_condition(&api, "False", "FailedDiscoveryCheck").await;
        assert!(message.contains("x509"), "{message}");
        others_are_untouched(&api).await;
        register(&api, port, &cert.cert.pem()).await;
        until_condition(&api, "True", "Passed").await;
        api.get("/apis/faulty.example.com/v1").await.expect("it is served");
    });
}

#[test]
fn status_tells_in_a_terminal_who_is_down_and_why() {
    let (_dir, g, runtime, api) = setup();
    let port = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        drop(listener);
        register(&api, port, &certificate().cert.pem()).await;
        until_condition(&api, "False", "FailedDiscoveryCheck").await;
        port
    });
    let status = |output: &str| {
        let done = std::process::Command::new(env!("CARGO_BIN_EXE_torana"))
            .args(["status", "-o", output, "--kubeconfig"])
            .arg(g.kubeconfig())
            .output()
            .expect("it runs");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    let table = status("table");
    assert!(
        table.contains("v1.faulty.example.com") && table.contains("False (FailedDiscoveryCheck)"),
        "{table}"
    );
    assert!(
        table.contains(&format!("127.0.0.1:{port}: connect: connection refused")),
        "{table}"
    );
    assert!(status("yaml").contains("discovery: Stale"));
    assert!(status("wide").contains("ENDPOINTS"));
}
