//! Deadlines: the gateway's, the client's own, and those who have none.

use crate::backend::{Event, Fault, Framing, Part, Script};
use crate::row::Expect::{Answer, BodyBegins, Header, Reached, ReachedAtMost, Status, Target, Whole};
use crate::row::{Row, Told, row, story};
use crate::world::Scene;
use std::time::Duration;

const TIMEOUT: &str = "{\"metadata\":{},\"status\":\"Failure\",\"message\":\"Timeout: request did not complete within \
    the allotted timeout\",\"reason\":\"Timeout\",\"details\":{},\"code\":504}\n";

fn never() -> [Part; 1] {
    [Part::Gate]
}

/// An answer that takes three times as long as the client's timeout says, and comes whole.
fn endless(row: Row, target: &str) -> Row {
    row.ask("GET", &format!("{target}&timeout=100ms"))
        .answer_parts([
            Part::Data(b"one\n".to_vec()),
            Part::Wait(Duration::from_millis(300)),
            Part::Data(b"two\n".to_vec()),
        ])
        .framed(Framing::Chunked)
        .expect([Status(200), crate::row::Expect::Body("one\ntwo\n"), Whole(true)])
}

pub(super) fn rows() -> Vec<Row> {
    vec![
        row("3.7.2a", "a request past its deadline is a 504, in these words")
            .ask("GET", "{base}/things/a?timeout=200ms")
            .late(Duration::from_secs(5))
            .at(&["f1", "f2"])
            .upstream()
            .expect([
                Status(504),
                // It may end before it gets there.
                ReachedAtMost(1),
                crate::row::Expect::Body(TIMEOUT),
                Header("content-type", &["text/plain; charset=utf-8"]),
            ]),
        row("3.7.2b", "past the answer's head, the answer breaks off")
            .ask("GET", "{base}/things/a?timeout=1s")
            .answer_parts([Part::Data(b"some".to_vec()), Part::Gate])
            .framed(Framing::Chunked)
            .at(&["f1", "f2"])
            .expect([Status(200), Whole(false)]),
        story("3.7.2c", "and the backend's request is cancelled", cancelled),
        row("3.7.2d", "a backend that sends half of its headers and stops is a 504")
            .ask("GET", "{base}/things/a?timeout=300ms")
            .fails(5, Fault::Stall)
            .at(&["f1", "f2"])
            .expect([Status(504), ReachedAtMost(1)]),
        row("3.7.3", "the client's timeout is passed on")
            .ask("GET", "{base}/things/a?timeout=17s")
            .expect([Status(200), Target("{base}/things/a?timeout=17s")]),
        row("7.5.1", "a timeout that is none is refused")
            .ask("GET", "{base}/things/a?timeout=zz")
            .expect([
                Status(400),
                Reached(0),
                Answer("it says why", |got| {
                    got.text()
                        .contains(r#"invalid timeout specified in the request URL - time: invalid duration \"zz\""#)
                }),
            ]),
        endless(row("3.7.4a", "a watch has no deadline"), "{base}/things?watch=1"),
        endless(
            row("3.7.4b", "nor do logs, exec, attach, port forwarding and proxies"),
            "{base}/namespaces/n/things/a/log?",
        ),
        row("3.7.4c", "other subresources have one")
            .ask("GET", "{base}/namespaces/n/things/a/stream?timeout=1s")
            .answer_parts([Part::Data(b"one\n".to_vec()), Part::Gate])
            .framed(Framing::Chunked)
            .at(&["f1", "f2"])
            .expect([Status(200), Whole(false)]),
        row("3.7.1", "a discovery document has five seconds, then it is a 503")
            .ask("GET", "{base}")
            .answer_parts(never())
            .late(Duration::from_secs(30))
            .at(&["slow"])
            .front2()
            .expect([
                Status(503),
                BodyBegins("error trying to reach service: "),
                Answer("it says why", |got| got.text().contains("context deadline exceeded")),
            ]),
    ]
}

fn cancelled<'a>(scene: &'a Scene<'a>) -> Told<'a> {
    Box::pin(async move {
        let mut stage = scene.stage(Script {
            body: vec![Part::Data(b"some".to_vec()), Part::Gate],
            framing: Framing::Chunked,
            ..Script::default()
        });
        // The answer breaks off, which is no answer over HTTP/2 where the head was not passed on yet.
        let _ = scene.exchange(&scene.ask("GET", "{base}/things/a?timeout=1s")).await;
        match (stage.next().await?, stage.next().await?) {
            (Event::Request(_), Event::Left) => Ok(()),
            other => Err(format!("the backend hears {other:?}")),
        }
    })
}
