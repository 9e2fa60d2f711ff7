//! Isolation: a backend cannot attack the gateway's clients, nor a client a backend.

use super::{H1, H2, head};
use crate::aggregator::testing::*;
use crate::proxy::hops::HOPS;
use crate::request::body::BoxError;
use crate::request::headers::IdentityHeaders;
use crate::request::headers::MAX_HEADER_FIELDS;
use crate::request::{Body, UnprotectedHandler};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use std::sync::Arc;
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;

fn frames<const N: usize>(frames: [Result<Frame<Bytes>, BoxError>; N]) -> Body {
    Body::stream(StreamBody::new(futures_util::stream::iter(frames)))
}

#[tokio::test]
async fn a_looping_request_is_rejected_with_its_path() {
    let pki = Pki::new(&["ext.ns.svc"], H2);
    let backend = Backend::http(&pki, 100, |r| async move {
        let hops = r.headers().get(HOPS).map_or("none", |hops| hops.to_str().unwrap());
        response(200, hops.to_owned())
    })
    .await;
    let p = proxy(&backend.authority, &pki.ca_pem);
    let carrying = |hops: &str| {
        let mut r = get("/apis/g/v1/x");
        r.headers_mut().insert(HOPS, hops.parse().unwrap());
        // Naming the header in `Connection` does not remove what the gateway adds.
        r.headers_mut().insert("connection", "x-torana-hops".parse().unwrap());
        r
    };
    assert_eq!(
        text(p.clone().serve(get("/apis/g/v1/x"), alice()).await).await,
        "none",
        "a request directly from a client"
    );
    let mut through_a_proxy = get("/apis/g/v1/x");
    for (name, value) in [("x-forwarded-for", "127.0.0.1"), ("audit-id", "1")] {
        through_a_proxy.headers_mut().insert(name, value.parse().unwrap());
    }
    assert_eq!(text(p.clone().serve(through_a_proxy, alice()).await).await, "gateway");
    assert_eq!(
        text(p.clone().serve(carrying("other"), alice()).await).await,
        "other, gateway"
    );
    let before = backend.connections.load(std::sync::atomic::Ordering::Relaxed);
    let a = p.clone().serve(carrying("gateway, other"), alice()).await;
    assert_eq!(a.status(), 508);
    let status = text(a).await;
    assert!(
        status.contains("\"kind\":\"Status\"") && status.contains("gateway -\\u003e other -\\u003e gateway"),
        "{status}"
    );
    // Even if the backend is unreachable.
    let nowhere = proxy("127.0.0.1:1", &pki.ca_pem);
    assert_eq!(nowhere.clone().serve(carrying("gateway"), alice()).await.status(), 508);
    assert_eq!(nowhere.serve(carrying("other"), alice()).await.status(), 503);
    assert_eq!(before, 1);
}

#[tokio::test]
async fn responses_set_nothing_for_the_gateways_origin_and_pages_are_sandboxed() {
    let pki = Pki::new(&["ext.ns.svc"], H2);
    let backend = Backend::http(&pki, 100, |r| async move {
        let kind = r.uri().path().rsplit('/').next().unwrap().to_owned();
        let mut a = response(200, "<b>hello</b>");
        for (name, value) in [
            ("set-cookie", "session=stolen; Path=/"),
            ("www-authenticate", "Basic realm=\"gateway\""),
            ("strict-transport-security", "max-age=99999999"),
            ("clear-site-data", "\"*\""),
            ("alt-svc", "h3=\":443\""),
            ("service-worker-allowed", "/"),
            ("x-kept", "1"),
        ] {
            a.headers_mut().append(name, value.parse().unwrap());
        }
        if kind != "none" {
            let kind = kind.replace('_', "/");
            a.headers_mut().insert("content-type", kind.parse().unwrap());
        }
        a
    })
    .await;
    let p = proxy(&backend.authority, &pki.ca_pem);
    for (kind, is_page) in [
        ("application_json", false),
        ("text_plain", false),
        ("text_html", true),
        ("image_svg+xml", true),
        ("text_xml", true),
        ("none", true),
    ] {
        let a = p.clone().serve(get(&format!("/apis/g/v1/{kind}")), alice()).await;
        let mut names: Vec<&str> = a.headers().keys().map(HeaderName::as_str).collect();
        names.retain(|n| !["content-type", "content-length", "date"].contains(n));
        names.sort_unstable();
        match is_page {
            false => assert_eq!(names, ["x-kept"], "{kind}"),
            true => {
                assert_eq!(
                    names,
                    ["content-security-policy", "x-content-type-options", "x-kept"],
                    "{kind}"
                );
                assert_eq!(a.headers()["content-security-policy"], "sandbox");
                assert_eq!(a.headers()["x-content-type-options"], "nosniff");
            }
        }
    }
}

#[tokio::test]
async fn no_spelling_of_an_identity_passes_in_headers_or_trailers() {
    for alpn in [H1, H2] {
        let pki = Pki::new(&["ext.ns.svc"], alpn);
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let backend = Backend::http(&pki, 100, move |r| {
            let sender = sender.clone();
            async move {
                let (head, body) = r.into_parts();
                let trailers = body.collect().await.unwrap().trailers().cloned().unwrap_or_default();
                sender.send((head.headers, trailers)).unwrap();
                response(200, "ok")
            }
        })
        .await;
        let configured = IdentityHeaders {
            names: vec![HeaderName::from_static("x-my-user")],
            prefixes: Vec::new(),
        };
        let transport = crate::proxy::transport::Transport::new(transport_tls(&pki.ca_pem), Arc::default(), tasks())
            .with_identity_headers(Arc::new(configured.with_standard()));
        let stats = Arc::new(crate::aggregator::backend_stats::BackendStats::new(Default::default()));
        let p = proxy_with(&backend.authority, Ok(Arc::new(transport)), stats);
        let lies = [
            "x_remote_user",
            "x-remote_group",
            "x.remote.uid",
            "x_remote_extra_scopes",
        ];
        let mut trailers = HeaderMap::new();
        for name in lies
            .iter()
            .chain(&["x_my_user", "x-my-user", "impersonate_user", "x-sum"])
        {
            trailers.insert(
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                "root".parse().unwrap(),
            );
        }
        let announced: Vec<&str> = trailers.keys().map(HeaderName::as_str).collect();
        let mut r = http::Request::post("/apis/g/v1/x")
            .header("trailer", announced.join(", "))
            .body(frames([
                Ok(Frame::data(Bytes::from_static(b"x"))),
                Ok(Frame::trailers(trailers.clone())),
            ]))
            .unwrap();
        for name in lies {
            r.headers_mut().insert(
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_static("root"),
            );
        }
        assert_eq!(p.clone().serve(r, alice()).await.status(), 200);
        let (headers, trailers) = receiver.recv().await.unwrap();
        for name in lies {
            assert!(!headers.contains_key(name), "{name}");
        }
        assert_eq!(headers["x-remote-user"], "alice");
        let left: Vec<&str> = trailers.keys().map(HeaderName::as_str).collect();
        assert_eq!(left, ["x-sum"], "{alpn:?}");
    }
}

#[tokio::test]
async fn a_body_broken_off_by_the_client_is_a_client_error() {
    for alpn in [H1, H2] {
        let pki = Pki::new(&["ext.ns.svc"], alpn);
        let backend = Backend::http(&pki, 100, |r| async move {
            match r.into_body().collect().await {
                Ok(_) => response(200, "ok"),
                // The upload was cancelled, so this response reaches nobody.
                Err(_) => response(500, "broken"),
            }
        })
        .await;
        let transport = transport(&pki.ca_pem).unwrap();
        let stats = Arc::new(crate::aggregator::backend_stats::BackendStats::new(Default::default()));
        let p = proxy_with(&backend.authority, Ok(transport.clone()), stats);
        // More often than the failures that eject an address.
        for _ in 0..5 {
            let body = frames([
                Ok(Frame::data(Bytes::from_static(b"some"))),
                Err("invalid chunk size".into()),
            ]);
            let r = http::Request::post("/apis/g/v1/x").body(body).unwrap();
            let a = p.clone().serve(r, alice()).await;
            assert_eq!(a.status(), 400, "{alpn:?}");
            let status = text(a).await;
            assert!(
                status.contains("the request body cannot be read: invalid chunk size"),
                "{status}"
            );
        }
        let state = transport.endpoints();
        assert!(
            state.iter().all(|e| e.failures_in_a_row == 0),
            "the backend is healthy: {state:?}"
        );
        let a = p.clone().serve(get("/apis/g/v1/x"), alice()).await;
        assert_eq!(a.status(), 200);
    }
}

#[tokio::test]
async fn a_response_with_too_many_header_fields_is_refused() {
    let pki = Pki::new(&["ext.ns.svc"], H2);
    let backend = Backend::http(&pki, 100, |r| async move {
        let mut a = response(200, "ok");
        let n: usize = r.uri().path().rsplit('/').next().unwrap().parse().unwrap();
        for i in 0..n {
            let name = HeaderName::from_bytes(format!("x{i}").as_bytes()).unwrap();
            a.headers_mut().insert(name, HeaderValue::from_static(""));
        }
        a
    })
    .await;
    let p = proxy(&backend.authority, &pki.ca_pem);
    assert_eq!(p.clone().serve(get("/apis/g/v1/1000"), alice()).await.status(), 200);
    for n in [MAX_HEADER_FIELDS + 1, 24_000] {
        let a = p.clone().serve(get(&format!("/apis/g/v1/{n}")), alice()).await;
        assert_eq!(a.status(), 503, "{n}");
    }
    assert_eq!(p.clone().serve(get("/apis/g/v1/1"), alice()).await.status(), 200);
}

#[tokio::test]
async fn a_refused_upgrade_sets_nothing_for_the_gateways_origin() {
    use tokio::io::AsyncWriteExt as _;
    let pki = Pki::new(&["ext.ns.svc"], H1);
    let backend = raw_backend(&pki, |mut s| async move {
        let seen = head(&mut s).await.unwrap();
        assert!(seen.contains("\r\nX-Torana-Hops: other, gateway\r\n"), "{seen}");
        let refusal = "HTTP/1.1 403 Forbidden\r\nSet-Cookie: a=b\r\nX-Kept: 1\r\nContent-Length: 0\r\n\r\n";
        s.write_all(refusal.as_bytes()).await.unwrap();
        let _ = s.read_u8().await;
    })
    .await;
    let mut client = super::upgrades::front_io(proxy(&backend.authority, &pki.ca_pem));
    let request = "GET /apis/g/v1/x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Torana-Hops: other\r\n\r\n";
    client.write_all(request.as_bytes()).await.unwrap();
    let response = head(&mut client).await.unwrap().to_ascii_lowercase();
    assert!(
        response.contains("403 forbidden") && response.contains("\r\nx-kept: 1"),
        "{response}"
    );
    assert!(!response.contains("set-cookie"), "{response}");
}

#[tokio::test]
async fn a_malformed_chunk_is_400_and_not_a_backend_failure() {
    use tokio::io::AsyncWriteExt as _;
    for alpn in [H1, H2] {
        let pki = Pki::new(&["ext.ns.svc"], alpn);
        let backend = Backend::http(&pki, 100, |r| async move {
            let _ = r.into_body().collect().await;
            response(200, "ok")
        })
        .await;
        let transport = transport(&pki.ca_pem).unwrap();
        let stats = Arc::new(crate::aggregator::backend_stats::BackendStats::new(Default::default()));
        let p = proxy_with(&backend.authority, Ok(transport.clone()), stats);
        let mut client = super::upgrades::front_io(p);
        let request = "POST /apis/g/v1/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\nZZ\r\n";
        client.write_all(request.as_bytes()).await.unwrap();
        let response = head(&mut client).await.unwrap();
        assert!(response.starts_with("HTTP/1.1 400 "), "{alpn:?}: {response}");
        assert!(
            transport.endpoints().iter().all(|e| e.failures_in_a_row == 0),
            "{alpn:?}"
        );
    }
}
