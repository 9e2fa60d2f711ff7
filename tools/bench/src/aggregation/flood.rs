//! One user floods the gateway while another one sends one GET at a time: none of its requests is rejected,
//! and its p99 stays at 20 ms or three times its value without the flood.
//!
//! The gateway has 60 seats. The flood comes from a thread of low priority, because real clients run on other
//! machines.

mod senders;

use super::paced::{self, Stop};
use super::{Setup, create};
use crate::client::{Target, load};
use crate::gateway::{Gateway, TOKEN, config_map, ready};
use crate::process::{Server, free_port};
use crate::report::Report;
use hyper::Method;
use senders::{Answers, in_own_thread, keep_sending};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const MAPS: &str = "/api/v1/namespaces/bench/configmaps";
const ONE: &str = "/api/v1/namespaces/bench/configmaps/c-000042";
const FLOWS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";
const OBJECTS: u64 = 2_000;
const PHASE: Duration = Duration::from_secs(5);

/// The requests of the flood.
struct Flood {
    name: &'static str,
    user: &'static str,
    in_flight: usize,
    method: Method,
    path: &'static str,
    /// The path that the other user requests.
    quiet: &'static str,
}

fn floods() -> [Flood; 5] {
    let lists = || Flood {
        name: "400 lists of 2,000 in flight",
        user: "flood",
        in_flight: 400,
        method: Method::GET,
        path: MAPS,
        quiet: ONE,
    };
    [
        Flood {
            name: "10,000 lists of 2,000, in a level whose queues take them",
            user: "crowd",
            in_flight: 10_000,
            ..lists()
        },
        Flood {
            name: "400 creates in flight",
            method: Method::POST,
            ..lists()
        },
        Flood {
            name: "400 watches being opened",
            path: "/api/v1/namespaces/bench/configmaps?watch=1&resourceVersion=0",
            ..lists()
        },
        Flood {
            name: "400 proxied responses of 1 MiB in flight, both through the aggregator",
            path: "/apis/g0.bench.example.com/v1/gadgets/big",
            quiet: "/apis/g0.bench.example.com/v1/gadgets/a",
            ..lists()
        },
        lists(),
    ]
}

/// The same gateway as another user.
fn acting(target: &Target, user: &str) -> Target {
    let mut target = target.clone();
    target.headers.push(("impersonate-user", user.to_owned()));
    target
}

async fn gateway(torana: &Path, dir: &Path) -> Result<Gateway, String> {
    let port = free_port()?;
    let tokens = dir.join("tokens.csv");
    std::fs::write(&tokens, format!("{TOKEN},bench,u,system:masters\n")).map_err(|e| e.to_string())?;
    let mut command = Command::new(torana);
    command
        .arg("serve")
        .arg(format!("--secure-port={port}"))
        .arg("--bind-address=127.0.0.1")
        .arg(format!("--data-dir={}", dir.join("data").display()))
        .arg(format!("--token-auth-file={}", tokens.display()))
        .arg("--authorization-mode=AlwaysAllow")
        .args(["--max-requests-inflight=40", "--max-mutating-requests-inflight=20"]);
    let log = dir.join("torana.log");
    ready(Server::start(&mut command, &log)?, port, Instant::now(), &log).await
}

/// A level of its own for `crowd` and `calm`, whose queues take 10,000 requests.
async fn level_for_crowds(target: &Target) -> Result<(), String> {
    let level = json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
        "metadata": {"name": "crowds"}, "spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 50,
        "limitResponse": {"type": "Queue", "queuing": {"queues": 64, "handSize": 6, "queueLengthLimit": 2_000}}}}});
    let user = |name: &str| json!({"kind": "User", "user": {"name": name}});
    let all: [Value; 1] = ["*".into()];
    let schema = json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
        "metadata": {"name": "crowds"}, "spec": {"matchingPrecedence": 50, "priorityLevelConfiguration": {"name": "crowds"},
        "distinguisherMethod": {"type": "ByUser"}, "rules": [{"subjects": [user("crowd"), user("calm")],
        "resourceRules": [{"verbs": all, "apiGroups": all, "resources": all, "namespaces": all, "clusterScope": true}]}]}});
    create(target, &format!("{FLOWS}/prioritylevelconfigurations"), &level).await?;
    create(target, &format!("{FLOWS}/flowschemas"), &schema).await
}

/// The p99 in milliseconds of one GET at a time, and how many of them failed and were sent.
async fn gets(target: &Target, path: &'static str) -> (f64, usize, usize) {
    let stop = Stop::default();
    let all = paced::start(target, 1, Duration::from_millis(1), &stop, move |_| path.to_owned());
    tokio::time::sleep(PHASE).await;
    stop.store(true, Ordering::Relaxed);
    let samples = paced::collect(all).await;
    let (p99, failed) = paced::percentile(&samples, 0.99);
    (p99, failed, samples.len())
}

/// Waits until so many requests wait in the queues.
async fn until_waiting(target: &Target, at_least: u64) -> Result<u64, String> {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let (_, text) = target.once(Method::GET, "/metrics", "").await?;
        let text = String::from_utf8_lossy(&text);
        let lines = text
            .lines()
            .filter(|l| l.starts_with("apiserver_current_inqueue_requests{"));
        let waiting: f64 = lines.filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok()).sum();
        if waiting as u64 >= at_least || Instant::now() > until {
            return Ok(waiting as u64);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn beside(s: &Setup, flood: Flood, serial: &Arc<AtomicU64>, r: &mut Report) -> Result<(), String> {
    let quiet = acting(&s.g.target, if flood.user == "crowd" { "calm" } else { "quiet" });
    let (alone, bad, _) = gets(&quiet, flood.quiet).await;
    if bad > 0 {
        return Err(format!("{bad} of the requests of {} fail without a flood", flood.quiet));
    }
    let (name, path) = (flood.name, flood.quiet);
    let before = s.g.server.rss_mb();
    let crowded = flood.in_flight as u64 * 4 / 5;
    let (stop, answers) = (Stop::default(), Arc::<Answers>::default());
    let flooding = in_own_thread(keep_sending(
        acting(&s.g.target, flood.user),
        Arc::new(flood),
        serial.clone(),
        stop.clone(),
        answers.clone(),
    ));
    let waiting = match crowded {
        ..1_000 => until_waiting(&s.g.target, 1).await?,
        most => until_waiting(&s.g.target, most).await?,
    };
    let (p99, turned_away, sent) = gets(&quiet, path).await;
    let rss = s.g.server.rss_mb();
    stop.store(true, Ordering::Relaxed);
    let _ = tokio::task::spawn_blocking(move || flooding.join()).await;
    let note = format!(
        "{alone:.1} ms alone; {turned_away} of {sent} failed; {waiting} waited at the start; flood: {}; {before:.0} MB \
         before, {rss:.0} MB during it",
        answers.describe()
    );
    let goal = (3.0 * alone).max(20.0).ceil();
    r.row(
        &format!("p99 of one GET at a time beside {name}"),
        p99,
        "ms",
        goal,
        &note,
    );
    // A goal of 0 would mean none.
    r.row(
        &format!("turned away beside {name}"),
        turned_away as f64,
        "requests",
        0.5,
        "",
    );
    Ok(())
}

pub(super) async fn floods_of_others(torana: &Path, dir: &Path, r: &mut Report) -> Result<(), String> {
    let s = Setup::around(gateway(torana, dir).await?, dir).await?;
    level_for_crowds(&s.g.target).await?;
    s.service("backend").await?;
    s.group(0, "backend").await?;
    s.answered(0..1).await?;
    let made = load(&s.g.target, 1, 16, Duration::ZERO, OBJECTS, |i| {
        (Method::POST, MAPS.to_owned(), config_map(i))
    })
    .await?;
    if made.failures > 0 {
        return Err(format!("{} of {OBJECTS} ConfigMaps were not created", made.failures));
    }
    let serial = Arc::<AtomicU64>::default();
    for flood in floods() {
        beside(&s, flood, &serial, r).await?;
    }
    s.g.server.stop();
    Ok(())
}
