//! The proxy end to end, against TLS backends in the same process.

mod beside;
mod failures;
mod informational;
mod origin;
mod pages;
mod sending;
mod upgrades;

use crate::aggregator::testing::*;
use crate::request::{Body, RemoteAddr, Request, RequestContext, UnprotectedHandler};
use bytes::Bytes;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use std::convert::Infallible;
use std::sync::atomic::Ordering;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

pub(super) const H2: &[&[u8]] = &[b"h2", b"http/1.1"];
pub(super) const H1: &[&[u8]] = &[b"http/1.1"];

fn streaming(rx: mpsc::Receiver<&'static str>) -> Body {
    let frames = futures_util::stream::unfold(rx, |mut rx| async move {
        let next = rx.recv().await?;
        Some((
            Ok::<_, Infallible>(Frame::data(Bytes::from_static(next.as_bytes()))),
            rx,
        ))
    });
    Body::stream(StreamBody::new(frames))
}

/// Reads the head of a request from a raw connection.
pub(super) async fn head(stream: &mut (impl AsyncReadExt + Unpin)) -> Option<String> {
    let mut seen = Vec::new();
    while !seen.ends_with(b"\r\n\r\n") {
        seen.push(stream.read_u8().await.ok()?);
    }
    String::from_utf8(seen).ok()
}

#[tokio::test]
async fn an_http2_backend_sees_the_caller_and_the_forwarding_chain() {
    let pki = Pki::new(&["ext.ns.svc"], H2);
    let backend = Backend::http(&pki, 100, |r| async move {
        let mut seen = format!("{:?} {} {}\n", r.version(), r.method(), r.uri());
        let mut lines: Vec<String> = r
            .headers()
            .iter()
            .map(|(k, v)| format!("{k}: {}\n", v.to_str().unwrap()))
            .collect();
        lines.sort();
        seen.extend(lines);
        response(200, seen)
    })
    .await;
    let mut r: Request = http::Request::get("/apis/g/v1/things%2Fx?limit=5&a=b")
        .header("host", "gateway")
        .header("x-remote-user", "evil")
        // Headers named in `Connection` are removed, but never those that the gateway sets.
        .header("connection", "x-drop, X-Remote-User, x-remote-group, Audit-Id")
        .header("x-drop", "1")
        .header("x-forwarded-for", "9.9.9.9")
        .body(Body::empty())
        .unwrap();
    let context = RequestContext::of_mut(&mut r);
    context.audit_id = Some(http::HeaderValue::from_static("audit-1").into());
    context.remote = Some(RemoteAddr(([127, 0, 0, 1], 4711).into()));
    let response = proxy(&backend.authority, &pki.ca_pem).serve(r, alice()).await;
    let a = &backend.authority;
    let wanted = format!(
        "HTTP/2.0 GET https://{a}/apis/g/v1/things/x?a=b&limit=5\n\
         accept-encoding: gzip\naudit-id: audit-1\nx-forwarded-for: 9.9.9.9, 127.0.0.1\nx-forwarded-host: {a}\n\
         x-forwarded-proto: https\nx-forwarded-uri: /apis/g/v1/things/x\nx-remote-group: dev\n\
         x-remote-group: system:authenticated\nx-remote-user: alice\n"
    );
    assert_eq!(text(response).await, wanted);
}

#[tokio::test]
async fn http1_header_names_are_in_gos_canonical_form() {
    let pki = Pki::new(&["ext.ns.svc"], H1);
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let backend = raw_backend(&pki, move |mut s| {
        let sender = sender.clone();
        async move {
            while let Some(seen) = head(&mut s).await {
                sender.send(seen).unwrap();
                s.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                    .await
                    .unwrap();
            }
        }
    })
    .await;
    let p = proxy(&backend.authority, &pki.ca_pem);
    let mut user = crate::request::UserInfo::system("alice", &["dev"]);
    user.extra
        .insert("authentication.kubernetes.io/credential-id".into(), vec!["X509".into()]);
    let user = crate::request::Authorized::for_test(user);
    for _ in 0..3 {
        assert_eq!(
            text(p.clone().serve(get("/apis/g/v1/x"), user.clone()).await).await,
            "ok"
        );
    }
    let seen = receiver.recv().await.unwrap();
    assert!(seen.starts_with("GET /apis/g/v1/x HTTP/1.1\r\n"), "{seen}");
    assert!(
        seen.contains("\r\nX-Remote-Extra-Authentication.kubernetes.io%2fcredential-Id: X509\r\n"),
        "{seen}"
    );
    assert!(seen.contains(&format!("\r\nHost: {}\r\n", backend.authority)), "{seen}");
    assert!(!seen.contains("User-Agent"), "{seen}");
    assert_eq!(backend.connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn bodies_stream_in_both_directions() {
    for alpn in [H1, H2] {
        let pki = Pki::new(&["ext.ns.svc"], alpn);
        let backend = Backend::http(&pki, 100, |r| async move {
            http::Response::new(Body::stream(r.into_body()))
        })
        .await;
        let (up, rx) = mpsc::channel(1);
        let r = http::Request::post("/apis/g/v1/echo").body(streaming(rx)).unwrap();
        let p = proxy(&backend.authority, &pki.ca_pem);
        let response = tokio::spawn(async move { p.clone().serve(r, alice()).await });
        up.send("one").await.unwrap();
        let mut body = response.await.unwrap().into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "one");
        up.send("two").await.unwrap();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "two");
        drop(up);
        assert!(body.collect(10).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_connection_is_added_when_all_streams_are_used() {
    let pki = Pki::new(&["ext.ns.svc"], H2);
    let (go, _) = tokio::sync::broadcast::channel::<()>(1);
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let gate = go.clone();
    // Two streams per connection, so six requests need three connections.
    let backend = Backend::http(&pki, 2, move |_| {
        let (mut gate, sender) = (gate.subscribe(), sender.clone());
        async move {
            sender.send(()).unwrap();
            let _ = gate.recv().await;
            response(200, "ok")
        }
    })
    .await;
    let p = proxy(&backend.authority, &pki.ca_pem);
    // The first response arrives after the backend's SETTINGS.
    let warm = tokio::spawn({
        let p = p.clone();
        async move { text(p.clone().serve(get("/x"), alice()).await).await }
    });
    receiver.recv().await.unwrap();
    go.send(()).unwrap();
    assert_eq!(warm.await.unwrap(), "ok");
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let p = p.clone();
        all.spawn(async move { text(p.clone().serve(get("/x"), alice()).await).await });
    }
    for _ in 0..6 {
        receiver.recv().await.unwrap();
    }
    assert!(backend.connections.load(Ordering::Relaxed) >= 3);
    go.send(()).unwrap();
    while let Some(t) = all.join_next().await {
        assert_eq!(t.unwrap(), "ok");
    }
}

#[tokio::test]
async fn gzip_that_the_client_did_not_request_is_decompressed() {
    let pki = Pki::new(&["ext.ns.svc"], H2);
    let backend = Backend::http(&pki, 100, |r| async move {
        use std::io::Write as _;
        assert_eq!(r.headers()["accept-encoding"], "gzip");
        if r.uri().path() == "/unchanged" {
            let mut a = response(304, "");
            a.headers_mut().insert("content-encoding", "gzip".parse().unwrap());
            return a;
        }
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(b"hello").unwrap();
        let mut a = response(200, packer.finish().unwrap());
        a.headers_mut().insert("content-encoding", "gzip".parse().unwrap());
        a
    })
    .await;
    let p = proxy(&backend.authority, &pki.ca_pem);
    let a = p.clone().serve(get("/x"), alice()).await;
    assert!(!a.headers().contains_key("content-encoding") && !a.headers().contains_key("content-length"));
    assert_eq!(text(a).await, "hello");
    let mut asked = get("/x");
    asked.headers_mut().insert("accept-encoding", "gzip".parse().unwrap());
    let a = p.clone().serve(asked, alice()).await;
    assert_eq!(a.headers()["content-encoding"], "gzip");
    let unchanged = p.clone().serve(get("/unchanged"), alice()).await;
    // There is nothing to decompress.
    assert_eq!(unchanged.headers()["content-encoding"], "gzip");
    assert_eq!(text(unchanged).await, "");
}

#[tokio::test]
async fn a_client_that_disconnects_cancels_its_request_at_the_backend() {
    for alpn in [H1, H2] {
        let pki = Pki::new(&["ext.ns.svc"], alpn);
        let (sender, mut receiver) = mpsc::unbounded_channel();
        struct Gone(mpsc::UnboundedSender<&'static str>);
        impl Drop for Gone {
            fn drop(&mut self) {
                let _ = self.0.send("gone");
            }
        }
        let backend = Backend::http(&pki, 100, move |_| {
            let sender = sender.clone();
            async move {
                sender.send("arrived").unwrap();
                let _gone = Gone(sender);
                std::future::pending::<()>().await;
                response(200, "")
            }
        })
        .await;
        let p = proxy(&backend.authority, &pki.ca_pem);
        let client = tokio::spawn(async move { p.clone().serve(get("/x?watch=1"), alice()).await });
        assert_eq!(receiver.recv().await, Some("arrived"));
        client.abort();
        assert_eq!(receiver.recv().await, Some("gone"));
    }
}

#[tokio::test]
async fn a_client_that_disconnects_during_upload_cancels_its_request() {
    let pki = Pki::new(&["ext.ns.svc"], H2);
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let backend = Backend::http(&pki, 100, move |r| {
        let sender = sender.clone();
        async move {
            let mut body = r.into_body();
            while let Some(Ok(frame)) = body.frame().await {
                sender.send(frame.into_data().ok()).unwrap();
            }
            sender.send(None).unwrap();
            std::future::pending::<()>().await;
            response(200, "")
        }
    })
    .await;
    let (up, rx) = mpsc::channel(1);
    let r = http::Request::post("/x").body(streaming(rx)).unwrap();
    let p = proxy(&backend.authority, &pki.ca_pem);
    let client = tokio::spawn(async move { p.clone().serve(r, alice()).await });
    up.send("one").await.unwrap();
    assert_eq!(receiver.recv().await.unwrap().unwrap(), "one");
    client.abort();
    assert_eq!(receiver.recv().await, Some(None));
}

#[tokio::test]
async fn a_body_larger_than_the_flow_control_window_arrives_whole() {
    let pki = Pki::new(&["ext.ns.svc"], H2);
    let backend = Backend::http(&pki, 100, |r| async move {
        let length = r.headers().get("content-length").cloned();
        let body = r.into_body().collect().await.unwrap().to_bytes();
        response(
            200,
            format!("{length:?} {} {}", body.len(), body.iter().all(|b| *b == b'x')),
        )
    })
    .await;
    let p = proxy(&backend.authority, &pki.ca_pem);
    for size in [10, 5 << 20] {
        let r = http::Request::post("/x").body(Body::full(vec![b'x'; size])).unwrap();
        let wanted = format!("Some(\"{size}\") {size} true");
        assert_eq!(text(p.clone().serve(r, alice()).await).await, wanted);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_requests_to_a_cold_backend_with_few_streams_are_served() {
    let pki = Pki::new(&["ext.ns.svc"], H2);
    // Cold: all requests wait for the first connection, which serves two at a time.
    let backend = Backend::http(&pki, 2, |_| async { response(200, "ok") }).await;
    let p = proxy(&backend.authority, &pki.ca_pem);
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let p = p.clone();
        all.spawn(async move { text(p.clone().serve(get("/x"), alice()).await).await });
    }
    while let Some(t) = all.join_next().await {
        assert_eq!(t.unwrap(), "ok");
    }
}

#[tokio::test]
async fn a_request_without_a_user_reaches_no_backend() {
    // The filter chain always sets a user name; an embedding might not.
    let nobody = crate::request::Authorized::for_test(crate::request::UserInfo::default());
    let response = proxy("127.0.0.1:1", "").serve(get("/apis/g/v1/x"), nobody).await;
    assert_eq!(response.status(), 500);
    assert_eq!(text(response).await, "missing user\n");
}
