//! A gateway in the process, with few seats, and requests to it.

use bytes::Bytes;
use http_body_util::Full;
use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};
use torana::gateway::{Command, Gateway, GatewayService, parse};
use tower::ServiceExt as _;

const TOKENS: &str = "admin,admin,u1,system:masters\nflood,flood,u2\nquiet,quiet,u3\ncrowd,crowd,u4\n";

/// 20 seats in all, for everybody and everything.
pub(crate) const FLAGS: [&str; 3] = [
    "--authorization-mode=AlwaysAllow",
    "--max-requests-inflight=15",
    "--max-mutating-requests-inflight=5",
];

pub(crate) fn token_file(dir: &Path) -> String {
    let path = dir.join("tokens");
    std::fs::write(&path, TOKENS).unwrap();
    format!("--token-auth-file={}", path.display())
}

/// A gateway and its service; it serves until both are dropped.
pub(crate) async fn start(dir: &Path) -> (Gateway, GatewayService) {
    let (running, gateway) = start_with(dir, &[]).await;
    // Readiness does not wait for the default levels: until they exist, everybody is in the catch-all level.
    let mine = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/global-default";
    until_found(&gateway, mine).await;
    (running, gateway)
}

async fn until_found(gateway: &GatewayService, path: &str) {
    let limit = Instant::now() + Duration::from_secs(120);
    while send(gateway, "admin", "GET", path, "").await != 200 {
        assert!(Instant::now() < limit, "there is no {path} after two minutes");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) async fn start_with(dir: &Path, more: &[&str]) -> (Gateway, GatewayService) {
    let data = format!("--data-dir={}", dir.join("data").display());
    let tokens = token_file(dir);
    let fixed = [
        "torana",
        "serve",
        "--secure-port=0",
        "--bind-address=127.0.0.1",
        &data,
        &tokens,
    ];
    let args = fixed.iter().chain(&FLAGS).chain(more).map(OsString::from);
    let options = match parse(args).unwrap() {
        Command::Serve(options) => options.complete().unwrap(),
        _ => panic!("these are flags of serve"),
    };
    let running = Gateway::builder(options).start().await.unwrap();
    let gateway = running.service();
    until_found(&gateway, "/readyz").await;
    (running, gateway)
}

/// Sends a request in the process, reads the response, and returns its code.
pub(crate) async fn send(gateway: &GatewayService, user: &str, method: &str, path: &str, body: &str) -> u16 {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("authorization", format!("Bearer {user}"))
        .header("content-type", "application/json")
        .body(Full::<Bytes>::from(body.to_owned()))
        .unwrap();
    let response = gateway.clone().oneshot(request).await.unwrap();
    let code = response.status().as_u16();
    // A watch has no end; its response head is enough.
    if !path.contains("watch=1") {
        response.into_body().collect(64 << 20).await.unwrap();
    }
    code
}
