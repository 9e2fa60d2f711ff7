//! Upgraded connections.

use super::{H1, H2, head};
use crate::aggregator::backend_stats::BackendStats;
use crate::aggregator::proxy::ProxyHandler;
use crate::aggregator::testing::*;
use crate::request::{Body, RemoteAddr, RequestContext, UnprotectedHandler};
use hyper::client::conn::http1::SendRequest;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// An HTTP/1.1 server in front of the proxy, like the gateway's serving side.
async fn front(proxy: Arc<ProxyHandler>) -> SendRequest<Body> {
    let client = front_io(proxy);
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(client))
        .await
        .unwrap();
    tokio::spawn(connection.with_upgrades());
    sender
}

/// The client's end of a connection to such a server.
pub(super) fn front_io(proxy: Arc<ProxyHandler>) -> tokio::io::DuplexStream {
    let (client, server) = tokio::io::duplex(1 << 16);
    tokio::spawn(async move {
        let service = service_fn(move |r: http::Request<hyper::body::Incoming>| {
            let proxy = proxy.clone();
            let mut r = r.map(Body::stream);
            RequestContext::of_mut(&mut r).remote = Some(RemoteAddr(([127, 0, 0, 1], 4711).into()));
            async move { Ok::<_, std::convert::Infallible>(proxy.serve(r, alice()).await) }
        });
        let b = hyper::server::conn::http1::Builder::new();
        let _ = b.serve_connection(TokioIo::new(server), service).with_upgrades().await;
    });
    client
}

fn upgrade_request() -> http::Request<Body> {
    http::Request::post("/apis/g/v1/namespaces/n/pods/p/exec?b=1&a=2")
        .header("connection", "Upgrade")
        .header("upgrade", "SPDY/3.1")
        .body(Body::empty())
        .unwrap()
}

#[tokio::test]
async fn bytes_flow_in_both_directions_until_one_side_ends() {
    let pki = Pki::new(&["ext.ns.svc"], H2);
    let backend = raw_backend(&pki, |mut s| async move {
        let seen = head(&mut s).await.unwrap();
        assert!(
            seen.starts_with("POST /apis/g/v1/namespaces/n/pods/p/exec?a=2&b=1 HTTP/1.1\r\n"),
            "{seen}"
        );
        for line in [
            "Connection: Upgrade",
            "Upgrade: SPDY/3.1",
            "X-Remote-User: alice",
            "X-Forwarded-For: 127.0.0.1",
            "User-Agent: Go-http-client/1.1",
        ] {
            assert!(seen.to_lowercase().contains(&line.to_lowercase()), "{line} in {seen}");
        }
        assert!(!seen.contains("X-Forwarded-Host"), "{seen}");
        // The first payload arrives in the same write as the response.
        s.write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\nearly")
            .await
            .unwrap();
        let mut got = [0; 4];
        s.read_exact(&mut got).await.unwrap();
        s.write_all(&got).await.unwrap();
        s.shutdown().await.unwrap();
    })
    .await;
    let mut client = front(proxy(&backend.authority, &pki.ca_pem)).await;
    let response = client.send_request(upgrade_request()).await.unwrap();
    assert_eq!(response.status(), 101);
    assert_eq!(response.headers()["upgrade"], "SPDY/3.1");
    let mut io = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    io.write_all(b"ping").await.unwrap();
    let mut all = Vec::new();
    io.read_to_end(&mut all).await.unwrap();
    assert_eq!(all, b"earlyping");
}

/// Responds to plain requests and echoes on upgraded connections.
async fn echo(io: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static) {
    let service = service_fn(|mut r: http::Request<hyper::body::Incoming>| async move {
        let mut answered = response(200, "ok");
        if let Some(protocol) = r.headers_mut().remove("upgrade") {
            assert_eq!(
                r.headers()["host"],
                "api.example.com",
                "the path of a socket is not disclosed"
            );
            assert_eq!(r.headers()["x-remote-user"], "alice");
            *answered.status_mut() = http::StatusCode::SWITCHING_PROTOCOLS;
            answered.headers_mut().insert("upgrade", protocol);
            answered.headers_mut().insert("connection", "Upgrade".parse().unwrap());
            tokio::spawn(async move {
                let io = TokioIo::new(hyper::upgrade::on(r).await.unwrap());
                let (mut read, mut write) = tokio::io::split(io);
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
        Ok::<_, std::convert::Infallible>(answered)
    });
    let http1 = hyper::server::conn::http1::Builder::new();
    let _ = http1.serve_connection(TokioIo::new(io), service).with_upgrades().await;
}

/// An aggregator with an APIService for this URL that is already available.
async fn world_to(url: &str, ca_pem: &str) -> World {
    let w = World::start(MemoryStorage::new(), MemoryStorage::new()).await;
    let mut object = apiservice("g", ca_pem, 443);
    let annotations = crate::json!({
        "torana.dev/backend-urls": url, "torana.dev/backend-server-name": "api.example.com",
    });
    object.set(&["metadata", "annotations"], annotations);
    w.api_services.set("v1.g", &object);
    w.until_condition("v1.g", "True/Passed/all checks passed").await;
    w.until("requests are routed", || async {
        (w.get("/apis/g/v1/x").await.0 == 200).then_some(())
    })
    .await;
    w
}

#[tokio::test]
async fn unix_sockets_support_upgrades() {
    let pki = Pki::new(&["api.example.com"], H1);
    let dir = tempfile::tempdir().unwrap();
    for (scheme, tls) in [("http+unix", None), ("https+unix", Some(&pki))] {
        let path = dir.path().join(scheme);
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let acceptor = tls.map(|pki| tokio_rustls::TlsAcceptor::from(pki.config.clone()));
        let server = tokio::spawn(async move {
            while let Ok((unix, _)) = listener.accept().await {
                match &acceptor {
                    None => drop(tokio::spawn(echo(unix))),
                    // The first of five probes to succeed cancels the others.
                    Some(tls) => drop(tls.accept(unix).await.map(|tls| tokio::spawn(echo(tls)))),
                }
            }
        });
        let url = format!("{scheme}://{}", path.display());
        let w = world_to(&url, tls.map_or("", |pki| &pki.ca_pem)).await;
        for protocol in ["websocket", "SPDY/3.1"] {
            let mut client = front(w.aggregator.handler("v1.g").unwrap()).await;
            let mut request = upgrade_request();
            request.headers_mut().insert("upgrade", protocol.parse().unwrap());
            let response = client.send_request(request).await.unwrap();
            assert_eq!(response.status(), 101, "{url} {protocol}");
            assert_eq!(response.headers()["upgrade"], protocol);
            let mut io = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
            // More than the socket's buffers hold.
            let sent: Vec<u8> = (0..1_usize << 20).map(|i| (i % 251) as u8).collect();
            let (mut read, mut write) = tokio::io::split(&mut io);
            let mut back = vec![0; sent.len()];
            let (read, written) = tokio::join!(read.read_exact(&mut back), write.write_all(&sent));
            read.unwrap();
            written.unwrap();
            assert!(back == sent, "{url} {protocol}");
        }
        server.abort();
    }
}

#[tokio::test]
async fn a_socket_without_upgrades_is_named_in_the_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("h2c.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let server = tokio::spawn(async move {
        while let Ok((unix, _)) = listener.accept().await {
            let service = service_fn(|_| async { Ok::<_, std::convert::Infallible>(response(200, "ok")) });
            let http2 = hyper::server::conn::http2::Builder::new(hyper_util::rt::TokioExecutor::new());
            tokio::spawn(http2.serve_connection(TokioIo::new(unix), service));
        }
    });
    let w = world_to(&format!("h2c+unix://{}", path.display()), "").await;
    let mut client = front(w.aggregator.handler("v1.g").unwrap()).await;
    let response = client.send_request(upgrade_request()).await.unwrap();
    let (status, path) = (response.status(), path.display());
    assert_eq!(
        (status.as_u16(), text(response.map(Body::stream)).await),
        (
            503,
            format!("error dialing backend: dial unix {path}: h2c+unix sockets do not support upgrades\n")
        )
    );
    server.abort();
}

#[tokio::test]
async fn a_refusal_reaches_the_client_and_anything_else_is_503() {
    let pki = Pki::new(&["ext.ns.svc"], H1);
    for (status, body, seen) in [
        (403, "no", (403, "no".to_owned())),
        (
            200,
            "ok",
            (503, "invalid upgrade response: status code 200\n".to_owned()),
        ),
    ] {
        let backend = Backend::http(&pki, 1, move |_| async move { response(status, body) }).await;
        let mut client = front(proxy(&backend.authority, &pki.ca_pem)).await;
        let a = client.send_request(upgrade_request()).await.unwrap();
        let status = a.status().as_u16();
        assert_eq!((status, text(a.map(Body::stream)).await), seen);
    }
}

#[tokio::test]
async fn http2_clients_cannot_upgrade() {
    let mut r = upgrade_request();
    *r.version_mut() = http::Version::HTTP_2;
    let a = proxy("127.0.0.1:1", "").serve(r, alice()).await;
    assert_eq!(a.status(), 503);
    assert!(text(a).await.starts_with("request connection cannot be hijacked: "));
}

#[tokio::test]
async fn the_error_names_a_backend_that_cannot_be_dialed() {
    let mut client = front(proxy(&DEAD.to_string(), "")).await;
    let a = client.send_request(upgrade_request()).await.unwrap();
    assert_eq!(
        text(a.map(Body::stream)).await,
        format!("error dialing backend: dial tcp {DEAD}: connect: connection refused\n")
    );
}

#[tokio::test]
async fn an_endless_refusal_is_cut_off_after_ten_seconds() {
    let pki = Pki::new(&["ext.ns.svc"], H1);
    let backend = raw_backend(&pki, |mut s| async move {
        head(&mut s).await;
        s.write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 10\r\n\r\nno")
            .await
            .unwrap();
        std::future::pending::<()>().await;
    })
    .await;
    let mut client = front(proxy(&backend.authority, &pki.ca_pem)).await;
    let a = client.send_request(upgrade_request()).await.unwrap();
    assert_eq!(a.status(), 403);
    let began = tokio::time::Instant::now();
    // From here on nothing but the deadline is waited for.
    tokio::time::pause();
    assert!(a.map(Body::stream).into_body().collect(100).await.is_err());
    let took = began.elapsed().as_secs();
    assert!((9..=11).contains(&took), "{took}");
}

#[tokio::test]
async fn a_tunnel_holds_its_permit_until_it_ends() {
    let pki = Pki::new(&["ext.ns.svc"], H1);
    let backend = raw_backend(&pki, |mut s| async move {
        head(&mut s).await;
        s.write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
            .await
            .unwrap();
        // Returns when the client disconnects.
        let _ = s.read_u8().await;
    })
    .await;
    let stats = Arc::new(BackendStats::new(Default::default()));
    let p = proxy_with(&backend.authority, transport(&pki.ca_pem), stats.clone());
    let mut client = front(p).await;
    let response = client.send_request(upgrade_request()).await.unwrap();
    assert_eq!(response.status(), 101);
    assert_eq!(stats.snapshot().in_flight, 1);
    drop(hyper::upgrade::on(response).await.unwrap());
    while stats.snapshot().in_flight > 0 {
        tokio::task::yield_now().await;
    }
}
