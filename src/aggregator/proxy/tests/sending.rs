//! The choice of a connection, connection limits, and retries.

use super::{H1, H2, head};
use crate::aggregator::backend_stats::BackendStats;
use crate::aggregator::proxy::{ProxyHandler, Settings};
use crate::aggregator::testing::*;
use crate::proxy::outbound::Outbound;
use crate::proxy::transport::{ConnectionLimits, Transport};
use crate::request::{Body, Request, UnprotectedHandler};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

/// More than the replay buffer holds.
const LARGE: &str = match std::str::from_utf8(&[b'x'; 65_537]) {
    Ok(text) => text,
    Err(_) => "",
};

fn over(transport: Transport, authority: &str) -> Arc<ProxyHandler> {
    let stats = Arc::new(BackendStats::new(Default::default()));
    proxy_with(authority, Ok(Arc::new(transport)), stats)
}

fn request(method: &str, body: &'static str) -> Request {
    http::Request::builder()
        .method(method)
        .uri("/x")
        .body(Body::full(body))
        .unwrap()
}

#[tokio::test]
async fn over_http1_only_idempotent_requests_are_retried() {
    // On each connection the first request is answered; the second is read, and the connection dies.
    for (method, body, reads, status) in [
        ("GET", "", 2, 200),
        ("HEAD", "", 2, 200),
        ("GET", "with a body", 1, 503),
        ("POST", "", 1, 503),
        ("POST", "body", 1, 503),
        ("PUT", "body", 1, 503),
        ("DELETE", "", 1, 503),
        ("PATCH", "body", 1, 503),
    ] {
        let pki = Pki::new(&["ext.ns.svc"], H1);
        let seen = Arc::new(AtomicUsize::new(0));
        let count = seen.clone();
        let backend = raw_backend(&pki, move |mut s| {
            let count = count.clone();
            async move {
                let first = head(&mut s).await.unwrap_or_default();
                count.fetch_add(usize::from(!first.contains("/warm")), Ordering::Relaxed);
                s.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                    .await
                    .unwrap();
                head(&mut s).await.unwrap();
                count.fetch_add(1, Ordering::Relaxed);
            }
        })
        .await;
        let p = proxy(&backend.authority, &pki.ca_pem);
        assert_eq!(p.clone().serve(get("/warm"), alice()).await.status(), 200);
        let response = p.clone().serve(request(method, body), alice()).await;
        assert_eq!(
            (response.status().as_u16(), seen.load(Ordering::Relaxed)),
            (status, reads),
            "{method} {body:?}"
        );
    }
}

#[tokio::test]
async fn over_http2_only_unprocessed_requests_are_retried() {
    use h2::Reason;
    for (method, body, reset, reads, status) in [
        ("GET", "", Reason::REFUSED_STREAM, 2, 200),
        ("POST", "", Reason::REFUSED_STREAM, 2, 200),
        ("POST", "body", Reason::REFUSED_STREAM, 2, 200),
        ("PUT", LARGE, Reason::REFUSED_STREAM, 1, 503),
        ("POST", "body", Reason::INTERNAL_ERROR, 1, 503),
        ("POST", "body", Reason::NO_ERROR, 1, 503),
        ("GET", "", Reason::INTERNAL_ERROR, 1, 503),
        ("GET", "", Reason::CANCEL, 1, 503),
        ("DELETE", "", Reason::ENHANCE_YOUR_CALM, 1, 503),
    ] {
        let pki = Pki::new(&["ext.ns.svc"], H2);
        let seen = Arc::new(AtomicUsize::new(0));
        let count = seen.clone();
        let backend = raw_backend(&pki, move |stream| {
            let count = count.clone();
            async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    if count.fetch_add(1, Ordering::Relaxed) == 0 {
                        respond.send_reset(reset);
                        continue;
                    }
                    // The retried body must be complete.
                    tokio::spawn(async move {
                        let mut sent = request.into_body();
                        let mut all = Vec::new();
                        while let Some(Ok(data)) = sent.data().await {
                            all.extend_from_slice(&data);
                        }
                        let status = if all == body.as_bytes() { 200 } else { 400 };
                        let response = http::Response::builder().status(status).body(()).unwrap();
                        respond.send_response(response, true).unwrap();
                    });
                }
            }
        })
        .await;
        let response = proxy(&backend.authority, &pki.ca_pem)
            .serve(request(method, body), alice())
            .await;
        assert_eq!(
            (response.status().as_u16(), seen.load(Ordering::Relaxed)),
            (status, reads),
            "{method} {body:?} {reset:?}"
        );
    }
}

#[tokio::test]
async fn connections_and_waiting_requests_are_limited() {
    let pki = Pki::new(&["ext.ns.svc"], H1);
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let (go, gone) = tokio::sync::watch::channel(false);
    let backend = Backend::http(&pki, 1, move |_| {
        let (sender, mut gone) = (sender.clone(), gone.clone());
        async move {
            sender.send(()).unwrap();
            let _ = gone.wait_for(|g| *g).await;
            response(200, "ok")
        }
    })
    .await;
    let bounds = ConnectionLimits {
        connections: 2,
        waiting: 1,
    };
    let tls = transport_tls(&pki.ca_pem);
    let p = over(
        Transport::new(tls, Arc::default(), tasks()).with_limits(bounds),
        &backend.authority,
    );
    let send = || {
        let p = p.clone();
        tokio::spawn(async move { p.clone().serve(get("/x"), alice()).await })
    };
    let first = send();
    receiver.recv().await.unwrap();
    let second = send();
    receiver.recv().await.unwrap();
    let third = send();
    let waiting = || {
        let Settings::Remote(remote) = &*p.settings() else {
            unreachable!()
        };
        remote.transport.as_ref().unwrap().endpoints()[0].waiting
    };
    // Once the third request waits, the next one must be rejected.
    while waiting() == 0 {
        tokio::task::yield_now().await;
    }
    let rejected = p.clone().serve(get("/x"), alice()).await;
    assert_eq!(
        (rejected.status().as_u16(), &rejected.headers()["retry-after"]),
        (503, &"1".parse().unwrap())
    );
    let status = crate::apimachinery::codec::json::decode(text(rejected).await.as_bytes()).unwrap();
    assert_eq!(status.str_at(&["reason"]), "ServiceUnavailable");
    go.send(true).unwrap();
    for served in [first, second, third] {
        assert_eq!(text(served.await.unwrap()).await, "ok");
    }
    assert_eq!(backend.connections.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn requests_use_all_addresses_of_a_name() {
    let pki = Pki::new(&["ext.ns.svc"], H2);
    let named = |name: &'static str| Backend::http(&pki, 100, move |_| async move { response(200, name) });
    let (a, b) = (named("a").await, named("b").await);
    let addresses = [a.authority.parse().unwrap(), DEAD, b.authority.parse().unwrap()];
    let outbound = Outbound::direct().with_static_names("api.example:443", &addresses);
    let t = Transport::new(transport_tls(&pki.ca_pem), Arc::new(outbound), tasks());
    let p = over(t, "api.example:443");
    let mut seen = std::collections::BTreeMap::new();
    // The second connection is made in the background, so the first requests may all use the first address.
    while seen.len() < 2 {
        *seen
            .entry(text(p.clone().serve(get("/x"), alice()).await).await)
            .or_insert(0) += 1;
        tokio::task::yield_now().await;
    }
    seen.clear();
    for _ in 0..100 {
        *seen
            .entry(text(p.clone().serve(get("/x"), alice()).await).await)
            .or_insert(0) += 1;
    }
    assert!(seen.len() == 2 && seen.values().all(|n| *n >= 40), "{seen:?}");
    drop(a);
}
