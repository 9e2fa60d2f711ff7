//! The report, and a whole examination.

use super::*;
use crate::cli::{Command, parse};

fn command(args: &[&str]) -> DoctorCommand {
    let args = ["torana", "doctor"].iter().chain(args).map(std::ffi::OsString::from);
    match parse(args) {
        Ok(Command::Doctor(command)) => *command,
        other => panic!("{other:?}"),
    }
}

#[test]
fn errors_make_the_report_unhealthy_and_warnings_do_not() {
    let findings = [
        Finding::ok("clock", "fine"),
        Finding::warning("sync", "slow", "another disk"),
    ];
    let text = report(&findings, false);
    assert!(text.healthy);
    assert!(text.text.contains("warning  sync           slow\n"), "{}", text.text);
    assert!(
        text.text.contains("-> another disk\n2 checks: 0 errors, 1 warnings\n"),
        "{}",
        text.text
    );
    let findings = [Finding::error("port", "taken", "another port")];
    let document = report(&findings, true);
    assert!(!document.healthy);
    let document = json::decode(document.text.as_bytes()).unwrap();
    assert_eq!(document.get("findings").items()[0].str_at(&["mend"]), "another port");
}

#[tokio::test]
async fn doctor_examines_the_configured_resources() {
    let dir = tempfile::tempdir().unwrap();
    let data_dir = format!("--data-dir={}", dir.path().display());
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = format!("--secure-port={}", taken.local_addr().unwrap().port());
    let examined = run(command(&[&data_dir, "--bind-address=127.0.0.1", &port])).await;
    assert!(!examined.healthy);
    let line = "error    port           cannot listen on 127.0.0.1:";
    assert!(examined.text.contains(line), "{}", examined.text);
    for check in ["open files", "clock", "entropy", "disk space", "sync"] {
        assert!(examined.text.contains(check), "{check}: {}", examined.text);
    }
    drop(taken);
    let examined = run(command(&[&data_dir, "--bind-address=127.0.0.1", &port])).await;
    assert!(examined.text.contains("is free"), "{}", examined.text);

    let gone = dir.path().join("gone.crt");
    let flag = format!("--client-ca-file={}", gone.display());
    let examined = run(command(&[&data_dir, &flag])).await;
    assert!(!examined.healthy);
    assert!(
        examined
            .text
            .contains("error    configuration  --client-ca-file: cannot read"),
        "{}",
        examined.text
    );
}
