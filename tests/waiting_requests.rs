//! The memory of requests that wait for seats. A program of its own, because it counts all memory of its
//! process.

#![allow(
    clippy::unwrap_used,
    reason = "`allow-unwrap-in-tests` does not cover helper functions"
)]

#[path = "fairness/gateway.rs"]
mod gateway;

use bytes::Bytes;
use futures_util::FutureExt as _;
use gateway::{send, start};
use http_body_util::Full;
use peak_alloc::PeakAlloc;
use std::time::{Duration, Instant};
use tower::{Service as _, ServiceExt as _};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_waiting_requests_use_little_memory_and_release_it() {
    const WAITING: usize = 10_000;
    let dir = tempfile::tempdir().unwrap();
    let (_running, gateway) = start(dir.path()).await;
    let flow = "/apis/flowcontrol.apiserver.k8s.io/v1";
    // No seats of its own and none borrowed: everything waits.
    let level = r#"{"apiVersion":"flowcontrol.apiserver.k8s.io/v1","kind":"PriorityLevelConfiguration",
        "metadata":{"name":"closed"},"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":0,
        "borrowingLimitPercent":0,"limitResponse":{"type":"Queue","queuing":{"queues":64,"handSize":8,
        "queueLengthLimit":5000}}}}}"#;
    let schema = r#"{"apiVersion":"flowcontrol.apiserver.k8s.io/v1","kind":"FlowSchema","metadata":{"name":"closed"},
        "spec":{"matchingPrecedence":50,"priorityLevelConfiguration":{"name":"closed"},"rules":[{"subjects":[
        {"kind":"User","user":{"name":"crowd"}}],"nonResourceRules":[{"verbs":["*"],"nonResourceURLs":["*"]}]}]}}"#;
    let path = format!("{flow}/prioritylevelconfigurations");
    assert_eq!(send(&gateway, "admin", "POST", &path, level).await, 201);
    assert_eq!(
        send(&gateway, "admin", "POST", &format!("{flow}/flowschemas"), schema).await,
        201
    );
    // Nothing of the client is counted: its request is handed over.
    let crowd = || {
        let request = http::Request::get("/version").header("authorization", "Bearer crowd");
        gateway.clone().call(request.body(Full::<Bytes>::default()).unwrap())
    };
    let limit = Instant::now() + Duration::from_secs(60);
    while crowd().now_or_never().is_some() {
        assert!(Instant::now() < limit, "the level is not in effect after a minute");
        tokio::task::yield_now().await;
    }
    let before = MEMORY.current_usage();
    let mut waiting = Vec::with_capacity(WAITING);
    for _ in 0..WAITING {
        let mut request = crowd();
        assert!(request.as_mut().now_or_never().is_none(), "it waits");
        waiting.push(request);
    }
    let each = MEMORY.current_usage().saturating_sub(before) / WAITING;
    println!("a waiting request takes {each} bytes");
    assert!(each <= 2_000, "{WAITING} requests of {each} bytes are more than 20 MB");
    let one = send(&gateway, "quiet", "GET", "/api/v1/namespaces/default", "").await;
    assert_eq!(one, 200, "others are served meanwhile");
    drop(waiting);
    let dump = "/debug/api_priority_and_fairness/dump_priority_levels";
    let request = http::Request::get(dump)
        .header("authorization", "Bearer admin")
        .body(Full::<Bytes>::default())
        .unwrap();
    let response = gateway.clone().oneshot(request).await.unwrap();
    let text = response.into_body().collect(1 << 20).await.unwrap();
    let text = std::str::from_utf8(&text).unwrap();
    let line = text.lines().find(|l| l.starts_with("closed,")).unwrap();
    let cells: Vec<&str> = line.split(',').map(str::trim).collect();
    // Active queues, idle, quiescing, waiting, executing.
    assert_eq!(cells[1..6], ["0", "true", "false", "0", "0"], "{line}");
}
