//! Creates through admission do not wait for progress notifications of etcd.

use crate::etcd_process::{Etcd, is_there};
use crate::support::Gateway;

const CREATES: u64 = 40;

#[test]
fn sequential_creates_request_no_progress() {
    if !is_there() {
        return;
    }
    let etcd = Etcd::start(1);
    let dir = tempfile::tempdir().unwrap();
    let servers = format!("--etcd-servers={}", etcd.servers().join(","));
    let g = Gateway::start_with(dir.path(), &[&servers]);
    let create = |i: u64| {
        let body = format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"m{i}"}}}}"#);
        let path = "/api/v1/namespaces/default/configmaps";
        g.curl(&["-X", "POST", "-H", "Content-Type: application/json", "-d", &body, path])
            .unwrap();
    };
    create(0);
    let before = etcd.watch_messages();
    (1..=CREATES).for_each(create);
    // Controllers of the gateway list consistently now and then.
    let asked = etcd.watch_messages() - before;
    assert!(
        asked < CREATES / 2,
        "{asked} messages on watches during {CREATES} creates"
    );
}
