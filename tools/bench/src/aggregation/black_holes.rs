//! Fifty APIServices, ten of which never answer: the effect on the other forty and on discovery.

use super::paced::{self, Sample, Stop};
use super::{API_SERVICES, Setup, group, patch, path};
use crate::report::Report;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::TcpListener;

const ALL: usize = 50;
const HOLES: usize = 10;
const GOOD: usize = ALL - HOLES;
const PHASE: Duration = Duration::from_secs(5);

/// A server that accepts connections and never sends anything.
async fn black_hole() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|e| e.to_string())?;
    let port = listener.local_addr().map_err(|e| e.to_string())?.port();
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((tcp, _)) = listener.accept().await {
            held.push(tcp);
        }
    });
    Ok(port)
}

/// The measurements of one phase: the healthy groups, and discovery.
async fn phase(setup: &Setup) -> (Vec<Sample>, Vec<Sample>) {
    let stop: Stop = Arc::default();
    let good = paced::start(&setup.g.target, 40, Duration::from_millis(40), &stop, |n| {
        path(n as usize % GOOD)
    });
    let discovery = paced::start(&setup.g.target, 4, Duration::from_millis(20), &stop, |_| {
        "/apis".to_owned()
    });
    // Clients of the ten groups send requests in both phases.
    let hopeful = paced::start(&setup.g.target, 20, Duration::from_millis(50), &stop, |n| {
        format!("{}?timeout=3s", path(GOOD + n as usize % HOLES))
    });
    tokio::time::sleep(PHASE).await;
    stop.store(true, Ordering::Relaxed);
    let all = (paced::collect(good).await, paced::collect(discovery).await);
    drop(hopeful);
    all
}

async fn lead(setup: &Setup, port: u16) -> Result<(), String> {
    for i in GOOD..ALL {
        let change = json!({"spec": {"service": {"port": port}}});
        patch(&setup.g.target, &format!("{API_SERVICES}/v1.{}", group(i)), &change).await?;
    }
    Ok(())
}

pub(super) fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}

pub(super) async fn black_holes(setup: &Setup, r: &mut Report) -> Result<(), String> {
    for i in 0..ALL {
        let service = format!("s{i}");
        setup.service(&service).await?;
        setup.group(i, &service).await?;
    }
    setup.answered(0..ALL).await?;
    let hole = black_hole().await?;
    phase(setup).await;
    let (mut ratios, mut failures) = ([vec![], vec![]], 0);
    let (mut healthy_p99, mut holes_p99) = ([vec![], vec![]], [vec![], vec![]]);
    // Phases alternate, because the machines are noisy.
    for _ in 0..3 {
        let healthy = phase(setup).await;
        lead(setup, hole).await?;
        let holes = phase(setup).await;
        lead(setup, setup.port).await?;
        setup.answered(0..ALL).await?;
        let pairs = [(&healthy.0, &holes.0), (&healthy.1, &holes.1)];
        for (i, (before, with)) in pairs.into_iter().enumerate() {
            let ((before, bad), (with, worse)) = (paced::percentile(before, 0.99), paced::percentile(with, 0.99));
            ratios[i].push(with / before);
            healthy_p99[i].push(before);
            holes_p99[i].push(with);
            failures += bad + worse;
        }
    }
    let [groups, discovery] = ratios;
    let names = [
        "p99 of 40 groups beside 10 black holes",
        "p99 of discovery beside 10 black holes",
    ];
    for (i, (name, ratios)) in names.into_iter().zip([groups, discovery]).enumerate() {
        let text = format!(
            "median of 3 turns: {:.1} ms healthy, {:.1} ms with holes, at 1,200 requests/s; {failures} failures",
            median(healthy_p99[i].clone()),
            median(holes_p99[i].clone())
        );
        r.row(name, median(ratios), "× healthy", 1.2, &text);
    }
    Ok(())
}
