//! Cost of the control loops, and how fast they delete: `make bench ONLY=loops`.

use crate::client::load;
use crate::gateway::{Gateway, start, start_with};
use crate::process::free_port;
use crate::report::Report;
use hyper::Method;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

const OBJECTS: u64 = 10_000;
/// Interval of polling for a deletion.
const POLL: Duration = Duration::from_millis(2);
const STARTS: usize = 5;

/// Group version, resource, and the content of an object besides its name.
fn kinds() -> [(&'static str, &'static str, Value); 20] {
    let labels = json!({"app": "bench"});
    let pod = json!({"containers": [{"name": "c", "image": "i"}]});
    let once = json!({"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"});
    let template = |spec: &Value| json!({"metadata": {"labels": labels}, "spec": spec});
    let selected = json!({"selector": {"matchLabels": labels}, "template": template(&pod)});
    let workload = json!({"spec": selected});
    let job = json!({"template": template(&once)});
    [
        ("v1", "configmaps", json!({})),
        ("v1", "secrets", json!({})),
        ("v1", "serviceaccounts", json!({})),
        (
            "v1",
            "services",
            json!({"spec": {"clusterIP": "None", "ports": [{"port": 80}]}}),
        ),
        ("v1", "podtemplates", json!({"template": template(&pod)})),
        (
            "v1",
            "replicationcontrollers",
            json!({"spec": {"selector": labels, "template": template(&pod)}}),
        ),
        ("v1", "pods", json!({"spec": pod})),
        ("apps/v1", "deployments", workload.clone()),
        ("apps/v1", "replicasets", workload.clone()),
        ("apps/v1", "statefulsets", workload.clone()),
        ("apps/v1", "daemonsets", workload),
        ("apps/v1", "controllerrevisions", json!({"revision": 1, "data": {}})),
        ("batch/v1", "jobs", json!({"spec": job})),
        (
            "batch/v1",
            "cronjobs",
            json!({"spec": {"schedule": "@daily", "jobTemplate": {"spec": job}}}),
        ),
        (
            "networking.k8s.io/v1",
            "ingresses",
            json!({"spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}}),
        ),
        (
            "networking.k8s.io/v1",
            "networkpolicies",
            json!({"spec": {"podSelector": {}}}),
        ),
        ("rbac.authorization.k8s.io/v1", "roles", json!({"rules": []})),
        (
            "rbac.authorization.k8s.io/v1",
            "rolebindings",
            json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}}),
        ),
        ("coordination.k8s.io/v1", "leases", json!({"spec": {}})),
        (
            "discovery.k8s.io/v1",
            "endpointslices",
            json!({"addressType": "IPv4", "endpoints": []}),
        ),
    ]
}

fn collection(group_version: &str, namespace: &str, resource: &str) -> String {
    let root = if group_version == "v1" { "api" } else { "apis" };
    format!("/{root}/{group_version}/namespaces/{namespace}/{resource}")
}

async fn get(g: &Gateway, path: &str) -> Result<Option<Value>, String> {
    let (status, body) = g.target.once(Method::GET, path, "").await?;
    match status.as_u16() {
        404 => Ok(None),
        200 => serde_json::from_slice(&body).map(Some).map_err(|e| e.to_string()),
        code => Err(format!("{path}: {code}")),
    }
}

/// Polls until `done` holds of what is under the path.
async fn until(g: &Gateway, path: &str, done: impl Fn(Option<&Value>) -> bool) -> Result<(), String> {
    let limit = Instant::now() + Duration::from_secs(60);
    while !done(get(g, path).await?.as_ref()) {
        if Instant::now() > limit {
            return Err(format!("{path} is not as expected after a minute"));
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

async fn namespace(g: &Gateway, name: &str) -> Result<(), String> {
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}).to_string();
    g.target.once(Method::POST, "/api/v1/namespaces", &body).await?;
    let account = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
    until(g, &account, |v| v.is_some()).await
}

async fn fill(g: &Gateway, make: impl Fn(u64) -> (String, Value) + Send + Sync + 'static) -> Result<(), String> {
    let loaded = load(&g.target, 4, 16, Duration::ZERO, OBJECTS, move |n| {
        let (path, object) = make(n);
        (Method::POST, path, object.to_string().into())
    });
    match loaded.await?.failures {
        0 => Ok(()),
        n => Err(format!("{n} objects were not created")),
    }
}

/// From the DELETE of a namespace with objects of 20 kinds until it is gone.
async fn full_namespace(g: &Gateway) -> Result<f64, String> {
    namespace(g, "full").await?;
    let kinds = kinds();
    fill(g, move |n| {
        let (group_version, resource, content) = &kinds[(n % 20) as usize];
        let mut object = content.clone();
        object["metadata"] = json!({"name": format!("o-{n}")});
        (collection(group_version, "full", resource), object)
    })
    .await?;
    let began = Instant::now();
    g.target.once(Method::DELETE, "/api/v1/namespaces/full", "").await?;
    until(g, "/api/v1/namespaces/full", |v| v.is_none()).await?;
    Ok(began.elapsed().as_secs_f64() * 1e3)
}

/// From the DELETE of an owner until all that it owned is gone.
async fn cascade(g: &Gateway, policy: &str) -> Result<f64, String> {
    let name = policy.to_lowercase();
    namespace(g, &name).await?;
    let maps = collection("v1", &name, "configmaps");
    let owner = json!({"metadata": {"name": "owner"}}).to_string();
    g.target.once(Method::POST, &maps, &owner).await?;
    let owner = format!("{maps}/owner");
    let created = get(g, &owner).await?.ok_or("the owner was not created")?;
    let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": created["metadata"]["uid"],
        "blockOwnerDeletion": true});
    let path = maps.clone();
    fill(g, move |n| {
        let metadata = json!({"name": format!("d-{n}"), "labels": {"of": "owner"}, "ownerReferences": [reference]});
        (path.clone(), json!({"metadata": metadata}))
    })
    .await?;
    let began = Instant::now();
    let options = json!({"propagationPolicy": policy}).to_string();
    g.target.once(Method::DELETE, &owner, &options).await?;
    let left = format!("{maps}?labelSelector=of%3Downer&limit=1");
    until(g, &left, |v| {
        v.is_some_and(|v| v["items"].as_array().is_some_and(Vec::is_empty))
    })
    .await?;
    until(g, &owner, |v| v.is_none()).await?;
    Ok(began.elapsed().as_secs_f64() * 1e3)
}

/// A first start makes all keys.
async fn first_start(torana: &Path, dir: &Path) -> Result<f64, String> {
    let mut times = Vec::new();
    for n in 0..STARTS {
        let own = dir.join(format!("first-{n}"));
        std::fs::create_dir_all(&own).map_err(|e| e.to_string())?;
        let flags = ["--controllers=*", "--generated-signing-key=ES256"];
        let g = start_with(torana, &own, free_port()?, &flags).await?;
        times.push(g.started.as_secs_f64() * 1e3);
        g.server.stop();
    }
    times.sort_by(f64::total_cmp);
    Ok(times[STARTS / 2])
}

/// Resident memory after a while without requests, and CPU in milliseconds a second since then.
async fn idle(g: &Gateway) -> (f64, f64) {
    const WATCHED: Duration = Duration::from_secs(20);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (memory, before) = (g.server.rss_mb(), g.server.cpu());
    tokio::time::sleep(WATCHED).await;
    let used = (g.server.cpu() - before).as_secs_f64() * 1e3;
    (memory, used / WATCHED.as_secs_f64())
}

pub async fn run(torana: &Path, dir: &Path, r: &mut Report) -> Result<(), String> {
    let own = dir.join("loops");
    std::fs::create_dir_all(&own).map_err(|e| e.to_string())?;
    let took = first_start(torana, &own).await?;
    r.row(
        "first start, keys made",
        took,
        "ms",
        50.0,
        "to /readyz, as torana dev does, median of 5",
    );

    let (port, flags) = (free_port()?, ["--controllers=*"]);
    start_with(torana, &own, port, &flags).await?.server.stop();
    let g = start(torana, &own, port).await?;
    let (without, cpu_without) = idle(&g).await;
    g.server.stop();
    let g = start_with(torana, &own, port, &flags).await?;
    let (with, cpu_with) = idle(&g).await;
    r.row(
        "memory of all loops, idle",
        with - without,
        "MB",
        3.0,
        &format!("{without:.1} MB without"),
    );
    r.row(
        "CPU of all loops, idle",
        cpu_with - cpu_without,
        "ms per s",
        1.0,
        &format!("{cpu_without:.2} without"),
    );

    let took = full_namespace(&g).await?;
    r.row(
        "namespace with 10,000 objects of 20 kinds",
        took,
        "ms",
        1000.0,
        "DELETE until 404",
    );
    for policy in ["Background", "Foreground"] {
        let took = cascade(&g, policy).await?;
        r.row(
            &format!("owner with 10,000 dependents, {policy}"),
            took,
            "ms",
            1000.0,
            "DELETE until none is left",
        );
    }
    g.server.stop();
    Ok(())
}
