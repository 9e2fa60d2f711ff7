//! Memory after a burst, drawn over time to `docs/benchmarks/rest-memory.svg`: six rounds of 20,000 creates
//! and a deletecollection, with lists and watches.

use crate::client::load;
use crate::gateway::{config_map, start};
use crate::growth::Curves;
use crate::process::free_port;
use crate::report::Report;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::Method;
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};

const ROUNDS: usize = 6;
const OBJECTS: u64 = 20_000;
const WATCHES: usize = 4;
/// When memory is read, in seconds after the last deletion.
const READINGS: [u64; 8] = [1, 2, 5, 10, 20, 30, 60, 90];
/// When and to how many MB it must have come back.
const BACK: (u64, f64) = (30, 45.0);
const MAPS: &str = "/api/v1/namespaces/bench/configmaps";

pub async fn run(torana: &Path, dir: &Path, r: &mut Report) -> Result<(), String> {
    let own = dir.join("rest");
    std::fs::create_dir_all(&own).map_err(|e| e.to_string())?;
    let g = start(torana, &own, free_port()?).await?;
    let ns = json!({"apiVersion":"v1","kind":"Namespace","metadata":{"name":"bench"}}).to_string();
    g.target.once(Method::POST, "/api/v1/namespaces", &ns).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    r.row("memory before the burst", g.server.rss_mb(), "MB", 0.0, "rest");
    let mut watches = Vec::new();
    for _ in 0..WATCHES {
        let mut sender = g.target.connect().await?;
        let request = g.target.request(Method::GET, &format!("{MAPS}?watch=1"), Bytes::new());
        let sent = sender.send_request(request).await.map_err(|e| e.to_string())?;
        watches.push(tokio::spawn(async move {
            // The connection lives as long as its sender.
            let (_sender, mut body) = (sender, sent.into_body());
            while let Some(Ok(_)) = body.frame().await {}
        }));
    }
    let mut highest = 0.0_f64;
    for _ in 0..ROUNDS {
        load(&g.target, 4, 8, Duration::ZERO, OBJECTS, |i| {
            (Method::POST, MAPS.into(), config_map(i))
        })
        .await?;
        load(&g.target, 1, 1, Duration::ZERO, 3, |_| {
            (Method::GET, MAPS.into(), Bytes::new())
        })
        .await?;
        highest = highest.max(g.server.rss_mb());
        g.target.once(Method::DELETE, MAPS, "").await?;
    }
    r.row(
        "memory with 20,000 ConfigMaps, highest of six rounds",
        highest,
        "MB",
        0.0,
        "rest",
    );
    let (ended, mut memory) = (Instant::now(), Curves::default());
    for at in READINGS {
        tokio::time::sleep_until((ended + Duration::from_secs(at)).into()).await;
        let (resident, private) = (g.server.rss_mb(), g.server.private_mb());
        memory.add("resident memory", at, resident);
        memory.add("of it private, without the binary's pages", at, private);
        let goal = if at == BACK.0 { BACK.1 } else { 0.0 };
        let note = format!("rest; watches stay open; {private:.1} MB without the binary's pages");
        r.row(
            &format!("memory {at} s after everything was deleted"),
            resident,
            "MB",
            goal,
            &note,
        );
    }
    for watch in watches {
        watch.abort();
    }
    g.server.stop();
    memory.draw(
        "rest-memory.svg",
        "Memory after six rounds of 20,000 ConfigMaps created, listed, watched and deleted",
        "seconds since the last deletion",
        "MB",
    )?;
    std::fs::remove_dir_all(&own).map_err(|e| e.to_string())
}
