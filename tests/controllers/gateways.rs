//! Several gateways on one etcd.

use super::exists;
use super::support::{Gateway, wait_for};
use crate::etcd_process::{Etcd, is_there};

#[test]
fn only_one_gateway_runs_the_loops_and_another_takes_over() {
    if !is_there() {
        return;
    }
    let etcd = Etcd::start(1);
    let servers = format!("--etcd-servers={}", etcd.servers().join(","));
    let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a temporary directory"));
    let start = |n: usize| Gateway::start_with(dirs[n].path(), &["--controllers=*", &servers]);
    let runs = |g: &Gateway| g.process.log().contains("the control loops start");
    let has_account = |g: &Gateway, namespace: &str| exists(g, &["sa", "default", "-n", namespace]);

    let first = start(0);
    wait_for("the loops run", || runs(&first));
    let second = start(1);
    second.kubectl(&["create", "namespace", "shared"]);
    wait_for("the first one's loops serve both", || has_account(&second, "shared"));
    assert!(!runs(&second), "the loops run once");
    // kill -9: the lease is not released.
    drop(first);
    second.kubectl(&["create", "namespace", "alone"]);
    wait_for("the second one takes over", || {
        runs(&second) && has_account(&second, "alone")
    });
    second.kubectl(&["delete", "namespace", "shared", "--timeout=60s"]);
}
