//! The chain as a whole: order, responses of filters, deadlines, metrics. `flows`: priority and fairness.

mod flows;

use super::*;
use crate::authn::{Anonymous, BearerToken, TokenFile, Union, WithAnonymous};
use crate::authz::{self, AllowedPaths, PrivilegedGroups};
use crate::request::{Body, Request, RequestContext, Response};
use crate::server::filter::{ContextField, FilterSpec, Unmet};
use crate::server::respond::{self, FnHandler};
use crate::server::{DelegationTarget, EmptyDelegate, GenericServer, Prepared};

fn config() -> ChainConfig {
    let tokens = TokenFile::parse("f", "admin,root,u,system:masters\nuser,jane,u").unwrap();
    let bearer = Arc::new(BearerToken::new(Arc::new(tokens)));
    let authn = WithAnonymous::new(Arc::new(Union::new(vec![bearer])), Anonymous::new());
    let authz = authz::Union::new(vec![
        Arc::new(PrivilegedGroups::masters()),
        Arc::new(AllowedPaths::public_info()),
    ]);
    ChainConfig::new(Telemetry::new(), Lifecycle::new(), Arc::new(authn), Arc::new(authz))
}

/// A prepared server that answers `/test` with `answer`.
fn server(config: ChainConfig, answer: impl Fn(&Request) -> Response + Send + Sync + 'static) -> Prepared {
    let s = GenericServer::new("head", Arc::new(EmptyDelegate));
    s.mux().handle("/test", Arc::new(FnHandler(answer)));
    s.prepare(config, Duration::ZERO)
}

fn plain(config: ChainConfig) -> Prepared {
    server(config, |_| Response::new("hi".into()))
}

async fn send(server: &Prepared, req: http::request::Builder) -> (u16, http::HeaderMap, String) {
    let response = server.handler.handle(req.body(Body::empty()).unwrap()).await;
    let (parts, body) = response.into_parts();
    let body = body.collect(1 << 20).await.unwrap();
    (
        parts.status.as_u16(),
        parts.headers,
        String::from_utf8(body.to_vec()).unwrap(),
    )
}

fn get(uri: &str) -> http::request::Builder {
    http::Request::get(uri).header("authorization", "Bearer admin")
}

/// The names of the nested filters in a chain's type, outermost first.
fn filters<F>(_: &F) -> Vec<String> {
    let name = std::any::type_name::<F>();
    let nested = name.split(['<', '>']).filter(|part| !part.is_empty());
    nested
        .filter_map(|path| Some(path.rsplit("::").nth(1)?.to_owned()))
        .collect()
}

#[test]
fn filter_order_matches_upstream() {
    let director = EmptyDelegate.unprotected_handler();
    assert_eq!(
        filters(&nested(config(), vec![], director)),
        [
            "audit_init",
            "panic_recovery",
            "mux_ready",
            "received_at",
            "request_info",
            "http_log",
            "cache_control",
            "wait_group",
            "deadline",
            "timeout",
            "warnings",
            "authentication",
            "audit",
            "impersonation",
            "priority_and_fairness",
            "max_in_flight",
            "compute",
            "authorization",
        ]
    );
}

#[test]
fn unmet_filter_requirements_are_detected() {
    use ContextField::{AuditId, Caller, Received, RequestInfo};
    use authorization::Authorization as Inner;
    let unmet = |needs: &'static [ContextField]| FilterSpec { needs, sets: &[] }.around(Unmet::NONE);
    assert_eq!(Inner::UNMET, unmet(&[RequestInfo, Received, Caller]));
    assert_eq!(request_info::Info::<Inner>::UNMET, unmet(&[Received, Caller]));
    // Set further inside than it is needed.
    type Swapped = http_log::HttpLog<request_info::Info<Inner>>;
    assert_eq!(Swapped::UNMET, unmet(&[AuditId, RequestInfo, Received, Caller]));
}

#[tokio::test]
async fn credentials_are_stripped_before_the_handler() {
    let s = server(config(), |req| {
        assert!(req.headers().get("authorization").is_none());
        assert!(req.headers().get("x-remote-extra-foo").is_none());
        assert_eq!(RequestContext::of(req).caller.as_ref().unwrap().user().name, "root");
        Response::new("hi".into())
    });
    let (code, headers, body) = send(
        &s,
        get("/test")
            .header("x-remote-extra-foo", "a")
            .header("audit-id", "mine"),
    )
    .await;
    assert_eq!((code, body.as_str()), (200, "hi"));
    assert_eq!(headers["audit-id"], "mine");
    assert_eq!(headers["cache-control"], "no-cache, private");
    assert!(headers.get("connection").is_none());
}

#[tokio::test]
async fn error_responses_match_upstream() {
    let s = plain(config());
    let bad = http::Request::get("/healthz").header("authorization", "Bearer nope");
    let (code, headers, body) = send(&s, bad).await;
    assert_eq!(
        (code, headers["content-type"].as_bytes()),
        (401, &b"application/json"[..])
    );
    assert!(
        body.contains(r#""message":"Unauthorized""#) && !body.contains("details"),
        "{body}"
    );
    assert!(headers.get("x-content-type-options").is_none() && headers.contains_key("audit-id"));

    let (code, headers, body) = send(&s, http::Request::get("/api/v1/pods")).await;
    assert_eq!((code, &headers["x-content-type-options"]), (403, &respond::NOSNIFF));
    assert!(body.contains(r#"pods is forbidden: User \"system:anonymous\" cannot list resource \"pods\" in API group \"\" at the cluster scope"#), "{body}");

    let (code, _, body) = send(&s, http::Request::get("/healthz")).await;
    assert_eq!((code, body.as_str()), (200, "ok"));
    assert_eq!(send(&s, get("/livez/loopback-serving-certificate")).await.0, 200);
    assert_eq!(send(&s, get("/readyz/loopback-serving-certificate")).await.0, 404);
    let h2 = http::Request::get("/healthz").version(http::Version::HTTP_2);
    assert_eq!(send(&s, h2).await.1["connection"], "close");
}

#[tokio::test]
async fn unknown_paths_get_503_until_all_paths_are_installed() {
    let mut head = GenericServer::new("head", Arc::new(EmptyDelegate));
    let installed = head.add_paths_complete_signal("installed");
    let s = head.prepare(config(), Duration::ZERO);
    let (code, headers, body) = send(&s, get("/nope")).await;
    assert_eq!((code, headers["retry-after"].as_bytes()), (503, &b"5"[..]));
    assert!(
        body.contains("before all known HTTP paths have been installed"),
        "{body}"
    );
    assert_eq!(send(&s, get("/version")).await.0, 200);
    installed.fire();
    let (code, headers, body) = send(&s, get("/nope")).await;
    assert_eq!((code, body.as_str()), (404, "404 page not found\n"));
    assert_eq!(headers["content-type"], "text/plain; charset=utf-8");
}

#[tokio::test]
async fn a_panic_results_in_500() {
    let s = server(config(), |_| panic!("on purpose"));
    let (code, headers, body) = send(&s, get("/test")).await;
    assert_eq!(code, 500);
    assert_eq!(
        body,
        "This request caused apiserver to panic. Look in the logs for details.\n"
    );
    assert!(headers.contains_key("audit-id"));
}

struct Never;

#[async_trait::async_trait]
impl UnprotectedHandler for Never {
    async fn serve(self: Arc<Self>, _: Request, _: crate::request::Authorized) -> Response {
        std::future::pending().await
    }
}

fn hanging(config: ChainConfig) -> Prepared {
    let s = GenericServer::new("head", Arc::new(EmptyDelegate));
    s.mux().handle("/hang", Arc::new(Never));
    s.mux().handle_prefix("/api/v1/", Arc::new(Never));
    s.prepare(config, Duration::ZERO)
}

#[tokio::test(start_paused = true)]
async fn a_request_past_its_deadline_gets_504() {
    let s = hanging(config());
    let start = tokio::time::Instant::now();
    let (code, headers, body) = send(&s, get("/hang?timeout=5s")).await;
    assert_eq!((code, start.elapsed().as_secs()), (504, 5));
    assert_eq!(headers["content-type"], "text/plain; charset=utf-8");
    assert!(body.starts_with(r#"{"metadata":{},"status":"Failure","#) && body.ends_with("\"code\":504}\n"));
    assert_eq!(send(&s, get("/hang?timeout=5h")).await.0, 504);
    assert_eq!(start.elapsed().as_secs(), 65);
    let (code, _, body) = send(&s, http::Request::get("/hang?timeout=zz")).await;
    assert_eq!(code, 400);
    assert!(body.contains(r#"invalid timeout specified in the request URL - time: invalid duration \"zz\""#));
    let watch = send(&s, get("/api/v1/pods?watch=1&timeout=zz"));
    assert!(
        tokio::time::timeout(Duration::from_secs(3600), watch).await.is_err(),
        "a watch has no deadline"
    );
}

#[tokio::test(start_paused = true)]
async fn requests_over_the_limit_get_429_except_for_masters() {
    let mut c = config();
    c.max_requests_in_flight = 1;
    c.authorizer = Arc::new(authz::AlwaysAllow);
    let s = hanging(c);
    let first = send(&s, get("/hang"));
    let second = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let user = http::Request::get("/version").header("authorization", "Bearer user");
        let (code, headers, body) = send(&s, user).await;
        assert_eq!((code, headers["retry-after"].as_bytes()), (429, &b"1"[..]));
        assert_eq!(body, "Too many requests, please try again later.\n");
        assert_eq!(send(&s, get("/version")).await.0, 200);
    };
    tokio::join!(first, second);
    let user = http::Request::get("/version").header("authorization", "Bearer user");
    assert_eq!(send(&s, user).await.0, 200);
}

#[tokio::test]
async fn a_draining_server_rejects_requests_except_health_checks() {
    let s = plain(config());
    s.lifecycle.shutdown_initiated.fire();
    s.lifecycle.requests.start_draining();
    let (code, headers, body) = send(&s, get("/test")).await;
    assert_eq!((code, headers["retry-after"].as_bytes()), (503, &b"1"[..]));
    assert!(body.contains("apiserver is shutting down"));
    assert_eq!(send(&s, get("/livez")).await.0, 200);
    let (code, _, body) = send(&s, get("/readyz")).await;
    assert_eq!(code, 500);
    assert!(body.contains("[-]shutdown failed: reason withheld\n"), "{body}");
}

#[tokio::test]
async fn watches_see_the_shutdown_signal() {
    let s = GenericServer::new("head", Arc::new(EmptyDelegate));
    let watch = FnHandler(|req: &Request| {
        let ending = RequestContext::of(req).ending.as_ref().unwrap();
        Response::new(ending.fired().to_string().into())
    });
    s.mux().handle_prefix("/api/v1/", Arc::new(watch));
    let s = s.prepare(config(), Duration::ZERO);
    assert_eq!(send(&s, get("/api/v1/pods?watch=1")).await.2, "false");
    s.lifecycle.not_accepting_new_request.fire();
    assert_eq!(send(&s, get("/api/v1/pods?watch=1")).await.2, "true");
}

#[tokio::test]
async fn backend_headers_follow_ours_and_upgrades_keep_only_theirs() {
    use crate::request::FromBackend;
    let answer = |from: Option<FromBackend>| {
        move |_: &Request| {
            let mut r = Response::default();
            r.headers_mut().insert("cache-control", "public".parse().unwrap());
            r.headers_mut().insert("audit-id", "theirs".parse().unwrap());
            if let Some(from) = from {
                r.extensions_mut().insert(from);
            }
            r
        }
    };
    for (from, cache, ids) in [
        (None, &["public"][..], &["ours", "theirs"][..]),
        (
            Some(FromBackend::Proxied),
            &["no-cache, private", "public"],
            &["ours", "theirs"],
        ),
        (Some(FromBackend::Verbatim), &["public"], &["theirs"]),
    ] {
        let c = config();
        let telemetry = c.telemetry.clone();
        let s = server(c, answer(from));
        let (_, headers, _) = send(&s, get("/test").header("audit-id", "ours")).await;
        assert_eq!(headers.get_all("cache-control").iter().collect::<Vec<_>>(), cache);
        assert_eq!(headers.get_all("audit-id").iter().collect::<Vec<_>>(), ids);
        let counted = String::from_utf8(telemetry.text())
            .unwrap()
            .contains("apiserver_request_total{");
        assert_eq!(counted, from.is_none());
    }
}

#[tokio::test]
async fn warnings_become_headers() {
    let s = server(config(), |req| {
        let w = RequestContext::of(req).warnings.as_ref().unwrap();
        w.add("old");
        w.add("old");
        Response::default()
    });
    let (_, headers, _) = send(&s, get("/test")).await;
    assert_eq!(headers.get_all("warning").iter().collect::<Vec<_>>(), ["299 - \"old\""]);
}

#[tokio::test]
async fn impersonation_replaces_the_user_and_strips_its_headers() {
    let s = server(config(), |req| {
        assert!(!req.headers().keys().any(|k| k.as_str().starts_with("impersonate-")));
        let user = RequestContext::of(req).caller.as_ref().unwrap().user().clone();
        Response::new(format!("{} {}", user.name, user.groups.join(",")).into())
    });
    let as_x = get("/test").header("impersonate-user", "x");
    assert_eq!(send(&s, as_x).await.0, 403, "x has no access");
    let as_x = get("/test")
        .header("impersonate-user", "x")
        .header("impersonate-group", "system:masters")
        .header("impersonate-extra-a", "b");
    let (code, _, body) = send(&s, as_x).await;
    assert_eq!((code, body.as_str()), (200, "x system:masters,system:authenticated"));
    let nobody = get("/test").header("impersonate-user", "");
    assert!(send(&s, nobody).await.2.starts_with("root system:masters"));
    assert_eq!(send(&s, get("/test").header("impersonate-group", "x")).await.0, 400);
    let user = http::Request::get("/test").header("authorization", "Bearer user");
    let (code, _, body) = send(&s, user.header("impersonate-user", "x")).await;
    assert_eq!(code, 403);
    assert!(body.contains("cannot impersonate-on:user-info:get path"), "{body}");
}

#[tokio::test]
async fn the_index_lists_paths_of_all_delegates() {
    let tail = GenericServer::new("tail", Arc::new(EmptyDelegate));
    tail.mux().handle_prefix(
        "/apis/",
        Arc::new(FnHandler(|_: &Request| Response::new("tail".into()))),
    );
    let s = GenericServer::new("head", tail.into_delegate()).prepare(config(), Duration::ZERO);
    let (code, headers, body) = send(&s, get("/")).await;
    assert_eq!(
        (code, headers["content-type"].as_bytes()),
        (200, &b"application/json"[..])
    );
    assert!(
        body.starts_with("{\n  \"paths\": [\n    \"/apis/\",\n    \"/healthz\",\n"),
        "{body}"
    );
    assert!(body.contains("\"/version\"") && !body.contains("\"/\""));
    assert_eq!(send(&s, get("/apis/x")).await.2, "tail");
}

#[tokio::test]
async fn version_supports_only_get_and_json() {
    let s = plain(config());
    let (code, _, body) = send(&s, get("/version/")).await;
    assert_eq!(code, 200);
    assert!(body.contains("\"minor\": \"36\""));
    assert_eq!(send(&s, get("/version/x")).await.0, 404);
    assert_eq!(send(&s, get("/version").method("POST")).await.0, 405);
    let (code, _, body) = send(&s, get("/version").header("accept", "application/yaml")).await;
    assert_eq!(code, 406);
    assert!(body.contains("Available representations: application/json"));
}

#[tokio::test]
async fn a_stream_is_in_flight_until_its_end() {
    use http_body_util::StreamBody;
    let c = config();
    let telemetry = c.telemetry.clone();
    let s = server(c, |_| {
        let frames = ["ab", "cde"].map(|t| Ok::<_, std::io::Error>(http_body::Frame::data(bytes::Bytes::from(t))));
        Response::new(Body::stream(StreamBody::new(futures_util::stream::iter(frames))))
    });
    let response = s.handler.handle(get("/test").body(Body::empty()).unwrap()).await;
    assert_eq!(s.lifecycle.requests.len(), 1);
    assert_eq!(telemetry.inflight.with_label_values(&["readOnly"]).get(), 1);
    assert_eq!(response.into_body().collect(100).await.unwrap(), "abcde");
    assert_eq!(s.lifecycle.requests.len(), 0);
    assert_eq!(telemetry.inflight.with_label_values(&["readOnly"]).get(), 0);
    let text = String::from_utf8(telemetry.text()).unwrap();
    let sum = text
        .lines()
        .find(|l| l.starts_with("apiserver_response_sizes_sum"))
        .unwrap();
    assert!(sum.ends_with(" 5"), "{sum}");
}

#[tokio::test]
async fn only_requests_that_reach_a_handler_are_counted() {
    let c = config();
    let telemetry = c.telemetry.clone();
    let s = plain(c);
    send(&s, get("/test")).await;
    send(&s, get("/test")).await;
    send(&s, get("/nope")).await;
    send(&s, http::Request::get("/test")).await;
    let text = String::from_utf8(telemetry.text()).unwrap();
    let lines: Vec<&str> = text
        .lines()
        .filter(|l| l.starts_with("apiserver_request_total{"))
        .collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].contains("subresource=\"/test\"") && lines[0].ends_with(" 2"),
        "{lines:?}"
    );
}

#[tokio::test]
#[ignore = "a benchmark: prints the time per request"]
async fn time_per_request_of_the_chain() {
    let s = plain(config());
    for uri in ["/test", "/api/v1/namespaces/default/configmaps/a"] {
        let start = std::time::Instant::now();
        for _ in 0..20_000 {
            let req = get(uri).body(Body::empty()).unwrap();
            drop(s.handler.handle(req).await);
        }
        eprintln!("{uri}: {:?} per request", start.elapsed() / 20_000);
    }
}

/// The series at `/metrics`, without their values.
fn shown(telemetry: &Telemetry) -> Vec<String> {
    let text = String::from_utf8(telemetry.text()).unwrap();
    let mut all: Vec<String> = text
        .lines()
        .map(|line| line.rsplit_once(' ').map_or(line, |(series, _)| series).to_owned())
        .collect();
    all.sort();
    all
}

#[tokio::test]
async fn client_supplied_names_add_no_metric_series() {
    let c = config();
    let telemetry = c.telemetry.clone();
    let served = [("pods", vec!["log"])];
    telemetry.requests.serve("", "v1", served.into_iter());
    let s = GenericServer::new("head", Arc::new(EmptyDelegate));
    for prefix in ["/api/v1/", "/apis/", "/things/"] {
        s.mux().handle_prefix(
            prefix,
            Arc::new(FnHandler(|req: &Request| {
                let missing = req.uri().path().len().is_multiple_of(2);
                let mut response = Response::new(Body::empty());
                if missing || req.uri().path().starts_with("/things/") {
                    *response.status_mut() = http::StatusCode::NOT_FOUND;
                }
                response
            })),
        );
    }
    let s = s.prepare(c, Duration::ZERO);
    let ask = async |n: usize| {
        let path = match n % 6 {
            0 => format!("/api/v1/namespaces/ns{n}/r{n}/x"),
            1 => format!("/api/v1/namespaces/ns/pods/p{n}/s{n}"),
            2 => format!("/apis/g{n}/v{n}/r{n}?watch=true"),
            3 => format!("/things/{n}"),
            4 => format!("/api/v1/r{n}?watch=1&dryRun=All"),
            _ => format!("/nowhere/{n}"),
        };
        let method = match n % 7 {
            0 => format!("M{n}"),
            m => ["GET", "PUT", "POST", "PATCH", "DELETE", "HEAD"][m - 1].to_owned(),
        };
        let request = get(&path)
            .method(method.as_str())
            .header("user-agent", format!("agent-{n}"));
        drop(send(&s, request).await);
    };
    for n in 0..42 * 8 {
        ask(n).await;
    }
    let before = shown(&telemetry);
    for n in 0..50_000 {
        ask(1_000_000 + n).await;
    }
    assert_eq!(shown(&telemetry), before);
    send(&s, get("/api/v1/namespaces/ns/pods/pod11")).await;
    let legitimate = shown(&telemetry);
    let added: Vec<_> = legitimate.iter().filter(|line| !before.contains(line)).collect();
    assert!(added.iter().all(|line| line.contains("resource=\"pods\"")), "{added:?}");
}
