//! Priority and fairness at work: a flood of one user while another one sends a request at a time, waiting in bulk, and
//! kubectl that changes levels meanwhile.

#![allow(clippy::unwrap_used)] // `allow-unwrap-in-tests` does not cover helper functions

#[path = "fairness/over_http2.rs"]
mod over_http2;
mod support;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use http_body_util::Full;
use peak_alloc::PeakAlloc;
use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use torana::gateway::{Command, Gateway, GatewayService, parse};
use tower::{Service as _, ServiceExt as _};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const TOKENS: &str = "admin,admin,u1,system:masters\nflood,flood,u2\nquiet,quiet,u3\ncrowd,crowd,u4\n";

/// 20 seats in all, for everybody and everything.
const FLAGS: [&str; 3] = [
    "--authorization-mode=AlwaysAllow",
    "--max-requests-inflight=15",
    "--max-mutating-requests-inflight=5",
];

fn token_file(dir: &Path) -> String {
    let path = dir.join("tokens");
    std::fs::write(&path, TOKENS).unwrap();
    format!("--token-auth-file={}", path.display())
}

/// A gateway and its service; it serves until both are dropped.
async fn start(dir: &Path) -> (Gateway, GatewayService) {
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

async fn start_with(dir: &Path, more: &[&str]) -> (Gateway, GatewayService) {
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
async fn send(gateway: &GatewayService, user: &str, method: &str, path: &str, body: &str) -> u16 {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("authorization", format!("Bearer {user}"))
        .header("content-type", "application/json")
        .body(Full::<Bytes>::from(body.to_owned()))
        .unwrap();
    let response = gateway.clone().oneshot(request).await.unwrap();
    let code = response.status().as_u16();
    // A watch has no end; its head says what is asked here.
    if !path.contains("watch=1") {
        response.into_body().collect(64 << 20).await.unwrap();
    }
    code
}

fn config_map(name: &str, bytes: usize) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{{"d":"{}"}}}}"#,
        "x".repeat(bytes)
    )
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// What a flood got while the quiet user sent its requests.
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
async fn nobody_is_turned_away_because_of_the_flood_of_another() {
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
async fn ten_thousand_waiting_requests_are_small_and_leave_without_a_trace() {
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
