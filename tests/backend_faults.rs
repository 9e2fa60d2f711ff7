//! A faulty backend (dead, hanging, slow, sending garbage, cutting streams, presenting a wrong certificate)
//! affects only its own group. Clients get upstream's error, other groups and discovery keep working, and the
//! backend's last documents stay available, also after a restart of the gateway.

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};
use support::Gateway;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};
use torana::apimachinery::Value;
use torana::json;
use torana::sdk::client::{Client, ClientConfig, ClientError};

type Tls = tokio_rustls::server::TlsStream<tokio::net::TcpStream>;

/// Applies the fault `what` to `/apis/faulty.example.com/v1/things/<what>`. Other paths are answered
/// correctly.
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
            let body = r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"faulty.example.com/v1","resources":[
                {"name":"things","kind":"Thing","namespaced":true,"verbs":["get"]}]}"#;
            let _ = io.write_all(whole("application/json", body).as_bytes()).await;
            let _ = io.shutdown().await;
        }
    }
}

fn whole(kind: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// The discovery documents of a backend, with aggregated discovery or without.
fn document(path: &str, aggregated: bool) -> Option<String> {
    const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let things = "/apis/faulty.example.com/v1/things";
    match path {
        "/apis" if aggregated => {
            let body = r#"{"items":[{"metadata":{"name":"faulty.example.com"},"versions":[
                {"version":"v1","resources":[{"resource":"things","scope":"Namespaced"}]}]}]}"#;
            Some(whole(V2, body))
        }
        "/openapi/v2" => {
            let body = format!(r#"{{"paths":{{"{things}":{{"get":{{"responses":{{}}}}}}}}}}"#);
            Some(whole("application/json", &body))
        }
        "/openapi/v3" => {
            let key = "apis/faulty.example.com/v1";
            let body = format!(r#"{{"paths":{{"{key}":{{"serverRelativeURL":"/openapi/v3/{key}?hash=1"}}}}}}"#);
            Some(whole("application/json", &body))
        }
        "/openapi/v3/apis/faulty.example.com/v1" => {
            let body = format!(r#"{{"openapi":"3.0.0","paths":{{"{things}":{{}}}}}}"#);
            Some(whole("application/json", &body))
        }
        _ => None,
    }
}

/// A running backend, stopped when dropped.
struct Serving {
    port: u16,
    accepting: tokio::task::JoinHandle<()>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn backend(cert: &rcgen::CertifiedKey<rcgen::KeyPair>) -> u16 {
    let serving = std::mem::ManuallyDrop::new(backend_with(cert, None).await);
    serving.port
}

/// Starts a backend. `aggregated`: whether it has documents, and whether its discovery is aggregated.
async fn backend_with(cert: &rcgen::CertifiedKey<rcgen::KeyPair>, aggregated: Option<bool>) -> Serving {
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
    let accepting = tokio::spawn(async move {
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
                match aggregated.and_then(|form| document(&path, form)) {
                    Some(answer) => drop(io.write_all(answer.as_bytes()).await),
                    None => misbehave(io, path.rsplit('/').next().unwrap_or("")).await,
                }
            });
        }
    });
    Serving { port, accepting }
}

fn certificate() -> rcgen::CertifiedKey<rcgen::KeyPair> {
    let names = vec!["faulty.default.svc".to_owned(), "localhost".to_owned()];
    rcgen::generate_simple_self_signed(names).expect("a certificate")
}

/// A port at which connections are refused: this one, or any for 0. Nobody else gets it while the socket is held.
fn dead_port(port: u16) -> (TcpSocket, u16) {
    let bound = TcpSocket::new_v4().expect("a socket");
    // Connections of a listener that was there before do not keep the port.
    bound.set_reuseaddr(true).expect("it can be set");
    bound.bind(([127, 0, 0, 1], port).into()).expect("a free port");
    let port = bound.local_addr().expect("it is bound").port();
    (bound, port)
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
    // Short only where there is no answer to wait for.
    let timeout = if name == "hang" { "2s" } else { "50s" };
    let path = format!("/apis/faulty.example.com/v1/things/{name}?timeout={timeout}");
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
    // Less than the 5 s that the gateway waits for documents and probes of a backend.
    assert!(
        t.elapsed() < Duration::from_secs(4),
        "other groups do not wait for the backend"
    );
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
fn each_backend_fault_gets_upstreams_error() {
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
            "a broken stream is an error: {e}"
        );
        others_are_untouched(&api).await;
        api.get("/apis/faulty.example.com/v1")
            .await
            .expect("the group is served all the while");
    });
}

#[test]
fn a_dead_backend_is_503_and_reported_in_the_condition() {
    let (_dir, _g, runtime, api) = setup();
    runtime.block_on(async {
        let cert = certificate();
        let (_bound, port) = dead_port(0);
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
fn a_wrong_certificate_is_refused_until_the_bundle_is_corrected() {
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
fn status_shows_in_a_terminal_which_backend_is_down_and_why() {
    let (_dir, g, runtime, api) = setup();
    let (_bound, port) = dead_port(0);
    runtime.block_on(async {
        register(&api, port, &certificate().cert.pem()).await;
        until_condition(&api, "False", "FailedDiscoveryCheck").await;
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

/// The backend's documents as a client sees them: its discovery version, both merged OpenAPI documents, and
/// its own.
struct Documents {
    version: Value,
    older: Value,
    index: Value,
    own: Result<String, String>,
}

fn documents(g: &Gateway) -> Documents {
    let read = |accept: &str, path: &str| {
        // On a busy machine, the document of all groups takes long.
        let text = g
            .curl(&["--max-time", "120", "-H", &format!("Accept: {accept}"), path])
            .expect("it is served");
        torana::apimachinery::codec::json::decode(text.as_bytes()).expect("it is JSON")
    };
    let discovery = read(
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        "/apis",
    );
    let group = discovery
        .get("items")
        .items()
        .iter()
        .find(|group| group.str_at(&["metadata", "name"]) == "faulty.example.com");
    let version = group.and_then(|group| group.get("versions").items().first().cloned());
    let older = read("application/json", "/openapi/v2");
    let index = read("application/json", "/openapi/v3");
    Documents {
        version: version.unwrap_or_default(),
        older: older.at(&["paths", "/apis/faulty.example.com/v1/things"]).clone(),
        index: index
            .at(&["paths", "apis/faulty.example.com/v1", "serverRelativeURL"])
            .clone(),
        own: g.curl(&["-i", "/openapi/v3/apis/faulty.example.com/v1"]),
    }
}

#[test]
fn documents_of_a_backend_survive_a_restart_without_it() {
    for aggregated in [true, false] {
        let (_dir, g, runtime, api) = setup();
        let cert = certificate();
        let serving = runtime.block_on(backend_with(&cert, Some(aggregated)));
        runtime.block_on(async {
            register(&api, serving.port, &cert.cert.pem()).await;
            until_condition(&api, "True", "Passed").await;
        });
        let kept = g.dir.join("data/aggregator");
        support::wait_for("all documents are kept", || {
            let d = documents(&g);
            let files = std::fs::read_dir(&kept).map_or(0, Iterator::count);
            d.version.str_at(&["freshness"]) == "Current" && !d.older.is_null() && !d.index.is_null() && files == 4
        });
        // The backend is gone, so everything below comes from the gateway's cache.
        let port = serving.port;
        drop(serving);
        drop((api, runtime));
        let _bound = dead_port(port);
        let g = g.crash_and_restart();
        let d = documents(&g);
        assert_eq!(d.version.str_at(&["freshness"]), "Stale", "aggregated: {aggregated}");
        assert_eq!(d.version.get("resources").items()[0].str_at(&["resource"]), "things");
        support::wait_for("OpenAPI is served", || {
            let d = documents(&g);
            let own = d.own.unwrap_or_default();
            !d.older.is_null()
                && d.index.as_str() == Some("/openapi/v3/apis/faulty.example.com/v1?hash=1")
                && own.contains("things")
                && own
                    .to_lowercase()
                    .contains("warning: 299 - \"the server behind v1.faulty.example.com does not answer")
        });
        let page = g.curl(&["/debug/aggregator"]).expect("it is served");
        assert!(page.contains("connection refused"), "{page}");
    }
}
