//! The scenarios and their limits. docs/BENCHMARKS.md explains the method.

use crate::aggregation::{self, PATH, aggregated};
use crate::client::{Target, load};
use crate::definitions;
use crate::etcd;
use crate::gateway::{Gateway, TOKEN, config_map, in_own_dir, start};
use crate::growth;
use crate::kube_apiserver::KubeApiserver;
use crate::loops;
use crate::peers;
use crate::process::{Server, free_port};
use crate::report::{Report, note, per};
use crate::rest;
use crate::webhooks;
use bytes::Bytes;
use hyper::Method;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub async fn run(torana: PathBuf, only: &[String]) -> Result<(), String> {
    in_own_dir(async |dir| all(&torana, dir, only).await).await
}

async fn all(torana: &Path, dir: &Path, only: &[String]) -> Result<(), String> {
    let wanted = |name: &str| only.is_empty() || only.iter().any(|o| o == name);
    let mut r = Report::default();
    println!("| what | figure | goal | |\n|---|---|---|---|");

    // All starts use one port: another port means another published address, which is work only a first start
    // does.
    let port = free_port()?;
    start(torana, dir, port).await?.server.stop();
    if wanted("start") {
        starts(&mut r, async || start(torana, dir, port).await).await?;
    }
    // The growth curves take minutes and need their own stores, so they run only when selected.
    let growth = |name: &str| only.iter().any(|o| o == name || o == "growth");
    if growth("objects") {
        growth::objects(torana, dir, &mut r).await?;
    }
    if growth("watchers") {
        growth::watchers(torana, dir, &mut r).await?;
    }
    if growth("definitions") {
        definitions::run(torana, dir, &mut r).await?;
    }
    if wanted("webhooks") {
        webhooks::run(torana, dir, &mut r).await?;
    }
    if growth("rest") {
        rest::run(torana, dir, &mut r).await?;
    }
    if growth("loops") {
        loops::run(torana, dir, &mut r).await?;
    }
    if only.iter().any(|o| o == "etcd") {
        etcd::run(torana, dir, &mut r).await?;
    }
    aggregation::run(torana, dir, only, &mut r).await?;
    let apart = |o: &String| {
        [
            "growth",
            "objects",
            "watchers",
            "definitions",
            "webhooks",
            "rest",
            "loops",
            "etcd",
        ]
        .contains(&o.as_str())
            || aggregation::is_row(o)
    };
    if !only.is_empty() && only.iter().all(apart) {
        return r.write(Path::new("target/bench-growth.json"));
    }
    let g = start(torana, dir, port).await?;
    rows(&g, true, dir, wanted, &mut r).await?;
    g.server.stop();
    if wanted("kube-apiserver")
        && let Some(k) = KubeApiserver::find(dir)?
    {
        r.for_peer("kube-apiserver and its etcd");
        k.start().await?.server.stop();
        starts(&mut r, async || k.start().await).await?;
        let g = k.start().await?;
        rows(&g, false, &k.dir, wanted, &mut r).await?;
        g.server.stop();
    }
    r.write(Path::new("target/bench.json"))
}

/// The time to become ready, with an existing store.
async fn starts(r: &mut Report, start: impl AsyncFn() -> Result<Gateway, String>) -> Result<(), String> {
    let mut times = Vec::new();
    for _ in 0..7 {
        let g = start().await?;
        times.push(g.started.as_secs_f64() * 1e3);
        g.server.stop();
    }
    times.sort_by(f64::total_cmp);
    let how = "median of 7, PKI made before";
    r.row("start to /readyz 200", times[3], "ms", 150.0, how);
    Ok(())
}

/// The measurements of a running gateway.
async fn rows(
    g: &Gateway,
    with_peers: bool,
    dir: &Path,
    wanted: impl Fn(&str) -> bool,
    r: &mut Report,
) -> Result<(), String> {
    tokio::time::sleep(Duration::from_secs(2)).await;
    r.row("resident memory, idle", g.server.rss_mb(), "MB", 40.0, "");

    let ns = json!({"apiVersion":"v1","kind":"Namespace","metadata":{"name":"bench"}}).to_string();
    g.target.once(Method::POST, "/api/v1/namespaces", &ns).await?;
    let cpu = g.server.cpu();
    let l = load(&g.target, 8, 16, Duration::ZERO, 10_000, |i| {
        (
            Method::POST,
            "/api/v1/namespaces/bench/configmaps".into(),
            config_map(i),
        )
    })
    .await?;
    let spent = g.server.cpu() - cpu;
    r.row(
        "create, 128 in flight, durable",
        per(spent, l.requests),
        "µs CPU",
        150.0,
        &note(&l),
    );
    r.row("resident memory, 10,000 ConfigMaps", g.server.rss_mb(), "MB", 0.0, "");

    if wanted("get") {
        let cpu = g.server.cpu();
        let l = load(&g.target, 16, 10, Duration::from_secs(5), 0, |_| {
            (
                Method::GET,
                "/api/v1/namespaces/bench/configmaps/c-000042".into(),
                Bytes::new(),
            )
        })
        .await?;
        r.row("GET", per(g.server.cpu() - cpu, l.requests), "µs CPU", 60.0, &note(&l));
    }
    if wanted("list") {
        let cpu = g.server.cpu();
        let l = load(&g.target, 1, 1, Duration::ZERO, 60, |_| {
            (Method::GET, "/api/v1/namespaces/bench/configmaps".into(), Bytes::new())
        })
        .await?;
        r.row(
            "LIST of 10,000",
            per(g.server.cpu() - cpu, l.requests) / 1e3,
            "ms CPU",
            15.0,
            &note(&l),
        );
        let cpu = g.server.cpu();
        let l = load(&g.target, 1, 1, Duration::ZERO, 300, |_| {
            (
                Method::GET,
                "/api/v1/namespaces/bench/configmaps?labelSelector=app%3Dnone".into(),
                Bytes::new(),
            )
        })
        .await?;
        r.row(
            "LIST, selector matching none",
            per(g.server.cpu() - cpu, l.requests) / 1e3,
            "ms CPU",
            3.0,
            &note(&l),
        );
        r.row("resident memory after lists", g.server.rss_mb(), "MB", 0.0, "");
    }
    if wanted("watch") {
        fan_out(g, r).await?;
    }
    if wanted("proxy") {
        proxied(g, with_peers, dir, r).await?;
    }
    Ok(())
}

async fn fan_out(g: &Gateway, r: &mut Report) -> Result<(), String> {
    use http_body_util::BodyExt;
    const WATCHERS: usize = 500;
    const EVENTS: u64 = 500;
    let ns = json!({"apiVersion":"v1","kind":"Namespace","metadata":{"name":"fan"}}).to_string();
    g.target.once(Method::POST, "/api/v1/namespaces", &ns).await?;
    let (_, body) = g
        .target
        .once(Method::GET, "/api/v1/namespaces/fan/configmaps", "")
        .await?;
    let list: serde_json::Value = serde_json::from_slice(&body).map_err(|e| e.to_string())?;
    let rv = list["metadata"]["resourceVersion"].as_str().unwrap_or("0").to_owned();
    let seen = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    let mut sender = g.target.connect().await?;
    for i in 0..WATCHERS {
        if i % 50 == 0 {
            sender = g.target.connect().await?;
        }
        let path = format!("/api/v1/namespaces/fan/configmaps?watch=1&resourceVersion={rv}");
        sender.ready().await.map_err(|e| e.to_string())?;
        let resp = sender
            .send_request(g.target.request(Method::GET, &path, Bytes::new()))
            .await
            .map_err(|e| e.to_string())?;
        let seen = seen.clone();
        let mut body = resp.into_body();
        tasks.push(tokio::spawn(async move {
            while let Some(Ok(frame)) = body.frame().await {
                if let Some(data) = frame.data_ref() {
                    seen.fetch_add(data.iter().filter(|b| **b == b'\n').count() as u64, Ordering::Relaxed);
                }
            }
        }));
    }
    let cpu = g.server.cpu();
    let l = load(&g.target, 1, 4, Duration::ZERO, EVENTS, |i| {
        (Method::POST, "/api/v1/namespaces/fan/configmaps".into(), config_map(i))
    })
    .await?;
    let goal = EVENTS * WATCHERS as u64;
    let until = Instant::now() + Duration::from_secs(60);
    while seen.load(Ordering::Relaxed) < goal && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let n = seen.load(Ordering::Relaxed);
    let text = format!("{n} of {goal} events delivered to {WATCHERS} watchers; {}", note(&l));
    r.row(
        "watch fan-out, creates included",
        per(g.server.cpu() - cpu, n),
        "µs CPU/event",
        4.0,
        &text,
    );
    for t in tasks {
        t.abort();
    }
    Ok(())
}

/// The HAProxy that looks up a token and adds the same headers.
const WORKING: &str = ", HAProxy with the same headers";
const HAPROXY: &str = ", HAProxy";
const NGINX: &str = ", nginx";
/// The rows of the program under test carry no name.
const SUBJECT: &str = "";

async fn proxied(g: &Gateway, with_peers: bool, dir: &Path, r: &mut Report) -> Result<(), String> {
    let (_backend, port) = aggregated(g, dir).await?;
    let (ha_port, working_port, ng_port) = (free_port()?, free_port()?, free_port()?);
    let (mut ha, mut working, mut ng) = (None, None, None);
    if with_peers {
        ha = peers::haproxy(dir, ha_port, port, None)?;
        working = peers::haproxy(dir, working_port, port, Some(TOKEN))?;
        ng = peers::nginx(dir, ng_port, port)?;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut runs: Vec<(&str, &Server, Target)> = vec![(SUBJECT, &g.server, g.target.clone())];
    if let Some(s) = &ha {
        runs.push((HAPROXY, s, Target::new(ha_port, "")));
    }
    if let Some(s) = &working {
        runs.push((WORKING, s, Target::new(working_port, TOKEN)));
    }
    if let Some(s) = &ng {
        runs.push((NGINX, s, Target::new(ng_port, "")));
    }
    let mut cost = Vec::new();
    for (name, server, target) in &runs {
        let warm = load(target, 16, 10, Duration::from_millis(500), 0, |_| {
            (Method::GET, PATH.into(), Bytes::new())
        });
        warm.await?;
        let cpu = server.cpu();
        let l = load(target, 16, 10, Duration::from_secs(5), 0, |_| {
            (Method::GET, PATH.into(), Bytes::new())
        })
        .await?;
        let us = per(server.cpu() - cpu, l.requests);
        cost.push((*name, us));
        let goal = if *name == SUBJECT { 30.0 } else { 0.0 };
        r.row(&format!("proxied GET, 16×10{name}"), us, "µs CPU", goal, &note(&l));
    }
    let mut serial = Vec::new();
    for (name, _, target) in &runs {
        let l = load(target, 1, 1, Duration::from_secs(2), 0, |_| {
            (Method::GET, PATH.into(), Bytes::new())
        })
        .await?;
        serial.push((*name, l.mean_us));
        r.row(
            &format!("proxied GET, one at a time{name}"),
            l.mean_us,
            "µs mean",
            0.0,
            &note(&l),
        );
    }
    let find = |v: &[(&str, f64)], n: &str| v.iter().find(|(k, _)| *k == n).map(|(_, x)| *x);
    for peer in [HAPROXY, WORKING, NGINX] {
        if let (Some(t), Some(p)) = (find(&cost, SUBJECT), find(&cost, peer)) {
            let goal = if peer == HAPROXY { 1.5 } else { 0.0 };
            r.row(
                &format!("ratio of CPU per proxied GET to {}", &peer[2..]),
                t / p,
                "×",
                goal,
                "same run",
            );
        }
        if let (Some(t), Some(p)) = (find(&serial, SUBJECT), find(&serial, peer)) {
            r.row(
                &format!("ratio of serial latency to {}", &peer[2..]),
                t / p,
                "×",
                if peer == HAPROXY { 1.3 } else { 0.0 },
                "same run",
            );
        }
    }
    Ok(())
}
