//! Priority and fairness at work: a flood of one user while another one sends a request at a time, and
//! kubectl that changes levels meanwhile.

#![allow(
    clippy::unwrap_used,
    reason = "`allow-unwrap-in-tests` does not cover helper functions"
)]

#[path = "fairness/gateway.rs"]
mod gateway;
#[path = "fairness/over_http2.rs"]
mod over_http2;
mod support;

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use gateway::{send, start, start_with};
use http_body_util::Full;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use torana::gateway::GatewayService;
use tower::ServiceExt as _;

fn config_map(name: &str, bytes: usize) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{{"d":"{}"}}}}"#,
        "x".repeat(bytes)
    )
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Outcomes of a flood's requests while the quiet user sent its own.
struct Outcome {
    answered: usize,
    refused: usize,
    quiet: Vec<(u16, Duration)>,
}

/// Keeps `width` requests in flight while the quiet user sends 40, one at a time.
async fn beside_a_flood<F, R>(gateway: &GatewayService, width: usize, one: F, quiet_path: &str) -> Outcome
where
    F: Fn(GatewayService, usize) -> R,
    R: Future<Output = u16> + Send + 'static,
{
    let (done, serial) = (AtomicBool::new(false), AtomicUsize::new(0));
    let next = || tokio::spawn(one(gateway.clone(), serial.fetch_add(1, Ordering::Relaxed)));
    let flood = async {
        let mut running: FuturesUnordered<_> = (0..width).map(|_| next()).collect();
        let (mut answered, mut refused) = (0, 0);
        while let Some(code) = running.next().await {
            match code.unwrap() {
                429 => refused += 1,
                _ => answered += 1,
            }
            if !done.load(Ordering::Relaxed) {
                running.push(next());
            }
        }
        (answered, refused)
    };
    let quiet = async {
        let mut seen = Vec::new();
        for _ in 0..40 {
            let since = Instant::now();
            let code = send(gateway, "quiet", "GET", quiet_path, "").await;
            seen.push((code, since.elapsed()));
        }
        done.store(true, Ordering::Relaxed);
        seen
    };
    let ((answered, refused), quiet) = tokio::join!(flood, quiet);
    Outcome {
        answered,
        refused,
        quiet,
    }
}

fn assert_served(what: &str, outcome: &Outcome) {
    let worst = outcome.quiet.iter().map(|(_, took)| *took).max().unwrap();
    println!(
        "{what}: flood {} answered, {} refused; quiet at most {worst:?}",
        outcome.answered, outcome.refused
    );
    let codes: Vec<u16> = outcome.quiet.iter().map(|(code, _)| *code).collect();
    assert!(codes.iter().all(|code| *code == 200), "{what}: {codes:?}");
    assert!(outcome.answered > 0, "{what}: the flood is served, too");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_causes_no_rejections_of_other_clients() {
    let dir = tempfile::tempdir().unwrap();
    let (_running, gateway) = start(dir.path()).await;
    for n in 0..100 {
        let map = config_map(&format!("m{n}"), 2_000);
        assert_eq!(send(&gateway, "admin", "POST", MAPS, &map).await, 201);
    }
    let one = &format!("{MAPS}/m7");
    let lists = |g: GatewayService, _| async move { send(&g, "flood", "GET", MAPS, "").await };
    assert_served("lists", &beside_a_flood(&gateway, 400, lists, one).await);
    let writes = |g: GatewayService, n| async move {
        let map = config_map(&format!("w{n}"), 100);
        send(&g, "flood", "POST", MAPS, &map).await
    };
    assert_served("writes", &beside_a_flood(&gateway, 100, writes, one).await);
    let watches = |g: GatewayService, _| async move { send(&g, "flood", "GET", &format!("{MAPS}?watch=1"), "").await };
    assert_served("watches", &beside_a_flood(&gateway, 100, watches, one).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_priority_and_fairness_requests_have_no_flow() {
    let dir = tempfile::tempdir().unwrap();
    let (_running, gateway) = start_with(dir.path(), &["--enable-priority-and-fairness=false"]).await;
    let request = http::Request::get("/version").header("authorization", "Bearer quiet");
    let request = request.body(Full::<Bytes>::default()).unwrap();
    let response = gateway.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let named = response
        .headers()
        .keys()
        .filter(|name| name.as_str().starts_with("x-kubernetes-pf-"));
    assert_eq!(named.count(), 0);
    let dump = "/debug/api_priority_and_fairness/dump_priority_levels";
    assert_eq!(send(&gateway, "admin", "GET", dump, "").await, 404);
    // The limiter of requests in flight shares its slots, as its own tests show; here a user alone is served.
    assert_eq!(send(&gateway, "quiet", "GET", MAPS, "").await, 200);
}
