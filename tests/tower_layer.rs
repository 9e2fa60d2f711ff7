//! Tests the layers of `examples/tower-layer` around a gateway in this process, at the port and as a service.

#![allow(
    clippy::unwrap_used,
    reason = "`allow-unwrap-in-tests` does not cover helper functions"
)]

#[path = "../examples/tower-layer/layers.rs"]
mod layers;

use bytes::Bytes;
use http_body_util::Full;
use layers::REQUEST_ID;
use std::ffi::OsString;
use std::process::Command as Program;
use std::time::{Duration, Instant};
use torana::gateway::{Command, CompletedOptions, Gateway, Response, parse};
use tower::ServiceExt as _;

fn options(dir: &std::path::Path) -> CompletedOptions {
    let data = format!("--data-dir={}", dir.join("data").display());
    let args = ["torana", "serve", "--secure-port=0", "--bind-address=127.0.0.1", &data];
    match parse(args.iter().map(OsString::from)).unwrap() {
        Command::Serve(options) => options.complete().unwrap(),
        _ => panic!("these are flags of serve"),
    }
}

/// Sends a GET to the gateway as a service.
async fn get(gateway: &Gateway, path: &str, id: Option<&str>) -> Response {
    let mut request = http::Request::get(path);
    if let Some(id) = id {
        request = request.header(REQUEST_ID, id);
    }
    let request = request.body(Full::<Bytes>::default()).unwrap();
    gateway.service().oneshot(request).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_wrap_the_chain_at_the_port_and_in_process() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = layers::around(Gateway::builder(options(dir.path())))
        .start()
        .await
        .unwrap();
    let limit = Instant::now() + Duration::from_secs(60);
    while get(&gateway, "/readyz", None).await.status() != 200 {
        assert!(Instant::now() < limit, "it is not ready after a minute");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    let response = get(&gateway, "/version", Some("mine")).await;
    assert_eq!(
        (response.status().as_u16(), &response.headers()[REQUEST_ID]),
        (200, &"mine".parse().unwrap())
    );
    let made = get(&gateway, "/version", Some("not reasonable")).await;
    assert_eq!(made.headers()[REQUEST_ID].len(), 36);
    // The filter chain is inside of the layer, and still rejects the request.
    let refused = get(&gateway, "/api/v1/secrets", None).await;
    assert_eq!(refused.status(), 403);
    assert!(refused.headers().contains_key(REQUEST_ID) && refused.headers().contains_key("audit-id"));

    let url = format!("{}/version", gateway.url());
    for protocol in ["--http1.1", "--http2"] {
        let url = url.clone();
        let curl = move || {
            Program::new("curl")
                .args([
                    "-siSk",
                    "--max-time",
                    "30",
                    "-H",
                    "X-Request-Id: over-the-wire",
                    protocol,
                ])
                .arg(url)
                .output()
                .expect("curl is installed (make tools)")
        };
        let out = tokio::task::spawn_blocking(curl).await.unwrap();
        let text = String::from_utf8(out.stdout).unwrap().to_lowercase();
        assert!(text.contains("x-request-id: over-the-wire"), "{protocol}: {text}");
    }
    assert!(gateway.shut_down().await);
}
