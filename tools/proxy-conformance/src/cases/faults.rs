//! Backends that fail at any byte.

use crate::backend::{Event, Fault, Framing, Part, Script};
use crate::case::Expect::{Body, BodyBegins, ReachedAtMost, Status, StatusIn, Whole};
use crate::case::{Case, ScenarioFuture, case, scenario};
use crate::environment::Scene;

/// The response that is cut: about 120 bytes over HTTP/1.1.
fn small() -> Script {
    Script {
        headers: vec![
            ("Content-Type".into(), "text/plain".into()),
            ("X-Mine".into(), "1".into()),
        ],
        body: vec![Part::Data(b"0123456789".to_vec())],
        ..Script::default()
    }
}

pub(super) fn cases() -> Vec<Case> {
    let broken = |case: Case| {
        case.on(&["f1"])
            .expect([Status(503), BodyBegins("error trying to reach service: ")])
    };
    vec![
        scenario("3.4.8c", "a response that is cut after any byte is an error or breaks off, but never counts as complete", cut)
            .on(&["f1", "f2"]),
        scenario("3.4.8d", "a response whose connection is reset never counts as complete", reset).on(&["f1", "f2"]).http1_only(),
        scenario("3.4.8e", "a chunked response that is cut never counts as complete", cut_chunked).on(&["f1"]).http1_only(),
        scenario("3.4.8f", "bytes that are not HTTP end in a response, and do not affect the next request", garbage)
            .on(&["f1", "f2"]).http1_only(),
        broken(case("3.4.7a", "garbage instead of a response is a 503").answer_raw(b"\x00\x01\x02 what is this\r\n\r\n")),
        // Where the probe of the backend has left an idle connection, the request is first sent on that one, and once
        // more on a new one when it ends without a byte, as Go's transport does.
        broken(case("3.4.7b", "a closed connection instead of a response is a 503").answer_raw(b"").expect([ReachedAtMost(2)])),
        broken(case("3.4.7c", "a status line without a status is a 503").answer_raw(b"HTTP/1.1 OK\r\n\r\n")),
        broken(case("3.4.7d", "a status of four digits is a 503").answer_raw(b"HTTP/1.1 2000 OK\r\n\r\n")),
        broken(
            case("3.4.7e", "two Content-Lengths in a response are a 503")
                .answer_raw(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!"),
        ),
        broken(
            case("3.4.7f", "a Content-Length that is not a number is a 503")
                .answer_raw(b"HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\nhello"),
        ),
        broken(
            case("3.4.7g", "an unknown transfer encoding is a 503")
                .answer_raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: whatever\r\n\r\nhello"),
        )
        .upstream(),
        case("3.4.7h", "a response longer than its Content-Length ends at that length")
            .answer_raw(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\nX-Evil: 1\r\n\r\n")
            .on(&["f1"])
            .expect([Status(200), Body("hello"), Whole(true)]),
        case("3.4.7i", "an unsolicited response is not used for the next request")
            .answer_raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
            .on(&["f1"])
            .expect([Status(200), Body("ok")]),
        case("3.4.7j", "an unknown status with its own reason phrase is forwarded")
            .answer_raw(b"HTTP/1.1 299 Quite so\r\nContent-Length: 2\r\n\r\nok")
            .on(&["f1"])
            .expect([Status(299), Body("ok")]),
        case("3.4.8g", "a chunk with an invalid size breaks the body off")
            .answer_raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nxyz\r\n")
            .on(&["f1"])
            .expect([Status(200), Whole(false)]),
        case("3.4.8h", "a body shorter than its Content-Length breaks off")
            .beyond()
            .answer_raw(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello")
            .on(&["f1"])
            .expect([Status(200), Whole(false)]),
        case("3.4.8i", "a truncated gzip body that the gateway decompresses breaks off")
            .answer_raw(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 12\r\n\r\n\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xcb\x48")
            .on(&["f1"])
            .expect([crate::case::Expect::BreaksOff]),
        case("3.4.7k", "endless response headers are not read without limit")
            .answer_raw(&endless())
            .on(&["f1"])
            .expect([StatusIn(&[502, 503])]),
    ]
}

/// Twenty megabytes of headers.
fn endless() -> Vec<u8> {
    let mut out = b"HTTP/1.1 200 OK\r\n".to_vec();
    for _ in 0..20 {
        out.extend(b"X-Long: ");
        out.resize(out.len() + (1 << 20), b'x');
        out.extend(b"\r\n");
    }
    out.extend(b"\r\n");
    out
}

/// Runs the exchange with the connection failing after each possible number of bytes.
async fn at_any_byte(scene: &Scene<'_>, script: &Script, fault: Fault, wanted: &[u8]) -> Result<(), String> {
    let mut wholes = 0;
    for after in 0..160 {
        let faulty = Script {
            fault: Some((after, fault)),
            ..script.clone()
        };
        let mut handle = scene.script_backend(faulty);
        let request = scene.request("GET", "{base}/things");
        let failed = |why: String| format!("after {after} bytes: {why}");
        match scene.exchange(&request).await {
            Ok(response) if response.status == 503 => {
                if !response.text().starts_with("error trying to reach service: ") {
                    return Err(failed(response.text()));
                }
            }
            Ok(response) if response.status == 200 && response.body.whole => {
                if response.body.data != wanted {
                    return Err(failed(format!("{:?} counts as complete", response.text())));
                }
                wholes += 1;
            }
            Ok(response) if response.status == 200 => {
                if !wanted.starts_with(&response.body.data) {
                    return Err(failed(format!("{:?} was never sent", response.text())));
                }
            }
            Ok(response) => return Err(failed(format!("{} {}", response.status, response.text()))),
            // The head was passed on and the connection ended with the fault.
            Err(_) => {}
        }
        let times = handle
            .so_far()
            .iter()
            .filter(|event| matches!(event, Event::Request(_)))
            .count();
        if times == 0 || times > 4 {
            return Err(failed(format!("the backend receives {times} requests")));
        }
        if wholes == 3 {
            return Ok(());
        }
    }
    Err("no response is ever complete".into())
}

fn cut<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move { at_any_byte(scene, &small(), Fault::Cut, b"0123456789").await })
}

fn reset<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move { at_any_byte(scene, &small(), Fault::Reset, b"0123456789").await })
}

fn cut_chunked<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let script = Script {
            framing: Framing::Chunked,
            body: vec![Part::Data(b"01234".to_vec()), Part::Data(b"56789".to_vec())],
            ..small()
        };
        at_any_byte(scene, &script, Fault::Cut, b"0123456789").await
    })
}

fn garbage<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        for after in (0..100).step_by(3) {
            let faulty = Script {
                fault: Some((after, Fault::Garbage)),
                ..small()
            };
            let _handle = scene.backend.arm([faulty, small()]);
            // A corrupted status, header or body that is still valid cannot be detected by the gateway.
            let request = scene.request("GET", "{base}/things?timeout=10s");
            let first = scene.exchange(&request).await;
            if let Ok(response) = &first
                && response.status == 504
            {
                return Err(format!("after {after} bytes: the gateway waits for more bytes"));
            }
            let _handle = scene.script_backend(small());
            let next = scene.exchange(&scene.request("GET", "{base}/things")).await?;
            if next.status != 200 || next.text() != "0123456789" {
                return Err(format!(
                    "after {after} bytes the next gets {} {}",
                    next.status,
                    next.text()
                ));
            }
        }
        Ok(())
    })
}
