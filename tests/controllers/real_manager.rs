//! A real kube-controller-manager. Runs only where `TORANA_KCM` names the binary.

use super::support::{Gateway, Process, wait_for};
use super::{CONTENT, exists, gateway};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The binary. If there is none, reports on standard error that the test is skipped.
fn binary() -> Option<PathBuf> {
    let named = std::env::var_os("TORANA_KCM").map(PathBuf::from);
    if named.is_none() {
        // Not `eprintln!`, which is shown for failing tests only.
        let _ = writeln!(
            std::io::stderr(),
            "skipped: TORANA_KCM names no kube-controller-manager"
        );
    }
    named
}

/// Starts a manager with the flags that kubeadm gives it. Its lease is short, so that it can be taken over
/// soon.
fn manager(binary: &Path, g: &Gateway, log: &str) -> Process {
    let pki = g.dir.join("data/pki");
    let file = |flag: &str, name: &str| format!("--{flag}={}", pki.join(name).display());
    let mut command = Command::new(binary);
    command
        .arg(format!("--kubeconfig={}", g.kubeconfig().display()))
        .args([
            "--secure-port=0",
            "--controllers=*,bootstrap-signer-controller,token-cleaner-controller",
        ])
        .args(["--use-service-account-credentials", "--leader-elect-lease-duration=3s"])
        .args(["--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=500ms"])
        .arg(file("service-account-private-key-file", "sa.key"))
        .arg(file("root-ca-file", "ca.crt"))
        .arg(file("cluster-signing-cert-file", "client-ca.crt"))
        .arg(file("cluster-signing-key-file", "client-ca.key"));
    Process::spawn(&mut command, g.dir.join(log))
}

/// Errors in a manager's log, other than those of writes that raced with another writer: a manager writes
/// these beside a kube-apiserver, too.
fn errors(manager: &Process) -> Vec<String> {
    const RACES: [&str; 3] = [
        "the object has been modified",
        "because it is being terminated",
        "already exists",
    ];
    let log = manager.log();
    let errors = log.lines().filter(|l| l.starts_with('E'));
    let errors = errors.filter(|l| RACES.iter().all(|race| !l.contains(race)));
    errors.map(str::to_owned).collect()
}

#[test]
fn a_real_manager_works_with_a_gateway_without_loops() {
    let Some(binary) = binary() else { return };
    let dir = tempfile::tempdir().expect("a temporary directory");
    let g = Gateway::start_with(dir.path(), &["--controllers="]);
    let manager = manager(&binary, &g, "manager.log");
    g.kubectl_in(&["apply", "-f", "-"], Some(CONTENT));
    wait_for("the default ServiceAccount", || {
        exists(&g, &["sa", "default", "-n", "full"])
    });
    wait_for("the Deployment has its pod", || {
        exists(&g, &["pods", "-n", "full", "-l", "app=d"])
    });
    wait_for("the admin role is aggregated", || {
        let rules = "jsonpath={.rules[*].resources}";
        g.kubectl(&["get", "clusterrole", "admin", "-o", rules])
            .contains("deployments")
    });
    g.kubectl(&[
        "delete",
        "deployment",
        "d",
        "-n",
        "full",
        "--cascade=foreground",
        "--timeout=60s",
    ]);
    assert!(!exists(&g, &["replicasets", "-n", "full"]), "dependents went first");
    g.kubectl(&["delete", "namespace", "full", "--timeout=90s"]);
    assert_eq!(errors(&manager), Vec::<String>::new());
}

#[test]
fn a_real_manager_takes_over_from_the_loops_and_releases_its_lease() {
    let Some(binary) = binary() else { return };
    let (_dir, g) = gateway();
    let has_account = |namespace: &str| exists(&g, &["sa", "default", "-n", namespace]);
    let times = |what: &str| g.process.log().matches(what).count();
    wait_for("the loops run", || times("the control loops start") == 1);
    for round in 1..=2 {
        let first = manager(&binary, &g, &format!("manager-{round}.log"));
        wait_for("the loops stop", || times("the control loops stop") == round);
        let during = format!("during-{round}");
        g.kubectl(&["create", "namespace", &during]);
        wait_for("the manager works", || has_account(&during));
        assert_eq!(times("the control loops start"), round, "its lease is respected");
        assert_eq!(errors(&first), Vec::<String>::new());
        // kill -9: the lease is not released.
        drop(first);
        wait_for("the loops start again", || {
            times("the control loops start") == round + 1
        });
        let after = format!("after-{round}");
        g.kubectl(&["create", "namespace", &after]);
        wait_for("the loops work", || has_account(&after));
        g.kubectl(&["delete", "namespace", &during, "--timeout=60s"]);
    }
}
