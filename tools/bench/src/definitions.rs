//! Costs of CustomResourceDefinitions by their number: memory, start, and the time until a new one is served.

use crate::client::load;
use crate::process::free_port;
use crate::report::Report;
use crate::scenarios::{Gateway, per, start};
use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

const COUNTS: [u64; 3] = [1, 100, 1_000];
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Properties of each object in the schema. A definition is then about as large as the median of those of cert-manager,
/// kube-prometheus and cluster-api.
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
    for n in COUNTS {
        let own = dir.join(format!("definitions-{n}"));
        std::fs::create_dir_all(&own).map_err(|e| e.to_string())?;
        let port = free_port()?;
        start(torana, &own, port).await?.server.stop();
        let g = start(torana, &own, port).await?;
        let idle = g.server.rss_mb();
        g.server.stop();

        let g = start(torana, &own, port).await?;
        let (began, cpu) = (Instant::now(), g.server.cpu());
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
        r.row(
            &format!("create {n} definitions"),
            per(g.server.cpu() - cpu, n) / 1e3,
            "ms CPU each",
            0.0,
            &note,
        );
        g.server.stop();

        let g = start(torana, &own, port).await?;
        let took = g.started.as_secs_f64() * 1e3;
        r.row(&format!("start with {n} definitions"), took, "ms", 1000.0, "");
        if n >= 100 {
            // A change is kept for watches to resume from; what remains after that is the definition's own.
            tokio::time::sleep(HISTORY).await;
        }
        let each = (g.server.rss_mb() - idle) * 1e3 / n as f64;
        // One definition is lost in the noise of a start.
        let at_most = if n >= 100 { 50.0 } else { 0.0 };
        r.row(
            &format!("memory of an unused definition, {n}"),
            each,
            "KB",
            at_most,
            "after a restart, once no history is kept",
        );
        first_requests(&g, n, r).await?;
        if n == COUNTS[COUNTS.len() - 1] {
            requests(&g, r).await?;
        }
        g.server.stop();
        std::fs::remove_dir_all(&own).map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// Time from the create of a definition to the first successful create of its kind.
async fn first_requests(g: &Gateway, n: u64, r: &mut Report) -> Result<(), String> {
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
    r.row(
        &format!("create a definition and an object of it, beside {n}"),
        times[times.len() / 2],
        "ms",
        20.0,
        &note,
    );
    Ok(())
}

/// CPU of requests for a custom resource and for a ConfigMap of about the same size, and of discovery that did not
/// change.
async fn requests(g: &Gateway, r: &mut Report) -> Result<(), String> {
    const MAPS: &str = "/api/v1/namespaces/default/configmaps";
    const OBJECTS: u64 = 2_000;
    let own = path(0);
    let creates: [(&str, String, fn(u64) -> Bytes); 2] = [
        ("a custom resource", own.clone(), |i| {
            object(0, &format!("o-{i:06}")).into()
        }),
        ("a ConfigMap", MAPS.to_owned(), |i| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("o-{i:06}"),
                "labels": {"app": "bench"}}, "data": {"field0": "a", "field1": "b", "field2": "some more text here"}})
            .to_string()
            .into()
        }),
    ];
    for (what, path, body) in creates {
        let (before, to) = (g.server.cpu(), path.clone());
        let make = move |i| (Method::POST, to.clone(), body(i));
        let l = load(&g.target, 4, 8, Duration::ZERO, OBJECTS, make).await?;
        r.row(
            &format!("create {what}"),
            per(g.server.cpu() - before, l.requests),
            "µs CPU",
            0.0,
            "",
        );
        for (verb, path, times) in [
            ("GET", format!("{path}/o-000042"), 40_000),
            ("LIST of 2,000", path.clone(), 200),
        ] {
            let before = g.server.cpu();
            let l = load(&g.target, 2, 4, Duration::ZERO, times, move |_| {
                (Method::GET, path.clone(), Bytes::new())
            })
            .await?;
            let note = format!("{} failures", l.failures);
            r.row(
                &format!("{verb} {what}"),
                per(g.server.cpu() - before, l.requests),
                "µs CPU",
                0.0,
                &note,
            );
        }
    }
    Ok(())
}
