//! Grafana dashboards and rules, evaluated by a Prometheus that scrapes a gateway with a backend.

use crate::prometheus::Prometheus;
use crate::support::{Gateway, wait_for};
use crate::{deploy, has, metrics_in};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Dashboards by file name.
fn dashboards() -> Vec<(String, Value)> {
    let files = std::fs::read_dir(deploy("observe/dashboards")).expect("the directory exists");
    let read = |file: std::fs::DirEntry| {
        let text = std::fs::read_to_string(file.path()).expect("readable");
        let name = file.file_name().to_string_lossy().into_owned();
        let board = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        (name, board)
    };
    files.map(|file| read(file.expect("an entry"))).collect()
}

/// Title and expression of each query of a dashboard.
fn queries(board: &Value) -> Vec<(&str, &str)> {
    let panels = board["panels"].as_array().expect("panels");
    panels
        .iter()
        .flat_map(|panel| {
            let title = panel["title"].as_str().expect("a title");
            let targets = panel["targets"].as_array().expect("targets");
            targets
                .iter()
                .map(move |t| (title, t["expr"].as_str().expect("an expression")))
        })
        .collect()
}

#[test]
fn every_expression_of_a_dashboard_has_a_result() {
    if !has("prometheus") {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let g = Gateway::start(dir.path());
    let _example = g.with_example();
    g.kubectl(&["create", "configmap", "one"]);
    g.kubectl(&["get", "gadgets"]);
    let prometheus = Prometheus::scraping(&g, dir.path());
    let mut metrics = BTreeSet::new();
    for (file, board) in dashboards() {
        for (title, expression) in queries(&board) {
            metrics.extend(metrics_in(expression).into_iter().map(str::to_owned));
            let resolved = expression.replace("$__rate_interval", "1m").replace("$instance", ".+");
            assert!(
                !resolved.contains('$'),
                "{file}: {title}: an unknown variable in {expression}"
            );
            let result = prometheus.result_of(&resolved);
            // A comparison only shows what is wrong.
            let is_comparison = resolved.ends_with(" == 1") || resolved.ends_with(" > 0");
            assert!(
                is_comparison || !result.is_empty(),
                "{file}: {title}: {resolved} has no result"
            );
        }
    }
    assert!(metrics.len() > 30, "{metrics:?}");
    for (file, board) in dashboards() {
        let picture = Command::new(root("scripts/pictures.py"))
            .arg("dashboard")
            .arg(deploy("observe/dashboards").join(&file))
            .args([prometheus.url(), "60".to_owned()])
            .output()
            .expect("python3 is installed (make tools)");
        let drawn = String::from_utf8_lossy(&picture.stdout);
        assert_shows(&file, &board, &drawn);
        let lines = drawn.matches("<polyline").count();
        assert!(
            lines >= 8,
            "{file}: {lines} lines{}",
            String::from_utf8_lossy(&picture.stderr)
        );
    }
    let names = prometheus.get("/api/v1/label/__name__/values", "limit=0");
    let names: BTreeSet<&str> = names
        .as_array()
        .expect("names")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    for metric in &metrics {
        assert!(names.contains(metric.as_str()), "{metric} is not on /metrics");
    }
    wait_for("Prometheus has evaluated the rules", || {
        let groups = prometheus.get("/api/v1/rules", "type=");
        let groups = groups["groups"].as_array().cloned().unwrap_or_default();
        let mut rules = groups
            .iter()
            .flat_map(|g| g["rules"].as_array().cloned().unwrap_or_default());
        !groups.is_empty() && rules.all(|rule| rule["health"] == "ok")
    });
}

/// A file of this repository.
fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn assert_shows(file: &str, board: &Value, picture: &str) {
    for panel in board["panels"].as_array().expect("panels") {
        let title = panel["title"].as_str().expect("a title").replace('\'', "&#x27;");
        assert!(
            picture.contains(&format!(">{title}<")),
            "{file}: {title} is not in the picture"
        );
    }
}

#[test]
fn dashboards_have_valid_links_and_current_pictures() {
    let boards = dashboards();
    for (file, board) in &boards {
        let picture = root("docs/pictures").join(format!("dashboard-{}", file.replace(".json", ".svg")));
        let picture = std::fs::read_to_string(picture).expect("scripts/pictures.sh draws it");
        assert_shows(file, board, &picture);
    }
    let uids: BTreeSet<&str> = boards.iter().filter_map(|(_, b)| b["uid"].as_str()).collect();
    assert_eq!(uids.len(), boards.len(), "each has a uid of its own: {uids:?}");
    for (file, board) in &boards {
        let ids: Vec<i64> = board["panels"]
            .as_array()
            .expect("panels")
            .iter()
            .filter_map(|p| p["id"].as_i64())
            .collect();
        let distinct: BTreeSet<&i64> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len(), "{file}: {ids:?}");
        for panel in board["panels"].as_array().expect("panels") {
            let place = &panel["gridPos"];
            let right = place["x"].as_i64().zip(place["w"].as_i64()).map(|(x, w)| x + w);
            assert!(
                right.is_some_and(|r| r <= 24),
                "{file}: {} is outside of the grid",
                panel["title"]
            );
            // An alert that a description names exists.
            let text = panel["description"].as_str().unwrap_or_default();
            let rules = crate::read("observe/rules.yaml");
            for word in crate::words(text, |c| c.is_ascii_alphanumeric()) {
                let is_alert = word.starts_with("Torana") && word.len() > "Torana".len();
                assert!(
                    !is_alert || rules.contains(&format!("alert: {word}\n")),
                    "{file}: {word}"
                );
            }
        }
    }
}
