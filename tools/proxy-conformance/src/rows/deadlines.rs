//! Deadlines: the gateway's, the client's, and requests without one.

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

/// A response that takes three times the client's timeout and is still complete.
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
        row("3.7.2a", "a request past its deadline is a 504 with this message")
            .ask("GET", "{base}/things/a?timeout=200ms")
            .late(Duration::from_secs(5))
            .at(&["f1", "f2"])
            .upstream()
            .expect([
                Status(504),
                // The deadline may pass before the request reaches the backend.
                ReachedAtMost(1),
                crate::row::Expect::Body(TIMEOUT),
                Header("content-type", &["text/plain; charset=utf-8"]),
            ]),
        row("3.7.2b", "past the deadline, a response that has begun breaks off")
            .ask("GET", "{base}/things/a?timeout=1s")
            .answer_parts([Part::Data(b"some".to_vec()), Part::Gate])
            .framed(Framing::Chunked)
            .at(&["f1", "f2"])
            .expect([Status(200), Whole(false)]),
        story(
            "3.7.2c",
            "past the deadline, the request to the backend is cancelled",
            cancelled,
        ),
        row("3.7.2d", "a backend that sends half of its headers and stops is a 504")
            .ask("GET", "{base}/things/a?timeout=300ms")
            .fails(5, Fault::Stall)
            .at(&["f1", "f2"])
            .expect([Status(504), ReachedAtMost(1)]),
        row("3.7.3", "the client's timeout parameter is forwarded")
            .ask("GET", "{base}/things/a?timeout=17s")
            .expect([Status(200), Target("{base}/things/a?timeout=17s")]),
        row("7.5.1", "an invalid timeout parameter is refused")
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
            row("3.7.4b", "logs, exec, attach, portforward and proxy have no deadline"),
            "{base}/namespaces/n/things/a/log?",
        ),
        row("3.7.4c", "other subresources have a deadline")
            .ask("GET", "{base}/namespaces/n/things/a/stream?timeout=1s")
            .answer_parts([Part::Data(b"one\n".to_vec()), Part::Gate])
            .framed(Framing::Chunked)
            .at(&["f1", "f2"])
            .expect([Status(200), Whole(false)]),
        row(
            "3.7.1",
            "a discovery document has five seconds, then the response is a 503",
        )
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
        // The response breaks off. Over HTTP/2 that is an error without a response if the head was not yet passed on.
        let _ = scene.exchange(&scene.ask("GET", "{base}/things/a?timeout=1s")).await;
        match (stage.next().await?, stage.next().await?) {
            (Event::Request(_), Event::Left) => Ok(()),
            other => Err(format!("the backend hears {other:?}")),
        }
    })
}
