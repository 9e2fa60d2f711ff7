use super::testing::{FakeWebhook, webhooks};
use super::*;
use crate::aggregator::testing::DEAD;
use crate::json;
use crate::sync::Mutex;
use base64::Engine as _;
use http::{Request, Response};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const LIMITS: Limits = Limits { calls: 4, waiting: 4 };

fn call(timeout: Duration) -> Call {
    Call {
        body: Bytes::from_static(b"{}"),
        timeout,
        max_response: 1 << 10,
    }
}

fn soon() -> Call {
    call(Duration::from_secs(10))
}

fn by_url(of: &FakeWebhook) -> Webhook {
    let url = format!("https://{}/convert", of.address);
    let config = json!({"url": (url.as_str()), "caBundle": (of.ca_bundle.as_str())});
    let config = WebhookConfig::parse(&config).unwrap();
    webhooks(Ok(Vec::new())).connect(&config, LIMITS).unwrap()
}

fn service(of: &FakeWebhook) -> WebhookConfig {
    let config = json!({"service": {"namespace": "n", "name": "s", "path": "/convert"},
        "caBundle": (of.ca_bundle.as_str())});
    WebhookConfig::parse(&config).unwrap()
}

#[tokio::test]
async fn calls_share_a_connection_and_carry_upstreams_headers() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let record = seen.clone();
    let fake = FakeWebhook::start(&["127.0.0.1"], move |req: Request<Bytes>| {
        let header = |name: &str| req.headers()[name].to_str().unwrap().to_owned();
        record.lock().push(format!(
            "{} {} {} {} {}",
            req.method(),
            req.uri(),
            header("content-type"),
            header("accept"),
            header("user-agent"),
        ));
        let body = req.into_body();
        async move { Response::new(body) }
    })
    .await;
    let webhook = by_url(&fake);
    for _ in 0..3 {
        assert_eq!(webhook.post(soon()).await.unwrap(), "{}");
    }
    assert_eq!(fake.connections(), 1);
    assert_eq!(
        seen.lock()[0],
        "POST /convert?timeout=10s application/json application/json, */* kube-apiserver-admission"
    );
}

#[tokio::test]
async fn a_service_is_resolved_and_its_certificate_verified_for_its_cluster_name() {
    let host: Arc<Mutex<String>> = Arc::default();
    let record = host.clone();
    let answer = move |req: Request<Bytes>| {
        *record.lock() = req.headers()["host"].to_str().unwrap().to_owned();
        async { Response::new(Bytes::from_static(b"ok")) }
    };
    let fake = FakeWebhook::start(&["s.n.svc"], answer).await;
    // One address refuses connections.
    let addresses = [DEAD, fake.address].map(|a| a.to_string().into()).to_vec();
    let webhook = webhooks(Ok(addresses)).connect(&service(&fake), LIMITS).unwrap();
    assert_eq!(webhook.post(soon()).await.unwrap(), "ok");
    assert_eq!(*host.lock(), "s.n.svc:443");

    let other = FakeWebhook::start(&["other.n.svc"], |_| async { Response::new(Bytes::new()) }).await;
    let address = other.address.to_string().into();
    let webhook = webhooks(Ok(vec![address])).connect(&service(&other), LIMITS).unwrap();
    assert_eq!(
        webhook.post(soon()).await.unwrap_err().to_string(),
        "Post \"https://s.n.svc:443/convert?timeout=10s\": tls: failed to verify certificate: x509: certificate is \
         valid for other.n.svc, not s.n.svc"
    );
}

/// A Service whose certificates all of these webhooks have.
fn service_of(endpoints: [&FakeWebhook; 2]) -> Webhook {
    let decode = |bundle: &str| base64::engine::general_purpose::STANDARD.decode(bundle).unwrap();
    let bundles: Vec<u8> = endpoints.iter().flat_map(|e| decode(&e.ca_bundle)).collect();
    let config = WebhookConfig {
        ca_bundle: bundles.into(),
        ..service(endpoints[0])
    };
    let addresses = endpoints.map(|e| e.address.to_string().into()).to_vec();
    webhooks(Ok(addresses)).connect(&config, LIMITS).unwrap()
}

#[tokio::test]
async fn calls_are_spread_over_the_endpoints_of_a_service() {
    let ok = |_| async { Response::new(Bytes::from_static(b"ok")) };
    let endpoints = [
        FakeWebhook::start(&["s.n.svc"], ok).await,
        FakeWebhook::start(&["s.n.svc"], ok).await,
    ];
    let webhook = service_of([&endpoints[0], &endpoints[1]]);
    for _ in 0..40 {
        assert_eq!(webhook.post(soon()).await.unwrap(), "ok");
    }
    assert!(
        endpoints.iter().all(|e| e.connections() == 1),
        "each is called on one connection"
    );
}

#[tokio::test]
async fn a_hanging_endpoint_gets_no_calls_until_it_answers_a_probe() {
    let alive = FakeWebhook::start(&["s.n.svc"], |_| async { Response::new(Bytes::from_static(b"ok")) }).await;
    let hangs = Arc::new(AtomicBool::new(false));
    let still = hangs.clone();
    let hung = FakeWebhook::start(&["s.n.svc"], move |_| {
        let hangs = still.load(Ordering::Relaxed);
        async move {
            match hangs {
                true => std::future::pending().await,
                false => Response::new(Bytes::from_static(b"back")),
            }
        }
    })
    .await;
    let webhook = service_of([&alive, &hung]);
    let state = |address: &SocketAddr| {
        let status = webhook.status();
        let all = status.get("endpoints").items();
        let found = all.iter().find(|e| e.str_at(&["address"]) == address.to_string());
        found.unwrap().str_at(&["state"]).to_owned()
    };
    // Connected first: a handshake may take longer than the calls below have.
    while alive.connections() == 0 || hung.connections() == 0 {
        webhook.post(soon()).await.unwrap();
    }
    hangs.store(true, Ordering::Relaxed);
    // Not counted by the calls that fail: on a busy machine, one to the other endpoint may be late as well.
    while state(&hung.address) != "Ejected" {
        let _ = webhook.post(call(Duration::from_millis(100))).await;
    }
    for _ in 0..30 {
        assert_eq!(webhook.post(soon()).await.unwrap(), "ok");
    }
    assert_eq!(state(&alive.address), "Good");
    assert_ne!(state(&hung.address), "Good");
    hangs.store(false, Ordering::Relaxed);
    // The probe goes out when a call would have gone there, once a second has passed.
    let limit = Instant::now() + Duration::from_secs(60);
    while webhook.post(soon()).await.unwrap() != "back" {
        assert!(Instant::now() < limit, "it is not called again");
    }
    assert_eq!(state(&hung.address), "Good");
}

#[tokio::test]
async fn failures_have_upstreams_messages() {
    let fake = FakeWebhook::start(&["127.0.0.1"], |_| async { Response::new(Bytes::new()) }).await;
    let missing = webhooks(Err(ResolveError::NoAddress("service \"s\" not found".to_owned())));
    let missing = missing.connect(&service(&fake), LIMITS).unwrap();
    assert_eq!(
        missing.post(soon()).await.unwrap_err().to_string(),
        "Post \"https://s.n.svc:443/convert?timeout=10s\": service \"s\" not found"
    );
    let url = format!("https://{DEAD}/");
    let config = WebhookConfig::parse(&json!({"url": (url.as_str())})).unwrap();
    let refused = webhooks(Ok(Vec::new())).connect(&config, LIMITS).unwrap();
    assert_eq!(
        refused.post(soon()).await.unwrap_err().to_string(),
        format!("Post \"https://{DEAD}/?timeout=10s\": dial tcp {DEAD}: connect: connection refused")
    );
    let url = format!("https://{}/", fake.address);
    let config = WebhookConfig::parse(&json!({"url": (url.as_str())})).unwrap();
    let unknown = webhooks(Ok(Vec::new())).connect(&config, LIMITS).unwrap();
    assert_eq!(
        unknown.post(soon()).await.unwrap_err().to_string(),
        format!(
            "Post \"https://{}/?timeout=10s\": tls: failed to verify certificate: x509: certificate signed by unknown \
             authority",
            fake.address
        )
    );
    let config = json!({"url": (url.as_str()), "caBundle": "bm9uZQ=="});
    let bad = webhooks(Ok(Vec::new())).connect(&WebhookConfig::parse(&config).unwrap(), LIMITS);
    assert_eq!(
        bad.err().unwrap().to_string(),
        "unable to load root certificates: unable to parse bytes as PEM block"
    );
}

#[tokio::test]
async fn responses_are_bounded_and_redirects_not_followed() {
    let huge = FakeWebhook::start(&["127.0.0.1"], |_| async { Response::new(vec![b' '; 2 << 10].into()) }).await;
    let refused = by_url(&huge).post(soon()).await.unwrap_err();
    assert!(matches!(refused, CallError::TooLarge(_, 1024)), "{refused}");

    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let moved = FakeWebhook::start(&["127.0.0.1"], move |req: Request<Bytes>| {
        count.fetch_add(1, Ordering::Relaxed);
        let to = format!("https://{}/elsewhere", req.headers()["host"].to_str().unwrap());
        async move {
            Response::builder()
                .status(307)
                .header("Location", to)
                .body(Bytes::new())
                .unwrap()
        }
    })
    .await;
    let refused = by_url(&moved).post(soon()).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the server responded with the status code 307 but did not return more information"
    );
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_webhook_that_answers_retry_after_is_called_again() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let fake = FakeWebhook::start(&["127.0.0.1"], move |_| {
        let first = count.fetch_add(1, Ordering::Relaxed) == 0;
        async move {
            match first {
                true => Response::builder()
                    .status(503)
                    .header("Retry-After", "0")
                    .body(Bytes::new())
                    .unwrap(),
                false => Response::new(Bytes::from_static(b"ok")),
            }
        }
    })
    .await;
    assert_eq!(by_url(&fake).post(soon()).await.unwrap(), "ok");
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn callers_beyond_the_limit_fail_and_a_silent_webhook_costs_only_its_timeout() {
    let fake = FakeWebhook::start(&["127.0.0.1"], |_| std::future::pending()).await;
    let webhook = Arc::new(by_url(&fake));
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let webhook = webhook.clone();
            tokio::spawn(async move { webhook.post(call(Duration::from_millis(300))).await })
        })
        .collect();
    // All eight are in a call or waiting for one.
    while webhook.admitted.available_permits() > 0 {
        tokio::task::yield_now().await;
    }
    let refused = webhook.post(soon()).await.unwrap_err();
    assert!(matches!(refused, CallError::Busy(_)), "{refused}");
    for caller in callers {
        let failed = caller.await.unwrap().unwrap_err();
        assert_eq!(
            failed.to_string(),
            format!(
                "Post \"https://{}/convert?timeout=1s\": context deadline exceeded",
                fake.address
            )
        );
    }
    assert!(
        webhook.post(call(Duration::from_millis(1))).await.is_err(),
        "and places are free again"
    );
}
