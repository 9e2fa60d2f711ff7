//! The command line of the built binary: output and exit codes.

#![allow(
    clippy::unwrap_used,
    reason = "`allow-unwrap-in-tests` does not cover helper functions"
)]
use std::process::{Command, Output};

fn torana(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_torana")).args(args).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn help_and_version_are_printed_with_exit_code_zero() {
    for args in [
        &["version"][..],
        &["version", "-o", "json"],
        &["--help"],
        &["serve", "--help"],
        &["serve", "--version"],
        &["store", "--help"],
        &["store", "restore", "--help"],
        &[],
    ] {
        let output = torana(args);
        assert!(
            output.status.success() && !output.stdout.is_empty(),
            "{args:?}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn a_usage_error_is_one_line_with_exit_code_two() {
    for (args, part) in [
        (&["serve", "--secure-prt=1"][..], "did you mean --secure-port"),
        (
            &["serve", "--etcd-servers=127.0.0.1:2379"],
            "is no http:// or https:// URL",
        ),
        (&["serve", "--client-ca-file=/nowhere/ca.crt"], "/nowhere/ca.crt"),
        (&["sevre"], "serve"),
    ] {
        let output = torana(args);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.starts_with("torana: ") && text.contains(part), "{text}");
    }
}

#[test]
fn a_start_up_error_is_one_line_with_exit_code_one() {
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = format!("--secure-port={}", taken.local_addr().unwrap().port());
    let tmp = tempfile::tempdir().unwrap();
    let dir = format!("--data-dir={}", tmp.path().display());
    let file = tmp.path().join("file");
    std::fs::write(&file, "").unwrap();
    let not_a_dir = format!("--data-dir={}/data", file.display());
    for (args, part) in [
        (["serve", "--bind-address=127.0.0.1", &port, &dir], "--secure-port"),
        (
            ["serve", "--bind-address=127.0.0.1", "--secure-port=0", &not_a_dir],
            "--data-dir",
        ),
    ] {
        let output = torana(&args);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains(part), "{text}");
    }
}
