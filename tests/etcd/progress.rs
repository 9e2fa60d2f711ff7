//! Creates through admission do not wait for progress notifications of etcd.

use crate::etcd_process::{Etcd, is_there};
use crate::support::Gateway;
use serde_json::{Value, json};

const CREATES: u64 = 20;

#[test]
fn sequential_creates_request_no_progress() {
    if !is_there() {
        return;
    }
    let etcd = Etcd::start(1);
    let dir = tempfile::tempdir().unwrap();
    let servers = format!("--etcd-servers={}", etcd.servers().join(","));
    let g = Gateway::start_with(dir.path(), &[&servers]);
    let send = |verb: &str, media: &str, path: &str, body: Value| {
        let (media, body) = (format!("Content-Type: application/{media}"), body.to_string());
        g.curl(&["-X", verb, "-H", &media, "-d", &body, path]).unwrap();
    };
    let create = |resource: &str, body: Value| {
        send("POST", "json", &format!("/api/v1/namespaces/limited/{resource}"), body);
    };
    send(
        "POST",
        "json",
        "/api/v1/namespaces",
        json!({"metadata": {"name": "limited"}}),
    );
    create("serviceaccounts", json!({"metadata": {"name": "default"}}));
    // The objects that LimitRanger and ResourceQuota read for each write.
    let limits = json!([{"type": "Container", "defaultRequest": {"cpu": "10m"}, "default": {"cpu": "1"}}]);
    create(
        "limitranges",
        json!({"metadata": {"name": "l"}, "spec": {"limits": limits}}),
    );
    let hard = json!({"pods": "1000", "requests.cpu": "100", "count/configmaps": "1000"});
    let none = json!({"pods": "0", "requests.cpu": "0", "count/configmaps": "0"});
    create(
        "resourcequotas",
        json!({"metadata": {"name": "q"}, "spec": {"hard": hard}}),
    );
    // As its controller would.
    let status = "/api/v1/namespaces/limited/resourcequotas/q/status";
    let counted = json!({"status": {"hard": hard, "used": none}});
    send("PATCH", "merge-patch+json", status, counted);
    let both = |i: u64| {
        let name = format!("m{i}");
        create("configmaps", json!({"metadata": {"name": name}}));
        let spec = json!({"containers": [{"name": "c", "image": "i"}]});
        create("pods", json!({"metadata": {"name": name}, "spec": spec}));
    };
    both(0);
    let before = etcd.watch_messages();
    (1..=CREATES).for_each(both);
    // Controllers of the gateway list consistently now and then.
    let asked = etcd.watch_messages() - before;
    assert!(
        asked < CREATES / 2,
        "{asked} messages on watches during {CREATES} creates of each kind"
    );
}
