//! The serving port in process: real sockets on ephemeral ports, with hyper as the client.

mod certificates;
mod crowds;
mod ending;
mod heads;
mod holding;
mod http2;
mod informational;
mod support;

use super::*;
use crate::request::{Body, RequestContext};
use http::header::CONNECTION;
use http::{Response, StatusCode, Version};
use std::sync::Arc;
use std::time::Duration;
use support::{Fixture, answer_with, is_closed};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn both_protocols_are_served_and_the_client_certificate_is_stamped() {
    let fixture = Fixture::new();
    let handler = answer_with(|req| {
        let context = RequestContext::of(&req);
        let certificates = context.certificates.as_ref().map_or(0, |c| c.0.len());
        let remote = context.remote.unwrap().0;
        assert!(context.connection.is_some());
        assert_eq!(context.stream.is_some(), req.version() == Version::HTTP_2);
        Response::new(Body::full(format!(
            "{:?} {certificates} {}",
            req.version(),
            remote.ip()
        )))
    });
    let server = fixture.serve(Limits::default(), handler);
    for (alpn, client, expect) in [
        ("h2", None, "HTTP/2.0 0 127.0.0.1"),
        ("h2", Some(&fixture.client), "HTTP/2.0 1 127.0.0.1"),
        ("http/1.1", None, "HTTP/1.1 0 127.0.0.1"),
        ("http/1.1", Some(&fixture.client), "HTTP/1.1 1 127.0.0.1"),
    ] {
        let tls = fixture.connect(&server, "localhost", &[alpn], client).await.unwrap();
        let (_, body) = support::get(tls, "/").await;
        assert_eq!(body, expect);
    }
}

#[tokio::test]
async fn plain_http_gets_gos_400_response() {
    let fixture = Fixture::new();
    let server = fixture.serve(Limits::default(), answer_with(|_| Response::new(Body::empty())));
    let mut tcp = tokio::net::TcpStream::connect(server.addr()).await.unwrap();
    tcp.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut text = String::new();
    tcp.read_to_string(&mut text).await.unwrap();
    assert_eq!(
        text,
        "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"
    );
}

#[tokio::test]
async fn requests_that_go_rejects_before_the_handler_are_rejected() {
    let fixture = Fixture::new();
    let server = fixture.serve(Limits::default(), answer_with(|_| Response::new(Body::full("handled"))));
    for (head, expect) in [
        ("GET /a%2Fb HTTP/1.1\r\nHost: x\r\n\r\n", None),
        ("GET /a?b=%zz HTTP/1.1\r\nHost: x\r\n\r\n", None),
        ("GET /a%zz HTTP/1.1\r\nHost: x\r\n\r\n", Some("\r\n\r\n400 Bad Request")),
        ("GET /a%2 HTTP/1.1\r\nHost: x\r\n\r\n", Some("\r\n\r\n400 Bad Request")),
        ("GET / HTTP/1.1\r\n\r\n", Some("missing required Host header")),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
            Some("too many Host headers"),
        ),
        ("GET / HTTP/1.0\r\n\r\n", None),
    ] {
        let mut tls = fixture
            .connect(&server, "localhost", &["http/1.1"], None)
            .await
            .unwrap();
        tls.write_all(head.as_bytes()).await.unwrap();
        let mut answer = vec![0; 512];
        let n = tls.read(&mut answer).await.unwrap();
        let answer = String::from_utf8_lossy(&answer[..n]);
        match expect {
            None => assert!(answer.ends_with("handled"), "{head:?}: {answer}"),
            Some(end) => {
                assert!(
                    answer.starts_with("HTTP/1.1 400 ") && answer.ends_with(end),
                    "{head:?}: {answer}"
                );
                assert!(is_closed(&mut tls).await);
            }
        }
    }
}

#[tokio::test]
async fn a_panicking_handler_fails_only_its_own_request() {
    let fixture = Fixture::new();
    let handler = answer_with(|req| match req.uri().path() {
        "/panic" => panic!("a test's own panic"),
        _ => Response::new(Body::full("fine")),
    });
    let server = fixture.serve(Limits::default(), handler);
    let tls = fixture.connect(&server, "localhost", &["h2"], None).await.unwrap();
    let (mut sender, _connection) = support::http2(tls).await;
    assert!(sender.send_request(support::request("/panic")).await.is_err());
    assert_eq!(
        support::text(sender.send_request(support::request("/")).await.unwrap()).await,
        "fine"
    );
    let mut h1 = fixture
        .connect(&server, "localhost", &["http/1.1"], None)
        .await
        .unwrap();
    h1.write_all(b"GET /panic HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    assert!(is_closed(&mut h1).await);
    let tls = fixture
        .connect(&server, "localhost", &["http/1.1"], None)
        .await
        .unwrap();
    assert_eq!(support::get(tls, "/").await.1, "fine");
}
