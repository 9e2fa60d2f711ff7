//! A document is parsed once per change, even if the backend sends no validators.

use super::*;
use crate::aggregator::testing::*;
use crate::json;
use std::sync::atomic::{AtomicUsize, Ordering};

const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A collector for `v1.g`. Its backend responds to the n-th request with the n-th of these documents.
async fn collector(
    answers: [(&'static str, &'static str); 3],
) -> (Arc<Collector>, Arc<MemoryStorage>, (Backend, tokio::task::JoinSet<()>)) {
    let pki = Pki::new(&["ext.ns.svc"], &[b"h2"]);
    let asked = Arc::new(AtomicUsize::new(0));
    let backend = Backend::http(&pki, 100, move |r| {
        let n = match r.uri().path() {
            "/apis" if answers[0].0.is_empty() => None,
            _ => Some(asked.fetch_add(1, Ordering::Relaxed)),
        };
        async move {
            let Some((kind, body)) = n.map(|n| answers[n]) else {
                return response(404, "");
            };
            let mut a = response(200, body);
            if !kind.is_empty() {
                a.headers_mut().insert("content-type", kind.parse().unwrap());
            }
            a
        }
    })
    .await;
    let (api_services, telemetry) = (MemoryStorage::new(), Telemetry::new());
    let mut object = apiservice("g", &pki.ca_pem, backend.port());
    object.set(
        &["status", "conditions"],
        json!([{"type": "Available", "status": "True"}]),
    );
    api_services.set("v1.g", &object);
    let (informer, feed) = Informer::new(api_services.clone() as _, ApiService::from_entry);
    let collector = Collector::new(
        informer.clone(),
        Arc::new(Always(backend.authority.clone())),
        Arc::new(transports(&telemetry)),
        Arc::new(AggregatedDiscovery::new()),
        (DiskCache::default(), true),
        SyncStatus::new(),
        &telemetry,
    );
    let running = running([feed.run()]);
    informer.synced().wait().await;
    (collector, api_services, (backend, running))
}

#[tokio::test]
async fn an_aggregated_document_is_parsed_once_per_change() {
    let one = r#"{"items":[{"metadata":{"name":"g"},"versions":[{"version":"v1","resources":[]}]}]}"#;
    let two = r#"{"items":[{"metadata":{"name":"g"},"versions":[{"version":"v1","resources":[{"resource":"a"}]}]}]}"#;
    let (c, _, _running) = collector([(V2, one), (V2, one), (V2, two)]).await;
    let mut parsed = Vec::new();
    for _ in 0..3 {
        // As an event of the APIService does.
        c.lock().dirty.insert("v1.g".into(), Instant::now());
        assert!(c.sync("v1.g").await.unwrap());
        parsed.push(c.lock().services.values().next().unwrap().versions.clone());
    }
    assert!(Arc::ptr_eq(&parsed[0], &parsed[1]));
    assert!(!Arc::ptr_eq(&parsed[1], &parsed[2]));
}

#[tokio::test]
async fn a_resource_list_is_parsed_once_per_change() {
    let one = r#"{"resources":[{"name":"a","kind":"A"}]}"#;
    let two = r#"{"resources":[{"name":"b","kind":"B"}]}"#;
    let (c, _, _running) = collector([("", one), ("", one), ("", two)]).await;
    let mut parsed = Vec::new();
    for _ in 0..3 {
        assert!(c.sync("v1.g").await.unwrap());
        parsed.push(c.lock().lists["v1.g"].clone());
    }
    assert!(Arc::ptr_eq(&parsed[0], &parsed[1]));
    assert!(!Arc::ptr_eq(&parsed[1], &parsed[2]));
}

#[tokio::test]
async fn documents_of_unused_services_are_dropped() {
    let one = r#"{"items":[{"metadata":{"name":"g"},"versions":[{"version":"v1","resources":[]}]}]}"#;
    let (c, api_services, _running) = collector([(V2, one), (V2, one), (V2, one)]).await;
    for port in [1, 2, 3] {
        let mut moved = api_services.object("v1.g").unwrap();
        moved.set(&["spec", "service", "port"], port);
        api_services.set("v1.g", &moved);
        let is_known = || c.informer.get("v1.g").unwrap().service.as_ref().unwrap().port == port;
        while !is_known() {
            tokio::task::yield_now().await;
        }
        assert!(c.sync("v1.g").await.unwrap());
    }
    assert_eq!(c.lock().services.len(), 1);
}
