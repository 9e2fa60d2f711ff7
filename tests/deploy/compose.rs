//! The compose file and the configuration that it mounts.

use crate::etcd_process::{self, Etcd};
use crate::prometheus::Prometheus;
use crate::support::{Process, wait_for};
use crate::{assert_flags_exist, check_with, deploy, has, read};
use std::path::Path;
use std::process::Command;

/// The command of a service in the file.
fn command_of(service: &str, text: &str) -> Vec<String> {
    let (_, rest) = text.split_once(&format!("\n  {service}:\n")).expect("the service");
    let (_, rest) = rest.split_once("    command:").expect("its command");
    let first = rest.lines().next().unwrap_or_default().trim();
    match first.strip_prefix('[') {
        Some(list) => list.trim_end_matches(']').split(", ").map(str::to_owned).collect(),
        None => {
            let items = rest.lines().skip(1).map_while(|line| line.strip_prefix("      - "));
            items.map(str::to_owned).collect()
        }
    }
}

/// The gateway, the example server and Prometheus with the commands and the configuration of the file, on
/// this machine instead of in containers: only directories, addresses and intervals are replaced.
#[test]
fn the_processes_of_the_compose_file_work_together() {
    if !etcd_process::is_there() || !has("prometheus") {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| dir.path().join(name).display().to_string();
    let text = read("compose/compose.yaml");
    let etcd = Etcd::start(3);
    let here = |args: Vec<String>| -> Vec<String> {
        let replace = |arg: String| {
            arg.replace(
                "http://etcd-0:2379,http://etcd-1:2379,http://etcd-2:2379",
                &etcd.servers().join(","),
            )
            .replace("/var/lib/", &at(""))
            .replace("/etc/prometheus/", &at(""))
            .replace("/tmp/prometheus", &at("tsdb"))
            .replace("0.0.0.0:9090", "127.0.0.1:0")
            .replace("--secure-port=8443", "--secure-port=0")
        };
        args.into_iter().map(replace).collect()
    };
    let gateway = Process::spawn(
        Command::new(env!("CARGO_BIN_EXE_torana"))
            .args(here(command_of("gateway", &text)))
            .args(["--secure-port=0", "--bind-address=127.0.0.1"]),
        dir.path().join("gateway.log"),
    );
    let kubectl = |kubeconfig: &str, args: &[&str]| {
        let out = Command::new("kubectl")
            .args(["--kubeconfig", kubeconfig])
            .args(args)
            .output();
        let out = out.expect("kubectl is installed (make tools)");
        (out.status.success(), String::from_utf8_lossy(&out.stdout).into_owned())
    };
    let kubeconfig = at("torana/admin.kubeconfig");
    wait_for("the gateway is ready", || {
        kubectl(&kubeconfig, &["get", "--raw", "/readyz"]).1 == "ok"
    });
    let _example = Process::spawn(
        Command::new(
            Path::new(env!("CARGO_BIN_EXE_torana"))
                .with_file_name("examples")
                .join("extension-server"),
        )
        .args(here(command_of("example", &text))),
        dir.path().join("example.log"),
    );

    // Creates the kubeconfig as the comment in the file describes.
    let mut issue = Command::new(env!("CARGO_BIN_EXE_torana"));
    let issued = issue
        .args(["kubeconfig", "me", "--group=system:masters"])
        .arg(format!("--data-dir={}", at("torana")));
    let issued = issued.output().expect("it runs").stdout;
    std::fs::write(at("me.kubeconfig"), issued).expect("written");
    wait_for("the example server answers", || {
        kubectl(&at("me.kubeconfig"), &["get", "gadgets"]).0
    });

    let url = std::fs::read_to_string(&kubeconfig).expect("written");
    let url = url
        .lines()
        .find_map(|line| line.trim().strip_prefix("server: https://"));
    let config = read("compose/prometheus.yaml")
        .replace(
            "scrape_interval: 10s, evaluation_interval: 30s",
            "scrape_interval: 250ms, evaluation_interval: 250ms",
        )
        .replace(
            "../observe/rules.yaml",
            &deploy("observe/rules.yaml").display().to_string(),
        )
        .replace("/var/lib/", &at(""))
        .replace("gateway:6443", url.expect("it names the server"));
    std::fs::write(at("prometheus.yaml"), config).expect("written");
    let prometheus = Prometheus::listening(&here(command_of("prometheus", &text)), dir.path());
    for expression in ["up{job=\"torana\"} == 1", "torana:requests:rate5m > 0"] {
        wait_for(expression, || !prometheus.result_of(expression).is_empty());
    }
    drop(gateway);
}

#[test]
fn the_compose_file_is_valid() {
    if has("docker-compose") {
        let out = Command::new("docker-compose")
            .arg("-f")
            .arg(deploy("compose/compose.yaml"))
            .args(["config", "--quiet"])
            .output()
            .expect("docker-compose runs");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }
    check_with(
        "promtool",
        &["check", "config", "--syntax-only"],
        &deploy("compose/prometheus.yaml"),
    );
}

#[test]
fn files_named_in_the_compose_file_exist() {
    let text = read("compose/compose.yaml");
    let gateway = text
        .split("  gateway:\n")
        .nth(1)
        .and_then(|rest| rest.split("  example:\n").next());
    assert_flags_exist("the gateway in compose.yaml", gateway.expect("a service `gateway`"));
    let mounted = text
        .lines()
        .filter_map(|l| l.trim().strip_prefix("- .")?.split(':').next());
    let mut count = 0;
    for path in mounted {
        count += 1;
        let path = deploy("compose").join(format!(".{path}"));
        assert!(path.exists(), "{} does not exist", path.display());
    }
    assert!(count >= 5, "{count}");
    let image = concat!("image: torana:", env!("CARGO_PKG_VERSION"), "\n");
    assert!(text.contains(image), "it runs this version");
}
