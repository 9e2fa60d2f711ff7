//! Connections to backends: pooling, retirement, and retries only where they are safe.

use crate::backend::{Document, Event, Fault, Framing, Part, Script, StreamAction};
use crate::case::Expect::{Body, BodyBegins, Reached, ReachedAtMost, Status, StatusIn, Whole};
use crate::case::{Case, ScenarioFuture, case, scenario};
use crate::client::RequestBody;
use crate::environment::Scene;
use std::collections::BTreeSet;
use std::time::Duration;

pub(super) fn cases() -> Vec<Case> {
    vec![
        scenario(
            "3.6.2",
            "connections are reused: ten sequential requests need no new one",
            reuses_connections,
        ),
        scenario(
            "3.5.5",
            "APIServices on one Service share connections with each other and with their probes",
            shared,
        )
        .on(&["h2"])
        .http1_only(),
        case("3.6.1c", "an idle watch continues while the backend is alive")
            .request("GET", "{base}/things?watch=1")
            .answer_parts([
                Part::Data(b"one\n".to_vec()),
                Part::Wait(Duration::from_secs(8)),
                Part::Data(b"two\n".to_vec()),
            ])
            .framed(Framing::Chunked)
            .on(&["quiet"])
            .http1_only()
            .expect([Status(200), Body("one\ntwo\n"), Whole(true)]),
        scenario(
            "3.6.1d",
            "an HTTP/2 connection with unanswered pings is closed within a minute, and its watches with it",
            given_up,
        )
        .on(&["quiet"])
        .http1_only(),
        scenario(
            "3.6.3a",
            "requests use the egress proxy of the gateway's environment",
            tunnelled,
        )
        .on(&["tunnelled"]),
        case(
            "3.6.3b",
            "upgrades bypass the egress proxy, and fail if the backend is reachable only through it",
        )
        .with("Connection", "Upgrade")
        .with("Upgrade", "websocket")
        .on(&["tunnelled"])
        .http1_only()
        .expect([Status(503), BodyBegins("error dialing backend: "), Reached(0)]),
        case("3.6.5a", "a refused stream is retried")
            .stream_action(StreamAction::Refuse)
            .on(&["f2"])
            .then()
            .expect([Status(200), Reached(2)]),
        case("3.6.5b", "a stream that was reset is not retried")
            .stream_action(StreamAction::Break)
            .on(&["f2"])
            .then()
            .expect([Status(503), Reached(1)]),
        case(
            "3.6.5c",
            "a refused upload is retried completely or fails, but is never sent in part",
        )
        .request("POST", "{base}/things")
        .upload(RequestBody::Sized(b"hello".to_vec()))
        .stream_action(StreamAction::Refuse)
        .on(&["f2"])
        .then()
        .expect([StatusIn(&[200, 503]), ReachedAtMost(2)]),
        case(
            "3.6.5d",
            "an upload whose connection dies without a response is never retried",
        )
        .request("POST", "{base}/things")
        .upload(RequestBody::Sized(b"hello".to_vec()))
        .fault_after(0, Fault::Cut)
        .on(&["f1", "f2"])
        .then()
        .expect([Status(503), Reached(1)]),
        scenario(
            "3.6.5e",
            "a connection that the backend retires fails no request",
            retired,
        )
        .on(&["f2"]),
        scenario(
            "3.6.5f",
            "a GET on a pooled connection that has died is answered",
            died_idle,
        )
        .beyond()
        .on(&["f1", "f2"]),
        scenario(
            "3.4.8a",
            "a client that disconnects cancels its request at the backend",
            client_leaves,
        ),
        scenario(
            "3.4.8b",
            "a client that disconnects cancels its watch at the backend",
            watcher_leaves,
        ),
    ]
}

fn reuses_connections<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let _handle = scene.script_backend(Script::default());
        let request = scene.request("GET", "{base}/things");
        scene.exchange(&request).await?;
        let before = scene.backend.connections();
        for _ in 0..10 {
            scene.exchange(&request).await?;
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
    let mut handle = scene.script_backend(Script::default());
    for _ in 0..5 {
        let response = scene.exchange(&scene.request("GET", path)).await?;
        if response.status != 200 {
            return Err(format!("{path} is answered {}: {}", response.status, response.text()));
        }
    }
    let requests = handle.so_far().into_iter().filter_map(|event| match event {
        Event::Request(seen) => Some(seen.connection),
        Event::ClientDisconnected => None,
    });
    Ok(requests.collect())
}

fn shared<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let (environment, backend) = (scene.environment, scene.backend);
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
        environment
            .register_version("h2", &backend.group, "v2", backend.port, true)
            .await?;
        let _handle = scene.backend.arm([]);
        let request = scene.request("GET", "/apis/{group}/v2/things");
        let routed = || async {
            scene
                .exchange(&request)
                .await
                .is_ok_and(|response| response.status == 200)
        };
        environment
            .until("requests of the second version are routed", routed)
            .await?;
        let mut all = connections_of(scene, "{base}/things").await?;
        let second = connections_of(scene, "/apis/{group}/v2/things").await?;
        let shares = !all.is_disjoint(&second);
        all.extend(second);
        let own = backend.own_requests();
        let mut probes = own.iter().filter(|seen| seen.target == resources);
        let probed = probes.any(|seen| all.contains(&seen.connection));
        let gone = format!("/apis/apiregistration.k8s.io/v1/apiservices/v2.{}", backend.group);
        environment
            .target
            .api("DELETE", &gone, None)
            .await
            .map_err(|(_, e)| e)?;
        match (shares, probed) {
            (true, true) => Ok(()),
            (false, _) => Err("the two versions use different connections".into()),
            (_, false) => Err("probes use other connections".into()),
        }
    })
}

fn given_up<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let _handle = scene.script_backend(Script {
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
        let (response, _) = scene
            .environment
            .target
            .over_http1(&scene.request("GET", "{base}/things?watch=1"))
            .await?;
        if response.status == 200 && !response.body.whole && response.text().starts_with("one\n") {
            Ok(())
        } else {
            Err(format!(
                "{} {:?}, whole: {}",
                response.status,
                response.text(),
                response.body.whole
            ))
        }
    })
}

fn tunnelled<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let _handle = scene.script_backend(Script::default());
        let response = scene.exchange(&scene.request("GET", "{base}/things")).await?;
        let asked = scene
            .environment
            .egress
            .as_ref()
            .map(crate::environment::Egress::asked)
            .unwrap_or_default();
        let wanted = scene.fill("CONNECT {host} HTTP/1.1");
        if response.status == 200 && asked.contains(&wanted) {
            Ok(())
        } else {
            Err(format!(
                "{} {}; the proxy was asked for {asked:?}",
                response.status,
                response.text()
            ))
        }
    })
}

fn retired<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        let away = Script {
            stream_action: Some(StreamAction::GoAway),
            ..Script::default()
        };
        let _handle = scene.backend.arm([away.clone(), away, Script::default()]);
        for n in 0..5 {
            let response = scene.exchange(&scene.request("GET", "{base}/things")).await?;
            if response.status != 200 {
                return Err(format!("request {n} gets {}: {}", response.status, response.text()));
            }
        }
        Ok(())
    })
}

/// How often a request is sent until it goes over a pooled connection.
const ATTEMPTS: usize = 5;

fn died_idle<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(async move {
        // The first response is complete; the next byte on that connection, part of another response, never
        // arrives.
        let answer = Script::default();
        let dies = Script {
            fault: Some((0, Fault::Cut)),
            ..Script::default()
        };
        let request = scene.request("GET", "{base}/things");
        for _ in 0..ATTEMPTS {
            let _handle = scene.backend.arm([answer.clone(), dies.clone(), answer.clone()]);
            let mut opened = scene.backend.connections();
            let mut failed = None;
            for n in 0..3 {
                let response = scene.exchange(&request).await?;
                if response.status != 200 {
                    failed = Some(format!("request {n} gets {}: {}", response.status, response.text()));
                    break;
                }
                if n == 0 {
                    opened = scene.backend.connections();
                }
            }
            // A request that came before the connection was back in the pool, or while a probe of the gateway used it, had
            // a new one, which the gateway need not replace.
            match failed {
                None => return Ok(()),
                Some(failed) if scene.backend.connections() == opened => return Err(failed),
                Some(_) => {}
            }
        }
        Err(format!("none of {ATTEMPTS} requests went over a pooled connection"))
    })
}

async fn leaves(scene: &Scene<'_>, path: &str) -> Result<(), String> {
    let mut handle = scene.script_backend(Script {
        body: vec![Part::Data(b"first".to_vec()), Part::Gate],
        framing: crate::backend::Framing::Chunked,
        ..Script::default()
    });
    let request = scene.request("GET", path);
    let at_backend = async {
        match handle.next().await? {
            Event::Request(_) => Ok(()),
            Event::ClientDisconnected => Err("the client left before the request arrived".to_owned()),
        }
    };
    // The exchange never completes; dropping it closes the client's connection.
    tokio::select! {
        came = at_backend => came?,
        response = scene.exchange(&request) => return Err(format!("answered meanwhile: {response:?}")),
    }
    match handle.next().await? {
        Event::ClientDisconnected => Ok(()),
        Event::Request(_) => Err("it is retried".to_owned()),
    }
}

fn client_leaves<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(leaves(scene, "{base}/things"))
}

fn watcher_leaves<'a>(scene: &'a Scene<'a>) -> ScenarioFuture<'a> {
    Box::pin(leaves(scene, "{base}/things?watch=1"))
}
