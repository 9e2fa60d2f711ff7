//! A Prometheus that scrapes a gateway, on an ephemeral port.

use crate::deploy;
use crate::support::{Gateway, Process, wait_for};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

pub(crate) struct Prometheus {
    process: Process,
    address: String,
}

impl Prometheus {
    /// Starts it with the rules of `deploy/observe`, and waits until it has scraped the gateway three times.
    pub(crate) fn scraping(g: &Gateway, dir: &Path) -> Self {
        let target = g.url();
        let target = target.trim_start_matches("https://");
        let pki = g.dir.join("data/pki");
        let config = format!(
            "global: {{scrape_interval: 250ms, evaluation_interval: 250ms}}\n\
             rule_files: [{rules}]\n\
             scrape_configs:\n\
             - job_name: torana\n  \
               scheme: https\n  \
               tls_config: {{ca_file: {pki}/ca.crt, cert_file: {pki}/admin.crt, key_file: {pki}/admin.key}}\n  \
               static_configs: [{{targets: ['{target}']}}]\n",
            rules = deploy("observe/rules.yaml").display(),
            pki = pki.display(),
        );
        let file = dir.join("prometheus.yaml");
        std::fs::write(&file, config).expect("written");
        let prometheus = Self::listening(
            &[
                format!("--config.file={}", file.display()),
                format!("--storage.tsdb.path={}", dir.join("prometheus").display()),
                "--web.listen-address=127.0.0.1:0".to_owned(),
            ],
            dir,
        );
        wait_for("Prometheus has scraped the gateway three times", || {
            !prometheus.result_of("sum_over_time(up[1m]) >= 3").is_empty()
        });
        prometheus
    }

    /// Starts it with these arguments, and waits until it listens.
    pub(crate) fn listening(args: &[String], dir: &Path) -> Self {
        let process = Process::spawn(Command::new("prometheus").args(args), dir.join("prometheus.log"));
        let mut address = String::new();
        wait_for("Prometheus listens", || {
            let log = process.log();
            let line = log.lines().find(|l| l.contains("msg=\"Listening on\""));
            let found = line.and_then(|l| l.rsplit_once("address=")).map(|(_, a)| a.to_owned());
            address = found.unwrap_or_default();
            !address.is_empty()
        });
        Self { process, address }
    }

    /// Its base URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The `data` of a response of its API.
    pub(crate) fn get(&self, path: &str, parameter: &str) -> Value {
        let out = Command::new("curl")
            .args(["-sS", "--max-time", "10", "--get", "--data-urlencode", parameter])
            .arg(self.url() + path)
            .output()
            .expect("curl is installed (make tools)");
        let text = String::from_utf8_lossy(&out.stdout);
        let answer: Value = serde_json::from_str(&text).unwrap_or_default();
        // It answers 503 until it has started.
        if answer["status"] == "error" {
            panic!("{parameter}: {}\n{}", answer["error"], self.process.log());
        }
        answer["data"].clone()
    }

    /// The samples that an expression results in.
    pub(crate) fn result_of(&self, expression: &str) -> Vec<Value> {
        let data = self.get("/api/v1/query", &format!("query={expression}"));
        data["result"].as_array().cloned().unwrap_or_default()
    }
}
