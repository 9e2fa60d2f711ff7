//! Aggregation scenarios: many backends, faulty backends, long and large responses, expensive writes. They
//! run only when selected: `make bench ONLY=aggregation`, or one by name.

mod black_holes;
mod flood;
mod paced;
mod relay;
mod replicas;
mod scale;
mod streams;
mod worst;

use crate::client::Target;
use crate::gateway::{Gateway, backend, base64, start};
use crate::process::{Server, free_port};
use crate::report::Report;
use hyper::Method;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

const ROWS: [&str; 9] = [
    "many",
    "discovery",
    "blackholes",
    "watches",
    "large",
    "stream",
    "replicas",
    "worst",
    "fairness",
];

/// Whether this names an aggregation scenario, or all of them.
pub fn is_row(name: &str) -> bool {
    name == "aggregation" || ROWS.contains(&name)
}

/// Runs the selected scenarios, each with its own gateway.
pub async fn run(torana: &Path, dir: &Path, only: &[String], r: &mut Report) -> Result<(), String> {
    for row in ROWS {
        if !only.iter().any(|o| o == row || o == "aggregation") {
            continue;
        }
        let own = dir.join(row);
        std::fs::create_dir_all(&own).map_err(|e| e.to_string())?;
        match row {
            "many" => scale::many(&Setup::start(torana, &own).await?, r).await?,
            "discovery" => scale::discovery(&Setup::start(torana, &own).await?, r).await?,
            "blackholes" => black_holes::black_holes(&Setup::start(torana, &own).await?, r).await?,
            "watches" => streams::watches(&Setup::start(torana, &own).await?, r).await?,
            "large" => streams::large(&Setup::start(torana, &own).await?, &own, r).await?,
            "stream" => streams::stream(&Setup::start(torana, &own).await?, r).await?,
            "worst" => worst::writes(torana, &own, r).await?,
            "fairness" => flood::floods_of_others(torana, &own, r).await?,
            _ => replicas::replicas(torana, &own, r).await?,
        }
    }
    Ok(())
}

/// A gateway and one backend process.
struct Setup {
    g: Gateway,
    _backend: Server,
    port: u16,
    bundle: String,
}

impl Setup {
    async fn start(torana: &Path, dir: &Path) -> Result<Self, String> {
        Self::around(start(torana, dir, free_port()?).await?, dir).await
    }

    /// Adds a backend to a gateway.
    async fn around(g: Gateway, dir: &Path) -> Result<Self, String> {
        let (server, port, pem) = backend(dir).await?;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bench"}});
        create(&g.target, "/api/v1/namespaces", &namespace).await?;
        Ok(Self {
            g,
            _backend: server,
            port,
            bundle: base64(pem.as_bytes()),
        })
    }

    /// Creates a Service that leads to this host.
    async fn service(&self, name: &str) -> Result<(), String> {
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "bench"},
            "spec": {"type": "ExternalName", "externalName": "localhost"}});
        create(&self.g.target, "/api/v1/namespaces/bench/services", &service).await
    }

    /// Creates the group `g<i>.bench.example.com` with this service.
    async fn group(&self, i: usize, service: &str) -> Result<(), String> {
        let group = group(i);
        let object = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": format!("v1.{group}")},
            "spec": {"group": group, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 10,
                "caBundle": self.bundle, "service": {"name": service, "namespace": "bench", "port": self.port}}});
        create(&self.g.target, API_SERVICES, &object).await
    }

    /// Waits until each of these groups is served.
    async fn answered(&self, groups: std::ops::Range<usize>) -> Result<(), String> {
        let until = Instant::now() + Duration::from_secs(120);
        for i in groups {
            while !self.g.target.once(Method::GET, &path(i), "").await?.0.is_success() {
                if Instant::now() > until {
                    return Err(format!("{} is not available within two minutes", group(i)));
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        Ok(())
    }
}

pub(crate) const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

fn group(i: usize) -> String {
    format!("g{i}.bench.example.com")
}

fn path(i: usize) -> String {
    format!("/apis/{}/v1/gadgets/a", group(i))
}

pub(crate) async fn create(target: &Target, collection: &str, object: &Value) -> Result<(), String> {
    let (status, body) = target.once(Method::POST, collection, &object.to_string()).await?;
    if status.is_success() {
        return Ok(());
    }
    Err(format!("{collection}: {status} {}", String::from_utf8_lossy(&body)))
}

async fn patch(target: &Target, path: &str, patch: &Value) -> Result<(), String> {
    let mut target = target.clone();
    target.content_type = "application/merge-patch+json";
    let (status, body) = target.once(Method::PATCH, path, &patch.to_string()).await?;
    if status.is_success() {
        return Ok(());
    }
    Err(format!("{path}: {status} {}", String::from_utf8_lossy(&body)))
}

/// An object of the group that `aggregated` registers.
pub(crate) const PATH: &str = "/apis/bench.example.com/v1/gadgets/a";

/// Registers a backend behind the gateway, in the namespace `bench`; returns it and its port when it is
/// reachable.
pub(crate) async fn aggregated(g: &Gateway, dir: &Path) -> Result<(Server, u16), String> {
    let (server, port, pem) = backend(dir).await?;
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "bench", "namespace": "bench"},
        "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}});
    create(&g.target, "/api/v1/namespaces/bench/services", &service).await?;
    let apiservice = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.bench.example.com"},
        "spec": {"group": "bench.example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 10,
            "caBundle": base64(pem.as_bytes()), "service": {"name": "bench", "namespace": "bench", "port": port}}});
    create(&g.target, API_SERVICES, &apiservice).await?;
    let until = Instant::now() + Duration::from_secs(20);
    while !g.target.once(Method::GET, PATH, "").await?.0.is_success() {
        if Instant::now() > until {
            return Err("the APIService did not become available within 20 s".into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok((server, port))
}
