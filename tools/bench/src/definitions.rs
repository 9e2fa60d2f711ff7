//! Costs of CustomResourceDefinitions by their number, drawn to `docs/benchmarks/definitions-*.svg`: memory,
//! start, and the time until a new one is served. Beside 1,000 of them, requests for a custom resource and
//! for a ConfigMap, and discovery.

use crate::client::load;
use crate::gateway::{Gateway, start};
use crate::growth::Curves;
use crate::process::free_port;
use crate::report::Report;
use crate::report::per;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::header::{self, HeaderValue};
use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

const COUNTS: [u64; 4] = [1, 100, 1_000, 2_000];
/// The number with which requests for a custom resource are compared with those for a built-in kind.
const REQUESTS_BESIDE: u64 = 1_000;
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Properties of each object in the schema. A definition is then about as large as the median of those of
/// cert-manager, kube-prometheus and cluster-api.
const WIDTH: usize = 6;
const DEPTH: usize = 2;
/// The age at which the watch cache has discarded a change.
const HISTORY: Duration = Duration::from_secs(85);
/// Definitions created one after the other to measure the first request.
const FIRST: u64 = 20;

fn schema(of: u64, depth: usize) -> Value {
    let leaf = |i: usize| {
        json!({"type": "string", "maxLength": 253, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
            "description": format!("Field {i} of definition {of}: what the controller does with it, in a sentence.")})
    };
    let properties = (0..WIDTH).map(|i| {
        let inner = match depth {
            0 => leaf(i),
            _ => schema(of, depth - 1),
        };
        (format!("field{i}"), inner)
    });
    let properties: serde_json::Map<String, Value> = properties.collect();
    json!({"type": "object", "description": "A part of the specification.", "properties": properties})
}

/// Definition `i`, one of ten in its group.
fn definition(i: u64) -> String {
    let (group, plural) = (format!("g{}.bench.example.com", i / 10), format!("widgets{i}"));
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {"group": group, "scope": "Namespaced",
            "names": {"plural": plural, "kind": format!("Widget{i}")},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": schema(i, DEPTH)}}}}]}})
    .to_string()
}

fn path(i: u64) -> String {
    format!("/apis/g{}.bench.example.com/v1/namespaces/default/widgets{i}", i / 10)
}

fn object(i: u64, name: &str) -> String {
    json!({"apiVersion": format!("g{}.bench.example.com/v1", i / 10), "kind": format!("Widget{i}"),
        "metadata": {"name": name, "labels": {"app": "bench"}},
        "spec": {"field0": {"field0": {"field0": "a", "field1": "b"}}}})
    .to_string()
}

/// Waits until a definition serves requests.
async fn served(g: &Gateway, i: u64) -> Result<(), String> {
    let until = Instant::now() + Duration::from_secs(60);
    while !g.target.once(Method::GET, &path(i), "").await?.0.is_success() {
        if Instant::now() > until {
            return Err(format!("definition {i} is not served after a minute"));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

pub async fn run(torana: &Path, dir: &Path, r: &mut Report) -> Result<(), String> {
    let (mut memory, mut times, mut cpu) = (Curves::default(), Curves::default(), Curves::default());
    // CPU of an unchanged discovery document beside the fewest definitions.
    let mut unchanged = None;
    for n in COUNTS {
        let own = dir.join(format!("definitions-{n}"));
        std::fs::create_dir_all(&own).map_err(|e| e.to_string())?;
        let port = free_port()?;
        start(torana, &own, port).await?.server.stop();
        let g = start(torana, &own, port).await?;
        let idle = g.server.rss_mb();
        g.server.stop();

        let g = start(torana, &own, port).await?;
        let (began, before) = (Instant::now(), g.server.cpu());
        load(&g.target, 4, 4, Duration::ZERO, n, |i| {
            (Method::POST, DEFINITIONS.into(), definition(i).into())
        })
        .await?;
        served(&g, n - 1).await?;
        let note = format!(
            "{} bytes each, {:.1} s in all",
            definition(0).len(),
            began.elapsed().as_secs_f64()
        );
        let create = per(g.server.cpu() - before, n) / 1e3;
        cpu.add("create a definition", n, create.max(0.01));
        r.row(&format!("create {n} definitions"), create, "ms CPU each", 0.0, &note);
        g.server.stop();

        let g = start(torana, &own, port).await?;
        let took = g.started.as_secs_f64() * 1e3;
        times.add("start to /readyz", n, took);
        r.row(&format!("start with {n} definitions"), took, "ms", 1000.0, "");
        if n >= 1_000 {
            // A change is kept for watches to resume from; what remains after that is the definition's own.
            tokio::time::sleep(HISTORY).await;
        }
        let beyond = g.server.rss_mb() - idle;
        memory.add("resident beyond idle", n, beyond.max(0.1));
        let each = beyond * 1e3 / n as f64;
        // A few definitions are lost in the noise of a start.
        let at_most = if n >= 1_000 { 50.0 } else { 0.0 };
        r.row(
            &format!("memory of an unused definition, {n}"),
            each,
            "KB",
            at_most,
            "after a restart; from 1,000 on when history has shrunk to its minimum",
        );
        times.add("create to the first object, median", n, first_requests(&g, n, r).await?);
        let discovered = discovery(&g, n, unchanged, r).await?;
        unchanged.get_or_insert(discovered);
        cpu.add("discovery, 304", n, (discovered / 1e3).max(0.001));
        if n == REQUESTS_BESIDE {
            requests(&g, r).await?;
        }
        g.server.stop();
        std::fs::remove_dir_all(&own).map_err(|e| e.to_string())?;
    }
    let axis = "definitions";
    memory.draw(
        "definitions-memory.svg",
        "Memory by definitions, none of them used",
        axis,
        "MB",
    )?;
    times.draw(
        "definitions-times.svg",
        "Start and first request by definitions",
        axis,
        "ms",
    )?;
    cpu.draw("definitions-cpu.svg", "CPU by definitions", axis, "ms CPU")
}

/// CPU in µs of an aggregated discovery document that did not change.
async fn discovery(g: &Gateway, n: u64, first: Option<f64>, r: &mut Report) -> Result<f64, String> {
    const TIMES: u64 = 40_000;
    let accept = "application/json;v=v2;g=apidiscovery.k8s.io;as=APIGroupDiscoveryList";
    let get = |etag: Option<&str>| {
        let mut get = g.target.request(Method::GET, "/apis", Bytes::new());
        let headers = get.headers_mut();
        headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
        if let Some(etag) = etag.and_then(|e| HeaderValue::from_str(e).ok()) {
            headers.insert(header::IF_NONE_MATCH, etag);
        }
        get
    };
    let mut sender = g.target.connect().await?;
    let mut etag = String::new();
    // Until the definitions created before are in the document.
    loop {
        let answer = sender.send_request(get(None)).await.map_err(|e| e.to_string())?;
        let now = answer.headers().get(header::ETAG).and_then(|e| e.to_str().ok());
        let now = now.ok_or("discovery has no ETag")?;
        if now == etag {
            break;
        }
        now.clone_into(&mut etag);
        tokio::time::sleep(Duration::from_secs(2)).await;
        sender.ready().await.map_err(|e| e.to_string())?;
    }
    let before = g.server.cpu();
    for _ in 0..TIMES {
        sender.ready().await.map_err(|e| e.to_string())?;
        let answer = sender.send_request(get(Some(&etag))).await.map_err(|e| e.to_string())?;
        if answer.status() != StatusCode::NOT_MODIFIED {
            return Err(format!("discovery answers {}", answer.status()));
        }
    }
    let each = per(g.server.cpu() - before, TIMES);
    r.row(
        &format!("discovery, 304, beside {n}"),
        each,
        "µs CPU",
        first.map_or(0.0, |first| 1.25 * first),
        "one at a time on one connection; flat: at most 1.25 times the first",
    );
    Ok(each)
}

/// Time from the create of a definition to the first successful create of its kind.
async fn first_requests(g: &Gateway, n: u64, r: &mut Report) -> Result<f64, String> {
    let mut times = Vec::new();
    for i in n + 10..n + 10 + FIRST {
        let began = Instant::now();
        g.target.once(Method::POST, DEFINITIONS, &definition(i)).await?;
        while !g
            .target
            .once(Method::POST, &path(i), &object(i, "first"))
            .await?
            .0
            .is_success()
        {
            if began.elapsed() > Duration::from_secs(60) {
                return Err(format!("definition {i} is not served after a minute"));
            }
        }
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    let note = format!("median of {FIRST}, longest {:.1} ms", times[times.len() - 1]);
    let median = times[times.len() / 2];
    r.row(
        &format!("create a definition and an object of it, beside {n}"),
        median,
        "ms",
        20.0,
        &note,
    );
    Ok(median)
}

/// CPU of requests for a custom resource, and its ratio to that for a ConfigMap of about the same size. Each
/// pair is measured in turns: creates, GETs, lists, and events to 100 watches.
async fn requests(g: &Gateway, r: &mut Report) -> Result<(), String> {
    const OBJECTS: u64 = 2_000;
    const TURNS: usize = 3;
    let custom = path(0);
    let maps = "/api/v1/namespaces/default/configmaps".to_owned();
    let body = |is_custom: bool, name: &str| -> Bytes {
        if is_custom {
            return object(0, name).into();
        }
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"app": "bench"}},
            "data": {"field0": "a", "field1": "b", "field2": "some more text here"}})
        .to_string()
        .into()
    };
    let create = async |is_custom: bool, prefix: &str, n: u64| {
        let to = if is_custom { custom.clone() } else { maps.clone() };
        let prefix = prefix.to_owned();
        let before = g.server.cpu();
        let make = move |i| (Method::POST, to.clone(), body(is_custom, &format!("{prefix}-{i:06}")));
        let l = load(&g.target, 4, 8, Duration::ZERO, n, make).await?;
        Ok::<_, String>(per(g.server.cpu() - before, l.requests))
    };
    let read = async |is_custom: bool, below: &str, times: u64| {
        let path = format!("{}{below}", if is_custom { &custom } else { &maps });
        let before = g.server.cpu();
        let make = move |_| (Method::GET, path.clone(), Bytes::new());
        let l = load(&g.target, 2, 4, Duration::ZERO, times, make).await?;
        Ok::<_, String>(per(g.server.cpu() - before, l.requests))
    };
    let mut rows: [(&str, f64, [Vec<f64>; 2]); 4] = [
        ("create", 0.0, Default::default()),
        ("GET", 1.2, Default::default()),
        ("LIST of 2,000", 1.2, Default::default()),
        (
            "event to each of 100 watches, its share of a create",
            1.2,
            Default::default(),
        ),
    ];
    for is_custom in [true, false] {
        create(is_custom, "o", OBJECTS).await?;
    }
    for turn in 0..TURNS {
        for is_custom in [true, false] {
            let kind = usize::from(!is_custom);
            rows[0].2[kind].push(create(is_custom, &format!("c{turn}"), OBJECTS).await?);
            rows[1].2[kind].push(read(is_custom, "/o-000042", 40_000).await?);
            rows[2].2[kind].push(read(is_custom, "?labelSelector=app%3Dbench&limit=2000", 300).await?);
            let watches = Watches::open(g, if is_custom { &custom } else { &maps }).await?;
            let each = create(is_custom, &format!("w{turn}"), OBJECTS).await?;
            watches.have_seen(OBJECTS).await?;
            rows[3].2[kind].push(each / WATCHES as f64);
        }
    }
    for (what, at_most, mut figures) in rows {
        figures.iter_mut().for_each(|f| f.sort_by(f64::total_cmp));
        let [own, built_in] = figures.map(|f| f[f.len() / 2]);
        let note = format!("{own:.1} µs CPU to a ConfigMap's {built_in:.1}, medians of {TURNS}");
        r.row(
            &format!("{what}: a custom resource to a ConfigMap"),
            own / built_in,
            "×",
            at_most,
            &note,
        );
    }
    Ok(())
}

const WATCHES: usize = 100;

/// Watches of one collection, which count what they receive.
struct Watches {
    seen: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<()>>,
}

impl Watches {
    async fn open(g: &Gateway, path: &str) -> Result<Self, String> {
        let seen = Arc::new(AtomicU64::new(0));
        let mut tasks = Vec::new();
        let mut sender = g.target.connect().await?;
        let now = g.target.once(Method::GET, &format!("{path}?limit=1"), "").await?.1;
        let now: Value = serde_json::from_slice(&now).map_err(|e| e.to_string())?;
        let from = now["metadata"]["resourceVersion"]
            .as_str()
            .ok_or("a list has a version")?;
        let path = format!("{path}?watch=1&resourceVersion={from}");
        for _ in 0..WATCHES {
            sender.ready().await.map_err(|e| e.to_string())?;
            let sent = sender.send_request(g.target.request(Method::GET, &path, Bytes::new()));
            let mut body = sent.await.map_err(|e| e.to_string())?.into_body();
            let seen = seen.clone();
            tasks.push(tokio::spawn(async move {
                while let Some(Ok(frame)) = body.frame().await {
                    let lines = frame
                        .data_ref()
                        .map_or(0, |d| d.iter().filter(|b| **b == b'\n').count());
                    seen.fetch_add(lines as u64, Ordering::Relaxed);
                }
            }));
        }
        Ok(Self { seen, tasks })
    }

    async fn have_seen(&self, events: u64) -> Result<(), String> {
        let (goal, until) = (events * WATCHES as u64, Instant::now() + Duration::from_secs(60));
        while self.seen.load(Ordering::Relaxed) < goal {
            if Instant::now() > until {
                return Err(format!(
                    "{} of {goal} events delivered",
                    self.seen.load(Ordering::Relaxed)
                ));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}
