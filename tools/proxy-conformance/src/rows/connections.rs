//! Connections to backends: kept, retired, and requests sent again only where that is safe.

use crate::backend::{Event, Fault, Part, Script, Turn};
use crate::client::Upload;
use crate::row::Expect::{Reached, ReachedAtMost, Status, StatusIn};
use crate::row::{Row, Told, row, story};
use crate::world::Scene;

pub(super) fn rows() -> Vec<Row> {
    vec![
        story(
            "3.6.2",
            "connections are kept: ten requests one after the other need no new one",
            kept,
        ),
        row("3.6.5a", "a stream that was refused is sent again")
            .turns(Turn::Refuse)
            .at(&["f2"])
            .then()
            .expect([Status(200), Reached(2)]),
        row("3.6.5b", "a stream that broke is not")
            .turns(Turn::Break)
            .at(&["f2"])
            .then()
            .expect([Status(503), Reached(1)]),
        row(
            "3.6.5c",
            "a refused upload is sent again whole, or given up; never in part",
        )
        .ask("POST", "{base}/things")
        .upload(Upload::Whole(b"hello".to_vec()))
        .turns(Turn::Refuse)
        .at(&["f2"])
        .then()
        .expect([StatusIn(&[200, 503]), ReachedAtMost(2)]),
        row(
            "3.6.5d",
            "an upload whose connection dies unanswered is never sent twice",
        )
        .ask("POST", "{base}/things")
        .upload(Upload::Whole(b"hello".to_vec()))
        .fails(0, Fault::Cut)
        .at(&["f1", "f2"])
        .then()
        .expect([Status(503), Reached(1)]),
        story(
            "3.6.5e",
            "a connection that the backend retires costs no request",
            retired,
        )
        .at(&["f2"]),
        story(
            "3.6.5f",
            "a GET on a kept connection that died meanwhile is answered",
            died_idle,
        )
        .at(&["f1", "f2"]),
        story(
            "3.4.8a",
            "a client that leaves cancels its request at the backend",
            client_leaves,
        ),
        story("3.4.8b", "and a watch", watcher_leaves),
    ]
}

fn kept<'a>(scene: &'a Scene<'a>) -> Told<'a> {
    Box::pin(async move {
        let _stage = scene.stage(Script::default());
        let ask = scene.ask("GET", "{base}/things");
        scene.exchange(&ask).await?;
        let before = scene.backend.connections();
        for _ in 0..10 {
            scene.exchange(&ask).await?;
        }
        let more = scene.backend.connections() - before;
        // One of the gateway's own probes may have come between.
        if more <= 1 {
            Ok(())
        } else {
            Err(format!("{more} new connections"))
        }
    })
}

fn retired<'a>(scene: &'a Scene<'a>) -> Told<'a> {
    Box::pin(async move {
        let away = Script {
            turn: Some(Turn::GoAway),
            ..Script::default()
        };
        let _stage = scene.backend.arm([away.clone(), away, Script::default()]);
        for n in 0..5 {
            let got = scene.exchange(&scene.ask("GET", "{base}/things")).await?;
            if got.status != 200 {
                return Err(format!("request {n} gets {}: {}", got.status, got.text()));
            }
        }
        Ok(())
    })
}

fn died_idle<'a>(scene: &'a Scene<'a>) -> Told<'a> {
    Box::pin(async move {
        // The answer is whole; the next byte on that connection, which is another answer's, never comes.
        let answer = Script::default();
        let dies = Script {
            fault: Some((0, Fault::Cut)),
            ..Script::default()
        };
        let _stage = scene.backend.arm([answer.clone(), dies, answer]);
        for n in 0..3 {
            let got = scene.exchange(&scene.ask("GET", "{base}/things")).await?;
            if got.status != 200 {
                return Err(format!("request {n} gets {}: {}", got.status, got.text()));
            }
        }
        Ok(())
    })
}

async fn leaves(scene: &Scene<'_>, path: &str) -> Result<(), String> {
    let mut stage = scene.stage(Script {
        body: vec![Part::Data(b"first".to_vec()), Part::Gate],
        framing: crate::backend::Framing::Chunked,
        ..Script::default()
    });
    let ask = scene.ask("GET", path);
    let at_backend = async {
        match stage.next().await? {
            Event::Request(_) => Ok(()),
            Event::Left => Err("it left before it came".to_owned()),
        }
    };
    // The exchange cannot end by itself; dropping it closes the client's connection.
    tokio::select! {
        came = at_backend => came?,
        got = scene.exchange(&ask) => return Err(format!("answered meanwhile: {got:?}")),
    }
    match stage.next().await? {
        Event::Left => Ok(()),
        Event::Request(_) => Err("it is sent again".to_owned()),
    }
}

fn client_leaves<'a>(scene: &'a Scene<'a>) -> Told<'a> {
    Box::pin(leaves(scene, "{base}/things"))
}

fn watcher_leaves<'a>(scene: &'a Scene<'a>) -> Told<'a> {
    Box::pin(leaves(scene, "{base}/things?watch=1"))
}
