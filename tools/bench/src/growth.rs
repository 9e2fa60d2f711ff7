//! Growth of costs with the number of objects and of watchers, drawn to `docs/benchmarks/*.svg`.

use crate::client::load;
use crate::gateway::{config_map, start};
use crate::report::Report;
use crate::report::per;
use crate::svg::{Line, chart};
use bytes::Bytes;
use hyper::Method;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const OBJECTS: [u64; 3] = [1_000, 10_000, 100_000];
const WATCHERS: [u64; 3] = [1, 100, 10_000];
/// Watches per connection; the gateway is configured to allow somewhat more streams.
const PER_CONNECTION: u64 = 200;
/// The number of creates delivered to every watcher, chosen so that the CPU time exceeds the clock's
/// resolution.
fn events_for(watchers: u64) -> u64 {
    (100_000 / watchers).clamp(20, 4_000)
}

/// Named lines of one chart.
#[derive(Default)]
pub struct Curves(Vec<(&'static str, Vec<(f64, f64)>)>);

impl Curves {
    pub fn add(&mut self, name: &'static str, x: u64, y: f64) {
        match self.0.iter_mut().find(|(n, _)| *n == name) {
            Some((_, points)) => points.push((x as f64, y)),
            None => self.0.push((name, vec![(x as f64, y)])),
        }
    }

    pub fn draw(self, file: &str, title: &str, x_axis: &str, y_axis: &str) -> Result<(), String> {
        let lines: Vec<Line> = (self.0.into_iter())
            .map(|(name, points)| Line {
                name: name.to_owned(),
                points,
            })
            .collect();
        let dir = Path::new("docs/benchmarks");
        std::fs::create_dir_all(dir).map_err(|e| e.to_string())?;
        let path = dir.join(file);
        std::fs::write(&path, chart(title, x_axis, y_axis, &lines)).map_err(|e| e.to_string())?;
        println!("drawn to {}", path.display());
        Ok(())
    }
}

/// Costs of reads, writes and starts, and memory, by number of objects.
pub async fn objects(torana: &Path, dir: &Path, r: &mut Report) -> Result<(), String> {
    let (mut cpu, mut size, mut starts) = (Curves::default(), Curves::default(), Curves::default());
    for n in OBJECTS {
        let own = dir.join(format!("objects-{n}"));
        std::fs::create_dir_all(&own).map_err(|e| e.to_string())?;
        let port = crate::process::free_port()?;
        let g = start(torana, &own, port).await?;
        let idle = g.server.rss_mb();
        let ns = json!({"apiVersion":"v1","kind":"Namespace","metadata":{"name":"bench"}}).to_string();
        g.target.once(Method::POST, "/api/v1/namespaces", &ns).await?;
        const MAPS: &str = "/api/v1/namespaces/bench/configmaps";
        let before = g.server.cpu();
        let l = load(&g.target, 8, 16, Duration::ZERO, n, |i| {
            (Method::POST, MAPS.into(), config_map(i))
        })
        .await?;
        cpu.add("create", n, per(g.server.cpu() - before, l.requests));
        size.add("resident memory beyond idle", n, (g.server.rss_mb() - idle).max(0.1));
        let reads = [
            ("GET", format!("{MAPS}/c-000042"), 20_000),
            ("LIST of 500, paged", format!("{MAPS}?limit=500"), 2_000),
            (
                "LIST, selector matching none",
                format!("{MAPS}?labelSelector=app%3Dnone"),
                (20_000_000 / n).min(2_000),
            ),
            ("LIST of all", MAPS.to_owned(), (3_000_000 / n).clamp(30, 500)),
        ];
        for (name, path, times) in reads {
            let before = g.server.cpu();
            let l = load(&g.target, 2, 4, Duration::ZERO, times, move |_| {
                (Method::GET, path.clone(), Bytes::new())
            })
            .await?;
            cpu.add(name, n, per(g.server.cpu() - before, l.requests));
        }
        let disk = std::fs::metadata(own.join("data").join("store.db")).map_or(0, |m| m.len());
        size.add("store on disk", n, (disk as f64 / 1e6).max(0.1));
        g.server.stop();
        let g = start(torana, &own, port).await?;
        let took = g.started.as_secs_f64() * 1e3;
        starts.add("start to /readyz", n, took);
        r.row(
            &format!("start with {n} objects"),
            took,
            "ms",
            if n == 100_000 { 1000.0 } else { 0.0 },
            "growth",
        );
        g.server.stop();
        std::fs::remove_dir_all(&own).map_err(|e| e.to_string())?;
    }
    cpu.draw(
        "objects-cpu.svg",
        "CPU per request by stored ConfigMaps",
        "objects",
        "µs CPU per request",
    )?;
    size.draw(
        "objects-size.svg",
        "Memory and disk by stored ConfigMaps",
        "objects",
        "MB",
    )?;
    starts.draw("objects-start.svg", "Start by stored ConfigMaps", "objects", "ms")
}

/// CPU time per event and memory per idle watch, by number of watchers of one collection.
pub async fn watchers(torana: &Path, dir: &Path, r: &mut Report) -> Result<(), String> {
    let (mut cpu, mut memory) = (Curves::default(), Curves::default());
    for n in WATCHERS {
        let own = dir.join(format!("watchers-{n}"));
        std::fs::create_dir_all(&own).map_err(|e| e.to_string())?;
        let g = start(torana, &own, crate::process::free_port()?).await?;
        let ns = json!({"apiVersion":"v1","kind":"Namespace","metadata":{"name":"fan"}}).to_string();
        g.target.once(Method::POST, "/api/v1/namespaces", &ns).await?;
        let idle = g.server.rss_mb();
        let seen = Arc::new(AtomicU64::new(0));
        let mut tasks = Vec::new();
        let mut sender = g.target.connect().await?;
        for i in 0..n {
            if i % PER_CONNECTION == 0 {
                sender = g.target.connect().await?;
            }
            let path = "/api/v1/namespaces/fan/configmaps?watch=1&resourceVersion=0";
            sender.ready().await.map_err(|e| e.to_string())?;
            let sent = sender.send_request(g.target.request(Method::GET, path, Bytes::new()));
            let response = sent.await.map_err(|e| e.to_string())?;
            if !response.status().is_success() {
                return Err(format!("watch {i} of {n}: {}", response.status()));
            }
            let (seen, mut body) = (seen.clone(), response.into_body());
            tasks.push(tokio::spawn(async move {
                use http_body_util::BodyExt;
                while let Some(Ok(frame)) = body.frame().await {
                    if let Some(data) = frame.data_ref() {
                        let lines = data.iter().filter(|b| **b == b'\n').count();
                        seen.fetch_add(lines as u64, Ordering::Relaxed);
                    }
                }
            }));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        let each = (g.server.rss_mb() - idle).max(0.01) * 1024.0 / n as f64;
        memory.add("an idle watch", n, each);
        let events = events_for(n);
        let (before, already) = (g.server.cpu(), seen.load(Ordering::Relaxed));
        load(&g.target, 1, 1, Duration::ZERO, events, |i| {
            (Method::POST, "/api/v1/namespaces/fan/configmaps".into(), config_map(i))
        })
        .await?;
        let (goal, until) = (events * n, Instant::now() + Duration::from_secs(60));
        while seen.load(Ordering::Relaxed) - already < goal && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let delivered = seen.load(Ordering::Relaxed) - already;
        let event = per(g.server.cpu() - before, delivered);
        cpu.add("event, share of its create", n, event.max(0.01));
        let note = format!("growth; {delivered} of {goal} events delivered");
        r.row(
            &format!("event to each of {n} watchers"),
            event,
            "µs CPU/event",
            0.0,
            &note,
        );
        let at_most = if n == 10_000 { 30.0 } else { 0.0 };
        r.row(
            &format!("idle watch, of {n}"),
            each,
            "KB",
            at_most,
            "growth; connections included",
        );
        for t in tasks {
            t.abort();
        }
        g.server.stop();
        std::fs::remove_dir_all(&own).map_err(|e| e.to_string())?;
    }
    cpu.draw(
        "watchers-cpu.svg",
        "CPU per delivered event by watchers",
        "watchers",
        "µs CPU per event",
    )?;
    memory.draw(
        "watchers-memory.svg",
        "Memory of an idle watch by watchers",
        "watchers",
        "KB per watch",
    )
}
