//! kill -9 during concurrent writes, repeatedly: after the restart every acknowledged write is present, no
//! write is partial, and revisions have not gone back.

mod support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use support::Gateway;
use torana::apimachinery::Value;
use torana::json;
use torana::sdk::client::{Client, ClientConfig};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ROUNDS: u64 = 8;
const WRITERS: u64 = 12;

fn client(g: &Gateway) -> Arc<Client> {
    let config = ClientConfig::from_kubeconfig(&g.kubeconfig()).expect("the gateway wrote it");
    Arc::new(Client::try_new(&config).expect("it is complete"))
}

fn version(v: &Value) -> u64 {
    v.str_at(&["metadata", "resourceVersion"])
        .parse()
        .expect("a version is a number")
}

#[test]
fn acknowledged_writes_survive_kill_9() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let mut g = Gateway::start(dir.path());
    // Object name → the last acknowledged counter and its resourceVersion.
    let acknowledged: Arc<Mutex<BTreeMap<String, (i64, u64)>>> = Arc::default();
    for round in 0..ROUNDS {
        let api = client(&g);
        let done = Arc::new(AtomicU64::new(0));
        let writers: Vec<_> = (0..WRITERS)
            .map(|w| {
                let (api, done, acknowledged) = (api.clone(), done.clone(), acknowledged.clone());
                runtime.spawn(async move {
                    for n in 1i64.. {
                        let name = format!("r{round}-w{w}-{}", n / 8);
                        let mut body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
                        body.set(&["data", "a"], n.to_string());
                        body.set(&["data", "b"], n.to_string());
                        let Ok(stored) = api.create_or_patch(MAPS, &body).await else {
                            return;
                        };
                        let mut all = acknowledged.lock().expect("no writer panics");
                        all.insert(name, (n, version(&stored)));
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let enough = 150 + 37 * round;
        support::wait_for("writes are acknowledged", || done.load(Ordering::Relaxed) >= enough);
        g = g.crash_and_restart();
        runtime.block_on(async {
            for w in writers {
                w.await.expect("a writer ends when the gateway dies");
            }
        });
        let list = runtime
            .block_on(client(&g).get(MAPS))
            .expect("the list is served after the restart");
        let reached = version(&list);
        let found: BTreeMap<&str, &Value> = list
            .get("items")
            .items()
            .iter()
            .map(|i| (i.str_at(&["metadata", "name"]), i))
            .collect();
        let all = acknowledged.lock().expect("no writer panics");
        for (name, (n, at)) in all.iter() {
            assert!(
                *at <= reached,
                "revisions went back: {at} was acknowledged, the list is at {reached}"
            );
            let object = found
                .get(name.as_str())
                .unwrap_or_else(|| panic!("{name} was acknowledged but is missing"));
            let stored: i64 = object.str_at(&["data", "a"]).parse().expect("a counter");
            assert!(stored >= *n, "{name}: {n} was acknowledged, {stored} is stored");
        }
        for (name, object) in found.iter().filter(|(n, _)| n.starts_with('r')) {
            assert_eq!(
                object.str_at(&["data", "a"]),
                object.str_at(&["data", "b"]),
                "{name} was written partially"
            );
        }
    }
}

#[test]
fn a_watch_resumes_after_a_restart_without_a_relist() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let g = Gateway::start(dir.path());
    let api = client(&g);
    let at = version(&runtime.block_on(api.get(MAPS)).expect("listed"));
    for name in ["one", "two"] {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        runtime.block_on(api.create(MAPS, &body)).expect("created");
    }
    let g = g.crash_and_restart();
    let api = client(&g);
    runtime.block_on(async {
        let mut events = api
            .watch(&format!("{MAPS}?watch=1&resourceVersion={at}"))
            .await
            .expect("the history is there");
        for name in ["one", "two"] {
            let e = events.next().await.expect("an event");
            assert_eq!(
                (e.str_at(&["type"]), e.str_at(&["object", "metadata", "name"])),
                ("ADDED", name)
            );
        }
    });
}
