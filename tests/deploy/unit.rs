//! The systemd unit.

use crate::support::{Process, wait_for};
use crate::{assert_flags_exist, check_with, has, read, reserved_port};
use std::path::Path;
use std::process::Command;

/// The health of a gateway on one of its ports, with the CA that it generated.
fn answers(data: &Path, port: &str) -> bool {
    let out = Command::new("curl")
        .args(["-sS", "--max-time", "10", "--cacert"])
        .arg(data.join("pki/ca.crt"))
        .arg(format!("https://127.0.0.1:{port}/readyz"))
        .output();
    out.expect("curl is installed (make tools)").stdout == b"ok"
}

/// `sd_listen_fds(3)`, by another implementation: two sockets, each on a free port, which are printed.
const LISTENING: &str = r#"
import os, socket, sys
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*[s.getsockname()[1] for s in sockets], flush=True)
for n, s in enumerate(sockets):
    os.dup2(s.fileno(), 10 + n)
for n in range(2):
    os.dup2(10 + n, 3 + n)
os.environ.update(LISTEN_FDS="2", LISTEN_PID=str(os.getpid()))
os.execv(sys.argv[1], sys.argv[1:])
"#;

#[test]
fn a_server_takes_the_sockets_of_a_service_manager() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let data = dir.path().join("data");
    let mut process = Process::spawn(
        Command::new("python3")
            .args(["-c", LISTENING, env!("CARGO_BIN_EXE_torana"), "serve"])
            // In vain: the sockets are bound already.
            .args(["--secure-port=1", "--bind-address=203.0.113.1"])
            .arg(format!("--data-dir={}", data.display())),
        dir.path().join("log"),
    );
    let mut ports = Vec::new();
    wait_for("the sockets listen", || {
        let log = process.log();
        let numbers = log.lines().next().unwrap_or_default().split(' ');
        ports = numbers.map(str::to_owned).collect();
        ports.len() == 2
    });
    for port in &ports {
        wait_for("each socket is served", || answers(&data, port));
    }
    let kubeconfig = std::fs::read_to_string(data.join("admin.kubeconfig")).expect("it is written");
    assert!(
        kubeconfig.contains(&format!("https://127.0.0.1:{}", ports[0])),
        "{kubeconfig}"
    );
    process.signal("TERM");
    assert_eq!(
        process.wait(std::time::Duration::from_secs(30)),
        Some(0),
        "{}",
        process.log()
    );
}

#[test]
fn a_socket_that_is_not_tcp_is_refused() {
    let script = LISTENING.replace(r#"socket.create_server(("127.0.0.1", 0))"#, "socket.socketpair()[0]");
    let script = script.replace("s.getsockname()[1]", "0");
    let out = Command::new("python3")
        .args(["-c", &script, env!("CARGO_BIN_EXE_torana"), "serve"])
        .output()
        .expect("python3 is installed (make tools)");
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{text}");
    assert!(
        text.contains("socket 0 of the service manager is not a TCP socket"),
        "{text}"
    );
}

/// The first connection starts the server and is answered by it.
#[test]
fn a_connection_to_the_socket_starts_the_server() {
    if !has("systemd-socket-activate") {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let data = dir.path().join("data");
    // The tool does not tell which port it got for 0.
    let (_reserved, port) = reserved_port();
    let port = port.to_string();
    let process = Process::spawn(
        Command::new("systemd-socket-activate")
            .arg(format!("--listen=127.0.0.1:{port}"))
            .args([env!("CARGO_BIN_EXE_torana"), "serve"])
            .arg(format!("--data-dir={}", data.display())),
        dir.path().join("log"),
    );
    wait_for("the socket listens", || process.log().contains("Listening on"));
    assert!(!data.exists(), "the server has not started yet");
    wait_for("the server answers", || {
        std::net::TcpStream::connect(format!("127.0.0.1:{port}")).is_ok() && answers(&data, &port)
    });
}

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
    let socket = dir.path().join("torana.socket");
    std::fs::write(&socket, read("systemd/torana.socket")).expect("written");
    check_with("systemd-analyze", &["verify", "--man=no"], &path);
    check_with("systemd-analyze", &["verify", "--man=no"], &socket);
    // The exposure level, in tenths: 0 is best, and 2.0 is what systemd calls OK.
    check_with(
        "systemd-analyze",
        &["security", "--offline=true", "--threshold=20"],
        &path,
    );
}
