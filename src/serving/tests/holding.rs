//! Timeouts and size limits of a single client.

use super::support::{self, Fixture, answer_with, is_closed};
use super::*;

/// Short enough to wait for, and long enough for a client on a busy machine to act in time.
fn short() -> Limits {
    Limits {
        header_read: Duration::from_secs(2),
        idle: Duration::from_secs(3),
        close_grace: Duration::from_millis(50),
        ..Limits::default()
    }
}

#[tokio::test]
async fn an_unfinished_handshake_is_cut_at_its_deadline() {
    let fixture = Fixture::new();
    let limits = Limits {
        handshake: Duration::from_millis(80),
        ..Limits::default()
    };
    let server = fixture.serve(limits, answer_with(|_| Response::new(Body::empty())));
    let mut tcp = tokio::net::TcpStream::connect(server.addr()).await.unwrap();
    // The beginning of a TLS record, so that it is not taken for plain HTTP.
    tcp.write_all(&[22, 3, 1]).await.unwrap();
    assert!(is_closed(&mut tcp).await);
    assert_eq!(server.handle.handshake_errors(), 1);
}

#[tokio::test]
async fn a_slow_head_is_cut_and_an_idle_connection_closed() {
    let fixture = Fixture::new();
    let server = fixture.serve(short(), answer_with(|_| Response::new(Body::full("x"))));
    let mut slow = fixture
        .connect(&server, "localhost", &["http/1.1"], None)
        .await
        .unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n").await.unwrap();
    assert!(is_closed(&mut slow).await);

    let mut idle = fixture
        .connect(&server, "localhost", &["http/1.1"], None)
        .await
        .unwrap();
    idle.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let begun = std::time::Instant::now();
    let mut all = Vec::new();
    idle.read_to_end(&mut all).await.unwrap();
    assert!(all.ends_with(b"\r\n\r\nx"), "{}", String::from_utf8_lossy(&all));
    // The end of the request is kept in whole milliseconds, so the timeout may begin up to one earlier.
    assert!(
        begun.elapsed() + Duration::from_millis(1) >= short().idle,
        "the head's deadline does not apply to idle time"
    );

    let mut silent = fixture.connect(&server, "localhost", &["h2"], None).await.unwrap();
    assert!(is_closed(&mut silent).await, "closed without a preface");
    let (sender, connection) =
        support::http2(fixture.connect(&server, "localhost", &["h2"], None).await.unwrap()).await;
    connection.await.unwrap().unwrap();
    assert!(sender.is_closed());
}

#[tokio::test]
async fn the_idle_timeout_does_not_apply_to_requests_in_flight() {
    let fixture = Fixture::new();
    let limits = Limits {
        idle: Duration::from_secs(1),
        ..short()
    };
    let handler = support::answer_later(limits.idle * 2);
    let server = fixture.serve(limits, handler);
    for alpn in ["h2", "http/1.1"] {
        let tls = fixture.connect(&server, "localhost", &[alpn], None).await.unwrap();
        assert_eq!(support::get(tls, "/").await.1, "late");
    }
}

#[tokio::test]
async fn oversized_heads_get_431() {
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
    // More fields than hyper allows by default.
    let groups: String = (0..500).map(|n| format!("X-Remote-Group: g{n}\r\n")).collect();
    let answer = send(format!("GET / HTTP/1.1\r\nHost: x\r\n{groups}\r\n")).await;
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("500") | answer.ends_with("501"),
        "{answer}"
    );
    assert!(
        answer.contains("\r\nContent-Length: 3\r\n"),
        "header names are capitalised as in Go: {answer}"
    );
    let big = "a".repeat(900 << 10);
    let answer = send(format!("GET / HTTP/1.1\r\nHost: x\r\nBig: {big}\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let huge = "a".repeat((1 << 20) + 1);
    let answer = send(format!("GET / HTTP/1.1\r\nHost: x\r\nBig: {huge}\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
}

#[tokio::test]
async fn a_peer_that_does_not_read_is_cut() {
    let fixture = Fixture::new();
    let limits = Limits {
        write_stall: Duration::from_millis(80),
        ..Limits::default()
    };
    // More than the socket buffers of both sides hold.
    let server = fixture.serve(limits, answer_with(|_| Response::new(Body::full(vec![0; 64 << 20]))));
    let mut deaf = fixture
        .connect(&server, "localhost", &["http/1.1"], None)
        .await
        .unwrap();
    deaf.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    deaf.read_u8().await.unwrap();
    assert_eq!(server.handle.drain(Duration::from_secs(60)).await, Drained::Clean);
}

#[tokio::test]
async fn a_peer_that_never_opens_its_window_is_cut() {
    let fixture = Fixture::new();
    let limits = Limits {
        write_stall: Duration::from_millis(80),
        ..Limits::default()
    };
    let server = fixture.serve(
        limits,
        answer_with(|_| {
            let chunk =
                || Ok::<_, std::convert::Infallible>(http_body::Frame::data(bytes::Bytes::from(vec![0; 1 << 14])));
            let endless = futures_util::stream::repeat_with(chunk);
            Response::new(Body::stream(http_body_util::StreamBody::new(endless)))
        }),
    );
    let tls = fixture.connect(&server, "localhost", &["h2"], None).await.unwrap();
    let (mut sender, connection) = support::http2(tls).await;
    // Held but not read, so that its window stays closed.
    let _unread = sender.send_request(support::request("/")).await.unwrap();
    assert_eq!(server.handle.drain(Duration::from_secs(60)).await, Drained::Clean);
    drop(connection);
}

#[tokio::test]
async fn a_slow_download_is_not_idle() {
    let fixture = Fixture::new();
    let length = 256 << 10;
    let limits = Limits {
        idle: Duration::from_secs(1),
        ..short()
    };
    // At this pace the 16 windows of the body take longer than both limits together.
    let pause = (limits.idle + limits.close_grace) / 14;
    let server = fixture.serve(
        limits.clone(),
        answer_with(move |_| Response::new(Body::full(vec![0; length]))),
    );
    let tls = fixture.connect(&server, "localhost", &["h2"], None).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http2::Builder::new(hyper_util::rt::TokioExecutor::new())
        .initial_stream_window_size(16 << 10)
        .handshake::<_, http_body_util::Empty<bytes::Bytes>>(hyper_util::rt::TokioIo::new(tls))
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let mut body = sender.send_request(support::request("/")).await.unwrap().into_body();
    let (begun, mut got) = (std::time::Instant::now(), 0);
    while let Some(frame) = http_body_util::BodyExt::frame(&mut body).await {
        got += frame.unwrap().into_data().unwrap().len();
        // The simulated client is slow; this does not wait for anything.
        tokio::time::sleep(pause).await;
    }
    assert_eq!(got, length);
    assert!(begun.elapsed() > limits.idle + limits.close_grace);
    drop(connection);
}
