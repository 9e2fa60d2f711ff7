//! The commands of an operator: configuration file, doctor, health, completion, manual page.

use crate::check_with;
use crate::support::{Gateway, Process, wait_for};
use std::path::Path;
use std::process::{Command, Output};

const FILE: &str =
    "apiVersion: torana.dev/v1alpha1\nkind: ToranaConfiguration\nsecurePort: 0\nbindAddress: 127.0.0.1\n";

fn torana(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_torana"))
        .args(args)
        .output()
        .expect("the binary starts")
}

fn texts(out: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&out.stdout), text(&out.stderr))
}

fn written(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    std::fs::write(&path, text).expect("written");
    path.display().to_string()
}

#[test]
fn a_server_runs_from_a_file() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let data = dir.path().join("data");
    let file = written(
        dir.path(),
        "torana.yaml",
        &format!("{FILE}dataDir: {}\nmaxWatches: 7\n", data.display()),
    );
    let mut process = Process::spawn(
        Command::new(env!("CARGO_BIN_EXE_torana")).args(["serve", "--config", &file, "--max-watches=8"]),
        dir.path().join("log"),
    );
    let kubeconfig = data.join("admin.kubeconfig");
    let kubeconfig = kubeconfig.display().to_string();
    let health = || torana(&["health", "--kubeconfig", &kubeconfig]);
    wait_for("the gateway is healthy", || health().status.success());
    assert_eq!(texts(&health()).0, "ok\n");
    let flags = Command::new("kubectl")
        .args(["--kubeconfig", &kubeconfig, "get", "--raw", "/flagz"])
        .output();
    let (flags, _) = texts(&flags.expect("kubectl is installed (make tools)"));
    assert!(flags.contains("max-watches=8"), "the flag wins: {flags}");
    assert!(flags.contains("bind-address=127.0.0.1"), "{flags}");
    process.signal("TERM");
    process.wait(std::time::Duration::from_secs(30));
    assert_eq!(health().status.code(), Some(1), "nothing answers any more");
}

#[test]
fn a_wrong_file_is_a_configuration_error() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = written(dir.path(), "torana.yaml", &format!("{FILE}maxWatchs: 1\n"));
    let refused = torana(&["serve", "--config", &file]);
    assert_eq!(refused.status.code(), Some(2));
    let expected = format!("torana: {file}:5: unknown field \"maxWatchs\"; did you mean maxWatches?\n");
    assert_eq!(texts(&refused).1, expected);
    let checked = torana(&["config", "check", "--config", &file]);
    assert_eq!(texts(&checked).1, expected);
}

#[test]
fn the_doctor_examines_a_running_gateway_and_its_backends() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let g = Gateway::start(dir.path());
    let data = format!("--data-dir={}", dir.path().join("data").display());
    let port = g.url().rsplit(':').next().expect("a port").to_owned();
    let port = format!("--secure-port={port}");
    let args = ["doctor", "--bind-address=127.0.0.1", &port, &data];
    let (found, _) = texts(&torana(&args));
    assert!(
        found.contains("ok       port           a gateway with this data directory is serving"),
        "{found}"
    );
    assert!(
        found.contains("ca.crt is valid for 3649 days") || found.contains("ca.crt is valid for 3650 days"),
        "{found}"
    );

    let service = "apiVersion: apiregistration.k8s.io/v1\nkind: APIService\nmetadata: {name: v1.gone.example.com}\nspec:\n  \
                   {group: gone.example.com, version: v1, groupPriorityMinimum: 100, versionPriority: 1, \
                   service: {namespace: default, name: gone}}\n";
    g.kubectl_in(&["apply", "-f", "-"], Some(service));
    wait_for("the doctor finds the backend", || {
        let out = torana(&args);
        let (found, _) = texts(&out);
        found.contains("error    backends       v1.gone.example.com: ServiceNotFound: ") && out.status.code() == Some(1)
    });
}

#[test]
fn the_doctor_examines_etcd() {
    if !crate::etcd_process::is_there() {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let args = |url: &str| {
        let out = torana(&[
            "doctor",
            "--secure-port=0",
            &format!("--etcd-servers={url}"),
            &format!("--data-dir={}", dir.path().display()),
        ]);
        (out.status.code(), texts(&out).0)
    };
    let (code, found) = args("http://127.0.0.1:1");
    assert_eq!(code, Some(1));
    assert!(
        found.contains("error    etcd           http://127.0.0.1:1 does not answer: "),
        "{found}"
    );
    let etcd = crate::etcd_process::Etcd::start(1);
    let (_, found) = args(&etcd.servers()[0]);
    assert!(found.contains(" is version 3."), "{found}");
    assert!(found.contains(" ms for a linearizable read"), "{found}");
    assert!(!found.contains("error    etcd"), "{found}");
}

#[test]
fn completions_and_the_manual_page_are_well_formed() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for (shell, syntax) in [("bash", Some("-n")), ("zsh", None), ("fish", None)] {
        let (script, _) = texts(&torana(&["completion", shell]));
        assert!(
            script.contains("etcd-servers") && script.contains("doctor"),
            "{shell}: {script}"
        );
        let file = written(dir.path(), shell, &script);
        if let Some(syntax) = syntax {
            check_with(shell, &[syntax], Path::new(&file));
        }
    }
    let (page, _) = texts(&torana(&["docs-man"]));
    assert!(page.starts_with(".ie") || page.contains(".TH torana 1"), "{page}");
    for section in [".SH NAME", ".SH \"torana serve\"", "etcd\\-servers"] {
        assert!(page.contains(section), "{section}");
    }
    assert_eq!(page.matches(".TH ").count(), 1);
}
