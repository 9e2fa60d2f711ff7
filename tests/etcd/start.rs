//! Start-up on a cluster that does not answer.

use crate::etcd_process::forwarder::Forwarder;
use crate::etcd_process::{Etcd, certificates, is_there};
use crate::support::{Process, wait_for};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

fn serve(dir: &Path, flags: &[String]) -> Process {
    Process::spawn(
        Command::new(env!("CARGO_BIN_EXE_torana"))
            .args(["serve", "--secure-port=0", "--bind-address=127.0.0.1"])
            .arg(format!("--data-dir={}", dir.join("data").display()))
            .args(flags),
        dir.join("torana.log"),
    )
}

/// Waits for the process to exit, and returns the last line of its log. That line and an earlier warning contain
/// `word`.
fn refusal(dir: &Path, flags: &[String], word: &str) -> String {
    let since = Instant::now();
    let mut process = serve(
        dir,
        &[flags, &["--storage-initialization-timeout=4s".to_owned()]].concat(),
    );
    assert_eq!(process.wait(Duration::from_secs(60)), Some(1));
    assert!(since.elapsed() >= Duration::from_secs(4), "it keeps trying");
    // Read at the end: when the warning was logged shows in the order of the lines.
    let log = process.log();
    let mut lines = log.lines().rev();
    let last = lines.next().unwrap_or_default().to_owned();
    assert!(
        last.starts_with("torana: --etcd-servers: no answer from etcd within 4s: "),
        "{last}"
    );
    assert!(last.contains(word), "{last}");
    assert!(
        lines.any(|line| line.contains("etcd does not answer") && line.contains(word)),
        "nothing was logged before the exit: {log}"
    );
    last
}

#[test]
fn an_unreachable_cluster_is_reported_in_seconds_and_ends_the_start() {
    let dir = tempfile::tempdir().unwrap();
    // Bound and not listening: nobody else gets the port, and connections to it are refused.
    let held = tokio::net::TcpSocket::new_v4().unwrap();
    held.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let port = held.local_addr().unwrap().port();
    let flags = [format!("--etcd-servers=http://127.0.0.1:{port},http://127.0.0.1:1")];
    let last = refusal(dir.path(), &flags, "Connection refused");
    for member in [format!("http://127.0.0.1:{port}: "), "http://127.0.0.1:1: ".to_owned()] {
        assert!(last.contains(&member), "each member is named: {last}");
    }
}

#[test]
fn an_untrusted_certificate_is_reported() {
    if !is_there() {
        return;
    }
    let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    certificates(own.path());
    certificates(other.path());
    let etcd = Etcd::start_secure(own.path());
    let at = |dir: &Path, name: &str| dir.join(name).display().to_string();
    let flags = |ca: &Path| {
        [
            format!("--etcd-servers={}", etcd.servers().join(",")),
            format!("--etcd-cafile={}", at(ca, "ca.crt")),
            format!("--etcd-certfile={}", at(own.path(), "client.crt")),
            format!("--etcd-keyfile={}", at(own.path(), "client.key")),
        ]
    };
    let dir = tempfile::tempdir().unwrap();
    refusal(dir.path(), &flags(other.path()), "invalid peer certificate");
    let plain = [format!(
        "--etcd-servers={}",
        etcd.servers().join(",").replace("https", "http")
    )];
    let dir = tempfile::tempdir().unwrap();
    refusal(dir.path(), &plain, "http://127.0.0.1:");
}

#[test]
fn a_wrong_password_is_reported() {
    if !is_there() {
        return;
    }
    let etcd = Etcd::start(1);
    for args in [
        &["user", "add", "root:secret"][..],
        &["user", "grant-role", "root", "root"],
        &["auth", "enable"],
    ] {
        etcd.ctl(args);
    }
    let dir = tempfile::tempdir().unwrap();
    let user = dir.path().join("user");
    std::fs::write(&user, "root:wrong\n").unwrap();
    let flags = [
        format!("--etcd-servers={}", etcd.servers().join(",")),
        format!("--etcd-user-file={}", user.display()),
    ];
    refusal(dir.path(), &flags, "authentication failed");
}

#[test]
fn the_start_waits_for_a_cluster_that_comes_up_later() {
    if !is_there() {
        return;
    }
    let etcd = Etcd::start(1);
    let link = Forwarder::before(etcd.port(0));
    link.cut();
    let dir = tempfile::tempdir().unwrap();
    let process = serve(dir.path(), &[format!("--etcd-servers={}", link.url())]);
    wait_for("it says that it waits", || {
        process.log().contains("etcd does not answer")
    });
    link.heal();
    let kubeconfig = dir.path().join("data/admin.kubeconfig");
    wait_for("it serves", || kubeconfig.exists());
}
