//! The port in process: real sockets on free ports, hyper as the client.

mod support;

use super::*;
use crate::request::Body;
use http::header::CONNECTION;
use http::{Response, StatusCode};
use std::sync::Arc;
use std::time::Duration;
use support::{Fixture, Pair, answer_with, is_closed};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn short() -> Limits {
    Limits {
        handshake: Duration::from_millis(80),
        header_read: Duration::from_millis(80),
        idle: Duration::from_millis(160),
        close_grace: Duration::from_millis(50),
        ..Limits::default()
    }
}

#[tokio::test]
async fn both_protocols_are_served_and_the_client_certificate_is_stamped() {
    let fixture = Fixture::new();
    let handler = answer_with(|req| {
        let certificates = req.extensions().get::<PeerCertificates>().map_or(0, |c| c.0.len());
        let remote = req.extensions().get::<RemoteAddr>().unwrap().0;
        assert!(req.extensions().get::<LocalAddr>().is_some());
        assert!(req.extensions().get::<ConnectionCache>().is_some());
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
async fn a_certificate_of_a_stranger_does_not_fail_the_handshake() {
    let fixture = Fixture::new();
    let server = fixture.serve(
        Limits::default(),
        answer_with(|req| {
            Response::new(Body::full(format!(
                "{}",
                req.extensions().get::<PeerCertificates>().is_some()
            )))
        }),
    );
    let stranger = Pair::self_signed("stranger");
    let tls = fixture
        .connect(&server, "localhost", &["h2"], Some(&stranger))
        .await
        .unwrap();
    assert_eq!(support::get(tls, "/").await.1, "true");
}

#[tokio::test]
async fn a_resumed_session_still_carries_the_client_certificate() {
    let fixture = Fixture::new();
    let server = fixture.serve(
        Limits::default(),
        answer_with(|req| {
            Response::new(Body::full(format!(
                "{}",
                req.extensions().get::<PeerCertificates>().is_some()
            )))
        }),
    );
    let config = Arc::new(fixture.client_config(&["http/1.1"], Some(&fixture.client)));
    let mut resumed = Vec::new();
    for _ in 0..2 {
        let tls = fixture
            .connect_with(&server, "localhost", Arc::clone(&config))
            .await
            .unwrap();
        let (kind, body) = support::get_kind(tls, "/").await;
        assert_eq!(body, "true");
        resumed.push(kind == Some(rustls::HandshakeKind::Resumed));
    }
    assert_eq!(resumed, [false, true]);
}

#[tokio::test]
async fn sni_chooses_exact_before_wildcard_before_default() {
    let fixture = Fixture::new();
    let sni = [
        ("a.example", vec![]),
        ("wild", vec!["*.example"]),
        ("b.example", vec!["b.example", "127.0.0.1"]),
    ]
    .map(|(subject, names)| SniKeyPair {
        names: names.into_iter().map(str::to_owned).collect(),
        pair: Pair::self_signed(subject).dynamic(),
    })
    .to_vec();
    let server = fixture.serve_sni(sni);
    for (name, expect) in [
        ("a.example", "a.example"),
        ("A.Example", "a.example"),
        ("b.example", "b.example"),
        ("c.example", "wild"),
        ("d.c.example", "localhost"),
        ("localhost", "localhost"),
        ("127.0.0.1", "b.example"),
    ] {
        let tls = fixture.connect(&server, name, &["h2"], None).await.unwrap();
        assert_eq!(support::server_subject(&tls), expect, "{name}");
    }
}

#[tokio::test]
async fn a_replaced_certificate_is_shown_to_new_connections() {
    let fixture = Fixture::new();
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = (dir.path().join("tls.crt"), dir.path().join("tls.key"));
    let put = |pair: &Pair, k: &Pair| {
        std::fs::write(&cert, &pair.cert_pem).unwrap();
        std::fs::write(&key, &k.key_pem).unwrap();
    };
    let (old, new) = (Pair::self_signed("old"), Pair::self_signed("new"));
    put(&old, &old);
    let source = DynamicKeyPair::from_files(&cert, &key, support::provider()).unwrap();
    let mut changes = source.subscribe();
    let server = fixture.serve_pair(Arc::clone(&source));
    let shown = async || {
        let tls = fixture.connect(&server, "localhost", &["h2"], None).await.unwrap();
        support::server_subject(&tls)
    };
    assert_eq!(shown().await, "old");
    assert!(!source.check_now());

    put(&new, &old);
    assert!(!source.check_now(), "a key of another certificate is refused");
    server.tls.rebuild();
    assert_eq!(shown().await, "old");

    put(&new, &new);
    assert!(source.check_now());
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
    server.tls.rebuild();
    assert_eq!(shown().await, "new");

    std::fs::write(&cert, "nonsense").unwrap();
    assert!(!source.check_now());
    assert_eq!(source.current().names, ["new"]);
}

#[tokio::test]
async fn the_configuration_follows_its_sources() {
    let fixture = Fixture::new();
    let source = Pair::self_signed("old").dynamic();
    let server = fixture.serve_pair(Arc::clone(&source));
    let follower = tokio::spawn(Arc::clone(&server.tls).follow());
    source.replace(Pair::self_signed("new").data());
    loop {
        let tls = fixture.connect(&server, "localhost", &["h2"], None).await.unwrap();
        if support::server_subject(&tls) == "new" {
            break;
        }
        tokio::task::yield_now().await;
    }
    follower.abort();
}

#[test]
fn a_ca_bundle_is_swapped_only_for_a_good_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ca.crt");
    let (a, b) = (Pair::self_signed("a"), Pair::self_signed("b"));
    std::fs::write(&path, &a.cert_pem).unwrap();
    let ca = DynamicCa::from_file(&path).unwrap();
    std::fs::write(&path, "").unwrap();
    assert!(!ca.check_now());
    assert_eq!(ca.current().roots.len(), 1);
    std::fs::write(&path, format!("{}{}", a.cert_pem, b.cert_pem)).unwrap();
    assert!(ca.check_now());
    assert_eq!(ca.current().subjects.len(), 2);
    std::fs::write(&path, "").unwrap();
    let error = DynamicCa::from_file(&path).unwrap_err().to_string();
    assert!(error.contains("ca.crt") && error.contains("no certificate"), "{error}");
}

#[tokio::test]
async fn a_client_that_does_not_shake_hands_is_dropped() {
    let fixture = Fixture::new();
    let server = fixture.serve(short(), answer_with(|_| Response::new(Body::empty())));
    let mut tcp = tokio::net::TcpStream::connect(server.addr()).await.unwrap();
    tcp.write_all(&[22, 3, 1]).await.unwrap();
    assert!(is_closed(&mut tcp).await);
    assert_eq!(server.handle.handshake_errors(), 1);
}

#[tokio::test]
async fn plain_http_is_told_what_is_wrong() {
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
async fn a_dribbled_head_is_cut_and_an_idle_connection_closed() {
    let fixture = Fixture::new();
    let server = fixture.serve(short(), answer_with(|_| Response::new(Body::full("x"))));
    let mut slow = fixture
        .connect(&server, "localhost", &["http/1.1"], None)
        .await
        .unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n").await.unwrap();
    let begun = std::time::Instant::now();
    assert!(is_closed(&mut slow).await);
    assert!(begun.elapsed() < Duration::from_secs(5));

    let mut idle = fixture
        .connect(&server, "localhost", &["http/1.1"], None)
        .await
        .unwrap();
    idle.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let begun = std::time::Instant::now();
    let mut all = Vec::new();
    idle.read_to_end(&mut all).await.unwrap();
    assert!(all.ends_with(b"\r\n\r\nx"), "{}", String::from_utf8_lossy(&all));
    assert!(
        begun.elapsed() >= short().idle,
        "the head's clock does not run in idle time"
    );

    let mut silent = fixture.connect(&server, "localhost", &["h2"], None).await.unwrap();
    assert!(is_closed(&mut silent).await, "without a preface");
    let (sender, connection) =
        support::http2(fixture.connect(&server, "localhost", &["h2"], None).await.unwrap()).await;
    connection.await.unwrap().unwrap();
    assert!(sender.is_closed());
}

#[tokio::test]
async fn a_request_in_flight_outlives_the_idle_time() {
    let fixture = Fixture::new();
    let handler = support::answer_later(short().idle * 2);
    let server = fixture.serve(short(), handler);
    for alpn in ["h2", "http/1.1"] {
        let tls = fixture.connect(&server, "localhost", &[alpn], None).await.unwrap();
        assert_eq!(support::get(tls, "/").await.1, "late");
    }
}

#[tokio::test]
async fn header_limits_are_answered_not_ignored() {
    let fixture = Fixture::new();
    let server = fixture.serve(
        Limits::default(),
        answer_with(|req| Response::new(Body::full(format!("{}", req.headers().len())))),
    );
    let send = async |head: String| {
        let mut tls = fixture
            .connect(&server, "localhost", &["http/1.1"], None)
            .await
            .unwrap();
        tls.write_all(head.as_bytes()).await.unwrap();
        let mut answer = vec![0; 256];
        let n = tls.read(&mut answer).await.unwrap();
        String::from_utf8_lossy(&answer[..n]).into_owned()
    };
    let groups: String = (0..500).map(|n| format!("X-Remote-Group: g{n}\r\n")).collect();
    let answer = send(format!("GET / HTTP/1.1\r\nHost: x\r\n{groups}\r\n")).await;
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("500") | answer.ends_with("501"),
        "{answer}"
    );
    assert!(
        answer.contains("\r\nContent-Length: 3\r\n"),
        "names are written as Go writes them: {answer}"
    );
    let big = "a".repeat(900 << 10);
    let answer = send(format!("GET / HTTP/1.1\r\nHost: x\r\nBig: {big}\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let huge = "a".repeat((1 << 20) + 1);
    let answer = send(format!("GET / HTTP/1.1\r\nHost: x\r\nBig: {huge}\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
}

#[tokio::test]
async fn connection_close_of_an_http2_answer_becomes_goaway() {
    let fixture = Fixture::new();
    let server = fixture.serve(
        Limits::default(),
        answer_with(|_| {
            let mut response = Response::new(Body::full("bye"));
            response
                .headers_mut()
                .insert(CONNECTION, http::HeaderValue::from_static("close"));
            response
        }),
    );
    let tls = fixture.connect(&server, "localhost", &["h2"], None).await.unwrap();
    let (mut sender, connection) = support::http2(tls).await;
    let response = sender.send_request(support::request("/")).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert!(!response.headers().contains_key(CONNECTION));
    assert_eq!(support::text(response).await, "bye");
    connection.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_panicking_handler_costs_its_own_request() {
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

#[tokio::test]
async fn an_upgraded_connection_belongs_to_its_handler() {
    let fixture = Fixture::new();
    let handler = answer_with(|mut req| {
        let upgrade = hyper::upgrade::on(&mut req);
        tokio::spawn(async move {
            let mut io = hyper_util::rt::TokioIo::new(upgrade.await.unwrap());
            let mut buf = [0; 4];
            io.read_exact(&mut buf).await.unwrap();
            io.write_all(&buf).await.unwrap();
            io.shutdown().await.unwrap();
        });
        Response::builder()
            .status(StatusCode::SWITCHING_PROTOCOLS)
            .header(CONNECTION, "Upgrade")
            .header(http::header::UPGRADE, "echo")
            .body(Body::empty())
            .unwrap()
    });
    let server = fixture.serve(Limits::default(), handler);
    let mut tls = fixture
        .connect(&server, "localhost", &["http/1.1"], None)
        .await
        .unwrap();
    tls.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
        .await
        .unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(tls.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "));
    assert_eq!(
        server.handle.drain(Duration::from_secs(5)).await,
        Drained::Clean,
        "it is not waited for"
    );
    tls.write_all(b"ping").await.unwrap();
    let mut echo = Vec::new();
    tls.read_to_end(&mut echo).await.unwrap();
    assert_eq!(echo, b"ping");
}

#[tokio::test]
async fn draining_waits_for_requests_and_closes_idle_connections() {
    let fixture = Fixture::new();
    let (handler, gate) = support::answer_at_gate();
    let server = fixture.serve(Limits::default(), handler);
    let mut idle = fixture
        .connect(&server, "localhost", &["http/1.1"], None)
        .await
        .unwrap();
    let mut busy = Vec::new();
    for alpn in ["h2", "http/1.1"] {
        let tls = fixture.connect(&server, "localhost", &[alpn], None).await.unwrap();
        busy.push(tokio::spawn(support::get(tls, "/")));
    }
    gate.entered(2).await;
    let addr = server.addr();
    let drain = tokio::spawn(server.handle.drain(Duration::from_secs(10)));
    assert!(is_closed(&mut idle).await);
    assert!(tokio::net::TcpStream::connect(addr).await.is_err(), "nobody new");
    assert!(!drain.is_finished());
    gate.open();
    for request in busy {
        assert_eq!(request.await.unwrap().1, "through");
    }
    assert_eq!(drain.await.unwrap(), Drained::Clean);
}

#[tokio::test]
async fn draining_cuts_what_is_left_at_the_deadline() {
    let fixture = Fixture::new();
    let (handler, gate) = support::answer_at_gate();
    let server = fixture.serve(Limits::default(), handler);
    let tls = fixture.connect(&server, "localhost", &["h2"], None).await.unwrap();
    let (mut sender, connection) = support::http2(tls).await;
    let request = tokio::spawn(async move { sender.send_request(support::request("/")).await.is_err() });
    gate.entered(1).await;
    assert_eq!(server.handle.drain(Duration::from_millis(20)).await, Drained::Cut(1));
    assert!(request.await.unwrap());
    drop(connection);
}

#[tokio::test]
async fn connections_over_the_cap_wait_their_turn() {
    let fixture = Fixture::new();
    let limits = Limits {
        connections: 1,
        ..Limits::default()
    };
    let server = fixture.serve(limits, answer_with(|_| Response::new(Body::full("ok"))));
    let first = fixture.connect(&server, "localhost", &["h2"], None).await.unwrap();
    let mut second = Box::pin(fixture.connect(&server, "localhost", &["h2"], None));
    assert!(
        tokio::time::timeout(Duration::from_millis(60), &mut second)
            .await
            .is_err()
    );
    drop(first);
    assert_eq!(support::get(second.await.unwrap(), "/").await.1, "ok");
}

#[test]
fn unknown_cipher_suites_are_refused_by_name() {
    let build = |suites: &[&str]| {
        let options = TlsOptions {
            cipher_suites: suites.iter().map(|s| (*s).to_owned()).collect(),
            ..TlsOptions::default()
        };
        TlsConfig::try_new(
            Pair::self_signed("x").dynamic(),
            vec![],
            vec![],
            options,
            support::provider(),
        )
        .map(drop)
    };
    build(&[
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    ])
    .unwrap();
    let error = build(&["TLS_RSA_WITH_AES_128_CBC_SHA"]).unwrap_err().to_string();
    assert!(
        error.contains("TLS_RSA_WITH_AES_128_CBC_SHA") && error.contains("--tls-cipher-suites"),
        "{error}"
    );
}
