//! Targets by annotation, from the object to the backend.

use super::testing::*;
use crate::apimachinery::value::Value;
use crate::json;
use crate::request::Body;
use base64::Engine as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

const NAME: &str = "torana.dev/backend-server-name";
const URLS: &str = "torana.dev/backend-urls";
const THINGS: &str = "/apis/g/v1/things";

async fn world() -> World {
    World::start(MemoryStorage::new(), MemoryStorage::new()).await
}

/// An APIService with these annotations, whose certificates `ca` vouches for.
fn object(ca: &str, annotations: &[(&str, &str)]) -> Value {
    let mut object = apiservice("g", ca, 443);
    for (key, value) in annotations {
        object.set(&["metadata", "annotations", key], *value);
    }
    object
}

async fn passed(w: &World) {
    w.until_condition("v1.g", "True/Passed/all checks passed").await;
    let served = || async { (w.get(THINGS).await.0 == 200).then_some(()) };
    w.until("the route", served).await;
}

/// Says who it is, and counts how often it was asked for things.
async fn named(pki: &Pki, name: &'static str) -> (Backend, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let backend = Backend::http(pki, 100, move |r: http::Request<Incoming>| {
        if r.uri().path() == THINGS {
            count.fetch_add(1, Ordering::Relaxed);
        }
        async move { answer(200, name) }
    });
    (backend.await, asked)
}

#[tokio::test]
async fn an_annotation_names_backends_outside_the_cluster() {
    let pki = Pki::new(&["api.example.com"], &[b"h2"]);
    let ((a, _), (b, _)) = (named(&pki, "a").await, named(&pki, "b").await);
    let w = world().await;
    let urls = format!("https://{}, https://{}", a.authority, b.authority);
    w.api_services.set(
        "v1.g",
        &object(&pki.ca_pem, &[(URLS, &urls), (NAME, "api.example.com")]),
    );
    passed(&w).await;
    drop(a);
    for _ in 0..20 {
        assert_eq!(w.get(THINGS).await, (200, "b".into()), "the other one answers");
    }
}

#[tokio::test]
async fn requests_spread_by_weight() {
    let pki = Pki::new(&["api.example.com"], &[b"h2"]);
    let ((a, asked_a), (b, asked_b)) = (named(&pki, "a").await, named(&pki, "b").await);
    let w = world().await;
    let urls = format!("https://{};weight=9, https://{};weight=1", a.authority, b.authority);
    w.api_services.set(
        "v1.g",
        &object(&pki.ca_pem, &[(URLS, &urls), (NAME, "api.example.com")]),
    );
    passed(&w).await;
    for _ in 0..300 {
        assert_eq!(w.get(THINGS).await.0, 200);
    }
    let (a, b) = (asked_a.load(Ordering::Relaxed), asked_b.load(Ordering::Relaxed));
    assert!(a > 5 * b && b >= 10, "{a} and {b}");
}

#[tokio::test]
async fn a_failover_serves_while_the_first_is_down_and_no_longer() {
    let pki = Pki::new(&["api.example.com"], &[b"h2"]);
    let (standby, _) = named(&pki, "standby").await;
    let (first, _) = named(&pki, "first").await;
    let place: std::net::SocketAddr = first.authority.parse().unwrap();
    let w = world().await;
    let urls = format!("https://{};failover=1, https://{place}", standby.authority);
    w.api_services.set(
        "v1.g",
        &object(&pki.ca_pem, &[(URLS, &urls), (NAME, "api.example.com")]),
    );
    passed(&w).await;
    for _ in 0..20 {
        assert_eq!(w.get(THINGS).await, (200, "first".into()));
    }
    drop(first);
    for _ in 0..20 {
        assert_eq!(w.get(THINGS).await, (200, "standby".into()), "no request is lost");
    }
    // The same place again.
    let listener = tokio::net::TcpListener::bind(place).await.unwrap();
    let acceptor = TlsAcceptor::from(pki.config.clone());
    let _first = Ends(tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            if let Ok(tls) = acceptor.accept(tcp).await {
                tokio::spawn(serve_http2(tls, "first again".into()));
            }
        }
    }));
    let back = || async { (w.get(THINGS).await == (200, "first again".into())).then_some(()) };
    w.until("the first is used again", back).await;
}

/// A task that ends with the test.
struct Ends(JoinHandle<()>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn serve_http2(io: impl AsyncRead + AsyncWrite + Unpin, text: String) {
    let service = service_fn(|r: http::Request<Incoming>| {
        let host = r.uri().authority().map_or("", |a| a.as_str()).to_owned();
        let user = r
            .headers()
            .get("x-remote-user")
            .map_or("", |v| v.to_str().unwrap())
            .to_owned();
        let told = match text.as_str() {
            "" => format!("{user}@{host}"),
            text => text.to_owned(),
        };
        async move { Ok::<_, std::convert::Infallible>(answer(200, told)) }
    });
    let http2 = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    let _ = http2.serve_connection(TokioIo::new(io), service).await;
}

async fn serve_http1(io: impl AsyncRead + AsyncWrite + Unpin) {
    let service = service_fn(|r: http::Request<Incoming>| {
        let text = |name: &str| r.headers().get(name).map_or("", |v| v.to_str().unwrap()).to_owned();
        let told = format!(
            "{}@{} for {}",
            text("x-remote-user"),
            text("host"),
            text("x-forwarded-host")
        );
        async move { Ok::<_, std::convert::Infallible>(answer(200, told)) }
    });
    let http1 = hyper::server::conn::http1::Builder::new();
    let _ = http1.serve_connection(TokioIo::new(io), service).await;
}

/// Listens on a socket: HTTP/1.1, HTTP/2, or TLS with what was agreed on.
fn on_socket(path: &Path, protocol: &'static str, pki: Option<&Pki>) -> Ends {
    let listener = UnixListener::bind(path).unwrap();
    let acceptor = pki.map(|p| TlsAcceptor::from(p.config.clone()));
    Ends(tokio::spawn(async move {
        while let Ok((unix, _)) = listener.accept().await {
            match (&acceptor, protocol) {
                (None, "http+unix") => drop(tokio::spawn(serve_http1(unix))),
                (None, _) => drop(tokio::spawn(serve_http2(unix, String::new()))),
                (Some(tls), _) => match tls.accept(unix).await {
                    Ok(tls) if tls.get_ref().1.alpn_protocol() == Some(b"h2") => {
                        drop(tokio::spawn(serve_http2(tls, String::new())));
                    }
                    Ok(tls) => drop(tokio::spawn(serve_http1(tls))),
                    Err(_) => {}
                },
            }
        }
    }))
}

#[tokio::test]
async fn sockets_of_this_machine_are_spoken_to() {
    let dir = tempfile::tempdir().unwrap();
    let (h1, h2) = (
        Pki::new(&["api.example.com"], &[]),
        Pki::new(&["api.example.com"], &[b"h2"]),
    );
    let with_name: &[(&str, &str)] = &[(NAME, "api.example.com")];
    for (protocol, pki, more, told) in [
        ("http+unix", None, &[][..], "alice@localhost for localhost"),
        ("h2c+unix", None, &[], "alice@localhost"),
        (
            "https+unix",
            Some(&h1),
            with_name,
            "alice@api.example.com for api.example.com",
        ),
        ("https+unix", Some(&h2), with_name, "alice@api.example.com"),
    ] {
        let path: PathBuf = dir.path().join(format!("{protocol}{}", told.len()));
        let _server = on_socket(&path, protocol, pki);
        let w = world().await;
        let url = format!("{protocol}://{}", path.display());
        let annotations = [&[(URLS, url.as_str())], more].concat();
        w.api_services
            .set("v1.g", &object(pki.map_or("", |p| &p.ca_pem), &annotations));
        passed(&w).await;
        assert_eq!(w.get(THINGS).await, (200, told.into()), "{protocol}");
    }
}

fn config_map(ca: &str) -> Value {
    json!({"metadata": {"namespace": "n", "name": "roots"}, "data": {"ca.crt": ca}})
}

fn tls_secret([_, certificate, key]: &[String; 3]) -> Value {
    let encoded = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    json!({"metadata": {"namespace": "n", "name": "client"}, "type": "kubernetes.io/tls",
           "data": {"tls.crt": (encoded(certificate)), "tls.key": (encoded(key))}})
}

#[tokio::test]
async fn roots_by_reference_are_followed_and_their_absence_is_told() {
    let (pki, other) = (Pki::new(&["ext.ns.svc"], &[b"h2"]), Pki::new(&["ext.ns.svc"], &[b"h2"]));
    let (backend, _) = named(&pki, "a").await;
    let w = world().await;
    let service = json!({"metadata": {"name": "ext"}, "spec": {"type": "ExternalName", "externalName": "127.0.0.1"}});
    w.services.set("ns/ext", &service);
    let port = backend.authority.rsplit(':').next().unwrap().parse().unwrap();
    let mut o = apiservice("g", "", port);
    o.set(
        &["metadata", "annotations", "torana.dev/backend-ca-from"],
        "configmap/n/roots",
    );
    w.api_services.set("v1.g", &o);
    w.until_condition("v1.g", "False/ReferenceNotFound/configmap \"n/roots\" is not present")
        .await;
    assert_eq!(w.get(THINGS).await, (503, "service unavailable\n".into()));
    w.config_maps
        .set("n/roots", &json!({"metadata": {}, "data": {"ca.pem": "x"}}));
    w.until_condition(
        "v1.g",
        "False/ReferenceInvalid/configmap \"n/roots\" cannot be used: it has no key \"ca.crt\"",
    )
    .await;
    w.config_maps.set("n/roots", &config_map(" \n"));
    w.until_condition(
        "v1.g",
        "False/ReferenceInvalid/configmap \"n/roots\" cannot be used: its key \"ca.crt\" is empty",
    )
    .await;
    w.config_maps.set("n/roots", &config_map(&pki.ca_pem));
    passed(&w).await;

    let before = backend.connections.load(Ordering::Relaxed);
    w.config_maps.set("n/roots", &config_map(&other.ca_pem));
    let refused = || async {
        let now = w.condition("v1.g");
        (now.starts_with("False/FailedDiscoveryCheck/") && now.contains("signed by unknown authority")).then_some(())
    };
    w.until("the old roots are forgotten", refused).await;
    assert_eq!(
        backend.connections.load(Ordering::Relaxed),
        before,
        "nothing was sent on a connection that is not verified"
    );
    w.config_maps
        .set("n/roots", &config_map(&format!("{}{}", other.ca_pem, pki.ca_pem)));
    passed(&w).await;
    w.config_maps.remove("n/roots");
    w.until_condition("v1.g", "False/ReferenceNotFound/configmap \"n/roots\" is not present")
        .await;
}

#[tokio::test]
async fn a_client_certificate_by_reference_is_shown_and_rotates() {
    let (one, two) = (client_pair(), client_pair());
    let pki = Pki::asking(&["api.example.com"], &[b"h2"], &format!("{}{}", one[0], two[0]));
    let backend = raw_backend(&pki, |stream| async move {
        // The certificate's own bytes, as what it answers.
        let shown = stream.get_ref().1.peer_certificates().unwrap()[0].as_ref().to_vec();
        let text = base64::engine::general_purpose::STANDARD.encode(shown);
        serve_http2(stream, text).await;
    })
    .await;
    let w = world().await;
    let url = format!("https://{}", backend.authority);
    let from = ("torana.dev/backend-client-certificate-from", "secret/n/client");
    w.api_services.set(
        "v1.g",
        &object(&pki.ca_pem, &[(URLS, &url), (NAME, "api.example.com"), from]),
    );
    w.until_condition("v1.g", "False/ReferenceNotFound/secret \"n/client\" is not present")
        .await;
    let mut opaque = tls_secret(&one);
    opaque.set(&["type"], "Opaque");
    w.secrets.set("n/client", &opaque);
    w.until_condition(
        "v1.g",
        "False/ReferenceInvalid/secret \"n/client\" cannot be used: it is of the type \"Opaque\", not \"kubernetes.io/tls\"",
    )
    .await;
    let mixed = [one[0].clone(), one[1].clone(), two[2].clone()];
    w.secrets.set("n/client", &tls_secret(&mixed));
    w.until_condition(
        "v1.g",
        "False/ReferenceInvalid/secret \"n/client\" cannot be used: the private key does not belong to the certificate",
    )
    .await;
    for pair in [&one, &two, &one] {
        w.secrets.set("n/client", &tls_secret(pair));
        let body: String = pair[1].lines().filter(|l| !l.starts_with("---")).collect();
        let shown = || async { (w.get(THINGS).await == (200, body.clone())).then_some(()) };
        w.until("the certificate is shown", shown).await;
        for _ in 0..5 {
            assert_eq!(w.get(THINGS).await.1, body, "no request goes by the old certificate");
        }
    }
}

#[tokio::test]
async fn annotations_that_cannot_be_read_send_nothing_anywhere() {
    let pki = Pki::new(&["ext.ns.svc"], &[b"h2"]);
    let (backend, _) = named(&pki, "a").await;
    let w = world().await;
    let port = backend.authority.rsplit(':').next().unwrap().parse().unwrap();
    let service = json!({"metadata": {"name": "ext"}, "spec": {"type": "ExternalName", "externalName": "127.0.0.1"}});
    w.services.set("ns/ext", &service);
    // As another server on the same store may have written it.
    let mut o = apiservice("g", &pki.ca_pem, port);
    o.set(
        &["metadata", "annotations", "torana.dev/backend-ca-from"],
        "configmap/roots",
    );
    w.api_services.set("v1.g", &o);
    let told = || async {
        w.condition("v1.g")
            .starts_with("False/InvalidAnnotations/metadata.annotations[torana.dev/backend-ca-from]: Invalid value")
            .then_some(())
    };
    w.until("the condition", told).await;
    assert_eq!(backend.connections.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn limits_of_an_apiservice_are_kept() {
    let pki = Pki::new(&["api.example.com"], &[b"h2"]);
    let backend = Backend::http(&pki, 100, |r: http::Request<Incoming>| async move {
        let unending = || Body::stream(Stalled);
        match r.uri().path() {
            "/apis/g/v1/silent" => std::future::pending().await,
            "/apis/g/v1/stalled" => http::Response::new(unending()),
            _ => answer(200, "ok"),
        }
    })
    .await;
    let w = world().await;
    let url = format!("https://{}", backend.authority);
    let to = [(URLS, url.as_str()), (NAME, "api.example.com")];
    let header = ("torana.dev/backend-header-timeout", "50ms");
    w.api_services
        .set("v1.g", &object(&pki.ca_pem, &[&to[..], &[header]].concat()));
    passed(&w).await;
    assert_eq!(
        w.get("/apis/g/v1/silent").await,
        (
            503,
            "error trying to reach service: net/http: timeout awaiting response headers\n".into()
        )
    );

    let whole = ("torana.dev/backend-request-timeout", "50ms");
    w.api_services
        .set("v1.g", &object(&pki.ca_pem, &[&to[..], &[whole]].concat()));
    passed(&w).await;
    assert_eq!(
        w.get("/apis/g/v1/silent").await,
        (503, "error trying to reach service: context deadline exceeded\n".into())
    );
    assert!(w.cut_off("/apis/g/v1/stalled").await, "a body has the same end");

    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", silent.local_addr().unwrap());
    let connect = ("torana.dev/backend-connect-timeout", "50ms");
    w.api_services.set("v1.g", &object("", &[(URLS, &url), connect]));
    let told = || async { w.condition("v1.g").ends_with(": i/o timeout").then_some(()) };
    let began = std::time::Instant::now();
    w.until("the connection is given up", told).await;
    assert!(began.elapsed() < Duration::from_secs(5));
}

/// A body that never comes.
struct Stalled;

impl http_body::Body for Stalled {
    type Data = bytes::Bytes;
    type Error = std::convert::Infallible;
    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<bytes::Bytes>, Self::Error>>> {
        std::task::Poll::Pending
    }
}

#[tokio::test]
async fn a_budget_of_its_own_turns_away_what_is_over_it() {
    let pki = Pki::new(&["api.example.com"], &[b"h2"]);
    let backend = Backend::http(&pki, 100, |r: http::Request<Incoming>| async move {
        match r.uri().path() {
            "/apis/g/v1/silent" => std::future::pending().await,
            _ => answer(200, "ok"),
        }
    })
    .await;
    let w = world().await;
    let url = format!("https://{}", backend.authority);
    let annotations = [
        (URLS, url.as_str()),
        (NAME, "api.example.com"),
        ("torana.dev/backend-max-requests-inflight", "1"),
    ];
    w.api_services.set("v1.g", &object(&pki.ca_pem, &annotations));
    passed(&w).await;
    let mut held = Box::pin(w.get("/apis/g/v1/silent"));
    let turned_away = || async { (w.get(THINGS).await.0 == 429).then_some(()) };
    // The first one enters first.
    tokio::select! {
        biased;
        _ = &mut held => unreachable!("it has no answer"),
        () = w.until("the budget is used up", turned_away) => {}
    }
    drop(held);
    w.api_services.set("v1.g", &object(&pki.ca_pem, &annotations[..2]));
    passed(&w).await;
}
