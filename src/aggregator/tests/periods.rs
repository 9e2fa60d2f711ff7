//! How often each document of a backend is requested, on a clock that the test advances.

use super::*;
use crate::apimachinery::codec::json;
use crate::sync::Mutex;
use tokio::time::Instant;

const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const QUEUES: [&str; 4] = [
    "RemoteAvailabilityController",
    "discovery-manager",
    "open_api_aggregation_controller",
    "open_api_v3_aggregation_controller",
];

/// A request that the backend received.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Asked {
    path: String,
    user: String,
    /// Value of `If-None-Match`.
    known: Option<String>,
}

impl Asked {
    /// Whether it is a probe: discovery requests the same path with other headers.
    fn is_probe(&self) -> bool {
        self.path == "/apis/g/v1"
    }
}

type Log = Arc<Mutex<Vec<Asked>>>;
type Script = fn(&Asked) -> http::Response<Body>;

/// A gateway whose only APIServices are served by a scripted backend.
struct Rig {
    clock: Still,
    began: Instant,
    w: World,
    log: Log,
    backend: Backend,
    ca: String,
}

/// An APIService that already has this condition, so that a check with the same result writes no status.
fn with_condition(group: &str, ca: &str, port: u16, condition: [&str; 3]) -> Value {
    let [status, reason, message] = condition;
    let mut object = apiservice(group, ca, port);
    object.set(
        &["status", "conditions"],
        json!([{"type": "Available", "status": (status), "reason": (reason), "message": (message)}]),
    );
    object
}

impl Rig {
    /// `why` is the condition that probes will yield, given the URL that they request.
    async fn start(script: Script, why: fn(&str) -> [String; 3]) -> Self {
        let clock = Still::new();
        let began = Instant::now();
        let pki = Pki::new(&["ext.ns.svc"], &[b"h2"]);
        let log = Log::default();
        let note = log.clone();
        let backend = Backend::http(&pki, 100, move |r: http::Request<Incoming>| {
            let header = |name: &str| r.headers().get(name).map(|v| v.to_str().unwrap().to_owned());
            let asked = Asked {
                path: r.uri().path().to_owned(),
                user: header("x-remote-user").unwrap_or_default(),
                known: header("if-none-match"),
            };
            note.lock().push(asked.clone());
            async move { script(&asked) }
        })
        .await;
        let (api_services, services) = (MemoryStorage::new(), MemoryStorage::new());
        let here = json!({"metadata": {"name": "ext"}, "spec": {"type": "ExternalName", "externalName": "127.0.0.1"}});
        services.set("ns/ext", &here);
        let condition = why(&format!("https://{}/apis/g/v1", backend.authority));
        let condition = [0, 1, 2].map(|i| condition[i].as_str());
        api_services.set("v1.g", &with_condition("g", &pki.ca_pem, backend.port(), condition));
        let w = World::start(api_services, services).await;
        let rig = Self {
            clock,
            began,
            w,
            log,
            backend,
            ca: pki.ca_pem,
        };
        rig.rest().await;
        rig
    }

    /// Waits until all queued work is done, without advancing the clock.
    async fn rest(&self) {
        self.clock.settle().await;
        let queues = QUEUES.map(|name| self.w.telemetry.queue(name));
        let at_rest = || async {
            let done = |q: &crate::telemetry::QueueMetrics| q.adds.get() == q.work_duration.get_sample_count();
            queues.iter().all(done).then_some(())
        };
        self.clock.until("rest", at_rest).await;
    }

    fn all(&self, which: fn(&Asked) -> bool) -> Vec<Asked> {
        let log = self.log.lock();
        log.iter().filter(|a| which(a)).cloned().collect()
    }

    /// Asserts that `at_once` requests arrive at each of these times (ms since the start) and none in
    /// between.
    async fn asked_at(&self, which: fn(&Asked) -> bool, at_once: usize, times: &[u64]) {
        let count = || self.all(which).len();
        for at in times {
            let before = count();
            let at = self.began + Duration::from_millis(*at);
            // To a millisecond before, which shows that nothing comes early.
            self.clock.pass(at - Duration::from_millis(1) - Instant::now()).await;
            self.rest().await;
            assert_eq!(count(), before, "before {:?}", at - self.began);
            self.clock.pass(Duration::from_millis(1)).await;
            self.rest().await;
            assert_eq!(count(), before + at_once, "at {:?}", at - self.began);
        }
    }
}

fn passed(_: &str) -> [String; 3] {
    ["True", "Passed", "all checks passed"].map(str::to_owned)
}

fn typed(kind: &str, etag: &str, body: &str) -> http::Response<Body> {
    let mut a = response(200, body.to_owned());
    a.headers_mut().insert("content-type", kind.parse().unwrap());
    if !etag.is_empty() {
        a.headers_mut().insert("etag", etag.parse().unwrap());
    }
    a
}

const DISCOVERY: &str = r#"{"items":[{"metadata":{"name":"g"},"versions":[
    {"version":"v1","resources":[{"resource":"things","scope":"Namespaced"}]}]}]}"#;

/// A healthy backend, whose documents all support conditional requests.
fn well(asked: &Asked) -> http::Response<Body> {
    if asked.known.is_some() {
        return response(304, "");
    }
    match asked.path.as_str() {
        "/apis" => typed(V2, "\"d\"", DISCOVERY),
        "/openapi/v2" => typed("application/json", "\"o\"", r#"{"paths":{"/apis/g/v1/things":{}}}"#),
        "/openapi/v3" => typed(
            "application/json",
            "\"i\"",
            r#"{"paths":{"apis/g/v1":{"serverRelativeURL":"/openapi/v3/apis/g/v1?hash=1"}}}"#,
        ),
        _ => response(200, "{}"),
    }
}

#[tokio::test(start_paused = true)]
async fn discovery_is_polled_once_a_minute_per_service() {
    let rig = Rig::start(well, passed).await;
    let is: fn(&Asked) -> bool = |a| a.path == "/apis";
    assert_eq!(rig.all(is)[0].known, None);
    rig.asked_at(is, 1, &[60_000, 120_000]).await;
    let last = rig.all(is).pop().unwrap();
    assert_eq!(
        (last.user.as_str(), last.known.as_deref()),
        ("system:kube-aggregator", Some("\"d\""))
    );
    // A second APIService on the same service: a document fetched for one serves both.
    rig.clock.pass(Duration::from_secs(10)).await;
    let before = rig.all(is).len();
    let condition = ["True", "Passed", "all checks passed"];
    let other = with_condition("h", &rig.ca, rig.backend.port(), condition);
    rig.w.api_services.set("v1.h", &other);
    rig.clock
        .until("its document", || async { (rig.all(is).len() > before).then_some(()) })
        .await;
    rig.rest().await;
    rig.asked_at(is, 1, &[190_000, 250_000]).await;
}

#[tokio::test(start_paused = true)]
async fn failing_discovery_is_retried_with_backoff() {
    let script: Script = |a| match a.path.as_str() {
        "/apis" => response(503, ""),
        _ => well(a),
    };
    let rig = Rig::start(script, passed).await;
    let times = [500, 1500, 3500, 7500, 15_500, 31_500, 63_500, 123_500, 183_500];
    rig.asked_at(|a| a.path == "/apis", 1, &times).await;
    assert_eq!(
        rig.all(|a| a.user == "system:kube-aggregator" && a.path != "/apis" && !a.is_probe()),
        []
    );
}

#[tokio::test(start_paused = true)]
async fn a_backend_without_aggregated_discovery_is_polled_for_both_forms() {
    let script: Script = |a| match a.path.as_str() {
        "/apis" => response(404, ""),
        "/apis/g/v1" => response(
            200,
            r#"{"resources":[{"name":"things","kind":"Thing","namespaced":true}]}"#,
        ),
        _ => well(a),
    };
    let rig = Rig::start(script, passed).await;
    rig.asked_at(|a| a.path == "/apis", 1, &[60_000, 120_000]).await;
    let version = rig.w.aggregated("g").await.get("versions").items()[0].clone();
    assert_eq!(version.get("resources").items().len(), 1);
    assert_eq!(version.str_at(&["freshness"]), "Current");
}

#[tokio::test(start_paused = true)]
async fn openapi_is_polled_once_a_minute_with_conditional_requests() {
    let rig = Rig::start(well, passed).await;
    let is: [fn(&Asked) -> bool; 2] = [|a| a.path == "/openapi/v2", |a| a.path == "/openapi/v3"];
    for which in is {
        let first = &rig.all(which)[0];
        assert_eq!((first.user.as_str(), &first.known), ("system:aggregator", &None));
    }
    rig.asked_at(|a| a.path.starts_with("/openapi/"), 2, &[60_000, 120_000])
        .await;
    assert_eq!(rig.all(is[0]).pop().unwrap().known.as_deref(), Some("\"o\""));
    // Upstream requests the index unconditionally.
    assert_eq!(rig.all(is[1]).pop().unwrap().known, None);
}

#[tokio::test(start_paused = true)]
async fn failing_openapi_downloads_are_retried_with_backoff() {
    let script: Script = |a| match a.path.as_str() {
        "/openapi/v2" | "/openapi/v3" => response(500, ""),
        _ => well(a),
    };
    let rig = Rig::start(script, passed).await;
    let minutes = [1, 3, 7, 15, 31, 63, 123, 183];
    let times = minutes.map(|m| m * 60_000);
    rig.asked_at(|a| a.path.starts_with("/openapi/"), 2, &times).await;
    // A change of the APIService triggers a download at once.
    let before = rig.all(|a| a.path == "/openapi/v2").len();
    let mut touched = rig.w.api_services.object("v1.g").unwrap();
    touched.set(&["metadata", "labels", "touched"], "yes");
    rig.w.api_services.set("v1.g", &touched);
    let again = || async { (rig.all(|a| a.path == "/openapi/v2").len() > before).then_some(()) };
    rig.clock.until("another look", again).await;
}

#[tokio::test(start_paused = true)]
async fn an_unhealthy_backend_gets_five_concurrent_probes_a_second() {
    let script: Script = |a| match a.path.as_str() {
        "/apis/g/v1" => response(500, ""),
        _ => well(a),
    };
    let failed = |url: &str| {
        let message = format!("failing or missing response from {url}: bad status from {url}: 500");
        ["False".to_owned(), "FailedDiscoveryCheck".to_owned(), message]
    };
    let rig = Rig::start(script, failed).await;
    assert_eq!(rig.all(Asked::is_probe).len() % 5, 0);
    // There were two checks at the start: of the new object, and by the first resync.
    let mut times = vec![125];
    times.extend((0..30).map(|n| 625 + n * 1_000));
    // The resync, and the check that was pending before it.
    times.extend([30_000, 30_625, 31_625]);
    rig.asked_at(Asked::is_probe, 5, &times).await;
}

#[tokio::test(start_paused = true)]
async fn a_healthy_backend_is_probed_every_30_s() {
    let rig = Rig::start(well, passed).await;
    let count = || rig.all(Asked::is_probe).len();
    for at in [30, 60, 90] {
        let before = count();
        rig.clock.pass(Duration::from_millis(29_999)).await;
        rig.rest().await;
        assert_eq!(count(), before, "before {at} s");
        rig.clock.pass(Duration::from_millis(1)).await;
        rig.rest().await;
        // The first success decides and cancels the other probes.
        assert!((before + 1..=before + 5).contains(&count()), "at {at} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hanging_backend_has_five_seconds() {
    let clock = Still::new();
    let pki = Pki::new(&["ext.ns.svc"], &[b"h2"]);
    let probes = Arc::new(AtomicUsize::new(0));
    let count = probes.clone();
    let backend = Backend::http(&pki, 100, move |r: http::Request<Incoming>| {
        count.fetch_add(usize::from(r.uri().path() == "/apis/g/v1"), Ordering::Relaxed);
        std::future::pending()
    })
    .await;
    let (api_services, services) = (MemoryStorage::new(), MemoryStorage::new());
    let here = json!({"metadata": {"name": "ext"}, "spec": {"type": "ExternalName", "externalName": "127.0.0.1"}});
    services.set("ns/ext", &here);
    let w = World::start(api_services, services).await;
    w.api_services
        .set("v1.g", &apiservice("g", &pki.ca_pem, backend.port()));
    let asked = |n: usize| {
        let probes = &probes;
        move || async move { (probes.load(Ordering::Relaxed) == n).then_some(()) }
    };
    clock.until("five probes", asked(5)).await;
    clock.pass(Duration::from_millis(4999)).await;
    assert_eq!(
        (probes.load(Ordering::Relaxed), w.condition("v1.g").as_str()),
        (5, "none")
    );
    clock.pass(Duration::from_millis(1)).await;
    let late = || async {
        w.condition("v1.g")
            .ends_with("context deadline exceeded (Client.Timeout exceeded while awaiting headers)")
            .then_some(())
    };
    clock.until("the verdict", late).await;
}

#[tokio::test(start_paused = true)]
async fn document_requests_are_served_without_querying_backends() {
    let rig = Rig::start(well, passed).await;
    let documents = || async {
        let mut all = Vec::new();
        for path in ["/apis", "/apis/g", "/openapi/v2", "/openapi/v3"] {
            all.push(rig.w.get(path).await);
        }
        all.push((200, json::to_string(&rig.w.aggregated("g").await)));
        all
    };
    let before = rig.log.lock().len();
    let first = documents().await;
    assert!(
        first
            .iter()
            .all(|(status, text)| *status == 200 && text.contains("g/v1") || text.contains("things"))
    );
    assert_eq!(documents().await, first);
    assert_eq!(rig.log.lock().len(), before);
}
