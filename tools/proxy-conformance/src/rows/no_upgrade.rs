//! Upgrades that do not come about.

use super::upgrades::asking;
use crate::client::frames::{self, Fate, Frames};
use crate::row::Expect::{Body, Header, NotSent, Reached, Sent, Status};
use crate::row::{Row, Told, row, story};
use crate::world::Scene;

const WEBSOCKET: &str = "websocket";

pub(super) fn rows() -> Vec<Row> {
    let refused = |row: Row| row.front1().with("Connection", "Upgrade").with("Upgrade", WEBSOCKET);
    vec![
        refused(row("3.8.4a", "a refusal is passed on as it is"))
            .answers(403)
            .answer_headers(&[("Content-Type", "text/plain"), ("X-Mine", "1")])
            .answer_body("not you")
            .expect([Status(403), Body("not you"), Header("x-mine", &["1"]), Reached(1)]),
        refused(row("3.8.4b", "so is a failure"))
            .answers(500)
            .answer_body("broken")
            .expect([Status(500), Body("broken")]),
        refused(row("3.8.5a", "an answer that is neither is a 503 in these words"))
            .answers(200)
            .expect([Status(503), Body("invalid upgrade response: status code 200\n")]),
        refused(row("3.8.5b", "a redirect is such an answer"))
            .answers(302)
            .answer_headers(&[("Location", "/x")])
            .answer_parts([])
            .expect([Status(503), Body("invalid upgrade response: status code 302\n")]),
        row("3.8.1b", "Upgrade alone, without Connection, is no upgrade")
            .front1()
            .with("Upgrade", WEBSOCKET)
            .expect([Status(200), NotSent("upgrade")]),
        row("3.8.1c", "any Connection value that holds the word is one")
            .front1()
            .with("Connection", "keep-alive, X-UPGRADE-y")
            .with("Upgrade", "whatever")
            .answers(400)
            .answer_headers(&[])
            .expect([Status(400), Sent("upgrade", &["whatever"])]),
        refused(row("7.10.1c", "who may not, does not reach the backend"))
            .with("Impersonate-User", "nobody")
            .expect([Status(403), Reached(0)]),
        story(
            "3.8.6a",
            "a backend that cannot be dialled is a 503 in these words",
            undialled,
        )
        .at(&["moving"])
        .front1(),
        refused(row("3.8.6b", "a backend that hangs up instead of answering is a 503"))
            .at(&["f1"])
            .answer_raw(b"")
            .at(&["f1"])
            .expect([Status(503), Reached(1)]),
        story(
            "3.8.6c",
            "HTTP/2 knows no upgrade: one that is asked for reaches nobody",
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

/// With the headers of HTTP/1.1, and as RFC 8441 has it.
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
            // What begins with a colon comes first.
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
