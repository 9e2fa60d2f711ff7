//! Deadlines: the gateway's, the client's, and requests without one.

use crate::backend::{Event, Fault, Framing, Part, Script};
use crate::case::Expect::{Answer, BodyBegins, Header, Reached, ReachedAtMost, Status, Target, Whole};
use crate::case::{Case, ScenarioFuture, case, scenario};
use crate::environment::Scene;
use std::time::Duration;

const TIMEOUT: &str = "{\"metadata\":{},\"status\":\"Failure\",\"message\":\"Timeout: request did not complete within \
    the allotted timeout\",\"reason\":\"Timeout\",\"details\":{},\"code\":504}\n";

fn never() -> [Part; 1] {
    [Part::Gate]
}

/// A response that takes three times the client's timeout and is still complete.
fn endless(case: Case, target: &str) -> Case {
    case.request("GET", &format!("{target}&timeout=100ms"))
        .answer_parts([
            Part::Data(b"one\n".to_vec()),
            Part::Wait(Duration::from_millis(300)),
            Part::Data(b"two\n".to_vec()),
        ])
        .framed(Framing::Chunked)
        .expect([Status(200), crate::case::Expect::Body("one\ntwo\n"), Whole(true)])
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("3.7.2a", "a request past its deadline is a 504 with this message")
            .request("GET", "{base}/things/a?timeout=200ms")
            .delayed(Duration::from_secs(5))
            .on(&["f1", "f2"])
            .upstream()
            .expect([
                Status(504),
                // The deadline may pass before the request reaches the backend.
                ReachedAtMost(1),
                crate::case::Expect::Body(TIMEOUT),
                Header("content-type", &["text/plain; charset=utf-8"]),
            ]),
        case("3.7.2b", "past the deadline, a response that has begun breaks off")
            .request("GET", "{base}/things/a?timeout=3s")
            .answer_parts([Part::Data(b"some".to_vec()), Part::Gate])
            .framed(Framing::Chunked)
            .on(&["f1", "f2"])
            .expect([Status(200), Whole(false)]),
        scenario(
            "3.7.2c",
            "past the deadline, the request to the backend is cancelled",
            cancelled,
        ),
        case("3.7.2d", "a backend that sends half of its headers and stops is a 504")
            .request("GET", "{base}/things/a?timeout=300ms")
            .fault_after(5, Fault::Stall)
            .on(&["f1", "f2"])
            .expect([Status(504), ReachedAtMost(1)]),
        case("3.7.3", "the client's timeout parameter is forwarded")
            .request("GET", "{base}/things/a?timeout=17s")
            .expect([Status(200), Target("{base}/things/a?timeout=17s")]),
        case("7.5.1", "an invalid timeout parameter is refused")
            .request("GET", "{base}/things/a?timeout=zz")
            .expect([
                Status(400),
                Reached(0),
                Answer("it says why", |response| {
                    response
                        .text()
                        .contains(r#"invalid timeout specified in the request URL - time: invalid duration \"zz\""#)
                }),
            ]),
        endless(case("3.7.4a", "a watch has no deadline"), "{base}/things?watch=1"),
        endless(
            case("3.7.4b", "logs, exec, attach, portforward and proxy have no deadline"),
            "{base}/namespaces/n/things/a/log?",
        ),
        case("3.7.4c", "other subresources have a deadline")
            .request("GET", "{base}/namespaces/n/things/a/stream?timeout=3s")
            .answer_parts([Part::Data(b"one\n".to_vec()), Part::Gate])
            .framed(Framing::Chunked)
            .on(&["f1", "f2"])
            .expect([Status(200), Whole(false)]),
        case(
            "3.7.1",
            "a discovery document has five seconds, then the response is a 503",
        )
        .request("GET", "{base}")
        .answer_parts(never())
        .delayed(Duration::from_secs(30))
        .on(&["slow"])
        .http2_only()
        .expect([
            Status(503),
            BodyBegins("error trying to reach service: "),
            Answer("it says why", |response| {
                response.text().contains("context deadline exceeded")
            }),
        ]),
    ]
}

fn cancelled<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let mut handle = scene.script_backend(Script {
            body: vec![Part::Data(b"some".to_vec()), Part::Gate],
            framing: Framing::Chunked,
            ..Script::default()
        });
        // The response breaks off. Over HTTP/2 that is an error without a response if the head was not yet
        // passed on.
        let _ = scene
            .exchange(&scene.request("GET", "{base}/things/a?timeout=3s"))
            .await;
        match (handle.next().await?, handle.next().await?) {
            (Event::Request(_), Event::ClientDisconnected) => Ok(()),
            other => Err(format!("the backend hears {other:?}")),
        }
    })
}
