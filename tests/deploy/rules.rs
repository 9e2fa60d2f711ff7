//! Recording and alerting rules.

use crate::support::Gateway;
use crate::{check_with, deploy, metrics_in, read, words};
use std::path::Path;

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
    let used = metrics_in(&rules);
    assert!(used.len() >= 8, "{used:?}");
    for metric in used {
        assert!(exposed.contains(metric), "{metric} is not on /metrics");
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
        let is_tested = read("observe/rules_test.yaml").contains(&format!("alertname: {line}\n"));
        assert!(is_tested, "rules_test.yaml expects no alert {line}");
    }
}
