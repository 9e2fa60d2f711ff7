//! The processes that are measured: a gateway in a directory of its own, and a backend behind it.

use crate::client::Target;
use crate::process::Server;
use bytes::Bytes;
use hyper::Method;
use serde_json::json;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The bearer token of the only user, who may do everything.
pub(crate) const TOKEN: &str = "bench-token";

/// A running gateway that is ready.
pub(crate) struct Gateway {
    pub server: Server,
    pub target: Target,
    pub started: Duration,
}

pub(crate) async fn start(torana: &Path, dir: &Path, port: u16) -> Result<Gateway, String> {
    start_with(torana, dir, port, &[]).await
}

pub(crate) async fn start_with(torana: &Path, dir: &Path, port: u16, flags: &[&str]) -> Result<Gateway, String> {
    std::fs::write(
        dir.join("tokens.csv"),
        format!("{TOKEN},bench,bench-uid,\"system:masters\"\n"),
    )
    .map_err(|e| e.to_string())?;
    let mut c = Command::new(torana);
    c.arg("serve")
        .arg(format!("--secure-port={port}"))
        .arg("--bind-address=127.0.0.1")
        .arg(format!("--data-dir={}", dir.join("data").display()))
        .arg(format!("--token-auth-file={}", dir.join("tokens.csv").display()))
        .arg("--http2-max-streams-per-connection=250")
        .arg("--max-requests-inflight=2000")
        .arg("--max-mutating-requests-inflight=1000")
        .args(flags);
    let t = Instant::now();
    let log = dir.join("torana.log");
    ready(Server::start(&mut c, &log)?, port, t, &log).await
}

/// Polls until the server started at `t` is ready.
pub(crate) async fn ready(server: Server, port: u16, t: Instant, log: &Path) -> Result<Gateway, String> {
    let target = Target::new(port, TOKEN);
    loop {
        if let Ok((s, _)) = target.once(Method::GET, "/readyz", "").await
            && s.is_success()
        {
            return Ok(Gateway {
                server,
                target,
                started: t.elapsed(),
            });
        }
        if t.elapsed() > Duration::from_secs(60) {
            let log = std::fs::read_to_string(log).unwrap_or_default();
            return Err(format!("it did not get ready within 60 s; its log:\n{log}"));
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Runs `work` with a new directory and removes it afterwards.
pub(crate) async fn in_own_dir(work: impl AsyncFnOnce(&Path) -> Result<(), String>) -> Result<(), String> {
    let dir = std::env::temp_dir().join(format!("torana-bench-{}", std::process::id()));
    std::fs::create_dir_all(&dir).map_err(|e| e.to_string())?;
    let result = work(&dir).await;
    let _ = std::fs::remove_dir_all(&dir);
    result
}

/// Starts the backend: its process, its port, and its CA certificate.
pub(crate) async fn backend(dir: &Path) -> Result<(Server, u16, String), String> {
    let names = ["localhost", "*.bench.svc", "127.0.0.1"].map(str::to_owned).to_vec();
    let cert = rcgen::generate_simple_self_signed(names).map_err(|e| e.to_string())?;
    let pem = cert.cert.pem();
    std::fs::write(dir.join("backend.crt"), &pem).map_err(|e| e.to_string())?;
    std::fs::write(dir.join("backend.key"), cert.signing_key.serialize_pem()).map_err(|e| e.to_string())?;
    // Remove the file of an earlier backend.
    let _ = std::fs::remove_file(dir.join("backend.port"));
    let me = std::env::current_exe().map_err(|e| e.to_string())?;
    let server = Server::start(Command::new(me).arg("backend").arg(dir), &dir.join("backend.log"))?;
    loop {
        let port = std::fs::read_to_string(dir.join("backend.port"));
        match port.ok().and_then(|t| t.parse().ok()) {
            Some(port) => return Ok((server, port, pem)),
            None => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// The `i`th ConfigMap, of about 400 bytes.
pub(crate) fn config_map(i: u64) -> Bytes {
    let data = "v".repeat(180);
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": format!("c-{i:06}"), "labels": {"app": "bench", "shard": format!("{}", i % 10)}},
        "data": {"key": data}})
    .to_string()
    .into()
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    const A: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for c in bytes.chunks(3) {
        let n = u32::from(c[0]) << 16 | u32::from(*c.get(1).unwrap_or(&0)) << 8 | u32::from(*c.get(2).unwrap_or(&0));
        for i in 0..4 {
            if i <= c.len() {
                out.push(A[(n >> (18 - 6 * i) & 63) as usize] as char);
            } else {
                out.push('=');
            }
        }
    }
    out
}
