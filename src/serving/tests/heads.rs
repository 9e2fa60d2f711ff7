//! HTTP/2 responses on the wire: heads, ends of streams, data frames.

use super::support::{Fixture, answer_with};
use crate::request::{Body, Response};
use crate::serving::Limits;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body::Frame;
use http_body_util::StreamBody;
use std::convert::Infallible;

/// A body in several frames, of unannounced length.
fn pieces(pieces: Vec<Frame<Bytes>>) -> Body {
    Body::stream(StreamBody::new(futures_util::stream::iter(
        pieces.into_iter().map(Ok::<_, Infallible>),
    )))
}

fn data(text: &'static str) -> Frame<Bytes> {
    Frame::data(Bytes::from_static(text.as_bytes()))
}

/// The test responses, by path.
fn answer(path: &str) -> Response {
    let answer = Response::new;
    let with_status = |status: StatusCode, mut answer: Response| {
        *answer.status_mut() = status;
        answer
    };
    match path {
        "/full" => answer(Body::full("hello")),
        "/empty" => answer(Body::empty()),
        "/pieces" => answer(pieces(vec![data("he"), data("llo")])),
        "/late-end" => answer(pieces(vec![data("hello"), data("")])),
        "/nothing" => answer(pieces(vec![])),
        "/trailers" => {
            let trailers = HeaderMap::from_iter([("x-sum".parse().unwrap(), "5".parse().unwrap())]);
            answer(pieces(vec![data("hello"), Frame::trailers(trailers)]))
        }
        "/length" => {
            let mut answer = answer(Body::empty());
            answer.headers_mut().insert("content-length", 5.into());
            answer
        }
        "/204" => with_status(StatusCode::NO_CONTENT, answer(Body::empty())),
        "/304" => with_status(StatusCode::NOT_MODIFIED, answer(Body::empty())),
        "/304-full" => with_status(StatusCode::NOT_MODIFIED, answer(Body::full("hello"))),
        "/hops" => {
            let mut answer = answer(Body::full("hello"));
            for name in [
                "connection",
                "keep-alive",
                "proxy-connection",
                "transfer-encoding",
                "upgrade",
                "te",
            ] {
                answer.headers_mut().insert(name, "trailers".parse().unwrap());
            }
            answer.headers_mut().insert("x-end", "to end".parse().unwrap());
            answer
        }
        "/dated" => {
            let mut answer = answer(Body::full("hello"));
            answer.headers_mut().insert("date", "long ago".parse().unwrap());
            answer
        }
        _ => with_status(StatusCode::NOT_FOUND, answer(Body::full("none"))),
    }
}

/// Sends a request and renders the response as one line: status, headers in order, data, trailers, and where
/// it ends.
async fn line(client: &mut h2::client::SendRequest<Bytes>, method: Method, path: &str) -> String {
    let target = match method {
        Method::CONNECT => "localhost:443".to_owned(),
        _ => format!("https://localhost{path}"),
    };
    let request = Request::builder().method(method).uri(target).body(()).unwrap();
    let (answer, _) = client.send_request(request, true).unwrap();
    let (head, mut body) = answer.await.unwrap().into_parts();
    let mut line = head.status.as_str().to_owned();
    for (name, value) in &head.headers {
        let value = value.to_str().unwrap();
        match name.as_str() {
            "date" if value.ends_with(" GMT") && value.len() == "Sun, 06 Nov 1994 08:49:37 GMT".len() => {
                line += " date"
            }
            name => line += &format!(" {name}={value}"),
        }
    }
    if body.is_end_stream() {
        line += " | end";
    }
    while let Some(data) = body.data().await {
        let data = data.unwrap();
        body.flow_control().release_capacity(data.len()).unwrap();
        line += &format!(" | {:?}", String::from_utf8_lossy(&data));
        if body.is_end_stream() {
            line += " end";
        }
    }
    if let Some(trailers) = body.trailers().await.unwrap() {
        line += &format!(" | {trailers:?}");
    }
    line
}

#[tokio::test]
async fn http2_responses_match_those_recorded_from_hyper() {
    let fixture = Fixture::new();
    let server = fixture.serve(Limits::default(), answer_with(|req| answer(req.uri().path())));
    let tls = fixture.connect(&server, "localhost", &["h2"], None).await.unwrap();
    let (mut client, connection) = h2::client::handshake(tls).await.unwrap();
    tokio::spawn(connection);
    let mut seen = Vec::new();
    for path in [
        "/full",
        "/empty",
        "/length",
        "/204",
        "/304",
        "/304-full",
        "/pieces",
        "/nothing",
    ] {
        for method in [Method::GET, Method::HEAD] {
            if path == "/length" && method == Method::GET {
                continue;
            }
            let line = line(&mut client, method.clone(), path).await;
            seen.push(format!("{method} {path}: {line}"));
        }
    }
    for path in ["/late-end", "/trailers", "/hops", "/dated"] {
        let line = line(&mut client, Method::GET, path).await;
        seen.push(format!("GET {path}: {line}"));
    }
    seen.push(format!("CONNECT: {}", line(&mut client, Method::CONNECT, "").await));
    // Recorded when hyper served HTTP/2. HEAD differs on purpose: hyper sent it the body of GET.
    let expected = [
        r#"GET /full: 200 date content-length=5 | "hello" end"#,
        r#"HEAD /full: 200 date content-length=5 | end"#,
        r#"GET /empty: 200 date | end"#,
        r#"HEAD /empty: 200 date | end"#,
        r#"HEAD /length: 200 content-length=5 date | end"#,
        r#"GET /204: 204 date | end"#,
        r#"HEAD /204: 204 date | end"#,
        r#"GET /304: 304 date | end"#,
        r#"HEAD /304: 304 date | end"#,
        r#"GET /304-full: 304 date content-length=5 | "hello" end"#,
        r#"HEAD /304-full: 304 date content-length=5 | end"#,
        r#"GET /pieces: 200 date | "he" | "llo" | "" end"#,
        r#"HEAD /pieces: 200 date | end"#,
        r#"GET /nothing: 200 date | "" end"#,
        r#"HEAD /nothing: 200 date | end"#,
        r#"GET /late-end: 200 date | "hello" | "" end"#,
        r#"GET /trailers: 200 date | "hello" | {"x-sum": "5"}"#,
        r#"GET /hops: 200 x-end=to end date content-length=5 | "hello" end"#,
        r#"GET /dated: 200 date=long ago content-length=5 | "hello" end"#,
        r#"CONNECT: 404 date content-length=4 | "none" end"#,
    ];
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn too_many_header_fields_get_431() {
    let fixture = Fixture::new();
    let server = fixture.serve(Limits::default(), answer_with(|_| Response::new(Body::full("hello"))));
    let tls = fixture.connect(&server, "localhost", &["h2"], None).await.unwrap();
    let (mut client, connection) = h2::client::handshake(tls).await.unwrap();
    tokio::spawn(connection);
    // h2 accepts as many fields as fit into a `HeaderMap`; those that filters add would then overflow it.
    for (fields, status) in [(1000, 200), (4097, 431), (24_500, 431), (1, 200)] {
        let mut request = Request::get("https://localhost/").body(()).unwrap();
        for i in 0..fields {
            let name = http::HeaderName::from_bytes(format!("x{i}").as_bytes()).unwrap();
            request.headers_mut().insert(name, http::HeaderValue::from_static(""));
        }
        client = client.ready().await.unwrap();
        let (answer, _) = client.send_request(request, true).unwrap();
        assert_eq!(answer.await.unwrap().status(), status, "{fields}");
    }
}
