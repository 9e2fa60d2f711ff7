//! Long-running and large responses.

use super::{Setup, path};
use crate::client::{Target, load};
use crate::peers;
use crate::process::{Server, free_port};
use crate::report::Report;
use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http2;
use hyper::{Method, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::path::Path;
use std::time::{Duration, Instant};

/// Watches per connection: the gateway's limit on streams.
const PER_CONNECTION: usize = 100;

async fn ready(setup: &Setup) -> Result<(), String> {
    setup.service("bench").await?;
    setup.group(0, "bench").await?;
    setup.answered(0..1).await
}

/// Five thousand proxied watches at once.
pub(super) async fn watches(setup: &Setup, r: &mut Report) -> Result<(), String> {
    const WATCHES: usize = 5000;
    ready(setup).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = setup.g.server.rss_mb();
    let mut open = Vec::new();
    let mut sender = setup.g.target.connect().await?;
    let watch = "/apis/g0.bench.example.com/v1/gadgets?watch=1";
    for i in 0..WATCHES {
        if i % PER_CONNECTION == 0 {
            sender = setup.g.target.connect().await?;
        }
        sender.ready().await.map_err(|e| e.to_string())?;
        let request = setup.g.target.request(Method::GET, watch, Bytes::new());
        let answer = sender.send_request(request).await.map_err(|e| e.to_string())?;
        if !answer.status().is_success() {
            return Err(format!("watch {i} of {WATCHES}: {}", answer.status()));
        }
        let mut body = answer.into_body();
        // Wait for the first event, so that not only the head has been passed on.
        let first = body.frame().await;
        if !first.is_some_and(|f| f.is_ok_and(|f| f.data_ref().is_some_and(|d| d.ends_with(b"\n")))) {
            return Err(format!("watch {i} brings no event"));
        }
        open.push(body);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let under_way = long_running(setup).await?;
    let each = (setup.g.server.rss_mb() - before) * 1024.0 / WATCHES as f64;
    let text = format!(
        "{under_way} open by the gateway's own count, {PER_CONNECTION} on a client's connection, each with an event; {before:.1} MB before"
    );
    r.row("proxied watch, of 5,000", each, "KB", 40.0, &text);
    let cpu = setup.g.server.cpu();
    drop(open);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let us = crate::report::per(setup.g.server.cpu() - cpu, WATCHES as u64);
    r.row("ending a proxied watch", us, "µs CPU", 0.0, "2 s of rest included");
    Ok(())
}

/// The number of open watches, from `apiserver_longrunning_requests`.
async fn long_running(setup: &Setup) -> Result<u64, String> {
    let (_, body) = setup.g.target.once(Method::GET, "/metrics", "").await?;
    let text = String::from_utf8_lossy(&body);
    let lines = text
        .lines()
        .filter(|l| l.starts_with("apiserver_longrunning_requests{") && l.contains("bench.example.com"));
    Ok(lines
        .filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok())
        .sum::<f64>() as u64)
}

/// Responses of 1 MiB, compared with HAProxy.
pub(super) async fn large(setup: &Setup, dir: &Path, r: &mut Report) -> Result<(), String> {
    ready(setup).await?;
    let port = free_port()?;
    let haproxy = peers::haproxy(dir, port, setup.port, None)?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut runs: Vec<(&str, &Server, Target)> = vec![("Torana", &setup.g.server, setup.g.target.clone())];
    if let Some(server) = &haproxy {
        runs.push(("HAProxy", server, Target::new(port, "")));
    }
    let make = |_| {
        (
            Method::GET,
            "/apis/g0.bench.example.com/v1/gadgets/big".to_owned(),
            Bytes::new(),
        )
    };
    let mut best = vec![0.0_f64; runs.len()];
    for turn in 0..4 {
        for (i, (name, server, target)) in runs.iter().enumerate() {
            let cpu = server.cpu();
            let l = load(target, 4, 4, Duration::from_secs(2), 0, make).await?;
            let rate = l.requests as f64 / l.seconds;
            // The first round warms up.
            if turn == 0 {
                continue;
            }
            best[i] = best[i].max(rate);
            let us = crate::report::per(server.cpu() - cpu, l.requests);
            let text = format!("{us:.0} µs CPU each, {} failures", l.failures);
            r.row(&format!("1 MiB responses, {name}"), rate, "MiB/s", 0.0, &text);
        }
    }
    if let [torana, haproxy] = best[..] {
        let text = format!(
            "best of 3 each; Torana moves {:.2} × what HAProxy does (goal 0.8)",
            torana / haproxy
        );
        r.row("1 MiB responses, time to HAProxy's", haproxy / torana, "×", 1.25, &text);
    }
    Ok(())
}

/// One gibibyte in each direction.
pub(super) async fn stream(setup: &Setup, r: &mut Report) -> Result<(), String> {
    const MUCH: u64 = 1 << 30;
    ready(setup).await?;
    // The first MiB allocates buffers that every stream needs.
    let warm = setup
        .g
        .target
        .once(Method::GET, "/apis/g0.bench.example.com/v1/gadgets/big", "");
    warm.await?;
    let before = setup.g.server.rss_mb();
    let t = Instant::now();
    let mut sender = setup.g.target.connect().await?;
    let zeros = format!("/apis/g0.bench.example.com/v1/gadgets/zeros?n={MUCH}");
    sender.ready().await.map_err(|e| e.to_string())?;
    let request = setup.g.target.request(Method::GET, &zeros, Bytes::new());
    let mut body = sender
        .send_request(request)
        .await
        .map_err(|e| e.to_string())?
        .into_body();
    let (mut n, mut peak) = (0, before);
    while let Some(frame) = body.frame().await {
        let data = frame
            .map_err(|e| e.to_string())?
            .into_data()
            .map(|d| d.len() as u64)
            .unwrap_or(0);
        // Sample the memory every 16 MiB.
        if (n + data) >> 24 != n >> 24 {
            peak = peak.max(setup.g.server.rss_mb());
        }
        n += data;
    }
    if n != MUCH {
        return Err(format!("{n} of {MUCH} bytes came"));
    }
    let rate = MUCH as f64 / t.elapsed().as_secs_f64() / 1048576.0;
    r.row(
        "1 GiB down one stream, growth at the peak",
        peak - before,
        "MB",
        8.0,
        &format!("{rate:.0} MiB/s"),
    );

    let before = setup.g.server.rss_mb();
    let t = Instant::now();
    let (answer, peak) = tokio::join!(upload(setup, MUCH), async {
        let mut peak = before;
        // Sample for 2.5 s; the peak is read once more after the upload.
        for _ in 0..50 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            peak = peak.max(setup.g.server.rss_mb());
        }
        peak
    });
    let (took, length) = answer?;
    if length != MUCH.to_string() {
        return Err(format!("{length} of {MUCH} bytes arrived"));
    }
    let peak = peak.max(setup.g.server.rss_mb());
    let rate = MUCH as f64 / (took - t).as_secs_f64() / 1048576.0;
    r.row(
        "1 GiB up one stream, growth at the peak",
        peak - before,
        "MB",
        8.0,
        &format!("{rate:.0} MiB/s"),
    );
    Ok(())
}

async fn upload(setup: &Setup, much: u64) -> Result<(Instant, String), String> {
    let io = setup.g.target.tls().await?;
    let (mut sender, connection) = http2::Builder::new(TokioExecutor::new())
        .handshake(TokioIo::new(io))
        .await
        .map_err(|e| e.to_string())?;
    tokio::spawn(connection);
    let piece = Bytes::from(vec![0; 64 << 10]);
    let pieces = stream::unfold(much, move |left| {
        let now = piece.slice(..piece.len().min(left as usize));
        let next = (!now.is_empty()).then(|| {
            let left = left - now.len() as u64;
            (Ok::<_, Infallible>(Frame::data(now)), left)
        });
        std::future::ready(next)
    });
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("https://localhost:{}{}", setup.g.target.port, path(0)))
        .header("authorization", format!("Bearer {}", setup.g.target.token))
        .body(StreamBody::new(pieces))
        .map_err(|e| e.to_string())?;
    sender.ready().await.map_err(|e| e.to_string())?;
    let answer = sender.send_request(request).await.map_err(|e| e.to_string())?;
    let body = answer
        .into_body()
        .collect()
        .await
        .map_err(|e| e.to_string())?
        .to_bytes();
    Ok((Instant::now(), String::from_utf8_lossy(&body).into_owned()))
}
