//! Explicit targets end to end: from an APIService's annotations to the backend.

mod certificates;
mod disk_cache;
mod hostile;
mod periods;

use super::testing::*;
use crate::apimachinery::value::Value;
use crate::json;
use crate::request::Body;
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

/// An APIService with these annotations, whose `caBundle` is `ca`.
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

/// A backend that responds with its name, and the number of requests to it other than discovery.
async fn named(pki: &Pki, name: &'static str) -> (Backend, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let backend = Backend::http(pki, 100, move |r: http::Request<Incoming>| {
        if r.uri().path() == THINGS {
            count.fetch_add(1, Ordering::Relaxed);
        }
        async move { response(200, name) }
    });
    (backend.await, asked)
}

#[tokio::test]
async fn annotations_route_to_backends_outside_the_cluster() {
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
        assert_eq!(w.get(THINGS).await, (200, "b".into()), "the other one responds");
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
async fn a_failover_backend_serves_only_while_the_first_is_down() {
    let pki = Pki::new(&["api.example.com"], &[b"h2"]);
    let (standby, _) = named(&pki, "standby").await;
    let port = ReservedPort::new();
    let at_port =
        |text: &'static str| Backend::http_at(port.number(), &pki, 100, move |_| async move { response(200, text) });
    let first = at_port("first").await;
    let w = world().await;
    let urls = format!("https://{};failover=1, https://{}", standby.authority, first.authority);
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
    // The first backend returns on the same address.
    let _first = at_port("first again").await;
    let back = || async { (w.get(THINGS).await == (200, "first again".into())).then_some(()) };
    w.until("the first is used again", back).await;
}

#[tokio::test]
async fn requests_fail_over_from_a_hanging_backend() {
    let pki = Pki::new(&["api.example.com"], &[b"h2"]);
    let silent = Backend::http(&pki, 100, |_| std::future::pending());
    let (silent, (standby, _)) = (silent.await, named(&pki, "standby").await);
    let w = world().await;
    let urls = format!("https://{}, https://{};failover=1", silent.authority, standby.authority);
    let mut o = object(
        &pki.ca_pem,
        &[
            (URLS, &urls),
            (NAME, "api.example.com"),
            ("torana.dev/backend-header-timeout", "300ms"),
        ],
    );
    // Available from the start: its probes hang, so it would not become available by itself.
    o.set(
        &["status", "conditions"],
        json!([{"type": "Available", "status": "True", "reason": "Passed", "message": "all checks passed"}]),
    );
    w.api_services.set("v1.g", &o);
    let routed = || async { (w.get(THINGS).await.0 != 404).then_some(()) };
    w.until("the route", routed).await;
    let mut lost = 0;
    for _ in 0..50 {
        match w.get(THINGS).await {
            (200, text) => assert_eq!(text, "standby"),
            (503, _) => lost += 1,
            other => panic!("{other:?}"),
        }
    }
    // Requests that were sent before the address was ejected; the others must not be lost.
    assert!(lost <= 8, "{lost} requests went to an address that hangs");
}

/// A task that is aborted when the test ends.
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
        let body = match text.as_str() {
            "" => format!("{user}@{host}"),
            text => text.to_owned(),
        };
        async move { Ok::<_, std::convert::Infallible>(response(200, body)) }
    });
    let http2 = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    let _ = http2.serve_connection(TokioIo::new(io), service).await;
}

async fn serve_http1(io: impl AsyncRead + AsyncWrite + Unpin) {
    let service = service_fn(|r: http::Request<Incoming>| {
        let text = |name: &str| r.headers().get(name).map_or("", |v| v.to_str().unwrap()).to_owned();
        let body = format!(
            "{}@{} for {}",
            text("x-remote-user"),
            text("host"),
            text("x-forwarded-host")
        );
        async move { Ok::<_, std::convert::Infallible>(response(200, body)) }
    });
    let http1 = hyper::server::conn::http1::Builder::new();
    let _ = http1.serve_connection(TokioIo::new(io), service).await;
}

/// Listens on a Unix socket: HTTP/1.1, HTTP/2, or TLS with the negotiated version.
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
async fn unix_sockets_serve_every_protocol() {
    let dir = tempfile::tempdir().unwrap();
    let (h1, h2) = (
        Pki::new(&["api.example.com"], &[]),
        Pki::new(&["api.example.com"], &[b"h2"]),
    );
    let with_name: &[(&str, &str)] = &[(NAME, "api.example.com")];
    for (protocol, pki, more, body) in [
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
        let path: PathBuf = dir.path().join(format!("{protocol}{}", body.len()));
        let _server = on_socket(&path, protocol, pki);
        let w = world().await;
        let url = format!("{protocol}://{}", path.display());
        let annotations = [&[(URLS, url.as_str())], more].concat();
        w.api_services
            .set("v1.g", &object(pki.map_or("", |p| &p.ca_pem), &annotations));
        passed(&w).await;
        assert_eq!(w.get(THINGS).await, (200, body.into()), "{protocol}");
    }
}

#[tokio::test]
async fn timeouts_of_an_apiservice_are_enforced() {
    let pki = Pki::new(&["api.example.com"], &[b"h2"]);
    let backend = Backend::http(&pki, 100, |r: http::Request<Incoming>| async move {
        let unending = || Body::stream(Stalled);
        match r.uri().path() {
            "/apis/g/v1/silent" => std::future::pending().await,
            "/apis/g/v1/stalled" => http::Response::new(unending()),
            _ => response(200, "ok"),
        }
    })
    .await;
    let w = world().await;
    let url = format!("https://{}", backend.authority);
    let to = [(URLS, url.as_str()), (NAME, "api.example.com")];
    let header = ("torana.dev/backend-header-timeout", "500ms");
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

    let whole = ("torana.dev/backend-request-timeout", "500ms");
    w.api_services
        .set("v1.g", &object(&pki.ca_pem, &[&to[..], &[whole]].concat()));
    passed(&w).await;
    assert_eq!(
        w.get("/apis/g/v1/silent").await,
        (503, "error trying to reach service: context deadline exceeded\n".into())
    );
    assert!(w.cut_off("/apis/g/v1/stalled").await, "the body has the same deadline");

    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", silent.local_addr().unwrap());
    let connect = ("torana.dev/backend-connect-timeout", "50ms");
    w.api_services.set("v1.g", &object("", &[(URLS, &url), connect]));
    let timed_out = || async { w.condition("v1.g").ends_with(": i/o timeout").then_some(()) };
    w.until("the connection is given up", timed_out).await;
}

/// A body that never yields a frame.
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
async fn requests_over_the_limit_of_an_apiservice_are_rejected() {
    let pki = Pki::new(&["api.example.com"], &[b"h2"]);
    let backend = Backend::http(&pki, 100, |r: http::Request<Incoming>| async move {
        match r.uri().path() {
            "/apis/g/v1/silent" => std::future::pending().await,
            _ => response(200, "ok"),
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
    let rejected = || async { (w.get(THINGS).await.0 == 429).then_some(()) };
    // Poll the held request first, so that it takes the only place.
    tokio::select! {
        biased;
        _ = &mut held => unreachable!("it has no answer"),
        () = w.until("the budget is used up", rejected) => {}
    }
    drop(held);
    w.api_services.set("v1.g", &object(&pki.ca_pem, &annotations[..2]));
    passed(&w).await;
}
