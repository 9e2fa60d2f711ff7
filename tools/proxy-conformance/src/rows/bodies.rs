//! Bodies on their way, both directions.

use crate::backend::{Event, Framing, Part, Script};
use crate::client::{Http, Upload, answer};
use crate::row::Expect::{
    Body, Early, Header, NoHeader, NoSentTrailer, NotSent, Sent, SentBody, SentLength, Status, Trailer, Whole,
};
use crate::row::{Row, Told, row, story};
use crate::wire;
use crate::world::Scene;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

fn data(text: &str) -> Part {
    Part::Data(text.as_bytes().to_vec())
}

fn pieces(texts: &[&str]) -> Upload {
    Upload::Pieces(texts.iter().map(|t| t.as_bytes().to_vec()).collect(), vec![])
}

pub(super) fn rows() -> Vec<Row> {
    vec![
        row("3.4.1a", "a body of a stated length keeps its length")
            .answer_body("hello")
            .with("Accept-Encoding", "identity")
            .expect([
                Status(200),
                Body("hello"),
                Header("content-length", &["5"]),
                Whole(true),
            ]),
        row("3.4.1b", "a chunked body arrives, and says no length")
            .answer_parts([data("a"), data("b"), data("c")])
            .framed(Framing::Chunked)
            .expect([Body("abc"), NoHeader("content-length"), Whole(true)]),
        row("3.4.1c", "a body that ends with its connection arrives whole")
            .at(&["h1"])
            .answer_parts([data("abc")])
            .framed(Framing::Close)
            .expect([Body("abc"), Whole(true)]),
        row("3.4.1d", "trailers of the answer travel")
            .beyond()
            .with("TE", "trailers")
            .answer_trailer("X-Sum", "42")
            .answer_trailer("X-Second", "b")
            .expect([Body("{}"), Trailer("X-Sum", "42"), Trailer("X-Second", "b")]),
        row("3.4.1p", "so do trailers that the answer's head does not announce")
            .with("TE", "trailers")
            .answer_trailer("X-Sum", "42")
            .unannounced()
            .beyond()
            .expect([Trailer("X-Sum", "42")]),
        row("3.4.1q", "and trailers to a client that did not ask for them")
            .answer_trailer("X-Sum", "42")
            .beyond()
            .expect([Trailer("X-Sum", "42")]),
        row("3.4.1e", "204 has no body and no length")
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
        row("3.4.1f", "304 keeps its validators and has no body")
            .answers(304)
            .answer_headers(&[("ETag", "\"x\"")])
            .answer_parts([])
            .framed(Framing::Bodiless)
            .with("If-None-Match", "\"x\"")
            .expect([Status(304), Body(""), Header("etag", &["\"x\""])]),
        row("3.4.1g", "HEAD keeps the length of what GET would bring")
            .ask("HEAD", "{base}/things/a")
            .answer_headers(&[("Content-Type", "text/plain"), ("Content-Length", "1234")])
            .expect([Status(200), Body(""), Header("content-length", &["1234"])]),
        row("3.4.1h", "early hints pass, and the answer behind them")
            .early(103)
            .expect([Status(200), Body("{}"), Early(&[103])]),
        row("3.4.1i", "several early answers pass in their order")
            .early(102)
            .early(103)
            .beyond()
            .expect([Status(200), Early(&[102, 103])]),
        row("3.4.1j", "an answer of no bytes is an answer")
            .answer_parts([])
            .expect([Status(200), Body(""), Whole(true)]),
        row("3.2.4i", "a chunked upload arrives, and says no length over HTTP/1.1")
            .ask("POST", "{base}/things")
            .upload(pieces(&["one ", "two ", "three"]))
            .expect([Status(200), SentBody(b"one two three"), NotSent("content-length")]),
        row("3.2.4j", "an upload of a stated length says it over either protocol")
            .ask("POST", "{base}/things")
            .upload(Upload::Whole(vec![b'x'; 100_000]))
            .expect([Sent("content-length", &["100000"]), SentLength(100_000)]),
        row("3.2.4k", "an upload in pieces without bytes is no body")
            .ask("POST", "{base}/things")
            .upload(pieces(&[]))
            .expect([Status(200), SentLength(0)]),
        row("3.2.4l", "trailers that say who calls are not passed on")
            .ask("POST", "{base}/things")
            .upload(Upload::Pieces(
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
        row("3.4.1k", "an answer before the upload's end is passed on")
            .ask("POST", "{base}/things")
            .upload(Upload::Whole(vec![b'x'; 100]))
            .unread()
            .answers(413)
            .answer_headers(&[("Content-Type", "text/plain"), ("Connection", "close")])
            .answer_body("too much")
            .expect([Status(413), Body("too much")]),
        row("3.2.4m", "Expect: 100-continue is answered, and the body arrives")
            .front1()
            .ask("POST", "{base}/things")
            .with("Expect", "100-continue")
            .upload(Upload::Whole(b"hello".to_vec()))
            .expect([Status(200), SentBody(b"hello")]),
        story(
            "3.2.4n",
            "a client that waits for 100 Continue gets it before it sends",
            expects_first,
        )
        .front1(),
        story(
            "3.4.4a",
            "each piece of an answer of unknown length is passed on as it comes",
            flushed,
        )
        .front1(),
        story("3.4.4b", "and each line of a watch", watched).front1(),
        story(
            "3.2.4o",
            "each piece of an upload is passed on as it comes, and answered meanwhile",
            both_ways,
        )
        .beyond()
        .front1(),
    ]
}

fn e(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Writes the head of a request over HTTP/1.1.
async fn begin(scene: &Scene<'_>, line: &str, more: &[(&str, &str)]) -> Result<crate::client::Io, String> {
    let target = &scene.world.target;
    let mut io = BufReader::new(target.connect(Http::One).await?);
    let mut headers = vec![("Host".to_owned(), target.authority.clone())];
    headers.extend(target.credentials());
    headers.push((crate::backend::ROW.to_owned(), scene.world.next_row()));
    headers.extend(more.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())));
    let head = wire::written(&scene.fill(line), &headers);
    io.write_all(&head).await.map_err(e)?;
    io.flush().await.map_err(e)?;
    Ok(io)
}

/// Reads one chunk.
async fn chunk(io: &mut crate::client::Io) -> Result<String, String> {
    let mut size = String::new();
    io.read_line(&mut size).await.map_err(e)?;
    let size = usize::from_str_radix(size.trim(), 16).map_err(|_| format!("{size:?} is no size"))?;
    let mut data = vec![0; size + 2];
    io.read_exact(&mut data).await.map_err(e)?;
    data.truncate(size);
    String::from_utf8(data).map_err(e)
}

fn expects_first<'a>(scene: &'a Scene<'a>) -> Told<'a> {
    Box::pin(async move {
        let mut stage = scene.stage(Script::default());
        let more = [("Expect", "100-continue"), ("Content-Length", "5")];
        let mut io = begin(scene, "POST {base}/things HTTP/1.1", &more).await?;
        let head = wire::head(&mut io).await.map_err(e)?.ok_or("no answer")?;
        if !head.first.starts_with("HTTP/1.1 100") {
            return Err(format!("{:?} comes first", head.first));
        }
        io.write_all(b"hello").await.map_err(e)?;
        io.flush().await.map_err(e)?;
        let got = answer(&mut io, "POST").await?;
        match stage.next().await? {
            Event::Request(seen) if seen.body.data == b"hello" && got.status == 200 => Ok(()),
            other => Err(format!("{got:?}, {other:?}")),
        }
    })
}

async fn piece_by_piece(scene: &Scene<'_>, path: &str) -> Result<(), String> {
    let script = Script {
        body: vec![data("one\n"), Part::Gate, data("two\n")],
        framing: Framing::Chunked,
        ..Script::default()
    };
    let stage = scene.stage(script);
    let mut io = begin(scene, &format!("GET {path} HTTP/1.1"), &[]).await?;
    wire::head(&mut io).await.map_err(e)?.ok_or("no answer")?;
    let first = chunk(&mut io).await?;
    stage.go();
    let second = chunk(&mut io).await?;
    match (first.as_str(), second.as_str()) {
        ("one\n", "two\n") => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

fn flushed<'a>(scene: &'a Scene<'a>) -> Told<'a> {
    Box::pin(piece_by_piece(scene, "{base}/things"))
}

fn watched<'a>(scene: &'a Scene<'a>) -> Told<'a> {
    Box::pin(piece_by_piece(scene, "{base}/things?watch=1"))
}

fn both_ways<'a>(scene: &'a Scene<'a>) -> Told<'a> {
    Box::pin(async move {
        let script = Script {
            reads_body: false,
            body: vec![data("early"), Part::Wait(std::time::Duration::ZERO)],
            framing: Framing::Chunked,
            ..Script::default()
        };
        let mut stage = scene.stage(script);
        let more = [("Transfer-Encoding", "chunked")];
        let mut io = begin(scene, "POST {base}/things HTTP/1.1", &more).await?;
        io.write_all(&wire::chunk(b"first")).await.map_err(e)?;
        io.flush().await.map_err(e)?;
        // The request is at the backend, and answered, though it has not ended.
        stage.next().await?;
        wire::head(&mut io).await.map_err(e)?.ok_or("no answer")?;
        let text = chunk(&mut io).await?;
        if text == "early" { Ok(()) } else { Err(text) }
    })
}
