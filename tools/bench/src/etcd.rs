//! The overhead of the gateway over etcd: `make bench ONLY=etcd`, with the etcd that `ETCD` names (default:
//! in `PATH`). Every row compares with direct calls to the same etcd, made alternately in the same run.

use crate::client::{Sender, Target, exchange, load};
use crate::gateway::{Gateway, config_map, start_with};
use crate::peers;
use crate::process::{Server, free_port};
use crate::report::Report;
use crate::report::{note, per};
use bytes::Bytes;
use etcd_client::{
    Certificate, Client, Compare, CompareOp, ConnectOptions, GetOptions, TlsOptions, Txn, TxnOp, WatchOptions,
};
use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Incoming;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const MAPS: &str = "/api/v1/namespaces/bench/configmaps";
/// Where etcd has them.
const PREFIX: &str = "/registry/configmaps/bench/";
/// Where creates without a gateway go.
const WATCHED: &str = "/watched/";
/// Repetitions of sequential measurements.
const ONE_AT_A_TIME: u64 = 1_000;
const IN_FLIGHT: (usize, usize) = (8, 16);
/// Requests of a run with many in flight, and how many runs of each sort.
const MANY: u64 = 10_000;
const ROUNDS: usize = 5;

fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}

/// Starts one member, with its defaults.
async fn member(dir: &Path) -> Result<(Server, String), String> {
    let binary = std::env::var_os("ETCD").unwrap_or_else(|| "etcd".into());
    member_on(Path::new(&binary), dir, [free_port()?, free_port()?]).await
}

/// Waits until something accepts connections on this port: clients of etcd connect when they are first used.
async fn listens(port: u16, program: &str) -> Result<(), String> {
    let until = Instant::now() + Duration::from_secs(20);
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        if Instant::now() > until {
            return Err(format!("{program} does not listen within 20 s"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Starts one member of this binary on these ports, for clients and for peers, with the data in `dir`.
/// Returns its URL, too.
pub async fn member_on(binary: &Path, dir: &Path, [port, peer]: [u16; 2]) -> Result<(Server, String), String> {
    let (client, peer) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer}"));
    let mut c = Command::new(binary);
    c.arg(format!("--data-dir={}", dir.join("etcd").display()))
        .arg(format!("--listen-client-urls={client}"))
        .arg(format!("--advertise-client-urls={client}"))
        .arg(format!("--listen-peer-urls={peer}"))
        .arg(format!("--initial-advertise-peer-urls={peer}"))
        .arg(format!("--initial-cluster=default={peer}"));
    let server = Server::start(&mut c, &dir.join("etcd.log"))?;
    listens(port, "etcd").await?;
    Ok((server, client))
}

async fn connect(url: &str) -> Result<Client, String> {
    Client::connect([url], None).await.map_err(text)
}

fn ms(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or_default() * 1e3
}

fn p99(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len() * 99 / 100).copied().unwrap_or_default() * 1e3
}

async fn create(sender: &mut Sender, target: &Target, n: u64) -> Result<(), String> {
    let (status, body) = exchange(sender, target.request(Method::POST, MAPS, config_map(n))).await?;
    match status.is_success() {
        true => Ok(()),
        false => Err(format!("{status} {}", String::from_utf8_lossy(&body))),
    }
}

/// An HAProxy with a certificate of its own in front of etcd and a client of it; `None` where it is not installed.
async fn behind_haproxy(dir: &Path, etcd: &str) -> Result<Option<(Server, Client)>, String> {
    let cert = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).map_err(text)?;
    let pem = cert.cert.pem();
    let both = format!("{pem}{}", cert.signing_key.serialize_pem());
    std::fs::write(dir.join("haproxy-etcd.pem"), both).map_err(text)?;
    let (port, to) = (free_port()?, etcd.rsplit(':').next().and_then(|p| p.parse().ok()));
    let to = to.ok_or_else(|| format!("{etcd} names no port"))?;
    let Some(server) = peers::haproxy_before_etcd(dir, port, to)? else {
        return Ok(None);
    };
    listens(port, "HAProxy").await?;
    let tls = TlsOptions::new().ca_certificate(Certificate::from_pem(pem));
    let options = ConnectOptions::new().with_tls(tls);
    let client = Client::connect([format!("https://localhost:{port}")], Some(options)).await;
    Ok(Some((server, client.map_err(text)?)))
}

/// One create, one put of the same bytes, one create sent to etcd directly, and one put through HAProxy, by turns.
async fn one_at_a_time(
    g: &Gateway,
    dir: &Path,
    url: &str,
    value: &[u8],
    serial: &AtomicU64,
    r: &mut Report,
) -> Result<(), String> {
    let mut sender = g.target.connect().await?;
    let mut etcd = connect(url).await?;
    let mut proxied = behind_haproxy(dir, url).await?;
    let (mut puts, mut bare, mut through, mut creates) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let send = async |what: Direct, etcd: &mut Client, times: &mut Vec<f64>| {
        let n = serial.fetch_add(1, Ordering::Relaxed);
        let t = Instant::now();
        what.send(etcd, n, value).await.map_err(text)?;
        times.push(t.elapsed().as_secs_f64());
        Ok::<(), String>(())
    };
    let watch = watch_directly(url).await?;
    for _ in 0..ONE_AT_A_TIME {
        send(Direct::Put, &mut etcd, &mut puts).await?;
        send(Direct::Create, &mut etcd, &mut bare).await?;
        if let Some((_, proxied)) = &mut proxied {
            send(Direct::Put, proxied, &mut through).await?;
        }
        let n = serial.fetch_add(1, Ordering::Relaxed);
        let t = Instant::now();
        create(&mut sender, &g.target, n).await?;
        creates.push(t.elapsed().as_secs_f64());
    }
    watch.abort();
    let (direct, made) = (ms(&mut puts), ms(&mut creates));
    let row = |r: &mut Report, what: &str, (median, times): (f64, &[f64]), at_most: f64| {
        let how = format!(
            "medians {median:.2} and {direct:.2} ms, p99 {:.2} and {:.2} ms, {ONE_AT_A_TIME} of each",
            p99(times),
            p99(&puts)
        );
        r.row(what, median - direct, "ms", at_most, &how);
    };
    row(r, "etcd: create one at a time, beyond a put", (made, &creates), 0.3);
    let median = ms(&mut bare);
    row(r, "etcd: direct create, beyond a put", (median, &bare), 0.0);
    if let Some((haproxy, _)) = proxied {
        let median = ms(&mut through);
        row(
            r,
            "etcd: put through HAProxy with TLS, beyond a put",
            (median, &through),
            0.0,
        );
        haproxy.stop();
    }
    Ok(())
}

/// A request that is sent to etcd directly.
#[derive(Clone, Copy)]
enum Direct {
    Put,
    /// The least that a create of any API server costs etcd: a put on the condition that there is no such key,
    /// below a prefix that is watched.
    Create,
}

impl Direct {
    async fn send(self, client: &mut Client, n: u64, value: &[u8]) -> Result<(), etcd_client::Error> {
        match self {
            Self::Put => client.put(format!("/direct/{n}"), value, None).await.map(drop),
            Self::Create => {
                let key = format!("{WATCHED}{n}");
                let txn = Txn::new()
                    .when([Compare::mod_revision(&*key, CompareOp::Equal, 0)])
                    .and_then([TxnOp::put(&*key, value, None)])
                    .or_else([TxnOp::get(&*key, None)]);
                client.txn(txn).await.map(drop)
            }
        }
    }
}

/// Reads a watch of the prefix of direct creates until the task is aborted.
async fn watch_directly(url: &str) -> Result<tokio::task::JoinHandle<()>, String> {
    let mut client = connect(url).await?;
    let options = WatchOptions::new().with_prefix();
    let mut stream = client.watch(WATCHED, Some(options)).await.map_err(text)?;
    Ok(tokio::spawn(async move {
        // The client belongs to the stream: dropped, it would end it.
        let _client = client;
        while let Ok(Some(_)) = stream.message().await {}
    }))
}

/// The rate of direct requests with as many in flight as the creates have, over as many connections.
async fn directly(what: Direct, url: &str, value: Arc<[u8]>, serial: &Arc<AtomicU64>) -> Result<f64, String> {
    let (connections, streams) = IN_FLIGHT;
    let mut workers = Vec::new();
    let mut clients = Vec::new();
    for _ in 0..connections {
        clients.push(connect(url).await?);
    }
    let left = Arc::new(AtomicU64::new(MANY));
    let began = Instant::now();
    for client in clients {
        for _ in 0..streams {
            let (mut client, value, serial, left) = (client.clone(), value.clone(), serial.clone(), left.clone());
            workers.push(tokio::spawn(async move {
                let more = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
                while more().is_ok() {
                    let n = serial.fetch_add(1, Ordering::Relaxed);
                    what.send(&mut client, n, &value).await.map_err(text)?;
                }
                Ok::<(), String>(())
            }));
        }
    }
    for w in workers {
        w.await.map_err(text)??;
    }
    Ok(MANY as f64 / began.elapsed().as_secs_f64())
}

async fn many(
    g: &Gateway,
    etcd: &Server,
    url: &str,
    value: &[u8],
    serial: &Arc<AtomicU64>,
    r: &mut Report,
) -> Result<(), String> {
    let value: Arc<[u8]> = value.into();
    let (mut ratios, mut direct, mut through) = (Vec::new(), Vec::new(), Vec::new());
    let (mut bare, mut bare_ratios) = (Vec::new(), Vec::new());
    // CPU time of etcd for puts, of etcd for creates, of the gateway, of etcd for direct creates.
    let (mut spent, mut last) = ([Duration::ZERO; 4], String::new());
    for _ in 0..ROUNDS {
        let before = etcd.cpu();
        let put = directly(Direct::Put, url, value.clone(), serial).await?;
        let after_puts = etcd.cpu();
        spent[0] += after_puts - before;
        let watch = watch_directly(url).await?;
        let transactions = directly(Direct::Create, url, value.clone(), serial).await?;
        watch.abort();
        let (between, cpu) = (etcd.cpu(), g.server.cpu());
        spent[3] += between - after_puts;
        let next = serial.clone();
        let (connections, streams) = IN_FLIGHT;
        let l = load(&g.target, connections, streams, Duration::ZERO, MANY, move |_| {
            let n = next.fetch_add(1, Ordering::Relaxed);
            (Method::POST, MAPS.into(), config_map(n))
        })
        .await?;
        spent[1] += etcd.cpu() - between;
        spent[2] += g.server.cpu() - cpu;
        let made = l.requests as f64 / l.seconds;
        ratios.push(put / made);
        direct.push(put);
        through.push(made);
        bare.push(transactions);
        bare_ratios.push(transactions / made);
        last = note(&l);
    }
    for figures in [&mut ratios, &mut direct, &mut through, &mut bare, &mut bare_ratios] {
        figures.sort_by(f64::total_cmp);
    }
    let middle = ROUNDS / 2;
    let [put, made, gateway, transaction] = spent.map(|t| per(t, MANY * ROUNDS as u64));
    let how = format!(
        "medians of {ROUNDS} turns: {:.0} puts/s, {:.0} creates/s; CPU: a put {put:.0} µs of etcd, a create {made:.0} µs \
         of etcd and {gateway:.0} µs of the gateway; last creates {last}",
        direct[middle], through[middle],
    );
    r.row("etcd: puts to creates, 128 in flight", ratios[middle], "×", 1.25, &how);
    let how = format!(
        "{:.0} creates/s sent to etcd as transactions below a watched prefix, without a gateway; CPU: {transaction:.0} µs of etcd",
        bare[middle]
    );
    r.row(
        "etcd: direct creates to creates, 128 in flight",
        bare_ratios[middle],
        "×",
        0.0,
        &how,
    );
    Ok(())
}

/// Lists of an empty namespace, each after a write that moves etcd's revision beyond what the cache has seen.
async fn consistent_lists(g: &Gateway, url: &str, serial: &AtomicU64, r: &mut Report) -> Result<(), String> {
    let mut sender = g.target.connect().await?;
    let mut etcd = connect(url).await?;
    let (mut reads, mut lists) = (Vec::new(), Vec::new());
    for _ in 0..ONE_AT_A_TIME {
        let n = serial.fetch_add(1, Ordering::Relaxed);
        etcd.put(format!("/direct/{n}"), "x", None).await.map_err(text)?;
        let t = Instant::now();
        let options = GetOptions::new().with_prefix().with_keys_only().with_limit(1);
        etcd.get("/registry/configmaps/empty/", Some(options))
            .await
            .map_err(text)?;
        reads.push(t.elapsed().as_secs_f64());
        let request = g
            .target
            .request(Method::GET, "/api/v1/namespaces/empty/configmaps", Bytes::new());
        let t = Instant::now();
        exchange(&mut sender, request).await?;
        lists.push(t.elapsed().as_secs_f64());
    }
    let (read, list) = (ms(&mut reads), ms(&mut lists));
    let how = format!(
        "medians {list:.2} and {read:.2} ms, p99 {:.2} and {:.2} ms, a foreign write before each",
        p99(&lists),
        p99(&reads)
    );
    r.row(
        "etcd: consistent list, beyond a linearizable read",
        list - read,
        "ms",
        1.0,
        &how,
    );
    Ok(())
}

/// Reads a watch of the gateway and sends the time at which each object arrived.
async fn arrivals(mut body: Incoming, seen: tokio::sync::mpsc::UnboundedSender<(String, Instant)>) {
    let mut rest = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        let now = Instant::now();
        let Some(data) = frame.data_ref() else { continue };
        rest.extend_from_slice(data);
        while let Some(end) = rest.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            let event: Value = serde_json::from_slice(&line).unwrap_or_default();
            let name = event["object"]["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            if seen.send((name, now)).is_err() {
                return;
            }
        }
    }
}

/// A watch of etcd and one of the gateway see the same writes, which go through the gateway, one at a time.
async fn events(g: &Gateway, url: &str, serial: &AtomicU64, r: &mut Report) -> Result<(), String> {
    let mut sender = g.target.connect().await?;
    let mut watcher = g.target.connect().await?;
    let mut etcd = connect(url).await?;
    let mut direct = etcd
        .watch(PREFIX, Some(WatchOptions::new().with_prefix()))
        .await
        .map_err(text)?;
    let path = format!("{MAPS}?watch=1");
    let resp = watcher
        .send_request(g.target.request(Method::GET, &path, Bytes::new()))
        .await
        .map_err(text)?;
    let (tell, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let gateway = tokio::spawn(arrivals(resp.into_body(), tell));
    let (tell, mut seen_direct) = tokio::sync::mpsc::unbounded_channel();
    let reader = tokio::spawn(async move {
        while let Ok(Some(answer)) = direct.message().await {
            let now = Instant::now();
            for event in answer.events() {
                let Some(pair) = event.kv() else { continue };
                let name = String::from_utf8_lossy(pair.key())
                    .trim_start_matches(PREFIX)
                    .to_owned();
                if tell.send((name, now)).is_err() {
                    return;
                }
            }
        }
    });
    let mut behind = Vec::new();
    for _ in 0..ONE_AT_A_TIME {
        let n = serial.fetch_add(1, Ordering::Relaxed);
        let name = format!("c-{n:06}");
        create(&mut sender, &g.target, n).await?;
        let at = async |from: &mut tokio::sync::mpsc::UnboundedReceiver<(String, Instant)>| loop {
            match tokio::time::timeout(Duration::from_secs(10), from.recv()).await {
                Ok(Some((seen, at))) if seen == name => return Ok(at),
                Ok(Some(_)) => {}
                _ => return Err(format!("no event of {name} within 10 s")),
            }
        };
        let (theirs, ours) = (at(&mut seen_direct).await?, at(&mut seen).await?);
        behind.push(match ours.checked_duration_since(theirs) {
            Some(later) => later.as_secs_f64(),
            None => -theirs.duration_since(ours).as_secs_f64(),
        });
    }
    gateway.abort();
    reader.abort();
    let median = ms(&mut behind);
    let how = format!(
        "median of {ONE_AT_A_TIME}, p99 {:.2} ms, written through the gateway",
        p99(&behind)
    );
    r.row("etcd: watch event behind etcd's own", median, "ms", 1.0, &how);
    Ok(())
}

pub async fn run(torana: &Path, dir: &Path, r: &mut Report) -> Result<(), String> {
    let own = dir.join("on-etcd");
    std::fs::create_dir_all(&own).map_err(text)?;
    let (etcd, url) = member(&own).await?;
    let version = connect(&url).await?.status().await.map_err(text)?.version().to_owned();
    let flag = format!("--etcd-servers={url}");
    let g = start_with(torana, &own, free_port()?, &[&flag]).await?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bench"}}).to_string();
    g.target.once(Method::POST, "/api/v1/namespaces", &namespace).await?;
    let serial = Arc::new(AtomicU64::new(0));
    create(
        &mut g.target.connect().await?,
        &g.target,
        serial.fetch_add(1, Ordering::Relaxed),
    )
    .await?;
    // Direct puts write what the gateway stores.
    let stored = connect(&url)
        .await?
        .get(format!("{PREFIX}c-000000"), None)
        .await
        .map_err(text)?;
    let value = stored
        .kvs()
        .first()
        .ok_or("the gateway stores objects elsewhere")?
        .value()
        .to_vec();
    println!("| etcd {version}, values of {} bytes | | | |", value.len());
    one_at_a_time(&g, &own, &url, &value, &serial, r).await?;
    many(&g, &etcd, &url, &value, &serial, r).await?;
    consistent_lists(&g, &url, &serial, r).await?;
    events(&g, &url, &serial, r).await?;
    g.server.stop();
    etcd.stop();
    Ok(())
}
