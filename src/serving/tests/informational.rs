//! Informational (1xx) responses on real connections.

use super::support::Fixture;
use crate::request::{Body, Handler, InformationalSender, Request, RequestContext, ResponseFuture};
use crate::serving::Limits;
use http::{HeaderMap, Response, StatusCode, header};
use std::future::poll_fn;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

/// Sends two hints, the second on notification, and then echoes the request body.
struct Hinting(Arc<Notify>);

impl Handler for Hinting {
    fn handle<'a, 't>(&'a self, req: Request) -> ResponseFuture<'t>
    where
        'a: 't,
        Self: 't,
    {
        Box::pin(async move {
            let informational = InformationalSender::of(RequestContext::of(&req));
            let hint = |link: &'static str| {
                let headers = HeaderMap::from_iter([(header::LINK, link.parse().unwrap())]);
                if let Some(informational) = &informational {
                    informational.send(StatusCode::EARLY_HINTS, &headers);
                }
            };
            hint("</1>");
            if informational.is_some() {
                self.0.notified().await;
            }
            // Without a pause before the final response.
            hint("</2>");
            let asked = req.into_body().collect(100).await.unwrap();
            Response::new(Body::full(asked))
        })
    }
}

const FIRST: &str = "HTTP/1.1 103 Early Hints\r\nLink: </1>\r\n\r\n";
const SECOND: &str = "HTTP/1.1 103 Early Hints\r\nLink: </2>\r\n\r\n";

#[tokio::test]
async fn http1_hints_arrive_before_the_final_response() {
    let (fixture, go) = (Fixture::new(), Arc::new(Notify::new()));
    let server = fixture.serve(Limits::default(), Arc::new(Hinting(go.clone())));
    let mut tls = fixture
        .connect(&server, "localhost", &["http/1.1"], None)
        .await
        .unwrap();
    // Twice on one connection; the second time with `Expect`, whose own 1xx response comes in between.
    for (expect, ahead) in [("", ""), ("Expect: 100-continue\r\n", "HTTP/1.1 100 Continue\r\n\r\n")] {
        let head = format!("POST / HTTP/1.1\r\nHost: x\r\n{expect}Content-Length: 4\r\n\r\n");
        tls.write_all(head.as_bytes()).await.unwrap();
        let mut first = vec![0; FIRST.len()];
        tls.read_exact(&mut first).await.unwrap();
        assert_eq!(
            String::from_utf8_lossy(&first),
            FIRST,
            "the final response is still pending"
        );
        go.notify_one();
        if !ahead.is_empty() {
            let mut seen = vec![0; SECOND.len() + ahead.len()];
            tls.read_exact(&mut seen).await.unwrap();
            let seen = String::from_utf8_lossy(&seen);
            assert!(seen.contains(ahead) && seen.contains(SECOND), "{seen}");
        }
        tls.write_all(b"body").await.unwrap();
        let mut seen = String::new();
        while !seen.ends_with("body") {
            seen.push(char::from(tls.read_u8().await.unwrap()));
        }
        let answer = match expect {
            "" => seen.strip_prefix(SECOND).unwrap_or_else(|| panic!("{seen}")),
            _ => &seen,
        };
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    }
}

#[tokio::test]
async fn http_1_0_clients_get_no_informational_responses() {
    let fixture = Fixture::new();
    let server = fixture.serve(Limits::default(), Arc::new(Hinting(Arc::default())));
    let mut tls = fixture
        .connect(&server, "localhost", &["http/1.1"], None)
        .await
        .unwrap();
    tls.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
    let mut seen = String::new();
    tls.read_to_string(&mut seen).await.unwrap();
    assert!(seen.starts_with("HTTP/1.0 200 OK\r\n"), "{seen}");
}

/// The next informational response, or `None` once the final response has arrived.
async fn early(answer: &mut h2::client::ResponseFuture) -> Option<Response<()>> {
    poll_fn(|cx| answer.poll_informational(cx))
        .await
        .map(|early| early.unwrap())
}

#[tokio::test]
async fn http2_hints_arrive_before_the_final_response() {
    let (fixture, go) = (Fixture::new(), Arc::new(Notify::new()));
    let server = fixture.serve(Limits::default(), Arc::new(Hinting(go.clone())));
    let tls = fixture.connect(&server, "localhost", &["h2"], None).await.unwrap();
    let (mut client, connection) = h2::client::handshake(tls).await.unwrap();
    tokio::spawn(connection);
    let ask = |client: &mut h2::client::SendRequest<bytes::Bytes>, expects: bool| {
        let mut request = http::Request::post("https://localhost/");
        if expects {
            request = request.header(header::EXPECT, "100-continue");
        }
        client.send_request(request.body(()).unwrap(), false).unwrap()
    };
    let hint = |answer: Option<Response<()>>| answer.unwrap().headers()[header::LINK].clone();
    let (mut first, mut first_body) = ask(&mut client, false);
    let (mut second, mut second_body) = ask(&mut client, true);
    for answer in [&mut first, &mut second] {
        assert_eq!(hint(early(answer).await), "</1>", "the final response is still pending");
    }
    go.notify_one();
    go.notify_one();
    // The handler now reads the second request's body, which makes the server send `100 Continue`.
    let (mut said, mut continues) = (Vec::new(), 0);
    while continues == 0 || said.is_empty() {
        let answer = early(&mut second).await.unwrap();
        match answer.status() {
            StatusCode::CONTINUE => continues += 1,
            _ => said.push(answer.headers()[header::LINK].clone()),
        }
    }
    assert_eq!(said, ["</2>"]);
    first_body.send_data("body".into(), true).unwrap();
    second_body.send_data("body".into(), true).unwrap();
    assert_eq!(hint(early(&mut first).await), "</2>");
    for answer in [first, second] {
        let mut answer = answer.await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.body_mut().data().await.unwrap().unwrap(), "body");
    }
}
