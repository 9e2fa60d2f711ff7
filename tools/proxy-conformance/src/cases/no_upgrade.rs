//! Upgrades that fail.

use super::upgrades::asking;
use crate::case::Expect::{Body, Header, NotSent, Reached, Sent, Status};
use crate::case::{Case, ScenarioFuture, case, scenario};
use crate::client::frames::{self, Frames, StreamEnd};
use crate::environment::Scene;

const WEBSOCKET: &str = "websocket";

pub(super) fn cases() -> Vec<Case> {
    let refused = |case: Case| {
        case.http1_only()
            .with("Connection", "Upgrade")
            .with("Upgrade", WEBSOCKET)
    };
    vec![
        refused(case(
            "3.8.4a",
            "a backend's refusal of an upgrade is forwarded unchanged",
        ))
        .answers(403)
        .answer_headers(&[("Content-Type", "text/plain"), ("X-Mine", "1")])
        .answer_body("not you")
        .expect([Status(403), Body("not you"), Header("x-mine", &["1"]), Reached(1)]),
        refused(case(
            "3.8.4b",
            "a backend's error in response to an upgrade is forwarded unchanged",
        ))
        .answers(500)
        .answer_body("broken")
        .expect([Status(500), Body("broken")]),
        refused(case(
            "3.8.5a",
            "a response to an upgrade other than 101 or an error is a 503 with this message",
        ))
        .answers(200)
        .expect([Status(503), Body("invalid upgrade response: status code 200\n")]),
        refused(case("3.8.5b", "a redirect in response to an upgrade is a 503"))
            .answers(302)
            .answer_headers(&[("Location", "/x")])
            .answer_parts([])
            .expect([Status(503), Body("invalid upgrade response: status code 302\n")]),
        case("3.8.1b", "Upgrade without Connection is not an upgrade")
            .http1_only()
            .with("Upgrade", WEBSOCKET)
            .expect([Status(200), NotSent("upgrade")]),
        case("3.8.1c", "any Connection value that contains the word is an upgrade")
            .http1_only()
            .with("Connection", "keep-alive, X-UPGRADE-y")
            .with("Upgrade", "whatever")
            .answers(400)
            .answer_headers(&[])
            .expect([Status(400), Sent("upgrade", &["whatever"])]),
        refused(case("7.10.1c", "an unauthorized upgrade does not reach the backend"))
            .with("Impersonate-User", "nobody")
            .expect([Status(403), Reached(0)]),
        scenario(
            "3.8.6a",
            "a backend that cannot be dialled is a 503 with this message",
            undialled,
        )
        .on(&["moving"])
        .http1_only(),
        refused(case("3.8.6b", "a backend that closes instead of responding is a 503"))
            .on(&["f1"])
            .answer_raw(b"")
            .on(&["f1"])
            .expect([Status(503), Reached(1)]),
        scenario(
            "3.8.6c",
            "an upgrade requested over HTTP/2 does not reach the backend",
            over_http2,
        )
        .on(&["f1", "f2"])
        .http2_only(),
    ]
}

fn undialled<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let _handle = scene.backend.arm([]);
        scene.backend.refuse_connections(true);
        let response = scene.exchange(&asking(scene, WEBSOCKET, "{base}/things/a/exec")).await;
        scene.backend.refuse_connections(false);
        super::trust::becomes(scene, "True", "Passed", "").await?;
        let response = response?;
        if response.status == 503 && response.text().starts_with("error dialing backend: ") {
            Ok(())
        } else {
            Err(format!("{} {}", response.status, response.text()))
        }
    })
}

/// Both with HTTP/1.1's headers, and as extended CONNECT (RFC 8441).
fn over_http2<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let target = &scene.environment.target;
        let (path, case) = (scene.fill("{base}/things/a/exec"), scene.environment.next_case());
        let credentials = target.credentials();
        let places = [
            (":scheme", "https"),
            (":authority", target.authority.as_str()),
            (":path", path.as_str()),
        ];
        for (method, more) in [
            ("GET", [("connection", "Upgrade"), ("upgrade", WEBSOCKET)]),
            ("CONNECT", [(":protocol", WEBSOCKET), ("sec-websocket-version", "13")]),
        ] {
            let mut fields = vec![(":method", method)];
            // Pseudo-headers must come first.
            fields.extend(more.iter().filter(|(name, _)| name.starts_with(':')));
            fields.extend(places);
            fields.extend(credentials.iter().map(|(_, v)| ("authorization", v.as_str())));
            fields.push((crate::backend::CASE_HEADER, case.as_str()));
            fields.extend(more.iter().filter(|(name, _)| !name.starts_with(':')));
            let frames = Frames {
                fields,
                ..Frames::default()
            };
            let mut handle = scene.script_backend(crate::backend::Script::default());
            let end = frames::send(target, &frames).await?;
            if end == StreamEnd::Answered(Some(200)) || !handle.so_far().is_empty() {
                return Err(format!("{method}: {end:?}"));
            }
        }
        Ok(())
    })
}
