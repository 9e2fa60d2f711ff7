//! Three replicas of the example server behind endpoints: killed, restarted, suspended and partitioned under
//! load.

use super::paced::{self, Sample, Stop};
use super::relay::Relay;
use super::{API_SERVICES, create};
use crate::client::{Target, exchange};
use crate::gateway::{Gateway, TOKEN, base64, start_with};
use crate::process::{Server, free_port};
use crate::report::Report;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const GADGETS: &str = "/apis/gadgets.example.com/v1/namespaces/default/gadgets";
/// The number of objects that every replica has.
const SHARED: u64 = 50;
const WATCHES: usize = 500;
/// A response that takes longer than this counts as delayed.
const LATE: Duration = Duration::from_millis(500);

struct Replica {
    server: Option<Server>,
    dir: PathBuf,
    port: u16,
    relay: Relay,
}

/// The path of the example server, next to this program.
fn example() -> Result<PathBuf, String> {
    let me = std::env::current_exe().map_err(|e| e.to_string())?;
    let path = me.with_file_name("examples").join("extension-server");
    if path.exists() {
        Ok(path)
    } else {
        Err(format!("{} is not built", path.display()))
    }
}

/// A non-loopback address of this host, as EndpointSlices require. Connecting a UDP socket selects it without
/// sending anything.
fn own_address() -> Result<IpAddr, String> {
    let found = UdpSocket::bind("0.0.0.0:0").and_then(|s| {
        s.connect("192.0.2.1:9")?;
        s.local_addr()
    });
    match found {
        Ok(address) if !address.ip().is_loopback() && !address.ip().is_unspecified() => Ok(address.ip()),
        _ => Err("this host has no address but loopback ones, which endpoints may not have".into()),
    }
}

/// Starts a server and reads its port from its READY line.
async fn serve(dir: &Path, kubeconfig: &Path) -> Result<(Server, u16), String> {
    let log = dir.join("log");
    let mut command = Command::new(example()?);
    command
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .arg(format!("--data-dir={}", dir.display()));
    let server = Server::start(&mut command, &log)?;
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let ready = text
            .lines()
            .find_map(|l| l.strip_prefix("READY https://")?.split_whitespace().next());
        if let Some(port) = ready.and_then(|a| a.rsplit(':').next()).and_then(|p| p.parse().ok()) {
            return Ok((server, port));
        }
        if Instant::now() > until {
            return Err(format!("the example server does not get ready:\n{text}"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn replica(dir: PathBuf, kubeconfig: &Path, at: IpAddr) -> Result<Replica, String> {
    std::fs::create_dir_all(&dir).map_err(|e| e.to_string())?;
    let (server, port) = serve(&dir, kubeconfig).await?;
    let relay = Relay::start(at, port).await.map_err(|e| e.to_string())?;
    let direct = Target::new(port, TOKEN);
    for i in 0..SHARED {
        let gadget = json!({"apiVersion": "gadgets.example.com/v1", "kind": "Gadget",
            "metadata": {"name": format!("g-{i}"), "namespace": "default"}, "spec": {"size": i}});
        create(&direct, GADGETS, &gadget).await?;
    }
    Ok(Replica {
        server: Some(server),
        dir,
        port,
        relay,
    })
}

/// Creates Service, slices and APIService: three endpoints that are always marked ready.
async fn register(g: &Gateway, replicas: &[Replica], at: IpAddr) -> Result<(), String> {
    let meta = |name: &str| json!({"name": name, "namespace": "gadgets-system"});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gadgets-system"}});
    create(&g.target, "/api/v1/namespaces", &namespace).await?;
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": meta("gadgets"),
        "spec": {"clusterIP": "None", "ports": [{"name": "https", "port": 443}]}});
    create(&g.target, "/api/v1/namespaces/gadgets-system/services", &service).await?;
    let mut bundle = Vec::new();
    for (i, replica) in replicas.iter().enumerate() {
        let mut metadata = meta(&format!("gadgets-{i}"));
        metadata["labels"] = json!({"kubernetes.io/service-name": "gadgets"});
        let family = if at.is_ipv4() { "IPv4" } else { "IPv6" };
        let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata,
            "addressType": family, "ports": [{"name": "https", "port": replica.relay.port, "protocol": "TCP"}],
            "endpoints": [{"addresses": [at.to_string()], "conditions": {"ready": true}}]});
        create(
            &g.target,
            "/apis/discovery.k8s.io/v1/namespaces/gadgets-system/endpointslices",
            &slice,
        )
        .await?;
        bundle.extend(std::fs::read(replica.dir.join("pki/serving-ca.crt")).map_err(|e| e.to_string())?);
    }
    let object = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.gadgets.example.com"},
        "spec": {"group": "gadgets.example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 10,
            "caBundle": base64(&bundle), "service": {"name": "gadgets", "namespace": "gadgets-system", "port": 443}}});
    create(&g.target, API_SERVICES, &object).await?;
    let until = Instant::now() + Duration::from_secs(30);
    while !g.target.once(Method::GET, GADGETS, "").await?.0.is_success() {
        if Instant::now() > until {
            return Err("the replicas are not available within 30 s".into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// The statistics of the watches.
#[derive(Default)]
struct Watched {
    opened: AtomicU64,
    ended: AtomicU64,
    refused: AtomicU64,
    broken: AtomicU64,
}

/// Starts watches that are reopened whenever they end.
async fn watch(target: &Target, stop: &Stop, seen: &Arc<Watched>) -> Result<JoinSet<()>, String> {
    let mut all = JoinSet::new();
    let mut sender = target.connect().await?;
    for i in 0..WATCHES {
        if i % 50 == 0 {
            sender = target.connect().await?;
        }
        let (mut sender, target, stop, seen) = (sender.clone(), target.clone(), stop.clone(), seen.clone());
        all.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let request = target.request(Method::GET, &format!("{GADGETS}?watch=1"), Bytes::new());
                let Ok(()) = sender.ready().await else { return };
                match sender.send_request(request).await {
                    Ok(answer) if answer.status().is_success() => {
                        seen.opened.fetch_add(1, Ordering::Relaxed);
                        let mut lines = Vec::new();
                        let mut body = answer.into_body();
                        while let Some(Ok(frame)) = body.frame().await {
                            lines.extend_from_slice(frame.data_ref().unwrap_or(&Bytes::new()));
                            while let Some(end) = lines.iter().position(|b| *b == b'\n') {
                                let line: Vec<u8> = lines.drain(..=end).collect();
                                if serde_json::from_slice::<Value>(&line).is_err() {
                                    seen.broken.fetch_add(1, Ordering::Relaxed);
                                }
                            }
                        }
                        seen.ended.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(_) | Err(_) => {
                        seen.refused.fetch_add(1, Ordering::Relaxed);
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
            }
        });
    }
    Ok(all)
}

/// Creates objects one after the other. Returns the acknowledged names and the number of failures.
async fn write(target: Target, stop: Stop) -> (BTreeSet<String>, u64) {
    let (mut acknowledged, mut failed) = (BTreeSet::new(), 0);
    let mut sender = None;
    for i in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        let name = format!("w-{i}");
        let gadget = json!({"apiVersion": "gadgets.example.com/v1", "kind": "Gadget",
            "metadata": {"name": name, "namespace": "default"}, "spec": {"size": 1}});
        let asking = async {
            if sender.is_none() {
                sender = Some(target.connect().await?);
            }
            let Some(open) = &mut sender else {
                return Err("no connection".to_owned());
            };
            exchange(open, target.request(Method::POST, GADGETS, gadget.to_string().into())).await
        };
        match asking.await {
            Ok((StatusCode::CREATED, _)) => {
                acknowledged.insert(name);
            }
            Ok(_) => failed += 1,
            Err(_) => {
                failed += 1;
                sender = None;
            }
        }
    }
    (acknowledged, failed)
}

/// Whether a response is wrong for its path.
fn is_wrong(sample: &Sample) -> bool {
    let Ok((status, body)) = &sample.outcome else {
        return false;
    };
    if !status.is_success() {
        return false;
    }
    let Ok(object) = serde_json::from_slice::<Value>(body) else {
        return true;
    };
    let name = sample.path.rsplit('/').next().unwrap_or("");
    object["metadata"]["name"] != name || Some(object["spec"]["size"].to_string().as_str()) != name.strip_prefix("g-")
}

/// How many replicas have each object.
async fn replicas_per_object(replicas: &[Replica]) -> Result<BTreeMap<String, usize>, String> {
    let mut all = BTreeMap::new();
    for replica in replicas {
        let (_, body) = Target::new(replica.port, TOKEN).once(Method::GET, GADGETS, "").await?;
        let list: Value = serde_json::from_slice(&body).map_err(|e| e.to_string())?;
        for item in list["items"].as_array().unwrap_or(&vec![]) {
            let name = item["metadata"]["name"].as_str().unwrap_or("");
            if name.starts_with("w-") {
                *all.entry(name.to_owned()).or_insert(0) += 1;
            }
        }
    }
    Ok(all)
}

/// A fault, and how long its effect is observed.
type Step = (&'static str, Duration);

const STEPS: [Step; 7] = [
    ("steady", Duration::from_secs(5)),
    ("one of three killed", Duration::from_secs(10)),
    ("it is started again", Duration::from_secs(8)),
    ("another one stopped (SIGSTOP)", Duration::from_secs(15)),
    ("it goes on", Duration::from_secs(8)),
    ("the third cut off from the gateway", Duration::from_secs(15)),
    ("it is reached again", Duration::from_secs(8)),
];

async fn happen(step: usize, replicas: &mut [Replica], kubeconfig: &Path) -> Result<(), String> {
    match step {
        1 => {
            let killed = replicas[0].server.take();
            if let Some(server) = killed {
                server.signal("KILL");
            }
        }
        2 => {
            let (server, port) = serve(&replicas[0].dir, kubeconfig).await?;
            replicas[0].relay.lead(port);
            (replicas[0].server, replicas[0].port) = (Some(server), port);
        }
        3 | 4 => {
            if let Some(server) = &replicas[1].server {
                server.signal(if step == 3 { "STOP" } else { "CONT" });
            }
        }
        5 | 6 => replicas[2].relay.hold(step == 5),
        _ => {}
    }
    Ok(())
}

pub(super) async fn replicas(torana: &Path, dir: &Path, r: &mut Report) -> Result<(), String> {
    let at = own_address()?;
    let g = start_with(torana, dir, free_port()?, &["--enable-aggregator-routing=true"]).await?;
    let kubeconfig = dir.join("data/admin.kubeconfig");
    let mut all = Vec::new();
    for i in 0..3 {
        all.push(replica(dir.join(format!("replica-{i}")), &kubeconfig, at).await?);
    }
    register(&g, &all, at).await?;
    let (stop, seen) = (Stop::default(), Arc::new(Watched::default()));
    let mut watches = watch(&g.target, &stop, &seen).await?;
    let writes = tokio::spawn(write(g.target.clone(), stop.clone()));
    let asked = paced::start(&g.target, 200, Duration::from_millis(200), &stop, |n| {
        format!("{GADGETS}/g-{}", n % SHARED)
    });
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut began = Vec::new();
    let mut ends = Vec::new();
    for (i, (_, time)) in STEPS.iter().enumerate() {
        began.push(Instant::now());
        let before = seen.ended.load(Ordering::Relaxed);
        happen(i, &mut all, &kubeconfig).await?;
        tokio::time::sleep(*time).await;
        ends.push(seen.ended.load(Ordering::Relaxed) - before);
    }
    began.push(Instant::now());
    stop.store(true, Ordering::Relaxed);
    let samples = paced::collect(asked).await;
    let (acknowledged, failed_writes) = writes.await.map_err(|e| e.to_string())?;
    watches.abort_all();
    for (i, (what, _)) in STEPS.iter().enumerate() {
        let of: Vec<&Sample> = samples
            .iter()
            .filter(|s| began[i] <= s.began && s.began < began[i + 1])
            .collect();
        step(r, what, began[i], &of, ends[i]);
    }
    let wrong = samples.iter().filter(|s| is_wrong(s)).count();
    let text = format!(
        "of {}; {} broken watch events",
        samples.len(),
        seen.broken.load(Ordering::Relaxed)
    );
    r.row("replicas: wrong answers", wrong as f64, "", 0.5, &text);
    let kept = replicas_per_object(&all).await?;
    let twice = kept.values().filter(|n| **n > 1).count();
    let lost = acknowledged.iter().filter(|name| !kept.contains_key(*name)).count();
    let text = format!(
        "{} acknowledged, {failed_writes} failed, {lost} lost",
        acknowledged.len()
    );
    r.row(
        "replicas: writes done twice or lost",
        (twice + lost) as f64,
        "",
        0.5,
        &text,
    );
    let text = format!(
        "{} opened, {} ended, {} refused",
        seen.opened.load(Ordering::Relaxed),
        seen.ended.load(Ordering::Relaxed),
        seen.refused.load(Ordering::Relaxed)
    );
    r.row("replicas: watches at a time", WATCHES as f64, "", 0.0, &text);
    g.server.stop();
    Ok(())
}

/// Reports the effect of one step on readers.
fn step(r: &mut Report, what: &str, since: Instant, of: &[&Sample], ended: u64) {
    let failed: Vec<&&Sample> = of
        .iter()
        .filter(|s| !matches!(&s.outcome, Ok((c, _)) if c.is_success()))
        .collect();
    let late = |s: &&&Sample| s.took > LATE;
    let held_up = of.iter().filter(late).count();
    let affected = of
        .iter()
        .filter(|s| late(s) || failed.iter().any(|f| f.began == s.began));
    let over = affected
        .map(|s| s.began + s.took)
        .max()
        .map_or(0.0, |end| (end - since).as_secs_f64());
    let worst = of.iter().map(|s| s.took).max().unwrap_or_default();
    let why = failed.first().map_or(String::new(), |s| match &s.outcome {
        Ok((code, body)) => format!(
            "; first: {code} {}",
            String::from_utf8_lossy(&body[..body.len().min(120)])
        ),
        Err(e) => format!("; first: {e}"),
    });
    // When the delayed requests were sent, in seconds after the event.
    let mut when: Vec<f64> = of
        .iter()
        .filter(late)
        .map(|s| (s.began - since).as_secs_f64())
        .collect();
    when.sort_by(f64::total_cmp);
    let quartile = |q: usize| {
        when.get((when.len() * q / 4).min(when.len().saturating_sub(1)))
            .copied()
            .unwrap_or(0.0)
    };
    let asked = format!(
        "asked at {:.1}, {:.1}, {:.1}, {:.1}, {:.1} s",
        quartile(0),
        quartile(1),
        quartile(2),
        quartile(3),
        quartile(4)
    );
    let text = format!(
        "{} failed, {held_up} later than {LATE:?} of {} GETs ({asked}), worst {worst:.1?}; {ended} watches ended{why}",
        failed.len(),
        of.len()
    );
    r.row(
        &format!("replicas: {what}, back to normal after"),
        over,
        "s",
        0.0,
        &text,
    );
    r.row(
        &format!("replicas: {what}, lost GETs"),
        failed.len() as f64,
        "",
        0.5,
        "",
    );
}
