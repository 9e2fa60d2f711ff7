use crate::apimachinery::codec::json;
use crate::apimachinery::value::Value;
use crate::audit::backend::{Sink, WriteOutcome};
use crate::audit::{Audit, Backend, Event, Mode, Policy};
use crate::authn::{BearerToken, TokenFile, Union};
use crate::authz::{self, PrivilegedGroups};
use crate::request::{Body, FromBackend, Request, RequestContext, Response};
use crate::server::chain::ChainConfig;
use crate::server::lifecycle::Lifecycle;
use crate::server::respond::FnHandler;
use crate::server::{EmptyDelegate, GenericServer, Prepared};
use crate::sync::Mutex;
use crate::tasks::TaskGroup;
use crate::telemetry::Telemetry;
use crate::telemetry::audit::AuditMetrics;
use crate::telemetry::request_parts::{self, Part};
use bytes::Bytes;
use futures_util::StreamExt as _;
use http_body::Frame;
use http_body_util::BodyExt as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// A sink that collects events, and optionally reports failure.
#[derive(Default)]
struct Kept {
    events: Mutex<Vec<Value>>,
    fails: bool,
}

impl Sink for Kept {
    fn name(&self) -> &'static str {
        "kept"
    }

    fn write(self: Arc<Self>, events: Vec<Arc<Event>>) -> WriteOutcome {
        let mut kept = self.events.lock();
        kept.extend(events.iter().map(|e| json::decode(&e.encode(false)).unwrap()));
        let (tell, stored) = oneshot::channel();
        tell.send(!self.fails).unwrap();
        WriteOutcome::Queued(stored)
    }
}

impl Kept {
    /// The `stage code` pairs of the events.
    fn stages(&self) -> Vec<String> {
        let kept = self.events.lock();
        let shown = |e: &Value| {
            let code = e.at(&["responseStatus", "code"]).as_i64().unwrap_or(0);
            format!("{} {code}", e.str_at(&["stage"]))
        };
        kept.iter().map(shown).collect()
    }

    fn last(&self) -> Value {
        self.events.lock().last().cloned().unwrap()
    }
}

fn config(level: &str, kept: &Arc<Kept>, mode: Mode) -> ChainConfig {
    let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: {level}\n");
    let policy = Policy::parse(text.as_bytes()).unwrap();
    let telemetry = Telemetry::new();
    let metrics = AuditMetrics::new(telemetry.registry());
    let tasks = TaskGroup::new("audit");
    let backend = Backend::start(kept.clone(), mode, None, metrics.clone(), &tasks);
    let tokens = TokenFile::parse("f", "admin,root,u,system:masters\nuser,jane,u").unwrap();
    let authn = Union::new(vec![Arc::new(BearerToken::new(Arc::new(tokens)))]);
    let authz = authz::Union::new(vec![Arc::new(PrivilegedGroups::masters())]);
    ChainConfig {
        audit: Some(Arc::new(Audit::new(policy, vec![backend], metrics, tasks))),
        request_timeout: Duration::from_secs(60),
        ..ChainConfig::new(telemetry, Lifecycle::new(), Arc::new(authn), Arc::new(authz))
    }
}

fn server(config: ChainConfig, answer: impl Fn(&Request) -> Response + Send + Sync + 'static) -> Prepared {
    let s = GenericServer::new("head", Arc::new(EmptyDelegate));
    s.mux().handle_prefix("/api/v1/", Arc::new(FnHandler(answer)));
    s.prepare(config, Duration::ZERO)
}

fn served(level: &str, answer: impl Fn(&Request) -> Response + Send + Sync + 'static) -> (Prepared, Arc<Kept>) {
    let kept = Arc::new(Kept::default());
    (server(config(level, &kept, Mode::Blocking), answer), kept)
}

fn get(uri: &str) -> http::request::Builder {
    http::Request::get(uri).header("authorization", "Bearer admin")
}

async fn send(s: &Prepared, req: http::request::Builder) -> Response {
    s.handler.handle(req.body(Body::empty()).unwrap()).await
}

fn response_with(code: u16, body: &'static str) -> Response {
    let mut r = Response::new(Body::from(body));
    *r.status_mut() = http::StatusCode::from_u16(code).unwrap();
    r.headers_mut()
        .insert("content-type", "application/json".parse().unwrap());
    r
}

const SECRET: &str = r#"{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s"},"data":{"k":"SHH"}}"#;

#[tokio::test]
async fn a_complete_response_is_recorded_at_the_policy_level() {
    for (level, stages, spoken) in [
        ("None", &[][..], false),
        ("Metadata", &["RequestReceived 0", "ResponseComplete 200"], false),
        ("Request", &["RequestReceived 0", "ResponseComplete 200"], false),
        ("RequestResponse", &["RequestReceived 0", "ResponseComplete 200"], true),
    ] {
        let (s, kept) = served(level, |_| response_with(200, SECRET));
        let answer = send(&s, get("/api/v1/namespaces/n/secrets/s")).await;
        assert_eq!(answer.into_body().collect(1 << 20).await.unwrap(), SECRET);
        assert_eq!(kept.stages(), stages, "{level}");
        let all = format!("{:?}", kept.events.lock());
        assert_eq!(all.contains("SHH"), spoken, "{level}");
    }
}

#[tokio::test]
async fn events_contain_user_object_and_decision() {
    let (s, kept) = served("Metadata", |_| response_with(200, "{}"));
    let asked = get("/api/v1/namespaces/n/pods/p")
        .header("audit-id", "mine")
        .header("user-agent", "me")
        .header("x-forwarded-for", "1.2.3.4")
        .header("impersonate-user", "jane");
    send(&s, asked).await;
    let e = kept.last();
    for (path, want) in [
        (&["auditID"][..], "mine"),
        (&["verb"], "get"),
        (&["requestURI"], "/api/v1/namespaces/n/pods/p"),
        (&["user", "username"], "root"),
        (&["impersonatedUser", "username"], "jane"),
        (&["userAgent"], "me"),
        (&["objectRef", "resource"], "pods"),
        (&["objectRef", "name"], "p"),
        (&["annotations", "authorization.k8s.io/decision"], "forbid"),
        (&["responseStatus", "reason"], "Forbidden"),
        (&["responseStatus", "details", "name"], "p"),
    ] {
        assert_eq!(e.str_at(path), want, "{path:?} of {e:?}");
    }
    assert_eq!(e.get("sourceIPs").items()[0].as_str(), Some("1.2.3.4"));
    assert_eq!(kept.stages(), ["RequestReceived 0", "ResponseComplete 403"]);
}

#[tokio::test]
async fn only_the_code_of_a_proxied_response_is_recorded() {
    let (s, kept) = served("RequestResponse", |_| {
        let mut r = response_with(404, r#"{"kind":"Status","apiVersion":"v1","message":"theirs"}"#);
        r.extensions_mut().insert(FromBackend::Proxied);
        r
    });
    send(&s, get("/api/v1/pods")).await;
    assert_eq!(kept.stages(), ["RequestReceived 0", "ResponseComplete 404"]);
    let all = format!("{:?}", kept.last());
    assert!(!all.contains("theirs") && !all.contains("responseObject"), "{all}");
}

fn chunks(parts: &'static [&'static str]) -> Response {
    let frames = parts
        .iter()
        .map(|p| Ok::<_, std::io::Error>(Frame::data(Bytes::from_static(p.as_bytes()))));
    let body = http_body_util::StreamBody::new(futures_util::stream::iter(frames));
    let mut r = response_with(200, "");
    *r.body_mut() = Body::stream(body);
    r
}

#[tokio::test]
async fn a_streamed_response_completes_with_its_body() {
    let (s, kept) = served("RequestResponse", |_| {
        chunks(&["{\"kind\":\"PodList\",", "\"items\":[]}"])
    });
    let answer = send(&s, get("/api/v1/pods")).await;
    assert_eq!(kept.stages(), ["RequestReceived 0"]);
    answer.into_body().collect(1 << 20).await.unwrap();
    assert_eq!(kept.stages(), ["RequestReceived 0", "ResponseComplete 200"]);
    assert_eq!(kept.last().str_at(&["responseObject", "kind"]), "PodList");
}

/// A JSON object that is too large to be decoded on a reactor.
fn large_object() -> &'static str {
    let head = r#"{"kind":"ConfigMap","apiVersion":"v1","data":{"k":""#;
    format!("{head}{}\"}}}}", "x".repeat(100 << 10)).leak()
}

#[tokio::test]
async fn large_response_objects_are_decoded_a_few_at_a_time() {
    let whole = large_object();
    let parts: &'static [&'static str] = vec![&whole[..1000], &whole[1000..]].leak();
    let answers: [fn(&'static str, &'static [&'static str]) -> Response; 2] =
        [|whole, _| response_with(200, whole), |_, parts| chunks(parts)];
    for answer in answers {
        let kept = Arc::new(Kept::default());
        let config = config("RequestResponse", &kept, Mode::Blocking);
        let audit = config.audit.clone().unwrap();
        let s = server(config, move |_| answer(whole, parts));
        let permits = (
            audit.response_limits().decoding_permit().await,
            audit.response_limits().decoding_permit().await,
        );
        let request = async {
            send(&s, get("/api/v1/configmaps/c"))
                .await
                .into_body()
                .collect(1 << 20)
                .await
        };
        let mut request = Box::pin(request);
        assert!(futures_util::FutureExt::now_or_never(&mut request).is_none());
        assert_eq!(kept.stages(), ["RequestReceived 0"]);
        drop(permits);
        assert_eq!(request.await.unwrap(), whole);
        assert_eq!(kept.stages(), ["RequestReceived 0", "ResponseComplete 200"]);
        let recorded = kept.last();
        assert_eq!(json::to_vec(recorded.get("responseObject")).len(), whole.len());
    }
}

#[tokio::test]
async fn large_response_objects_that_are_not_recorded_are_not_decoded() {
    let whole = large_object();
    let kept = Arc::new(Kept::default());
    let config = config("Metadata", &kept, Mode::Blocking);
    let audit = config.audit.clone().unwrap();
    let s = server(config, move |_| response_with(200, whole));
    let _permits = (
        audit.response_limits().decoding_permit().await,
        audit.response_limits().decoding_permit().await,
    );
    let delete = http::Request::delete("/api/v1/configmaps/c").header("authorization", "Bearer admin");
    send(&s, delete).await;
    assert_eq!(kept.stages(), ["RequestReceived 0", "ResponseComplete 200"]);
}

#[tokio::test]
async fn a_watch_is_recorded_at_its_start_and_end() {
    let (s, kept) = served("RequestResponse", |_| chunks(&["{\"type\":\"ADDED\"}", "{}"]));
    let answer = send(&s, get("/api/v1/pods?watch=1")).await;
    assert_eq!(kept.stages(), ["RequestReceived 0", "ResponseStarted 200"]);
    drop(answer);
    assert_eq!(kept.stages()[2..], ["ResponseComplete 200"]);
    assert!(!format!("{:?}", kept.last()).contains("ADDED"));
}

#[tokio::test]
async fn an_upgrade_completes_when_its_connection_ends() {
    let carried = Arc::new(Mutex::new(None));
    let carrier = carried.clone();
    let (s, kept) = served("Metadata", move |req| {
        *carrier.lock() = RequestContext::of(req).until_upgrade_ends.clone();
        response_with(101, "")
    });
    let asked = get("/api/v1/namespaces/n/pods/p/exec").header("upgrade", "websocket");
    drop(send(&s, asked).await);
    assert_eq!(kept.stages(), ["RequestReceived 0", "ResponseStarted 101"]);
    carried.lock().take();
    assert_eq!(kept.stages()[2..], ["ResponseComplete 101"]);
}

#[tokio::test]
async fn a_panic_is_recorded_as_its_own_stage() {
    let (s, kept) = served("Metadata", |_| panic!("on purpose"));
    assert_eq!(send(&s, get("/api/v1/pods")).await.status(), 500);
    assert_eq!(kept.stages(), ["RequestReceived 0", "Panic 500"]);
    let text = kept.last().str_at(&["responseStatus", "message"]).to_owned();
    assert_eq!(text, "APIServer panic'd: on purpose");
}

/// A handler that never answers.
struct Stuck;

#[async_trait::async_trait]
impl crate::request::UnprotectedHandler for Stuck {
    async fn serve(self: Arc<Self>, _: Request, _: crate::request::Authorized) -> Response {
        std::future::pending().await
    }
}

/// A handler that waits for two mutating webhooks, then for two validating ones at once, then for its store,
/// and streams its response.
struct Slow;

#[async_trait::async_trait]
impl crate::request::UnprotectedHandler for Slow {
    async fn serve(self: Arc<Self>, req: Request, _: crate::request::Authorized) -> Response {
        let audit = RequestContext::of(&req).audit.clone().unwrap();
        for took in [200, 250] {
            audit.took(Part::MutatingWebhooks, Duration::from_millis(took));
        }
        for took in [300, 100] {
            audit.took(Part::ValidatingWebhooks, Duration::from_millis(took));
        }
        // A store does not have the trail.
        request_parts::record(Part::Store, Duration::from_millis(70));
        let took = match req.uri().path().ends_with("slow") {
            true => Duration::from_millis(500),
            false => Duration::from_millis(250),
        };
        tokio::time::sleep(took).await;
        let pieces = futures_util::stream::iter([Bytes::from("{"), Bytes::from("}")]).then(|piece| async {
            tokio::time::sleep(Duration::from_millis(40)).await;
            Ok::<_, std::io::Error>(Frame::data(piece))
        });
        response_with(200, "").map(|_| Body::stream(http_body_util::StreamBody::new(Box::pin(pieces))))
    }
}

#[tokio::test(start_paused = true)]
async fn slow_requests_are_annotated_with_their_latencies() {
    let kept = Arc::new(Kept::default());
    let head = GenericServer::new("head", Arc::new(EmptyDelegate));
    head.mux().handle_prefix("/api/v1/", Arc::new(Slow));
    let s = head.prepare(config("Metadata", &kept, Mode::Blocking), Duration::ZERO);
    let mut body = send(&s, get("/api/v1/namespaces/slow")).await.into_body();
    for _ in 0..2 {
        body.frame().await.unwrap().unwrap();
        // A slow client.
        tokio::time::sleep(Duration::from_millis(85)).await;
    }
    assert!(body.frame().await.is_none());
    let last = kept.last();
    let latency = |part: &str| {
        let key = format!("apiserver.latency.k8s.io/{part}");
        last.at(&["annotations", &key]).as_str().unwrap_or_default().to_owned()
    };
    for (part, took) in [
        ("total", "750ms"),
        ("mutating-webhook", "450ms"),
        ("validating-webhook", "300ms"),
        ("etcd", "70ms"),
        ("serialize-response-object", "80ms"),
        ("response-write", "170ms"),
        ("transform-response-object", ""),
        ("decode-response-object", ""),
        ("impersonation", ""),
        ("apf-queue-wait", ""),
    ] {
        assert_eq!(latency(part), took, "{part}");
    }
    for part in ["authentication", "authorization"] {
        assert!(!latency(part).is_empty(), "{part}");
    }
    drop(send(&s, get("/api/v1/namespaces/quick")).await);
    assert!(!format!("{:?}", kept.last()).contains("latency"));
}

#[tokio::test(start_paused = true)]
async fn timeouts_and_disconnects_are_recorded_as_complete() {
    let kept = Arc::new(Kept::default());
    let head = GenericServer::new("head", Arc::new(EmptyDelegate));
    head.mux().handle_prefix("/api/v1/", Arc::new(Stuck));
    let s = head.prepare(config("Metadata", &kept, Mode::Blocking), Duration::ZERO);
    assert_eq!(send(&s, get("/api/v1/pods")).await.status(), 504);
    assert_eq!(kept.stages(), ["RequestReceived 0", "ResponseComplete 504"]);
    let last = kept.last();
    assert_eq!(last.str_at(&["annotations", "apiserver.latency.k8s.io/total"]), "1m0s");

    let gone = tokio::time::timeout(Duration::from_secs(1), send(&s, get("/api/v1/pods"))).await;
    assert!(gone.is_err());
    assert_eq!(kept.stages()[2..], ["RequestReceived 0", "ResponseComplete 200"]);
    assert_eq!(
        kept.last().str_at(&["responseStatus", "message"]),
        "Connection closed early"
    );
}

#[tokio::test]
async fn unauthenticated_rejections_are_a_single_event() {
    let (s, kept) = served("RequestResponse", |_| response_with(200, "{}"));
    let asked = http::Request::get("/api/v1/pods").header("authorization", "Bearer wrong");
    assert_eq!(send(&s, asked).await.status(), 401);
    let asked = http::Request::get("/api/v1/pods");
    assert_eq!(send(&s, asked).await.status(), 401);
    let tried: Vec<String> = kept
        .events
        .lock()
        .iter()
        .map(|e| e.str_at(&["responseStatus", "message"]).to_owned())
        .collect();
    assert_eq!(
        tried,
        [
            "Authentication failed, attempted: bearer",
            "Authentication failed, no credentials provided"
        ]
    );
    assert_eq!(send(&s, get("/api/v1/pods?timeout=abc")).await.status(), 400);
    assert_eq!(
        kept.stages(),
        ["ResponseStarted 401", "ResponseStarted 401", "ResponseStarted 400"]
    );
    assert_eq!(kept.last().get("user"), &Value::Object(Default::default()));
}

#[tokio::test]
async fn only_blocking_strict_rejects_requests_it_cannot_record() {
    for (mode, code) in [(Mode::Blocking, 200), (Mode::BlockingStrict, 500)] {
        let kept = Arc::new(Kept {
            fails: true,
            ..Kept::default()
        });
        let config = config("Metadata", &kept, mode);
        let telemetry = config.telemetry.clone();
        let s = server(config, |_| response_with(200, "{}"));
        let answer = send(&s, get("/api/v1/pods")).await;
        assert_eq!(answer.status(), code);
        let rejected = String::from_utf8(telemetry.text())
            .unwrap()
            .contains("apiserver_audit_requests_rejected_total 1");
        assert_eq!(rejected, code == 500);
    }
}

#[tokio::test]
async fn handlers_get_an_audit_trail_only_if_recorded() {
    for (level, found) in [("None", false), ("Metadata", true)] {
        let (s, _) = served(level, move |req| {
            assert_eq!(RequestContext::of(req).audit.is_some(), found);
            response_with(200, "{}")
        });
        assert_eq!(send(&s, get("/api/v1/pods")).await.status(), 200);
    }
}
