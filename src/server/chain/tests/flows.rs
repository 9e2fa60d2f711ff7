//! Priority and fairness in the chain: who waits, what responses say, and on whose account requests compute.

use super::*;
use crate::flowcontrol::controller::tests as flow_control;
use crate::request::Authorized;
use crate::sync::Mutex;
use crate::tasks::compute::{self, Flow};

#[tokio::test]
async fn responses_carry_the_flow_schema_uid_except_for_logs() {
    let mut c = config();
    c.flow_control = Some(flow_control::imagined(600));
    let s = plain(c);
    let name = "x-kubernetes-pf-flowschema-uid";
    assert!(send(&s, get("/test")).await.1.contains_key(name));
    assert!(
        send(&s, http::Request::get("/test")).await.1.contains_key(name),
        "present on a 403"
    );
    assert!(send(&s, get("/api/v1/pods?watch=1")).await.1.contains_key(name));
    assert!(
        !send(&s, get("/api/v1/namespaces/a/pods/b/log"))
            .await
            .1
            .contains_key(name)
    );
    let bad = http::Request::get("/test").header("authorization", "Bearer nope");
    assert!(!send(&s, bad).await.1.contains_key(name), "absent on a 401");
}

#[tokio::test(start_paused = true)]
async fn requests_wait_for_seats_for_a_quarter_of_their_timeout() {
    let mut c = config();
    c.authorizer = Arc::new(authz::AlwaysAllow);
    let telemetry = c.telemetry.clone();
    c.flow_control = Some(flow_control::busy_for_all(1));
    let s = hanging(c);
    let user = |uri: &str| http::Request::get(uri.to_owned()).header("authorization", "Bearer user");
    let start = tokio::time::Instant::now();
    let hangs = send(&s, user("/hang?timeout=4s"));
    let waits = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let (code, headers, body) = send(&s, user("/version?timeout=8s")).await;
        assert_eq!(
            (code, body.as_str()),
            (429, "Too many requests, please try again later.\n")
        );
        assert_eq!(start.elapsed().as_millis(), 2_100, "a quarter of 8 s");
        assert_eq!(headers["retry-after"], "1");
        assert_eq!(headers["x-kubernetes-pf-prioritylevel-uid"], "pl-busy");
        assert_eq!(send(&s, get("/version")).await.0, 200, "masters are exempt");
        // The seat becomes free when the hanging request times out, before the next one gives up.
        let (code, headers, _) = send(&s, user("/version")).await;
        assert_eq!((code, start.elapsed().as_secs()), (200, 4));
        assert_eq!(headers["x-kubernetes-pf-flowschema-uid"], "fs-busy");
    };
    let (hung, ()) = tokio::join!(hangs, waits);
    assert_eq!(hung.0, 504);
    assert_eq!(telemetry.inflight.with_label_values(&["readOnly"]).get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_watch_takes_seats_only_while_it_initializes() {
    let mut c = config();
    c.authorizer = Arc::new(authz::AlwaysAllow);
    c.flow_control = Some(flow_control::busy_for_all(1));
    let s = GenericServer::new("head", Arc::new(EmptyDelegate));
    let watch = FnHandler(|req: &Request| {
        // Stands for the watch verb, which drops `initializing` once the initial events have been sent. Here it is
        // dropped with the request.
        assert!(RequestContext::of(req).initializing.is_some());
        Response::new(Body::stream(http_body_util::StreamBody::new(
            futures_util::stream::pending::<Result<http_body::Frame<bytes::Bytes>, std::io::Error>>(),
        )))
    });
    s.mux().handle_prefix("/api/v1/", Arc::new(watch));
    let s = s.prepare(c, Duration::ZERO);
    let user = |uri: &str| http::Request::get(uri.to_owned()).header("authorization", "Bearer user");
    let mut open = Vec::new();
    for _ in 0..20 {
        let request = user("/api/v1/pods?watch=1&resourceVersion=5")
            .body(Body::empty())
            .unwrap();
        let response = s.handler.handle(request).await;
        assert_eq!(response.status(), 200);
        open.push(response);
    }
    assert_eq!(send(&s, user("/version")).await.0, 200, "open watches occupy no seats");
}

/// Notes on whose account requests compute.
struct Accounts(Mutex<Vec<Flow>>);

#[async_trait::async_trait]
impl UnprotectedHandler for Accounts {
    async fn serve(self: Arc<Self>, _: Request, _: Authorized) -> Response {
        let current = compute::current();
        self.0.lock().extend(current.map(|current| current.flow()));
        Response::new(Body::empty())
    }
}

#[tokio::test]
async fn computations_are_charged_to_the_flow_of_the_request() {
    let equal = async |controller: Option<Arc<FlowController>>| {
        let tokens = TokenFile::parse("f", "one,jane,u\ntwo,john,v").unwrap();
        let mut c = config();
        c.authenticator = Arc::new(BearerToken::new(Arc::new(tokens)));
        c.authorizer = Arc::new(authz::AlwaysAllow);
        c.compute = Some(ComputePool::start(compute::Config::default(), c.telemetry.compute.clone()).unwrap());
        c.flow_control = controller;
        let accounts = Arc::new(Accounts(Mutex::default()));
        let s = GenericServer::new("head", Arc::new(EmptyDelegate));
        s.mux().handle("/account", accounts.clone());
        let s = s.prepare(c, Duration::ZERO);
        for token in ["one", "two"] {
            let request = http::Request::get("/account").header("authorization", format!("Bearer {token}"));
            assert_eq!(send(&s, request).await.0, 200);
        }
        let seen = accounts.0.lock();
        assert_eq!(seen.len(), 2);
        seen[0] == seen[1]
    };
    assert!(
        !equal(None).await,
        "without priority and fairness, each user has an account"
    );
    assert!(!equal(Some(flow_control::busy_for_all(9))).await, "each user is a flow");
    assert!(
        equal(Some(flow_control::one_flow_for_all(9))).await,
        "both users are one flow"
    );
}
