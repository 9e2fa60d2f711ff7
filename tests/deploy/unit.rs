//! The systemd unit.

use crate::{assert_flags_exist, check_with, read};
use std::process::Command;

#[test]
fn every_flag_in_the_unit_exists() {
    assert_flags_exist("torana.service", &read("systemd/torana.service"));
}

/// The examples in the packaged configuration, which are comments there.
#[test]
fn the_packaged_configuration_is_valid() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("torana.yaml");
    let text = read("systemd/torana.yaml");
    let is_example = |line: &&str| line.starts_with('#') && !line.starts_with("# ");
    assert!(text.lines().filter(is_example).count() >= 5);
    let lines = text
        .lines()
        .map(|line| if is_example(&line) { &line[1..] } else { line });
    std::fs::write(&path, lines.collect::<Vec<_>>().join("\n")).expect("written");
    let mut print = Command::new(env!("CARGO_BIN_EXE_torana"));
    let out = print
        .args(["config", "print", "--config"])
        .arg(&path)
        .output()
        .expect("it runs");
    let printed = String::from_utf8_lossy(&out.stdout);
    assert!(
        printed.contains("etcdServers:\n- https://10.0.0.1:2379\n"),
        "{printed}{}",
        String::from_utf8_lossy(&out.stderr)
    );
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
