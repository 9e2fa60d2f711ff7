//! Connections to backends: pooling, retirement, and retries only where they are safe.

use crate::backend::{Document, Event, Fault, Framing, Part, Script, Turn};
use crate::client::Upload;
use crate::row::Expect::{Body, BodyBegins, Reached, ReachedAtMost, Status, StatusIn, Whole};
use crate::row::{Row, Told, row, story};
use crate::world::Scene;
use std::collections::BTreeSet;
use std::time::Duration;

pub(super) fn rows() -> Vec<Row> {
    vec![
        story(
            "3.6.2",
            "connections are reused: ten sequential requests need no new one",
            kept,
        ),
        story(
            "3.5.5",
            "APIServices on one Service share connections with each other and with their probes",
            shared,
        )
        .at(&["h2"])
        .front1(),
        row("3.6.1c", "an idle watch continues while the backend is alive")
            .ask("GET", "{base}/things?watch=1")
            .answer_parts([
                Part::Data(b"one\n".to_vec()),
                Part::Wait(Duration::from_secs(8)),
                Part::Data(b"two\n".to_vec()),
            ])
            .framed(Framing::Chunked)
            .at(&["quiet"])
            .front1()
            .expect([Status(200), Body("one\ntwo\n"), Whole(true)]),
        story(
            "3.6.1d",
            "an HTTP/2 connection with unanswered pings is closed within a minute, and its watches with it",
            given_up,
        )
        .at(&["quiet"])
        .front1(),
        story(
            "3.6.3a",
            "requests use the egress proxy of the gateway's environment",
            tunnelled,
        )
        .at(&["tunnelled"]),
        row(
            "3.6.3b",
            "upgrades bypass the egress proxy, and fail if the backend is reachable only through it",
        )
        .with("Connection", "Upgrade")
        .with("Upgrade", "websocket")
        .at(&["tunnelled"])
        .front1()
        .expect([Status(503), BodyBegins("error dialing backend: "), Reached(0)]),
        row("3.6.5a", "a refused stream is retried")
            .turns(Turn::Refuse)
            .at(&["f2"])
            .then()
            .expect([Status(200), Reached(2)]),
        row("3.6.5b", "a stream that was reset is not retried")
            .turns(Turn::Break)
            .at(&["f2"])
            .then()
            .expect([Status(503), Reached(1)]),
        row(
            "3.6.5c",
            "a refused upload is retried completely or fails, but is never sent in part",
        )
        .ask("POST", "{base}/things")
        .upload(Upload::Whole(b"hello".to_vec()))
        .turns(Turn::Refuse)
        .at(&["f2"])
        .then()
        .expect([StatusIn(&[200, 503]), ReachedAtMost(2)]),
        row(
            "3.6.5d",
            "an upload whose connection dies without a response is never retried",
        )
        .ask("POST", "{base}/things")
        .upload(Upload::Whole(b"hello".to_vec()))
        .fails(0, Fault::Cut)
        .at(&["f1", "f2"])
        .then()
        .expect([Status(503), Reached(1)]),
        story(
            "3.6.5e",
            "a connection that the backend retires fails no request",
            retired,
        )
        .at(&["f2"]),
        story(
            "3.6.5f",
            "a GET on a pooled connection that has died is answered",
            died_idle,
        )
        .beyond()
        .at(&["f1", "f2"]),
        story(
            "3.4.8a",
            "a client that disconnects cancels its request at the backend",
            client_leaves,
        ),
        story(
            "3.4.8b",
            "a client that disconnects cancels its watch at the backend",
            watcher_leaves,
        ),
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
        // One of the gateway's own probes may have used a connection in between.
        if more <= 1 {
            Ok(())
        } else {
            Err(format!("{more} new connections"))
        }
    })
}

/// The numbers of the connections that carried five requests.
async fn connections_of(scene: &Scene<'_>, path: &str) -> Result<BTreeSet<u64>, String> {
    let mut stage = scene.stage(Script::default());
    for _ in 0..5 {
        let got = scene.exchange(&scene.ask("GET", path)).await?;
        if got.status != 200 {
            return Err(format!("{path} is answered {}: {}", got.status, got.text()));
        }
    }
    let requests = stage.so_far().into_iter().filter_map(|event| match event {
        Event::Request(seen) => Some(seen.connection),
        Event::Left => None,
    });
    Ok(requests.collect())
}

fn shared<'a>(scene: &'a Scene<'a>) -> Told<'a> {
    Box::pin(async move {
        let (world, backend) = (scene.world, scene.backend);
        let resources = scene.fill("/apis/{group}/v2");
        let list =
            scene.fill(r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"{group}/v2","resources":[]}"#);
        backend.publish(
            &resources,
            Document {
                status: 200,
                headers: vec![("Content-Type".into(), "application/json".into())],
                body: list,
            },
        );
        world
            .register_version("h2", &backend.group, "v2", backend.port, true)
            .await?;
        let _stage = scene.backend.arm([]);
        let ask = scene.ask("GET", "/apis/{group}/v2/things");
        let routed = || async { scene.exchange(&ask).await.is_ok_and(|got| got.status == 200) };
        world.until("requests of the second version are routed", routed).await?;
        let mut all = connections_of(scene, "{base}/things").await?;
        let second = connections_of(scene, "/apis/{group}/v2/things").await?;
        let shares = !all.is_disjoint(&second);
        all.extend(second);
        let own = backend.housekeeping();
        let mut probes = own.iter().filter(|seen| seen.target == resources);
        let probed = probes.any(|seen| all.contains(&seen.connection));
        let gone = format!("/apis/apiregistration.k8s.io/v1/apiservices/v2.{}", backend.group);
        world.target.api("DELETE", &gone, None).await.map_err(|(_, e)| e)?;
        match (shares, probed) {
            (true, true) => Ok(()),
            (false, _) => Err("the two versions use different connections".into()),
            (_, false) => Err("probes use other connections".into()),
        }
    })
}

fn given_up<'a>(scene: &'a Scene<'a>) -> Told<'a> {
    Box::pin(async move {
        let _stage = scene.stage(Script {
            // The head and the first event arrive; the second event stops in its middle.
            body: vec![
                Part::Data(b"one\n".to_vec()),
                Part::Wait(Duration::from_millis(200)),
                Part::Data(vec![b'x'; 1 << 10]),
                Part::Gate,
            ],
            framing: Framing::Chunked,
            fault: Some((400, Fault::Stall)),
            ..Script::default()
        });
        // This takes longer than the usual deadline of an exchange.
        let (got, _) = scene
            .world
            .target
            .over_http1(&scene.ask("GET", "{base}/things?watch=1"))
            .await?;
        if got.status == 200 && !got.body.whole && got.text().starts_with("one\n") {
            Ok(())
        } else {
            Err(format!("{} {:?}, whole: {}", got.status, got.text(), got.body.whole))
        }
    })
}

fn tunnelled<'a>(scene: &'a Scene<'a>) -> Told<'a> {
    Box::pin(async move {
        let _stage = scene.stage(Script::default());
        let got = scene.exchange(&scene.ask("GET", "{base}/things")).await?;
        let asked = scene
            .world
            .egress
            .as_ref()
            .map(crate::world::Egress::asked)
            .unwrap_or_default();
        let wanted = scene.fill("CONNECT {host} HTTP/1.1");
        if got.status == 200 && asked.contains(&wanted) {
            Ok(())
        } else {
            Err(format!(
                "{} {}; the proxy was asked for {asked:?}",
                got.status,
                got.text()
            ))
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
        // The first response is complete; the next byte on that connection, part of another response, never arrives.
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
            Event::Left => Err("the client left before the request arrived".to_owned()),
        }
    };
    // The exchange cannot finish by itself; dropping it closes the client's connection.
    tokio::select! {
        came = at_backend => came?,
        got = scene.exchange(&ask) => return Err(format!("answered meanwhile: {got:?}")),
    }
    match stage.next().await? {
        Event::Left => Ok(()),
        Event::Request(_) => Err("it is retried".to_owned()),
    }
}

fn client_leaves<'a>(scene: &'a Scene<'a>) -> Told<'a> {
    Box::pin(leaves(scene, "{base}/things"))
}

fn watcher_leaves<'a>(scene: &'a Scene<'a>) -> Told<'a> {
    Box::pin(leaves(scene, "{base}/things?watch=1"))
}
