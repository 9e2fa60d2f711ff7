//! Bodies in transit, in both directions.

use crate::backend::{Event, Framing, Part, Script};
use crate::case::Expect::{
    Body, Early, Header, NoHeader, NoSentTrailer, NotSent, Sent, SentBody, SentLength, Status, Trailer, Whole,
};
use crate::case::{Case, ScenarioFuture, case, scenario};
use crate::client::{Http, RequestBody, answer};
use crate::environment::Scene;
use crate::wire;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

fn data(text: &str) -> Part {
    Part::Data(text.as_bytes().to_vec())
}

fn pieces(texts: &[&str]) -> RequestBody {
    RequestBody::Chunked(texts.iter().map(|t| t.as_bytes().to_vec()).collect(), vec![])
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("3.4.1a", "a response body with Content-Length keeps its length")
            .answer_body("hello")
            .with("Accept-Encoding", "identity")
            .expect([
                Status(200),
                Body("hello"),
                Header("content-length", &["5"]),
                Whole(true),
            ]),
        case("3.4.1b", "a chunked response body arrives without a Content-Length")
            .answer_parts([data("a"), data("b"), data("c")])
            .framed(Framing::Chunked)
            .expect([Body("abc"), NoHeader("content-length"), Whole(true)]),
        case(
            "3.4.1c",
            "a response body delimited by the end of the connection arrives complete",
        )
        .on(&["h1"])
        .answer_parts([data("abc")])
        .framed(Framing::Close)
        .expect([Body("abc"), Whole(true)]),
        case("3.4.1d", "response trailers are forwarded")
            .beyond()
            .with("TE", "trailers")
            .answer_trailer("X-Sum", "42")
            .answer_trailer("X-Second", "b")
            .expect([Body("{}"), Trailer("X-Sum", "42"), Trailer("X-Second", "b")]),
        case(
            "3.4.1p",
            "response trailers that the head does not announce are forwarded",
        )
        .with("TE", "trailers")
        .answer_trailer("X-Sum", "42")
        .unannounced()
        .beyond()
        .expect([Trailer("X-Sum", "42")]),
        case(
            "3.4.1q",
            "response trailers are forwarded to a client that did not request them",
        )
        .answer_trailer("X-Sum", "42")
        .beyond()
        .expect([Trailer("X-Sum", "42")]),
        case("3.4.1e", "204 has no body and no Content-Length")
            .answers(204)
            .answer_headers(&[("X-Mine", "1")])
            .answer_parts([])
            .framed(Framing::Bodiless)
            .expect([
                Status(204),
                Body(""),
                NoHeader("content-length"),
                Header("x-mine", &["1"]),
            ]),
        case("3.4.1f", "304 keeps its validators and has no body")
            .answers(304)
            .answer_headers(&[("ETag", "\"x\"")])
            .answer_parts([])
            .framed(Framing::Bodiless)
            .with("If-None-Match", "\"x\"")
            .expect([Status(304), Body(""), Header("etag", &["\"x\""])]),
        case("3.4.1g", "HEAD has the Content-Length of the corresponding GET")
            .request("HEAD", "{base}/things/a")
            .answer_headers(&[("Content-Type", "text/plain"), ("Content-Length", "1234")])
            .expect([Status(200), Body(""), Header("content-length", &["1234"])]),
        case("3.4.1h", "early hints are forwarded before the response")
            .early(103)
            .expect([Status(200), Body("{}"), Early(&[103])]),
        case("3.4.1i", "several informational responses are forwarded in order")
            .early(102)
            .early(103)
            .beyond()
            .expect([Status(200), Early(&[102, 103])]),
        case("3.4.1j", "an empty response body is forwarded")
            .answer_parts([])
            .expect([Status(200), Body(""), Whole(true)]),
        case(
            "3.2.4i",
            "a chunked upload arrives, without a Content-Length over HTTP/1.1",
        )
        .request("POST", "{base}/things")
        .upload(pieces(&["one ", "two ", "three"]))
        .expect([Status(200), SentBody(b"one two three"), NotSent("content-length")]),
        case("3.2.4j", "an upload with Content-Length keeps it in either protocol")
            .request("POST", "{base}/things")
            .upload(RequestBody::Sized(vec![b'x'; 100_000]))
            .expect([Sent("content-length", &["100000"]), SentLength(100_000)]),
        case("3.2.4k", "a chunked upload without data has no body")
            .request("POST", "{base}/things")
            .upload(pieces(&[]))
            .expect([Status(200), SentLength(0)]),
        case("3.2.4l", "request trailers that name an identity are dropped")
            .request("POST", "{base}/things")
            .upload(RequestBody::Chunked(
                vec![b"a".to_vec()],
                vec![
                    ("X-Remote-User".into(), "root".into()),
                    ("X-Remote-Group".into(), "system:masters".into()),
                    ("Impersonate-User".into(), "root".into()),
                    ("X-Sum".into(), "1".into()),
                ],
            ))
            .expect([
                Status(200),
                NoSentTrailer("x-remote-user"),
                NoSentTrailer("x-remote-group"),
                NoSentTrailer("impersonate-user"),
            ]),
        case("3.4.1k", "a response before the end of the upload is forwarded")
            .request("POST", "{base}/things")
            .upload(RequestBody::Sized(vec![b'x'; 100]))
            .answer_before_body()
            .answers(413)
            .answer_headers(&[("Content-Type", "text/plain"), ("Connection", "close")])
            .answer_body("too much")
            .expect([Status(413), Body("too much")]),
        case("3.2.4m", "Expect: 100-continue is handled, and the body arrives")
            .http1_only()
            .request("POST", "{base}/things")
            .with("Expect", "100-continue")
            .upload(RequestBody::Sized(b"hello".to_vec()))
            .expect([Status(200), SentBody(b"hello")]),
        scenario(
            "3.2.4n",
            "a client that waits for 100 Continue gets it before it sends the body",
            expects_first,
        )
        .http1_only(),
        scenario(
            "3.4.4a",
            "each chunk of a response of unknown length is forwarded immediately",
            flushed,
        )
        .http1_only(),
        scenario("3.4.4b", "each line of a watch is forwarded immediately", watched).http1_only(),
        scenario(
            "3.2.4o",
            "each chunk of an upload is forwarded immediately, in both directions at once",
            both_ways,
        )
        .beyond()
        .http1_only(),
    ]
}

fn e(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Writes the head of a request over HTTP/1.1.
async fn begin(scene: &Scene<'_>, line: &str, more: &[(&str, &str)]) -> Result<crate::client::Io, String> {
    let target = &scene.environment.target;
    let mut io = BufReader::new(target.connect(Http::Http1).await?);
    let mut headers = vec![("Host".to_owned(), target.authority.clone())];
    headers.extend(target.credentials());
    headers.push((crate::backend::CASE_HEADER.to_owned(), scene.environment.next_case()));
    headers.extend(more.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())));
    let head = wire::encode_head(&scene.fill(line), &headers);
    io.write_all(&head).await.map_err(e)?;
    io.flush().await.map_err(e)?;
    Ok(io)
}

/// Reads one chunk.
async fn chunk(io: &mut crate::client::Io) -> Result<String, String> {
    let mut size = String::new();
    io.read_line(&mut size).await.map_err(e)?;
    let size = usize::from_str_radix(size.trim(), 16).map_err(|_| format!("{size:?} is not a chunk size"))?;
    let mut data = vec![0; size + 2];
    io.read_exact(&mut data).await.map_err(e)?;
    data.truncate(size);
    String::from_utf8(data).map_err(e)
}

fn expects_first<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let mut handle = scene.script_backend(Script::default());
        let more = [("Expect", "100-continue"), ("Content-Length", "5")];
        let mut io = begin(scene, "POST {base}/things HTTP/1.1", &more).await?;
        let head = wire::head(&mut io).await.map_err(e)?.ok_or("no response")?;
        if !head.first.starts_with("HTTP/1.1 100") {
            return Err(format!("{:?} comes first", head.first));
        }
        io.write_all(b"hello").await.map_err(e)?;
        io.flush().await.map_err(e)?;
        let response = answer(&mut io, "POST").await?;
        match handle.next().await? {
            Event::Request(seen) if seen.body.data == b"hello" && response.status == 200 => Ok(()),
            other => Err(format!("{response:?}, {other:?}")),
        }
    })
}

async fn piece_by_piece(scene: &Scene<'_>, path: &str) -> Result<(), String> {
    let script = Script {
        body: vec![data("one\n"), Part::Gate, data("two\n")],
        framing: Framing::Chunked,
        ..Script::default()
    };
    let handle = scene.script_backend(script);
    let mut io = begin(scene, &format!("GET {path} HTTP/1.1"), &[]).await?;
    wire::head(&mut io).await.map_err(e)?.ok_or("no response")?;
    let first = chunk(&mut io).await?;
    handle.go();
    let second = chunk(&mut io).await?;
    match (first.as_str(), second.as_str()) {
        ("one\n", "two\n") => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

fn flushed<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(piece_by_piece(scene, "{base}/things"))
}

fn watched<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(piece_by_piece(scene, "{base}/things?watch=1"))
}

fn both_ways<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let script = Script {
            reads_body: false,
            body: vec![data("early"), Part::Wait(std::time::Duration::ZERO)],
            framing: Framing::Chunked,
            ..Script::default()
        };
        let mut handle = scene.script_backend(script);
        let more = [("Transfer-Encoding", "chunked")];
        let mut io = begin(scene, "POST {base}/things HTTP/1.1", &more).await?;
        io.write_all(&wire::chunk(b"first")).await.map_err(e)?;
        io.flush().await.map_err(e)?;
        // The request has reached the backend and was answered before its body ended.
        handle.next().await?;
        wire::head(&mut io).await.map_err(e)?.ok_or("no response")?;
        let text = chunk(&mut io).await?;
        if text == "early" { Ok(()) } else { Err(text) }
    })
}
