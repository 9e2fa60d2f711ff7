//! Ends of connections: client disconnects, graceful close, drain.

use super::support::{self, Fixture, answer_with, is_closed};
use super::*;

#[tokio::test]
async fn a_client_disconnect_drops_its_request() {
    let fixture = Fixture::new();
    let (handler, gate) = support::answer_at_gate();
    let server = fixture.serve(Limits::default(), handler);
    for (n, alpn) in ["http/1.1", "h2"].into_iter().enumerate() {
        let tls = fixture.connect(&server, "localhost", &[alpn], None).await.unwrap();
        let request = tokio::spawn(support::get(tls, "/"));
        gate.entered(n + 1).await;
        assert_eq!(gate.waiting(), 1);
        request.abort();
        gate.none_waiting().await;
    }
    assert_eq!(server.handle.drain(Duration::from_secs(5)).await, Drained::Clean);
}

#[tokio::test]
async fn connection_close_of_an_http2_response_becomes_goaway() {
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
async fn drain_does_not_wait_for_upgraded_connections() {
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
        support::switching_protocols()
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
    // Byte by byte: what follows the head must stay unread.
    while !head.ends_with(b"\r\n\r\n") {
        head.push(tls.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "));
    assert_eq!(
        server.handle.drain(Duration::from_secs(5)).await,
        Drained::Clean,
        "drain does not wait for the upgraded connection"
    );
    tls.write_all(b"ping").await.unwrap();
    let mut echo = Vec::new();
    tls.read_to_end(&mut echo).await.unwrap();
    assert_eq!(echo, b"ping");
}

#[tokio::test]
async fn drain_waits_for_requests_and_closes_idle_connections() {
    let fixture = Fixture::new();
    let (handler, gate) = support::answer_at_gate();
    let limits = Limits {
        // Otherwise the idle connection would be given time for a first request.
        first_request: Duration::ZERO,
        ..Limits::default()
    };
    let server = fixture.serve(limits, handler);
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
    assert!(
        tokio::net::TcpStream::connect(addr).await.is_err(),
        "no new connections"
    );
    assert!(!drain.is_finished());
    gate.open();
    for request in busy {
        assert_eq!(request.await.unwrap().1, "through");
    }
    assert_eq!(drain.await.unwrap(), Drained::Clean);
}

/// A client whose connection was accepted cannot know that the server is about to end: its first request is
/// served.
#[tokio::test]
async fn drain_serves_the_first_request_of_a_new_connection() {
    for alpn in ["http/1.1", "h2"] {
        let fixture = Fixture::new();
        let limits = Limits {
            first_request: Duration::from_secs(30),
            ..Limits::default()
        };
        let server = fixture.serve(limits, answer_with(|_| Response::new(Body::full("served"))));
        let shaken = fixture.connect(&server, "localhost", &[alpn], None).await.unwrap();
        let (addr, silent) = (
            server.addr(),
            tokio::net::TcpStream::connect(server.addr()).await.unwrap(),
        );
        while server.handle.open_connections() < 2 {
            tokio::task::yield_now().await;
        }
        let drain = tokio::spawn(server.handle.drain(Duration::from_secs(60)));
        // Refused once the drain has closed the listening socket.
        while tokio::net::TcpStream::connect(addr).await.is_ok() {}
        let config = fixture.client_config(&[alpn], None);
        let silent = support::handshake(silent, "localhost", config).await.unwrap();
        for tls in [silent, shaken] {
            assert!(!drain.is_finished());
            assert_eq!(support::get(tls, "/").await.1, "served", "{alpn}");
        }
        assert_eq!(drain.await.unwrap(), Drained::Clean, "{alpn}");
    }
}

#[tokio::test]
async fn drain_cuts_open_connections_at_the_deadline() {
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
