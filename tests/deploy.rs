//! The content of `deploy/`, used as an operator would use it: manifests are applied; rules, units and
//! dashboards are checked with the tools that will read them; and everything that they name exists.
//! `scripts/deploy-test.sh` tests the built artifacts (image, package, archives).

mod support;

#[path = "deploy/chart.rs"]
mod chart;
#[path = "deploy/commands.rs"]
mod commands;
#[path = "deploy/compose.rs"]
mod compose;
#[path = "deploy/dashboards.rs"]
mod dashboards;
#[path = "support/etcd.rs"]
mod etcd_process;
#[path = "deploy/manifests.rs"]
mod manifests;
#[path = "deploy/operations.rs"]
mod operations;
#[path = "deploy/prometheus.rs"]
mod prometheus;
#[path = "deploy/rules.rs"]
mod rules;
#[path = "deploy/unit.rs"]
mod unit;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

fn deploy(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(deploy(path)).unwrap_or_else(|e| panic!("deploy/{path}: {e}"))
}

/// A port for a server that starts later, or again. Nobody else gets it while the socket is there, which does not
/// listen: with `SO_REUSEADDR` on both, as servers set it, one that listens can have the same address.
fn reserved_port() -> (socket2::Socket, u16) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    socket.set_reuse_address(true).expect("a TCP socket");
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    socket.bind(&any.into()).expect("a free port");
    let bound = socket.local_addr().expect("it is bound").as_socket();
    (socket, bound.expect("an IP address").port())
}

/// True if the tool is installed. Without it, a test passes unless `TORANA_REQUIRE_TOOLS` is set, as in CI.
fn has(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|dir| dir.join(tool).exists());
    if !found {
        assert!(
            std::env::var_os("TORANA_REQUIRE_TOOLS").is_none(),
            "{tool} is required (make tools)"
        );
        // Not `eprintln!`, which is shown for failing tests only.
        let _ = writeln!(std::io::stderr(), "skipped: {tool} is not installed");
    }
    found
}

/// Runs a checker and expects success.
fn check_with(tool: &str, args: &[&str], file: &Path) {
    if !has(tool) {
        return;
    }
    let out = Command::new(tool).args(args).arg(file).output().expect("the tool runs");
    let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{tool} {args:?} {}:\n{text}", file.display());
}

/// The words of a text that `is_part` accepts the characters of.
fn words(text: &str, is_part: impl Fn(char) -> bool) -> BTreeSet<&str> {
    text.split(|c| !is_part(c)).filter(|word| !word.is_empty()).collect()
}

/// The metrics of the gateway that an expression or a file names, without the suffixes of histograms.
fn metrics_in(text: &str) -> BTreeSet<&str> {
    let prefixes = [
        "aggregator_",
        "apiserver_",
        "authentication_",
        "authorization_",
        "etcd_",
        "process_",
        "torana_",
    ];
    let mut names = words(text, |c| c.is_ascii_alphanumeric() || c == '_');
    names.retain(|word| prefixes.iter().any(|prefix| word.starts_with(prefix)));
    names
}

/// Asserts that each `--flag` in a text is one of ours.
fn assert_flags_exist(of: &str, text: &str) {
    let known = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/flags.md")).expect("flags");
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let known = words(&known, is_part);
    let used = words(text, is_part);
    let flags: Vec<_> = used
        .iter()
        .filter(|word| word.starts_with("--") && word.len() > 3)
        .collect();
    assert!(!flags.is_empty(), "{of} sets flags");
    for flag in flags {
        assert!(known.contains(*flag), "{of}: there is no flag {flag}");
    }
}
