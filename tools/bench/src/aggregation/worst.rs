//! Sixteen clients write 3 MB objects of the most expensive kinds; measures the effect on small reads.

use super::create;
use super::paced::{self, Sample, Stop};
use crate::client::{Target, exchange};
use crate::gateway::start;
use crate::process::free_port;
use crate::report::Report;
use bytes::Bytes;
use hyper::Method;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const WRITERS: usize = 16;
const PHASE: Duration = Duration::from_secs(5);
const CONFIG_MAPS: &str = "/api/v1/namespaces/bench/configmaps";
const PODS: &str = "/api/v1/namespaces/bench/pods";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/bench/roles";
/// A little less than the limit on request bodies, in bytes.
const SIZE: usize = 2_900_000;

/// A body of `SIZE` bytes: an object in which `%` is replaced by as many items as fit.
fn filled(object: &str, item: impl Fn(usize) -> String) -> Bytes {
    let mut items = String::new();
    for i in 0.. {
        let next = item(i);
        if object.len() + items.len() + next.len() > SIZE {
            break;
        }
        if i > 0 {
            items.push(',');
        }
        items.push_str(&next);
    }
    object.replacen('%', &items, 1).into()
}

/// Collection, content type and body per kind; the objects are named `NAME`.
fn bodies() -> Vec<(&'static str, &'static str, Bytes)> {
    const JSON: &str = "application/json";
    let config_map =
        |rest: &str| format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"worst"{rest}}}}}"#);
    let pod = |rest: &str| {
        format!(
            r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"worst"}},"spec":{{"containers":[{{"name":"c","image":"i"{rest}}}]}}}}"#
        )
    };
    let role = r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"worst"},"rules":[%]}"#;
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: worst}\n";
    vec![
        (
            CONFIG_MAPS,
            JSON,
            filled(&config_map(r#","finalizers":[%]"#), |i| format!(r#""e.example/{i}""#)),
        ),
        (
            CONFIG_MAPS,
            JSON,
            filled(&config_map(r#","ownerReferences":[%]"#), |i| {
                format!(r#"{{"apiVersion":"v1","kind":"Pod","name":"o{i}","uid":"{i}"}}"#)
            }),
        ),
        (
            CONFIG_MAPS,
            JSON,
            filled(&config_map(r#"},"data":{%"#), |i| format!(r#""!{i}":"v""#)),
        ),
        (
            CONFIG_MAPS,
            JSON,
            filled(&config_map(r#"},"x":[{}],"y":{"#).replace("{}", "%"), |_| {
                "{}".to_owned()
            }),
        ),
        (
            PODS,
            JSON,
            filled(&pod(r#","env":[%]"#), |i| format!(r#"{{"name":"E{i}","value":"v"}}"#)),
        ),
        (
            PODS,
            JSON,
            filled(&pod(r#","ports":[%]"#), |i| {
                format!(r#"{{"name":"p{i}","containerPort":{}}}"#, i % 65_535 + 1)
            }),
        ),
        (
            ROLES,
            JSON,
            filled(role, |i| {
                format!(r#"{{"apiGroups":["g{i}"],"resources":["r"],"verbs":["get"]}}"#)
            }),
        ),
        (
            CONFIG_MAPS,
            "application/yaml",
            filled(&format!("{yaml}x: [%]\n"), |_| "a".to_owned()),
        ),
        (
            CONFIG_MAPS,
            "application/yaml",
            filled(&format!("{yaml}x: &a {}\ny: [%]\n", "s".repeat(100_000)), |_| {
                "*a".to_owned()
            }),
        ),
    ]
}

/// Writes one body after the other until `stop`, and deletes what was stored.
async fn write(
    target: Target,
    all: Arc<Vec<(&'static str, &'static str, Bytes)>>,
    first: usize,
    stop: Stop,
    answers: Arc<AtomicU64>,
) {
    let mut sender = None;
    let mut n = first;
    while !stop.load(Ordering::Relaxed) {
        let (collection, content_type, body) = &all[n % all.len()];
        n += 1;
        let mut target = target.clone();
        target.content_type = content_type;
        if sender.is_none() {
            sender = target.connect().await.ok();
        }
        let Some(open) = &mut sender else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        match exchange(open, target.request(Method::POST, collection, body.clone())).await {
            Ok((status, _)) => {
                answers.fetch_add(1, Ordering::Relaxed);
                if status.is_success() {
                    let object = format!("{collection}/worst");
                    let change = Bytes::from_static(br#"{"metadata":{"finalizers":null}}"#);
                    target.content_type = "application/merge-patch+json";
                    let _ = exchange(open, target.request(Method::PATCH, &object, change)).await;
                    let _ = exchange(open, target.request(Method::DELETE, &object, Bytes::new())).await;
                }
            }
            Err(_) => sender = None,
        }
    }
}

/// Runs all writers on one thread of low priority. Real clients run on other machines, so their encryption of
/// 46 MB should not compete with the gateway and the readers for two cores.
fn write_all(
    target: Target,
    all: Arc<Vec<(&'static str, &'static str, Bytes)>>,
    stop: Stop,
    answers: Arc<AtomicU64>,
) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        // On Linux this is the priority of the thread alone.
        let _ = rustix::process::setpriority_process(None, 10);
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
            return;
        };
        runtime.block_on(async {
            let mut writers = JoinSet::new();
            for i in 0..WRITERS {
                writers.spawn(write(target.clone(), all.clone(), i, stop.clone(), answers.clone()));
            }
            // Requests that get no response are abandoned with the runtime.
            let _ = tokio::time::timeout(PHASE * 6, writers.join_all()).await;
        });
    })
}

/// Small reads, from a separate thread so that the writers' encryption does not delay them.
async fn reads(target: &Target) -> Result<Vec<Sample>, String> {
    let target = target.clone();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| e.to_string())?;
        Ok::<_, String>(runtime.block_on(async {
            let stop = Stop::default();
            let all = paced::start(&target, 20, Duration::from_millis(40), &stop, |_| {
                format!("{CONFIG_MAPS}/small")
            });
            tokio::time::sleep(PHASE).await;
            stop.store(true, Ordering::Relaxed);
            paced::collect(all).await
        }))
    });
    let joined = tokio::task::spawn_blocking(move || thread.join()).await;
    let joined = joined.map_err(|e| e.to_string())?;
    joined.map_err(|_| "the readers ended".to_owned())?
}

/// Two loops of low priority that yield as often as the gateway's pool does, without a gateway: what the
/// machine alone adds to the reads when both cores are busy. Returns when `stop` is set.
fn busy_loops(stop: &Stop) -> Vec<std::thread::JoinHandle<()>> {
    let spin = |stop: Stop| {
        let _ = rustix::process::setpriority_process(None, 5);
        while !stop.load(Ordering::Relaxed) {
            let until = Instant::now() + Duration::from_micros(300);
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            std::thread::yield_now();
        }
    };
    let start = |_| {
        let stop = stop.clone();
        std::thread::spawn(move || spin(stop))
    };
    (0..2).map(start).collect()
}

pub(super) async fn writes(torana: &Path, dir: &Path, r: &mut Report) -> Result<(), String> {
    let g = start(torana, dir, free_port()?).await?;
    let named = |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
    create(&g.target, "/api/v1/namespaces", &named("Namespace", "bench")).await?;
    // Without it, admission of pods waits for it a second, and the writers with it.
    let accounts = "/api/v1/namespaces/bench/serviceaccounts";
    create(&g.target, accounts, &named("ServiceAccount", "default")).await?;
    create(&g.target, CONFIG_MAPS, &named("ConfigMap", "small")).await?;
    let all = Arc::new(bodies());
    reads(&g.target).await?;
    let (mut ratios, mut quiet_p99, mut busy_p99, mut failures) = (vec![], vec![], vec![], 0);
    let mut control_p99 = vec![];
    let answers = Arc::new(AtomicU64::new(0));
    // Phases alternate, because the machines are noisy.
    for _ in 0..3 {
        let (quiet, _) = paced::percentile(&reads(&g.target).await?, 0.99);
        let stop = Stop::default();
        let writers = write_all(g.target.clone(), all.clone(), stop.clone(), answers.clone());
        let (busy, bad) = paced::percentile(&reads(&g.target).await?, 0.99);
        stop.store(true, Ordering::Relaxed);
        let _ = tokio::task::spawn_blocking(move || writers.join()).await;
        let stop = Stop::default();
        let loops = busy_loops(&stop);
        control_p99.push(paced::percentile(&reads(&g.target).await?, 0.99).0);
        stop.store(true, Ordering::Relaxed);
        for busy in loops {
            let _ = tokio::task::spawn_blocking(move || busy.join()).await;
        }
        ratios.push(busy / quiet);
        quiet_p99.push(quiet);
        busy_p99.push(busy);
        failures += bad;
    }
    let peak = g.server.peak_mb();
    let text = format!(
        "median of 3 turns: {:.1} ms quiet, {:.1} ms while they write, {:.1} ms while nobody writes and two loops of low \
         priority keep the cores busy, at 500 reads/s; {failures} reads failed, {} writes answered, {peak:.0} MB at the peak",
        super::black_holes::median(quiet_p99),
        super::black_holes::median(busy_p99),
        super::black_holes::median(control_p99),
        answers.load(Ordering::Relaxed)
    );
    let name = "p99 of small GETs while 16 clients write 3 MB objects of the worst kinds";
    r.row(name, super::black_holes::median(ratios), "× quiet", 2.0, &text);
    g.server.stop();
    Ok(())
}
