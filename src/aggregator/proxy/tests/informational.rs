//! Informational (1xx) responses of backends.

use super::{H1, H2, head};
use crate::aggregator::testing::*;
use crate::request::informational::H1InformationalQueue;
use crate::request::peer::ConnectionCache;
use crate::request::{RequestContext, UnprotectedHandler};
use std::sync::Arc;
use tokio::io::AsyncWriteExt;

#[tokio::test]
async fn early_hints_are_forwarded_if_the_client_can_receive_them() {
    let hints = [
        "HTTP/1.1 103 Early Hints\r\nLink: </1>\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nLink: </2>\r\n\r\n",
    ];
    let over_http1 = Pki::new(&["ext.ns.svc"], H1);
    let first = raw_backend(&over_http1, move |mut s| async move {
        while head(&mut s).await.is_some() {
            let said = "HTTP/1.1 100 Continue\r\n\r\n".to_owned()
                + hints[0]
                + "HTTP/1.1 103 Early Hints\r\nLink: </2>\r\nConnection: x-mine\r\nX-Mine: 1\r\n\r\n"
                + "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
            s.write_all(said.as_bytes()).await.unwrap();
        }
    })
    .await;
    let over_http2 = Pki::new(&["ext.ns.svc"], H2);
    let second = raw_backend(&over_http2, |stream| async move {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            for (status, link) in [(100, "</0>"), (103, "</1>"), (103, "</2>")] {
                let early = http::Response::builder().status(status).header("link", link);
                respond.send_informational(early.body(()).unwrap()).unwrap();
            }
            let mut body = respond.send_response(http::Response::new(()), false).unwrap();
            body.send_data("ok".into(), true).unwrap();
        }
    })
    .await;
    for (backend, pki) in [(first, over_http1), (second, over_http2)] {
        let p = proxy(&backend.authority, &pki.ca_pem);
        let (queue, cache) = (Arc::new(H1InformationalQueue::default()), ConnectionCache::default());
        cache.set(queue.clone());
        queue.begin_request();
        let mut request = get("/x");
        RequestContext::of_mut(&mut request).connection = Some(cache);
        assert_eq!(text(p.clone().serve(request, alice()).await).await, "ok");
        assert_eq!(String::from_utf8_lossy(&queue.take()), hints.concat());
        assert_eq!(
            text(p.clone().serve(get("/x"), alice()).await).await,
            "ok",
            "without a connection cache, hints are dropped"
        );
    }
}

#[tokio::test]
async fn a_flood_of_hints_ends_the_request() {
    let pki = Pki::new(&["ext.ns.svc"], H1);
    let backend = raw_backend(&pki, |mut s| async move {
        while head(&mut s).await.is_some() {
            let hints = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(2000);
            // Fails when the gateway has closed the connection.
            if s.write_all(hints.as_bytes()).await.is_err() {
                break;
            }
        }
    })
    .await;
    let response = proxy(&backend.authority, &pki.ca_pem).serve(get("/x"), alice()).await;
    assert_eq!(response.status(), 503);
    assert_eq!(
        text(response).await,
        "error trying to reach service: net/http: too many 1xx informational responses\n"
    );
}

#[tokio::test]
async fn a_clients_expectation_reaches_the_backend() {
    let pki = Pki::new(&["ext.ns.svc"], H1);
    let backend = Backend::http(&pki, 1, |r| async move {
        let expected = r.headers().get("expect").is_some_and(|e| e == "100-continue");
        response(if expected { 417 } else { 200 }, "")
    })
    .await;
    let r = http::Request::post("/x")
        .header("expect", "100-continue")
        .body(crate::request::Body::full("body"))
        .unwrap();
    let a = proxy(&backend.authority, &pki.ca_pem).serve(r, alice()).await;
    assert_eq!(a.status(), 417);
}
