use super::*;
use crate::aggregator::testing::*;
use http::HeaderValue;

#[tokio::test]
async fn the_page_lists_unavailable_backends_with_time_and_reason() {
    let pki = Pki::new(&["ext.ns.svc"], &[b"h2"]);
    let backend = Backend::http(&pki, 100, |_| async { response(200, "{}") }).await;
    let port: u16 = backend.authority.rsplit(':').next().unwrap().parse().unwrap();
    let w = World::start(MemoryStorage::new(), MemoryStorage::new()).await;
    w.api_services.set("v1.g", &apiservice("g", &pki.ca_pem, port));
    w.until_condition("v1.g", "False/ServiceNotFound/service/ext in \"ns\" is not present")
        .await;
    let item = || async {
        let document = json::decode(w.get("/debug/aggregator").await.1.as_bytes()).unwrap();
        let first = document.get("items").items().first().cloned()?;
        (first.str_at(&["reason"]) == "ServiceNotFound").then_some(first)
    };
    let item = w.until("the verdict", item).await;
    assert_eq!((item.str_at(&["name"]), item.str_at(&["discovery"])), ("v1.g", "Stale"));
    assert_eq!(item.str_at(&["documents", "openapiV3", "state"]), "Missing");
    assert!(item.str_at(&["hint"]).starts_with("create the Service"));
    assert!(!item.str_at(&["since"]).is_empty());
    let html = w.get("/debug/aggregator?format=html").await.1;
    assert!(html.contains("1 of 1 backends is unavailable"), "{html}");
    assert!(html.contains("service/ext in \"ns\" is not present"), "{html}");

    let service = json!({"metadata": {"name": "ext"}, "spec": {"type": "ExternalName", "externalName": "127.0.0.1"}});
    w.services.set("ns/ext", &service);
    w.until_condition("v1.g", "True/Passed/all checks passed").await;
    let served = || async { (w.get("/apis/g/v1/things").await.0 == 200).then_some(()) };
    w.until("the route", served).await;
    let document = json::decode(w.get("/debug/aggregator").await.1.as_bytes()).unwrap();
    let item = document.get("items").items()[0].clone();
    assert_eq!(item.at(&["requests", "answered"]).as_i64(), Some(1));
    assert!(!item.at(&["requests", "latency", "p99"]).is_null());
    assert_eq!((item.str_at(&["breaker"]), item.str_at(&["hint"])), ("Closed", ""));
    let current = || async {
        let document = json::decode(w.get("/debug/aggregator").await.1.as_bytes()).unwrap();
        let item = document.get("items").items()[0].clone();
        let all = ["discovery", "openapiV2", "openapiV3"];
        let ages = all.iter().filter(|d| {
            let d = item.at(&["documents", d]);
            d.str_at(&["state"]) == "Current" && !d.str_at(&["age"]).is_empty()
        });
        (ages.count() == 3).then_some(())
    };
    w.until("every document's age", current).await;
    let endpoint = &item.get("endpoints").items()[0];
    assert_eq!(
        (endpoint.str_at(&["state"]), endpoint.get("http2Connections").as_i64()),
        ("Good", Some(1))
    );
}

#[tokio::test]
async fn an_address_that_is_not_used_any_more_is_not_listed() {
    let pki = Pki::new(&["ext.ns.svc"], &[b"h2"]);
    let (go, gone) = tokio::sync::watch::channel(false);
    let backend = |gone: tokio::sync::watch::Receiver<bool>| {
        Backend::http(&pki, 100, move |r| {
            let mut gone = gone.clone();
            async move {
                if r.uri().path().ends_with("/slow") {
                    let _ = gone.wait_for(|g| *g).await;
                }
                response(200, "{}")
            }
        })
    };
    let [old, new] = [backend(gone.clone()).await, backend(gone).await];
    let w = World::start(MemoryStorage::new(), MemoryStorage::new()).await;
    let service = json!({"metadata": {"name": "ext"}, "spec": {"type": "ExternalName", "externalName": "127.0.0.1"}});
    w.services.set("ns/ext", &service);
    let observed = || async {
        let document = json::decode(w.get("/debug/aggregator").await.1.as_bytes()).unwrap();
        let item = document.get("items").items().first().cloned().unwrap_or_default();
        let of = |e: &Value| format!("{} {}", e.str_at(&["address"]), e.str_at(&["state"]));
        let endpoints: Vec<String> = item.get("endpoints").items().iter().map(of).collect();
        (endpoints.join(", "), item.str_at(&["breaker"]).to_owned())
    };
    let until = async |wanted: (String, &str)| {
        let is = || async { (observed().await == (wanted.0.clone(), wanted.1.to_owned())).then_some(()) };
        w.until(&format!("{wanted:?}"), is).await;
    };
    w.api_services.set("v1.g", &apiservice("g", &pki.ca_pem, DEAD.port()));
    until((format!("{DEAD} Ejected"), "Open")).await;
    w.api_services.set("v1.g", &apiservice("g", &pki.ca_pem, old.port()));
    until((format!("127.0.0.1:{} Good", old.port()), "Closed")).await;
    w.until_condition("v1.g", "True/Passed/all checks passed").await;
    let slow = async {
        let served = || async { (w.get("/apis/g/v1/slow").await.0 == 200).then_some(()) };
        w.until("the slow answer", served).await;
    };
    let moved = async {
        let asked = || async {
            let document = json::decode(w.get("/debug/aggregator").await.1.as_bytes()).unwrap();
            let busy = document.get("items").items()[0].at(&["requests", "inFlight"]).as_i64() == Some(1);
            busy.then_some(())
        };
        w.until("the slow request", asked).await;
        w.api_services.set("v1.g", &apiservice("g", &pki.ca_pem, new.port()));
        let both = format!("127.0.0.1:{} Good, 127.0.0.1:{} Former", new.port(), old.port());
        until((both, "Closed")).await;
        go.send(true).unwrap();
    };
    tokio::join!(slow, moved);
    until((format!("127.0.0.1:{} Good", new.port()), "Closed")).await;
}

#[test]
fn hints_name_the_first_thing_to_check() {
    let service = |annotations: Value| {
        let spec =
            json!({"group": "g", "version": "v1", "caBundle": "eA==", "service": {"namespace": "ns", "name": "ext"}});
        ApiService::from_value(&json!({"metadata": {"name": "v1.g", "annotations": annotations}, "spec": spec}))
    };
    let plain = service(json!({}));
    let refused = |s: &ApiService, why: &str| {
        let get = "failing or missing response from https://h:1/apis/g/v1: Get \"https://h:1/apis/g/v1\": ";
        hint(s, "FailedDiscoveryCheck", &format!("{get}{why}")).into_owned()
    };
    for (why, begins) in [
        (
            "dial tcp 127.0.0.1:1: connect: connection refused",
            "nothing listens there: check that the server runs, and on that port",
        ),
        ("dial tcp 10.0.0.1:1: i/o timeout", "the address does not answer"),
        ("dial tcp: lookup h: no such host", "the name is not known"),
        (
            "dial unix /run/a: connect: no such file or directory",
            "nothing listens there: check that the server runs, and on that socket",
        ),
        (
            "dial unix /run/a: it is not in a directory of --backend-socket-dirs",
            "move the socket",
        ),
        (
            "dial unix /run/a: user 7 listens there, not user 0 or root",
            "run the server as that user",
        ),
        (
            "dial unix /run/a: connect: permission denied",
            "the gateway may not connect",
        ),
        (
            "tls: failed to verify certificate: x509: certificate has expired or is not yet valid",
            "the server's certificate is not valid at this time",
        ),
        (
            "tls: first record does not look like a TLS handshake",
            "the port does not speak TLS",
        ),
        ("remote error: tls: handshake failure", "the handshake fails"),
        ("net/http: TLS handshake timeout", "the address does not answer"),
        (
            "context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
            "the server accepts connections",
        ),
        ("EOF", "the server cannot be reached or drops the connection"),
    ] {
        let hint = refused(&plain, why);
        assert!(hint.starts_with(begins), "{why}: {hint}");
    }
    let (theirs, ours) = (
        "x509: certificate signed by unknown authority",
        "remote error: tls: certificate required",
    );
    assert!(refused(&plain, theirs).ends_with("the name ext.ns.svc and with spec.caBundle"));
    assert!(refused(&plain, ours).contains("the front-proxy's"));
    let elsewhere = service(
        json!({"torana.dev/backend-urls": "https://h", "torana.dev/backend-ca-from": "configmap/ns/roots",
            "torana.dev/backend-client-certificate-from": "secret/ns/shown"}),
    );
    assert!(refused(&elsewhere, theirs).ends_with("the name h and with configmap \"ns/roots\""));
    assert!(refused(&elsewhere, ours).contains("secret \"ns/shown\""));

    let bad = |code| {
        let message = format!(
            "failing or missing response from https://h:1/apis/g/v1: bad status from https://h:1/apis/g/v1: {code}"
        );
        hint(&plain, "FailedDiscoveryCheck", &message).into_owned()
    };
    assert!(bad(403).contains("front-proxy CA"));
    assert!(bad(404).contains("does not serve this group and version"));
    assert!(bad(500).starts_with("the server runs and fails"));
}

#[test]
fn the_breaker_summarises_all_endpoints() {
    let of = |states: &[&str]| breaker(&states.iter().map(|s| json!({"state": (*s)})).collect::<Vec<_>>());
    for (states, breaker) in [
        (&["Good", "Unused"][..], "Closed"),
        (&["Good", "Failing"], "Closed"),
        (&["Good", "Ejected"], "Partial"),
        (&["Good", "Probation"], "Partial"),
        (&["Ejected", "Ejected"], "Open"),
        (&["Probation"], "HalfOpen"),
        (&[], "Closed"),
    ] {
        assert_eq!(of(states), breaker, "{states:?}");
    }
}

#[tokio::test]
async fn the_page_is_self_contained_and_runs_no_scripts() {
    let w = World::start(MemoryStorage::new(), MemoryStorage::new()).await;
    let evil = json!({"metadata": {"name": "v1.g", "uid": "u"},
            "spec": {"group": "g", "version": "v1", "service": {"namespace": "<script>alert(1)</script>", "name": "s", "port": 1}}});
    w.api_services.set("v1.g", &evil);
    let page = || async {
        let html = w.get("/debug/aggregator?format=html").await.1;
        html.contains("ServiceNotFound").then_some(html)
    };
    let html = w.until("the verdict", page).await;
    for outside in ["<script", "http:", "https:", "src=", "@import", "url("] {
        assert!(!html.contains(outside), "{outside} in {html}");
    }
    let mut request = get("/debug/aggregator");
    request
        .headers_mut()
        .insert("accept", HeaderValue::from_static("text/html"));
    let headers = w.headers(request).await;
    let policy = headers["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
    assert_eq!(headers["x-content-type-options"], "nosniff");
}
