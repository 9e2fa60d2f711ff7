//! What `deploy/` ships, used as an operator would use it: manifests are applied, rules and units are checked with the
//! tools that will read them, and everything that they name exists.

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::Gateway;

fn deploy(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(deploy(path)).unwrap_or_else(|e| panic!("deploy/{path}: {e}"))
}

/// Runs a checker. Without it, the test passes unless `TORANA_REQUIRE_TOOLS` is set, as in CI.
fn check_with(tool: &str, args: &[&str], file: &Path) {
    match Command::new(tool).args(args).arg(file).output() {
        Ok(out) => {
            let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
            assert!(out.status.success(), "{tool} {args:?} {}:\n{text}", file.display());
        }
        Err(e) => {
            assert!(
                std::env::var_os("TORANA_REQUIRE_TOOLS").is_none(),
                "{tool} is required: {e}"
            );
            eprintln!("skipped: {tool} is not installed");
        }
    }
}

/// The words of a text that `is_part` accepts the characters of.
fn words(text: &str, is_part: impl Fn(char) -> bool) -> BTreeSet<&str> {
    text.split(|c| !is_part(c)).filter(|word| !word.is_empty()).collect()
}

#[test]
fn the_manifests_pass_strict_server_side_validation() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let g = Gateway::start(dir.path());
    for (overlay, workload) in [("base", "statefulset/torana"), ("overlays/etcd", "deployment/torana")] {
        let path = deploy("kubernetes").join(overlay);
        let path = path.to_str().expect("UTF-8");
        let apply = ["apply", "--server-side", "--validate=strict", "-k", path];
        let applied = g.kubectl(&apply);
        assert!(
            applied.contains("networkpolicy.networking.k8s.io/torana serverside-applied"),
            "{applied}"
        );
        let image = "jsonpath={.spec.template.spec.containers[0].image}";
        let image = g.kubectl(&["get", "-n", "torana", workload, "-o", image]);
        assert_eq!(image, concat!("torana:", env!("CARGO_PKG_VERSION")));
    }
}

#[test]
fn every_flag_in_deploy_exists() {
    let known = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/flags.md")).expect("flags");
    let known = words(&known, |c| c.is_ascii_alphanumeric() || c == '-');
    for file in [
        "kubernetes/base/gateway.yaml",
        "kubernetes/overlays/etcd/gateways.yaml",
        "systemd/torana.service",
        "systemd/torana.env",
    ] {
        let text = read(file);
        let used = words(&text, |c| c.is_ascii_alphanumeric() || c == '-');
        let flags: Vec<_> = used.iter().filter(|word| word.starts_with("--")).collect();
        assert!(!flags.is_empty(), "{file} sets flags");
        for flag in flags {
            assert!(known.contains(*flag), "{file}: there is no flag {flag}");
        }
    }
}

#[test]
fn the_unit_is_valid_and_hardened() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    // The binary is not installed here, and `verify` asks for it.
    let unit = read("systemd/torana.service").replace("/usr/bin/torana", env!("CARGO_BIN_EXE_torana"));
    let path = dir.path().join("torana.service");
    std::fs::write(&path, unit).expect("written");
    check_with("systemd-analyze", &["verify", "--man=no"], &path);
    // The exposure level, in tenths: 0 is best, and 2.0 is what systemd calls OK.
    check_with(
        "systemd-analyze",
        &["security", "--offline=true", "--threshold=20"],
        &path,
    );
}

#[test]
fn the_rules_pass_their_tests() {
    check_with("promtool", &["check", "rules"], &deploy("observe/rules.yaml"));
    check_with("promtool", &["test", "rules"], &deploy("observe/rules_test.yaml"));
}

#[test]
fn every_metric_in_the_rules_exists_and_every_alert_has_a_runbook() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let g = Gateway::start(dir.path());
    g.kubectl(&["get", "namespaces"]);
    let metrics = g.curl(&["/metrics"]).expect("metrics");
    let exposed = words(&metrics, |c| c.is_ascii_alphanumeric() || c == '_');
    let rules = read("observe/rules.yaml");
    let is_metric = |word: &&&str| {
        ["apiserver_", "aggregator_", "etcd_", "torana_"]
            .iter()
            .any(|prefix| word.starts_with(prefix))
    };
    let used = words(&rules, |c| c.is_ascii_alphanumeric() || c == '_');
    let used: Vec<_> = used.iter().filter(is_metric).collect();
    assert!(used.len() >= 8, "{used:?}");
    for metric in used {
        assert!(exposed.contains(*metric), "{metric} is not on /metrics");
    }
    let manual = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operations.md"));
    let manual = manual.expect("docs/operations.md");
    for line in rules.lines().filter_map(|l| l.trim().strip_prefix("- alert: ")) {
        assert!(
            manual.contains(&format!("### {line}\n")),
            "docs/operations.md has no section {line}"
        );
        let link = format!("docs/operations.md#{}\n", line.to_lowercase());
        assert!(rules.contains(&link), "{line} has no runbook_url");
    }
}
