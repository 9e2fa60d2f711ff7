//! The training load for the profile-guided build (`make dist`): a small version of a gateway's typical work.
//! Nothing is measured here.

use crate::aggregation::create;
use crate::aggregation::{PATH, aggregated};
use crate::client::{Target, load};
use crate::gateway::{Gateway, config_map, in_own_dir, start};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::Method;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Runs the load against this binary twice over one data directory: first to fill it, then to start with it
/// full.
pub async fn run(torana: PathBuf) -> Result<(), String> {
    in_own_dir(async |dir| {
        let port = crate::process::free_port()?;
        let g = start(&torana, dir, port).await?;
        day(&g, dir).await?;
        g.server.stop();
        start(&torana, dir, port).await?.server.stop();
        Ok(())
    })
    .await
}

const CONFIG_MAPS: &str = "/api/v1/namespaces/bench/configmaps";

async fn day(g: &Gateway, dir: &Path) -> Result<(), String> {
    let t = &g.target;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bench"}});
    create(t, "/api/v1/namespaces", &namespace).await?;
    let (_backend, _) = aggregated(g, dir).await?;

    let watches = watchers(t, 100).await?;
    some(t, 3000, |i| (Method::POST, CONFIG_MAPS.into(), config_map(i))).await?;
    some(t, 200, |i| {
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": format!("s-{i}")},
            "spec": {"selector": {"app": "bench"}, "ports": [{"port": 80}]}});
        let path = "/api/v1/namespaces/bench/services";
        (Method::POST, path.into(), service.to_string().into())
    })
    .await?;
    let changed = |i: u64| json!({"metadata": {"labels": {"turn": i.to_string()}}}).to_string();
    for content_type in ["application/merge-patch+json", "application/strategic-merge-patch+json"] {
        let t = with(t, content_type, &[]);
        some(&t, 1000, move |i| {
            (Method::PATCH, format!("{CONFIG_MAPS}/c-{i:06}"), changed(i).into())
        })
        .await?;
    }
    some(&with(t, "application/apply-patch+yaml", &[]), 500, |i| {
        let path = format!("{CONFIG_MAPS}/c-{i:06}?fieldManager=train&force=true");
        (Method::PATCH, path, config_map(i))
    })
    .await?;
    some(t, 1000, |i| {
        (Method::DELETE, format!("{CONFIG_MAPS}/c-{:06}", 2000 + i), Bytes::new())
    })
    .await?;
    for w in watches {
        w.abort();
    }

    for accept in [
        "application/json",
        "application/vnd.kubernetes.protobuf, application/json",
        "application/json;as=Table;g=meta.k8s.io;v=v1",
    ] {
        let t = with(t, "application/json", &[("accept", accept.into())]);
        some(&t, 50, |_| get(CONFIG_MAPS)).await?;
        some(&t, 50, |i| {
            get(&format!("{CONFIG_MAPS}?labelSelector=shard%3D{}", i % 10))
        })
        .await?;
        some(&t, 3000, |i| get(&format!("{CONFIG_MAPS}/c-{:06}", i % 2000))).await?;
    }
    for path in ["/apis", "/api/v1", "/openapi/v3", "/version", "/readyz"] {
        some(t, 1000, |_| get(path)).await?;
    }
    let kinds = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    some(&with(t, "", &[("accept", kinds.into())]), 300, |_| get("/apis")).await?;

    let seconds = Duration::from_secs(4);
    load(t, 16, 10, seconds, 0, |_| get(PATH)).await?;
    load(t, 16, 10, seconds / 2, 0, |i| {
        get(&format!("{CONFIG_MAPS}/c-{:06}", i % 2000))
    })
    .await?;
    Ok(())
}

fn get(path: &str) -> (Method, String, Bytes) {
    (Method::GET, path.into(), Bytes::new())
}

fn with(t: &Target, content_type: &'static str, headers: &[(&'static str, String)]) -> Target {
    let mut t = t.clone();
    t.content_type = content_type;
    t.headers = headers.to_vec();
    t
}

/// Sends `n` requests that must all succeed.
async fn some(
    t: &Target,
    n: u64,
    make: impl Fn(u64) -> (Method, String, Bytes) + Send + Sync + 'static,
) -> Result<(), String> {
    match load(t, 4, 8, Duration::ZERO, n, make).await?.failures {
        0 => Ok(()),
        failures => Err(format!("{failures} of {n} requests of the training failed")),
    }
}

/// Watches that read everything they receive.
async fn watchers(t: &Target, n: usize) -> Result<Vec<tokio::task::JoinHandle<()>>, String> {
    let mut tasks = Vec::new();
    let mut sender = t.connect().await?;
    for i in 0..n {
        if i % 50 == 0 {
            sender = t.connect().await?;
        }
        sender.ready().await.map_err(|e| e.to_string())?;
        let path = format!("{CONFIG_MAPS}?watch=1");
        let answer = sender.send_request(t.request(Method::GET, &path, Bytes::new()));
        let mut body = answer.await.map_err(|e| e.to_string())?.into_body();
        tasks.push(tokio::spawn(
            async move { while let Some(Ok(_)) = body.frame().await {} },
        ));
    }
    Ok(tasks)
}
