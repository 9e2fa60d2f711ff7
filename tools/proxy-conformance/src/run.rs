//! Runs the cases.

use crate::backend::{Backend, Event, ROW, Script, Seen};
use crate::client::{self, Ask, Got, Http, PATIENCE};
use crate::row::{Exchange, Expect, Level, Outcome, Row, Shows};
use crate::wire::Headers;
use crate::world::{Scene, World};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;

/// The result of one case in one combination.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The case's id.
    pub id: &'static str,
    /// The case's fact.
    pub fact: &'static str,
    /// The case's level.
    pub level: Level,
    /// The HTTP version towards the gateway.
    pub front: Http,
    /// The backend.
    pub place: &'static str,
    /// What is wrong, if anything.
    pub outcome: Result<(), String>,
    /// How long it took.
    pub took: Duration,
}

/// Runs all cases. Cases that use the same backend run one after the other.
pub async fn run(world: Arc<World>, rows: Vec<Row>) -> Vec<Verdict> {
    let mut queues: BTreeMap<&'static str, Vec<Row>> = BTreeMap::new();
    for row in rows
        .into_iter()
        .filter(|row| row.needs.is_none_or(|need| world.meets(need)))
    {
        for place in row.places {
            queues.entry(place).or_default().push(row.clone());
        }
    }
    let mut running = JoinSet::new();
    for (place, rows) in queues {
        running.spawn(queue(world.clone(), place, rows));
    }
    let mut all: Vec<Verdict> = running.join_all().await.into_iter().flatten().collect();
    all.sort_by_key(|v| order(v.id));
    all
}

/// A sort key that orders `3.10.2b` after `3.9.1`.
fn order(id: &str) -> Vec<(u32, String)> {
    let parts = id.split('.').map(|part| {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        (part[..digits].parse().unwrap_or(u32::MAX), part[digits..].to_owned())
    });
    parts.collect()
}

async fn queue(world: Arc<World>, place: &'static str, rows: Vec<Row>) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let Some(backend) = world.place(place) else {
        return verdicts;
    };
    for row in rows {
        for front in row.front {
            let began = Instant::now();
            let scene = Scene {
                world: &world,
                front: *front,
                backend,
            };
            let outcome = match &row.shows {
                Shows::Exchange(exchange) => one(&scene, exchange).await,
                Shows::Story(story) => {
                    let told = tokio::time::timeout(3 * PATIENCE, story(&scene)).await;
                    told.unwrap_or_else(|_| Err("it does not finish in time".into()))
                }
            };
            backend.release();
            verdicts.push(Verdict {
                id: row.id,
                fact: row.fact,
                level: row.level,
                front: *front,
                place,
                outcome,
                took: began.elapsed(),
            });
        }
    }
    verdicts
}

fn filled(scene: &Scene<'_>, headers: &Headers) -> Headers {
    headers.iter().map(|(n, v)| (n.clone(), scene.fill(v))).collect()
}

async fn one(scene: &Scene<'_>, exchange: &Exchange) -> Result<(), String> {
    let number = scene.world.next_row();
    let mut ask = exchange.ask.clone();
    ask.target = scene.fill(&ask.target);
    ask.headers = filled(scene, &ask.headers);
    ask.headers.push((ROW.into(), number.clone()));
    if let Some(raw) = &ask.raw {
        let auth: String = scene
            .world
            .target
            .credentials()
            .iter()
            .map(|(n, v)| format!("{n}: {v}\r\n"))
            .collect();
        let text = String::from_utf8_lossy(raw).replace("{auth}", &auth);
        let text = scene.fill(&text.replace("{row}", &format!("{ROW}: {number}\r\n")));
        ask.raw = Some(text.into_bytes());
    }
    let scripts = exchange.scripts.iter().map(|script| Script {
        headers: filled(scene, &script.headers),
        ..script.clone()
    });
    let mut stage = scene.backend.arm(scripts);
    let got = if ask.raw.is_some() {
        fenced(scene, &ask).await
    } else {
        scene.exchange(&ask).await
    };
    let seen: Vec<Seen> = stage
        .so_far()
        .into_iter()
        .filter_map(|event| match event {
            Event::Request(seen) => Some(*seen),
            Event::Left => None,
        })
        // Leave out the fence, and delayed requests of earlier cases. Keep requests without a case number, which may
        // be smuggled.
        .filter(|seen| matches!(*seen.values(ROW), [] | [_, _, ..]) || seen.values(ROW) == [number.as_str()])
        .collect();
    let outcome = Outcome { got, seen };
    let fill = |text: &str| scene.fill(text);
    let says_how_many = |e: &Expect| matches!(e, Expect::Reached(_) | Expect::ReachedAtMost(_));
    if !exchange.expects.iter().any(says_how_many) {
        Expect::Reached(1)
            .check(&outcome, &fill)
            .map_err(|e| context(e, &outcome, scene.backend))?;
    }
    for expect in &exchange.expects {
        expect
            .check(&outcome, &fill)
            .map_err(|e| context(e, &outcome, scene.backend))?;
    }
    Ok(())
}

/// The error, with the response if that explains it.
fn context(why: String, outcome: &Outcome, backend: &Backend) -> String {
    match &outcome.got {
        Ok(got) if got.status >= 400 && !why.starts_with("the body") => {
            format!("{why} ({} {:?} at {})", got.status, got.text(), backend.group)
        }
        Err(e) if !why.contains(e.as_str()) => format!("{why} ({e})"),
        _ => why,
    }
}

const FENCE: &str = "fence";

/// Sends raw bytes followed by one valid request (the fence). If the gateway reads the bytes as a further request,
/// that request has reached the backend by the time the fence is answered.
async fn fenced(scene: &Scene<'_>, ask: &Ask) -> Result<Got, String> {
    let exchange = async {
        let (got, mut io) = scene.world.target.over_http1(ask).await?;
        let mut headers = vec![("Host".to_owned(), scene.world.target.authority.clone())];
        headers.extend(scene.world.target.credentials());
        headers.push((ROW.to_owned(), FENCE.to_owned()));
        headers.push(("Connection".to_owned(), "close".to_owned()));
        let line = format!("GET {} HTTP/1.1", scene.fill("{base}/fence"));
        let fence = crate::wire::written(&line, &headers);
        // If the gateway has closed the connection, there is nothing to wait for.
        if io.write_all(&fence).await.is_ok() && io.flush().await.is_ok() {
            while client::answer(&mut io, "GET").await.is_ok() {}
        }
        Ok(got)
    };
    let done = tokio::time::timeout(PATIENCE, exchange).await;
    done.unwrap_or_else(|_| Err("the connection stays open without a response".into()))
}
