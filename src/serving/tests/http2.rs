//! Concurrent streams of one HTTP/2 connection.

use super::support::{self, Fixture, Running, Sender, answer_with};
use crate::request::{Body, Handler, Request, ResponseFuture};
use crate::serving::Limits;
use bytes::{BufMut, Bytes};
use futures_util::StreamExt;
use http::{HeaderMap, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{oneshot, watch};

/// A new client connection to `server`.
async fn client(fixture: &Fixture, server: &Running) -> Sender {
    let tls = fixture.connect(server, "localhost", &["h2"], None).await.unwrap();
    support::http2(tls).await.0
}

/// Answers request `/n` when `n` is released, and no other.
struct Called(watch::Sender<u32>);

impl Handler for Called {
    fn handle<'a, 't>(&'a self, req: Request) -> ResponseFuture<'t>
    where
        'a: 't,
        Self: 't,
    {
        let n: u32 = req.uri().path()[1..].parse().unwrap();
        let mut called = self.0.subscribe();
        Box::pin(async move {
            called.wait_for(|called| *called == n).await.unwrap();
            Response::new(Body::full(n.to_string()))
        })
    }
}

#[tokio::test]
async fn streams_complete_in_any_order() {
    let (fixture, called) = (Fixture::new(), watch::Sender::new(0));
    let server = fixture.serve(Limits::default(), Arc::new(Called(called.clone())));
    let mut sender = client(&fixture, &server).await;
    let mut asked: Vec<_> = (1..=80)
        .map(|n| tokio::spawn(sender.send_request(support::request(&format!("/{n}")))))
        .collect();
    let never = asked.remove(0);
    // Each handler subscribes when it is called, so now all of them wait.
    while called.receiver_count() < 80 {
        tokio::task::yield_now().await;
    }
    for n in (2..=80).rev() {
        called.send_replace(n);
        let answer = asked.pop().unwrap().await.unwrap().unwrap();
        assert_eq!(support::text(answer).await, n.to_string());
    }
    assert!(!never.is_finished());
}

#[tokio::test]
async fn a_reset_drops_the_handlers_future() {
    let fixture = Fixture::new();
    let (handler, gate) = support::answer_at_gate();
    let server = fixture.serve(Limits::default(), handler);
    let mut sender = client(&fixture, &server).await;
    let request = tokio::spawn(sender.send_request(support::request("/")));
    gate.entered(1).await;
    request.abort();
    gate.none_waiting().await;
    assert!(!sender.is_closed(), "the connection stays open");
}

#[tokio::test]
async fn a_reset_drops_the_response_body() {
    let fixture = Fixture::new();
    let (body, mut dropped) = oneshot::channel::<()>();
    let body = crate::sync::Mutex::new(Some(body));
    let server = fixture.serve(
        Limits::default(),
        answer_with(move |_| {
            // Moved into the body, and dropped with it.
            let tied = body.lock().take();
            let first = futures_util::stream::iter([Ok::<_, Infallible>(Frame::data("first".into()))]);
            let frames = first.chain(futures_util::stream::pending()).map(move |frame| {
                let _ = &tied;
                frame
            });
            Response::new(Body::stream(StreamBody::new(frames)))
        }),
    );
    let mut sender = client(&fixture, &server).await;
    let mut answer = sender.send_request(support::request("/")).await.unwrap();
    let first = answer.body_mut().frame().await.unwrap().unwrap();
    assert_eq!(first.into_data().unwrap(), "first");
    assert!(dropped.try_recv().is_err());
    drop(answer);
    assert!(dropped.await.is_err());
    assert!(!sender.is_closed());
}

/// Panics before it returns its future, or in the response body.
struct Panics;

impl Handler for Panics {
    fn handle<'a, 't>(&'a self, req: Request) -> ResponseFuture<'t>
    where
        'a: 't,
        Self: 't,
    {
        assert_ne!(req.uri().path(), "/at-once", "a test's own panic");
        let in_the_body = req.uri().path() == "/body";
        Box::pin(async move {
            let frames = futures_util::stream::iter([0, 1]).map(move |n| {
                assert!(n == 0 || !in_the_body, "a test's own panic");
                Ok::<_, Infallible>(Frame::data("x".into()))
            });
            Response::new(Body::stream(StreamBody::new(frames)))
        })
    }
}

#[tokio::test]
async fn a_panic_ends_only_its_stream() {
    let fixture = Fixture::new();
    let server = fixture.serve(Limits::default(), Arc::new(Panics));
    let mut sender = client(&fixture, &server).await;
    assert!(sender.send_request(support::request("/at-once")).await.is_err());
    // The panic may come before the head is sent, or after it.
    if let Ok(answer) = sender.send_request(support::request("/body")).await {
        assert!(answer.into_body().collect().await.is_err());
    }
    let answer = sender.send_request(support::request("/")).await.unwrap();
    assert_eq!(support::text(answer).await, "xx");
}

#[tokio::test]
async fn bodies_larger_than_the_windows_are_echoed_with_trailers() {
    let fixture = Fixture::new();
    let limits = Limits {
        stream_window: 64 << 10,
        ..Limits::default()
    };
    let server = fixture.serve(limits, answer_with(|req| Response::new(req.into_body())));
    let tls = fixture.connect(&server, "localhost", &["h2"], None).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        // Both windows are smaller than what the four streams send, so all of them are held up.
        .initial_stream_window_size(20 << 10)
        .initial_connection_window_size(70 << 10)
        .handshake(TokioIo::new(tls))
        .await
        .unwrap();
    tokio::spawn(connection);
    let echoes = (0..4u8).map(|n| {
        let chunk = Bytes::from(vec![n; 50_000]);
        let trailers = HeaderMap::from_iter([(http::header::ETAG, u64::from(n).into())]);
        let frames = std::iter::repeat_n(chunk, 20).map(Frame::data);
        let frames = frames
            .chain([Frame::trailers(trailers.clone())])
            .map(Ok::<_, Infallible>);
        let body = StreamBody::new(futures_util::stream::iter(frames));
        let request = http::Request::post("https://localhost/").body(body).unwrap();
        let answer = sender.send_request(request);
        async move {
            let echo = answer.await.unwrap().into_body().collect().await.unwrap();
            assert_eq!(echo.trailers(), Some(&trailers));
            assert_eq!(echo.to_bytes(), vec![n; 1_000_000]);
        }
    });
    futures_util::future::join_all(echoes).await;
}

#[tokio::test]
async fn a_client_that_leaves_pings_unanswered_is_cut() {
    let fixture = Fixture::new();
    let limits = Limits {
        ping_interval: Duration::from_millis(30),
        // Long enough for a client on a busy machine to answer.
        ping_timeout: Duration::from_secs(2),
        ..Limits::default()
    };
    // Longer than the timeout, so that the client has to answer pings in between.
    let server = fixture.serve(limits.clone(), support::answer_later(limits.ping_timeout * 2));
    let mut alive = client(&fixture, &server).await;
    let answer = alive.send_request(support::request("/")).await.unwrap();
    assert_eq!(support::text(answer).await, "late");
    drop(alive);

    let (handler, gate) = support::answer_at_gate();
    let server = fixture.serve(limits, handler);
    // Without an HTTP library, which would answer pings.
    let mut dead = fixture.connect(&server, "localhost", &["h2"], None).await.unwrap();
    dead.write_all(&opening(1)).await.unwrap();
    gate.entered(1).await;
    gate.none_waiting().await;
    assert!(support::is_closed(&mut dead).await);
}

/// A client's opening bytes with this many requests; if more than one, each is reset immediately (rapid
/// reset).
fn opening(requests: u32) -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let mut frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        bytes.put_uint(payload.len() as u64, 3);
        bytes.put_slice(&[kind, flags]);
        bytes.put_u32(stream);
        bytes.put_slice(payload);
    };
    // SETTINGS, then HEADERS and RST_STREAM.
    frame(4, 0, 0, &[]);
    for n in 0..requests {
        // GET https /, authority as a literal without indexing; flags END_HEADERS and END_STREAM.
        frame(1, 5, 2 * n + 1, b"\x82\x87\x84\x01\x09localhost");
        if requests > 1 {
            frame(3, 0, 2 * n + 1, &8u32.to_be_bytes());
        }
    }
    bytes
}

#[tokio::test]
async fn a_rapid_reset_flood_ends_the_connection() {
    let fixture = Fixture::new();
    let server = fixture.serve(Limits::default(), answer_with(|_| Response::new(Body::empty())));
    let mut flood = fixture.connect(&server, "localhost", &["h2"], None).await.unwrap();
    flood.write_all(&opening(200)).await.unwrap();
    let mut said = Vec::new();
    // The socket may be reset after the GOAWAY, because the server leaves frames unread.
    flood.read_to_end(&mut said).await.ok();
    let mut goaway = None;
    while let [a, b, c, kind, _, _, _, _, _, rest @ ..] = &said[..] {
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        if *kind == 7 {
            goaway = Some(rest[4..8].to_vec());
        }
        said = rest[length..].to_vec();
    }
    const ENHANCE_YOUR_CALM: u32 = 11;
    assert_eq!(goaway.unwrap(), ENHANCE_YOUR_CALM.to_be_bytes());
    let mut sender = client(&fixture, &server).await;
    let answer = sender.send_request(support::request("/")).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_malformed_path_gets_400_and_the_connection_stays_open() {
    let fixture = Fixture::new();
    let server = fixture.serve(Limits::default(), answer_with(|_| Response::new(Body::full("handled"))));
    let mut sender = client(&fixture, &server).await;
    for (path, status, text) in [("/a%zz", 400, "400 Bad Request"), ("/a%20b", 200, "handled")] {
        let answer = sender.send_request(support::request(path)).await.unwrap();
        assert_eq!(answer.status(), status);
        assert_eq!(support::text(answer).await, text);
    }
}
