//! Costs by the number of APIServices.

use super::{API_SERVICES, Setup, group, patch, path};
use crate::backend::KINDS;
use crate::client::{Load, load};
use crate::report::Report;
use crate::report::{note, per};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::{Method, StatusCode};
use serde_json::json;
use std::time::{Duration, Instant};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

async fn proxied(setup: &Setup, groups: usize) -> Result<(f64, Load), String> {
    let make = move |i: u64| (Method::GET, path(i as usize % groups), Bytes::new());
    load(&setup.g.target, 16, 10, Duration::from_secs(1), 0, make).await?;
    let cpu = setup.g.server.cpu();
    let l = load(&setup.g.target, 16, 10, Duration::from_secs(4), 0, make).await?;
    Ok((per(setup.g.server.cpu() - cpu, l.requests), l))
}

/// A proxied GET with one APIService, and with a thousand.
pub(super) async fn many(setup: &Setup, r: &mut Report) -> Result<(), String> {
    const MANY: usize = 1000;
    setup.service("bench").await?;
    setup.group(0, "bench").await?;
    setup.answered(0..1).await?;
    let (one, l) = proxied(setup, 1).await?;
    r.row("proxied GET, 1 APIService", one, "µs CPU", 0.0, &note(&l));
    for i in 1..MANY {
        setup.group(i, "bench").await?;
    }
    setup.answered(0..MANY).await?;
    // Wait for the probes, discovery and OpenAPI of a thousand new APIServices.
    let idle = idle_cpu(setup).await;
    let (many, l) = proxied(setup, MANY).await?;
    let text = format!("{}; {idle:.1} % of a core for all probes beside it", note(&l));
    r.row("proxied GET, 1,000 APIServices", many, "µs CPU", 0.0, &text);
    r.row("ratio of CPU, 1,000 to 1", many / one, "×", 1.1, "same run");
    r.row(
        "resident memory, 1,000 APIServices",
        setup.g.server.rss_mb(),
        "MB",
        0.0,
        "",
    );
    Ok(())
}

/// The CPU usage of the idle gateway, in percent of a core, once it has settled.
async fn idle_cpu(setup: &Setup) -> f64 {
    let mut last = f64::MAX;
    for _ in 0..30 {
        let cpu = setup.g.server.cpu();
        tokio::time::sleep(Duration::from_secs(2)).await;
        let now = (setup.g.server.cpu() - cpu).as_secs_f64() / 2.0 * 100.0;
        if now < 10.0 && (now - last).abs() < 3.0 {
            return now;
        }
        last = now;
    }
    last
}

/// Creates CustomResourceDefinitions, ten per group; each group gets an APIService.
async fn definitions(setup: &Setup, n: u64) -> Result<(), String> {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let made = load(&setup.g.target, 2, 4, Duration::ZERO, n, move |i| {
        let (group, kind) = (format!("c{}.bench.example.org", i / 10), format!("Thing{i}"));
        let plural = format!("{}s", kind.to_lowercase());
        let version = json!({"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {"group": group, "scope": "Namespaced", "versions": [version],
                "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")}}});
        (Method::POST, path.to_owned(), definition.to_string().into())
    })
    .await?;
    match made.failures {
        0 => Ok(()),
        failures => Err(format!("{failures} of {n} CustomResourceDefinitions were refused")),
    }
}

/// The aggregated discovery document with 300 APIServices and 1,000 CustomResourceDefinitions: repeated
/// requests, and requests after a change.
pub(super) async fn discovery(setup: &Setup, r: &mut Report) -> Result<(), String> {
    const GROUPS: usize = 300;
    const DEFINITIONS: u64 = 1000;
    const CHANGES: u32 = 20;
    setup.service("bench").await?;
    for i in 0..GROUPS {
        setup.group(i, "bench").await?;
    }
    definitions(setup, DEFINITIONS).await?;
    setup.answered(0..GROUPS).await?;
    idle_cpu(setup).await;
    let mut target = setup.g.target.clone();
    target.headers = vec![("accept", AGGREGATED.to_owned())];
    let (etag, size) = etag(&target).await?;
    let mut conditional = target.clone();
    conditional.headers.push(("if-none-match", etag));
    let make = |_| (Method::GET, "/apis".to_owned(), Bytes::new());
    let cpu = setup.g.server.cpu();
    let l = load(&conditional, 4, 4, Duration::from_secs(3), 0, make).await?;
    let us = per(setup.g.server.cpu() - cpu, l.requests);
    let text = format!(
        "{}; a document of {} KiB with {} kinds of backends and {DEFINITIONS} of definitions",
        note(&l),
        size >> 10,
        GROUPS * KINDS
    );
    r.row(
        "aggregated discovery, 300 APIServices, 1,000 CRDs, 304",
        us,
        "µs CPU",
        60.0,
        &text,
    );

    let mut times = Vec::new();
    let mut changed = 0;
    let mut sender = target.connect().await?;
    for n in 0..CHANGES {
        let before = self::etag(&target).await?.0;
        // Moves the group from the first position to the last, and back.
        let change = json!({"spec": {"groupPriorityMinimum": if n % 2 == 0 { 1100 } else { 900 }}});
        patch(&setup.g.target, &format!("{API_SERVICES}/v1.{}", group(7)), &change).await?;
        // The change takes effect with a watch event.
        let until = Instant::now() + Duration::from_secs(5);
        while Instant::now() < until {
            let t = Instant::now();
            let request = target.request(Method::GET, "/apis", Bytes::new());
            sender.ready().await.map_err(|e| e.to_string())?;
            let answer = sender.send_request(request).await.map_err(|e| e.to_string())?;
            let took = t.elapsed();
            let etag = answer.headers().get("etag").cloned();
            // Read to the end: a server limits clients that reset one stream after the other.
            answer.into_body().collect().await.map_err(|e| e.to_string())?;
            if etag.is_some_and(|e| e.as_bytes() != before.as_bytes()) {
                times.push(took.as_secs_f64() * 1e3);
                changed += 1;
                break;
            }
        }
    }
    times.sort_by(f64::total_cmp);
    let median = times.get(times.len() / 2).copied().unwrap_or(f64::NAN);
    let worst = times.last().copied().unwrap_or(f64::NAN);
    let text =
        format!("to the head of the first answer that shows it, median of {changed} of {CHANGES}; worst {worst:.1} ms");
    r.row("aggregated discovery, rebuilt after a change", median, "ms", 5.0, &text);
    Ok(())
}

async fn etag(target: &crate::client::Target) -> Result<(String, usize), String> {
    let mut sender = target.connect().await?;
    let request = target.request(Method::GET, "/apis", Bytes::new());
    sender.ready().await.map_err(|e| e.to_string())?;
    let answer = sender.send_request(request).await.map_err(|e| e.to_string())?;
    if answer.status() != StatusCode::OK {
        return Err(format!("/apis: {}", answer.status()));
    }
    let etag = answer
        .headers()
        .get("etag")
        .and_then(|v| v.to_str().ok())
        .unwrap_or("")
        .to_owned();
    let body = answer
        .into_body()
        .collect()
        .await
        .map_err(|e| e.to_string())?
        .to_bytes();
    Ok((etag, body.len()))
}
