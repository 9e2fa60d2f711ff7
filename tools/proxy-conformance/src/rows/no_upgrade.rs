//! Upgrades that fail.

use super::upgrades::asking;
use crate::client::frames::{self, Fate, Frames};
use crate::row::Expect::{Body, Header, NotSent, Reached, Sent, Status};
use crate::row::{Row, Told, row, story};
use crate::world::Scene;

const WEBSOCKET: &str = "websocket";

pub(super) fn rows() -> Vec<Row> {
    let refused = |row: Row| row.front1().with("Connection", "Upgrade").with("Upgrade", WEBSOCKET);
    vec![
        refused(row(
            "3.8.4a",
            "a backend's refusal of an upgrade is forwarded unchanged",
        ))
        .answers(403)
        .answer_headers(&[("Content-Type", "text/plain"), ("X-Mine", "1")])
        .answer_body("not you")
        .expect([Status(403), Body("not you"), Header("x-mine", &["1"]), Reached(1)]),
        refused(row(
            "3.8.4b",
            "a backend's error in response to an upgrade is forwarded unchanged",
        ))
        .answers(500)
        .answer_body("broken")
        .expect([Status(500), Body("broken")]),
        refused(row(
            "3.8.5a",
            "a response to an upgrade other than 101 or an error is a 503 with this message",
        ))
        .answers(200)
        .expect([Status(503), Body("invalid upgrade response: status code 200\n")]),
        refused(row("3.8.5b", "a redirect in response to an upgrade is a 503"))
            .answers(302)
            .answer_headers(&[("Location", "/x")])
            .answer_parts([])
            .expect([Status(503), Body("invalid upgrade response: status code 302\n")]),
        row("3.8.1b", "Upgrade without Connection is not an upgrade")
            .front1()
            .with("Upgrade", WEBSOCKET)
            .expect([Status(200), NotSent("upgrade")]),
        row("3.8.1c", "any Connection value that contains the word is an upgrade")
            .front1()
            .with("Connection", "keep-alive, X-UPGRADE-y")
            .with("Upgrade", "whatever")
            .answers(400)
            .answer_headers(&[])
            .expect([Status(400), Sent("upgrade", &["whatever"])]),
        refused(row("7.10.1c", "an unauthorized upgrade does not reach the backend"))
            .with("Impersonate-User", "nobody")
            .expect([Status(403), Reached(0)]),
        story(
            "3.8.6a",
            "a backend that cannot be dialled is a 503 with this message",
            undialled,
        )
        .at(&["moving"])
        .front1(),
        refused(row("3.8.6b", "a backend that closes instead of responding is a 503"))
            .at(&["f1"])
            .answer_raw(b"")
            .at(&["f1"])
            .expect([Status(503), Reached(1)]),
        story(
            "3.8.6c",
            "an upgrade requested over HTTP/2 does not reach the backend",
            over_http2,
        )
        .at(&["f1", "f2"])
        .front2(),
    ]
}

fn undialled<'a>(scene: &'a Scene<'a>) -> Told<'a> {
    Box::pin(async move {
        let _stage = scene.backend.arm([]);
        scene.backend.turn_away(true);
        let got = scene.exchange(&asking(scene, WEBSOCKET, "{base}/things/a/exec")).await;
        scene.backend.turn_away(false);
        super::trust::becomes(scene, "True", "Passed", "").await?;
        let got = got?;
        if got.status == 503 && got.text().starts_with("error dialing backend: ") {
            Ok(())
        } else {
            Err(format!("{} {}", got.status, got.text()))
        }
    })
}

/// Both with HTTP/1.1's headers, and as extended CONNECT (RFC 8441).
fn over_http2<'a>(scene: &'a Scene<'a>) -> Told<'a> {
    Box::pin(async move {
        let target = &scene.world.target;
        let (path, row) = (scene.fill("{base}/things/a/exec"), scene.world.next_row());
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
            fields.push((crate::backend::ROW, row.as_str()));
            fields.extend(more.iter().filter(|(name, _)| !name.starts_with(':')));
            let frames = Frames {
                fields,
                ..Frames::default()
            };
            let mut stage = scene.stage(crate::backend::Script::default());
            let fate = frames::send(target, &frames).await?;
            if fate == Fate::Answered(Some(200)) || !stage.so_far().is_empty() {
                return Err(format!("{method}: {fate:?}"));
            }
        }
        Ok(())
    })
}
