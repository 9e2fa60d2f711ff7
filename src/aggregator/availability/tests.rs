use crate::aggregator::testing::*;
use crate::json;

const H2: &[&[u8]] = &[b"h2"];

fn service(spec: crate::apimachinery::Value) -> crate::apimachinery::Value {
    json!({"metadata": {"name": "ext", "namespace": "ns"}, "spec": (spec)})
}

fn on_this_machine() -> crate::apimachinery::Value {
    service(json!({"type": "ExternalName", "externalName": "127.0.0.1"}))
}

/// A world whose Service `ns/ext` resolves to this machine.
async fn here() -> World {
    let w = World::start(MemoryStorage::new(), MemoryStorage::new()).await;
    w.services.set("ns/ext", &on_this_machine());
    w
}

#[tokio::test]
async fn conditions_report_the_next_missing_prerequisite() {
    let w = World::start(MemoryStorage::new(), MemoryStorage::new()).await;
    w.api_services.set("v1.g", &apiservice("g", "", 443));
    w.until_condition("v1.g", "False/ServiceNotFound/service/ext in \"ns\" is not present")
        .await;
    assert_eq!(w.get("/apis/g/v1").await, (503, "service unavailable\n".into()));
    let ports = json!({"clusterIP": "10.0.0.9", "ports": [{"name": "https", "port": 444}]});
    w.services.set("ns/ext", &service(ports));
    w.until_condition(
        "v1.g",
        "False/ServicePortError/service/ext in \"ns\" is not listening on port 443",
    )
    .await;
    let ports = json!({"clusterIP": "10.0.0.9", "ports": [{"name": "https", "port": 443}]});
    w.services.set("ns/ext", &service(ports));
    w.until_condition(
        "v1.g",
        "False/EndpointsNotFound/cannot find endpointslices for service/ext in \"ns\"",
    )
    .await;
    w.slices.set(
        "ns/s",
        &json!({"metadata": {"name": "s", "namespace": "ns", "labels": {"kubernetes.io/service-name": "ext"}},
                "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"name": "http", "port": 80}]}),
    );
    let missing = "endpointslices for service/ext in \"ns\" have no addresses with port name \"https\"";
    w.until_condition("v1.g", &format!("False/MissingEndpoints/{missing}"))
        .await;
    let gauge = w.telemetry.unavailable_apiservice.with_label_values(&["v1.g"]);
    assert_eq!(gauge.get(), 1);
}

#[tokio::test]
async fn a_healthy_backend_becomes_available_and_a_dead_one_is_named() {
    let pki = Pki::new(&["ext.ns.svc"], H2);
    let backend = Backend::http(&pki, 100, |r| async move { response(200, r.uri().path().to_owned()) }).await;
    let w = here().await;
    w.api_services
        .set("v1.g", &apiservice("g", &pki.ca_pem, backend.port()));
    w.until_condition("v1.g", "True/Passed/all checks passed").await;
    w.until("routing", || async {
        (w.get("/apis/g/v1/things").await.0 == 200).then_some(())
    })
    .await;
    let url = format!("https://{}/apis/g/v1", backend.authority);
    drop(backend);
    // Any change of the object triggers a check.
    let mut touched = w.api_services.object("v1.g").unwrap();
    touched.set(&["metadata", "labels", "touched"], "yes");
    w.api_services.set("v1.g", &touched);
    w.until("a failed check", || async {
        let c = w.condition("v1.g");
        c.starts_with(&format!(
            "False/FailedDiscoveryCheck/failing or missing response from {url}: Get \"{url}\": "
        ))
        .then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_wrong_bundle_makes_a_service_unavailable_and_an_invalid_one_writes_nothing() {
    let pki = Pki::new(&["ext.ns.svc"], H2);
    let backend = Backend::http(&pki, 100, |_| async { response(200, "") }).await;
    let w = here().await;
    w.api_services
        .set("v1.junk", &apiservice("junk", "junk", backend.port()));
    w.api_services
        .set("v1.g", &apiservice("g", &Pki::new(&[], H2).ca_pem, backend.port()));
    let url = format!("https://{}/apis/g/v1", backend.authority);
    let wanted = format!(
        "False/FailedDiscoveryCheck/failing or missing response from {url}: Get \"{url}\": tls: failed to verify \
         certificate: x509: certificate signed by unknown authority"
    );
    w.until_condition("v1.g", &wanted).await;
    assert_eq!(w.condition("v1.junk"), "none");
    // The backend cannot be probed, but its wiring can still be checked.
    w.services.remove("ns/ext");
    let absent = "False/ServiceNotFound/service/ext in \"ns\" is not present";
    w.until_condition("v1.junk", absent).await;
}

#[tokio::test]
async fn local_services_are_always_available() {
    let w = World::start(MemoryStorage::new(), MemoryStorage::new()).await;
    w.api_services.set(
        "v1.l",
        &json!({"metadata": {"name": "v1.l"}, "spec": {"group": "l", "version": "v1"}}),
    );
    w.until_condition("v1.l", "True/Local/Local APIServices are always available")
        .await;
}

#[tokio::test]
async fn a_new_client_certificate_replaces_every_transport() {
    use crate::aggregator::proxy::Settings;
    let w = World::start(MemoryStorage::new(), MemoryStorage::new()).await;
    w.api_services.set("v1.g", &apiservice("g", "", 443));
    let transport = |w: &World| match &*w.aggregator.handler("v1.g")?.settings() {
        Settings::Remote(r) => r.transport.clone().ok(),
        Settings::Local => None,
    };
    let before = w.until("a handler", || async { transport(&w) }).await;
    let pem = rcgen::generate_simple_self_signed(vec!["proxy".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(pem.signing_key.serialize_der()).unwrap();
    let key = rustls::sign::CertifiedKey::from_der(vec![pem.cert.der().clone()], key, &provider()).unwrap();
    w.aggregator.set_identity(Some(std::sync::Arc::new(key)));
    assert!(!std::sync::Arc::ptr_eq(&before, &transport(&w).unwrap()));
}

#[tokio::test(start_paused = true)]
async fn a_hanging_backend_does_not_delay_others() {
    // The probes of the hanging backend never end.
    let clock = Still::new();
    // The backend accepts connections and never responds.
    let hung = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pki = Pki::new(&["ext.ns.svc"], H2);
    let backend = Backend::http(&pki, 100, |_| async { response(200, "ok") }).await;
    let w = here().await;
    // More than the five workers of upstream's controller.
    for i in 0..8 {
        let group = format!("hung{i}");
        let object = apiservice(&group, &pki.ca_pem, hung.local_addr().unwrap().port());
        w.api_services.set(&format!("v1.{group}"), &object);
    }
    w.api_services.set(
        "v1.local",
        &json!({"metadata": {"name": "v1.local"}, "spec": {"group": "local", "version": "v1"}}),
    );
    let is = |name, wanted: &'static str| {
        let w = &w;
        move || async move { (w.condition(name) == wanted).then_some(()) }
    };
    let local = "True/Local/Local APIServices are always available";
    clock.until(local, is("v1.local", local)).await;
    let documents = async {
        assert_eq!(w.get("/apis/hung0/v1/x").await.0, 503);
        assert_eq!(w.get("/apis/hung0").await.0, 200);
        assert_eq!(w.get("/openapi/v3").await.0, 200);
        assert!(!w.aggregated("hung0").await.is_null());
    };
    clock.run("what the gateway answers", documents).await;
    w.api_services
        .set("v1.g", &apiservice("g", &pki.ca_pem, backend.port()));
    let passed = "True/Passed/all checks passed";
    clock.until(passed, is("v1.g", passed)).await;
    let routed = async {
        while w.get("/apis/g/v1/x").await.0 != 200 {
            tokio::task::yield_now().await;
        }
    };
    clock.run("routing", routed).await;
}

#[tokio::test]
async fn a_new_client_certificate_triggers_a_check() {
    let pki = Pki::new(&["ext.ns.svc"], H2);
    let backend = Backend::http(&pki, 100, |_| async { response(200, "{}") }).await;
    let w = here().await;
    w.api_services
        .set("v1.g", &apiservice("g", &pki.ca_pem, backend.port()));
    w.until_condition("v1.g", "True/Passed/all checks passed").await;
    // By then every subscriber has processed the condition.
    let current = || async {
        let g = w.aggregated("g").await;
        let first = g.get("versions").items().first()?.clone();
        (first.str_at(&["freshness"]) == "Current").then_some(())
    };
    w.until("discovery", current).await;
    let queue = w.telemetry.queue("RemoteAvailabilityController");
    w.until("rest", || async { (queue.depth.get() == 0).then_some(()) })
        .await;
    let before = queue.adds.get();
    w.aggregator.set_identity(None);
    assert_eq!(queue.adds.get(), before + 1);
}

#[tokio::test]
async fn a_failed_probe_closes_pooled_connections() {
    let pki = Pki::new(&["ext.ns.svc"], H2);
    let ill = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let state = ill.clone();
    let backend = Backend::http(&pki, 100, move |_| {
        let status = if state.load(std::sync::atomic::Ordering::Relaxed) {
            500
        } else {
            200
        };
        async move { response(status, "{}") }
    })
    .await;
    let w = here().await;
    w.api_services
        .set("v1.g", &apiservice("g", &pki.ca_pem, backend.port()));
    w.until_condition("v1.g", "True/Passed/all checks passed").await;
    let connections = || backend.connections.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(connections(), 1);
    ill.store(true, std::sync::atomic::Ordering::Relaxed);
    // A change of the Service triggers a check.
    w.services.set("ns/ext", &on_this_machine());
    let failed = || async {
        w.condition("v1.g")
            .starts_with("False/FailedDiscoveryCheck/")
            .then_some(())
    };
    w.until("the failure", failed).await;
    ill.store(false, std::sync::atomic::Ordering::Relaxed);
    w.until_condition("v1.g", "True/Passed/all checks passed").await;
    assert!(connections() > 1, "{} connections", connections());
}

#[tokio::test]
async fn only_available_apiservices_count_as_lost() {
    use std::sync::atomic::{AtomicU16, Ordering};
    let pki = Pki::new(&["ext.ns.svc"], H2);
    let status = std::sync::Arc::new(AtomicU16::new(500));
    let now = status.clone();
    let backend = Backend::http(&pki, 100, move |_| {
        let status = now.load(Ordering::Relaxed);
        async move { response(status, "{}") }
    })
    .await;
    let w = here().await;
    let lost = w
        .telemetry
        .unavailable_apiservice_total
        .with_label_values(&["v1.g", "FailedDiscoveryCheck"]);
    let gauge = || w.telemetry.unavailable_apiservice.with_label_values(&["v1.g"]).get();
    let failed = || async {
        w.condition("v1.g")
            .starts_with("False/FailedDiscoveryCheck/")
            .then_some(())
    };
    w.api_services
        .set("v1.g", &apiservice("g", &pki.ca_pem, backend.port()));
    w.until("the first verdict", failed).await;
    assert_eq!((lost.get(), gauge()), (0, 1), "it never was available");
    status.store(200, Ordering::Relaxed);
    w.until_condition("v1.g", "True/Passed/all checks passed").await;
    assert_eq!((lost.get(), gauge()), (0, 0));
    // By then every subscriber has processed the condition.
    let served = || async { (w.get("/apis/g/v1/x").await.0 == 200).then_some(()) };
    w.until("routing", served).await;
    status.store(500, Ordering::Relaxed);
    w.services.set("ns/ext", &on_this_machine());
    w.until("the loss", failed).await;
    w.until("its count", || async {
        (lost.get() == 1 && gauge() == 1).then_some(())
    })
    .await;
    w.api_services.remove("v1.g");
    let series = "aggregator_unavailable_apiservice{name=\"v1.g\"}";
    let gone = || async { (!String::from_utf8(w.telemetry.text()).unwrap().contains(series)).then_some(()) };
    w.until("the gauge's end", gone).await;
}

#[tokio::test]
async fn a_loss_counts_once_if_the_informer_lags_behind_the_write() {
    let (seen, stored) = (MemoryStorage::new(), MemoryStorage::new());
    let mut object = apiservice("g", "", 443);
    let available =
        json!([{"type": "Available", "status": "True", "reason": "Passed", "message": "all checks passed"}]);
    object.set(&["status", "conditions"], available);
    for storage in [&seen, &stored] {
        storage.set("v1.g", &object);
    }
    let writer = std::sync::Arc::new(Writer(stored.clone()));
    // The informer never sees what the checks write.
    let w = World::start_with(seen, MemoryStorage::new(), |config| config.writer = writer).await;
    let becomes = async |wanted: &str| {
        let written = || async {
            let object = stored.object("v1.g")?;
            let conditions = object.at(&["status", "conditions"]).items();
            (conditions.first()?.str_at(&["reason"]) == wanted).then_some(())
        };
        w.until(wanted, written).await;
    };
    let at_port = |port: u16| {
        let ports = json!([{"name": "https", "port": (port)}]);
        service(json!({"clusterIP": "10.0.0.9", "ports": (ports)}))
    };
    becomes("ServiceNotFound").await;
    w.services.set("ns/ext", &at_port(444));
    becomes("ServicePortError").await;
    w.services.set("ns/ext", &at_port(443));
    // Checks of one APIService follow each other, so the earlier ones have counted.
    becomes("EndpointsNotFound").await;
    let lost = |reason: &str| {
        let series = &w.telemetry.unavailable_apiservice_total;
        series.with_label_values(&["v1.g", reason]).get()
    };
    assert_eq!((lost("ServiceNotFound"), lost("ServicePortError")), (1, 0));
}

#[tokio::test]
async fn a_group_that_becomes_local_keeps_its_transition_time() {
    let w = World::start(MemoryStorage::new(), MemoryStorage::new()).await;
    let since = "2020-01-01T00:00:00Z";
    let condition = json!([{"type": "Available", "status": "True", "reason": "Passed", "message": "all checks passed",
                            "lastTransitionTime": since}]);
    w.api_services.set(
        "v1.l",
        &json!({"metadata": {"name": "v1.l"}, "spec": {"group": "l", "version": "v1"}, "status": {"conditions": condition}}),
    );
    w.until_condition("v1.l", "True/Local/Local APIServices are always available")
        .await;
    let object = w.api_services.object("v1.l").unwrap();
    let condition = &object.at(&["status", "conditions"]).items()[0];
    assert_eq!(condition.str_at(&["lastTransitionTime"]), since);
}

#[tokio::test]
async fn a_failed_address_is_probed_even_without_traffic() {
    use crate::aggregator::apiservice::ApiService;
    use crate::aggregator::apiservice::ServiceReference;
    use crate::aggregator::availability::check;
    use crate::aggregator::own_requests::{self, AGGREGATOR};
    use crate::aggregator::resolver::ServiceResolver;
    use crate::aggregator::resolver::{Endpoints, ResolveError};
    use std::sync::Arc;

    /// Probes use the first address, requests either one.
    struct Two([Arc<str>; 2]);
    impl ServiceResolver for Two {
        fn resolve(&self, _: &ServiceReference) -> Result<Arc<str>, ResolveError> {
            Ok(self.0[0].clone())
        }
        fn endpoints(&self, _: &ServiceReference) -> Result<Endpoints, ResolveError> {
            Ok(Endpoints::Any(self.0.to_vec().into()))
        }
    }

    let pki = Pki::new(&["ext.ns.svc"], H2);
    let backend = || Backend::http(&pki, 100, |_| async { response(200, "{}") });
    let (a, b) = (backend().await, backend().await);
    let both = Two([a.authority.as_str().into(), b.authority.as_str().into()]);
    let t = transport(&pki.ca_pem).unwrap();
    let s = ApiService::from_value(&apiservice("g", &pki.ca_pem, 443));
    let failures = || {
        let all = t.endpoints();
        all.iter()
            .find(|e| *e.address == *b.authority)
            .unwrap()
            .failures_in_a_row
    };
    let first = own_requests::fetch(
        &t,
        (&Endpoints::One(both.0[1].clone()), &both.0[1]),
        "/",
        AGGREGATOR,
        &[],
    )
    .await;
    assert_eq!(first.unwrap().status, 200);
    t.record_timeout(&both.0[1], "late");
    assert_eq!(failures(), 1);
    let found = check::probe_condition(&s, s.service.as_ref().unwrap(), &both, &t).await;
    assert_eq!(found.condition.status, "True");
    let well = async {
        while failures() > 0 {
            tokio::task::yield_now().await;
        }
    };
    let asked = tokio::time::timeout(std::time::Duration::from_secs(20), well).await;
    asked.expect("it is asked at once");
}

/// Advances the clock in small steps until the condition begins with `wanted`; returns how long that took.
async fn takes(clock: &Still, w: &World, wanted: &str) -> std::time::Duration {
    const STEP: std::time::Duration = std::time::Duration::from_millis(25);
    let since = tokio::time::Instant::now();
    while !w.condition("v1.g").starts_with(wanted) {
        assert!(
            since.elapsed().as_secs() < 60,
            "{} instead of {wanted}",
            w.condition("v1.g")
        );
        clock.pass(STEP).await;
        // Sockets take real time, in which the clock stands still.
        let until = std::time::Instant::now() + std::time::Duration::from_millis(5);
        while std::time::Instant::now() < until {
            tokio::task::yield_now().await;
        }
    }
    since.elapsed()
}

#[tokio::test(start_paused = true)]
async fn failure_and_recovery_of_a_backend_are_detected_within_two_seconds() {
    const LIMIT: std::time::Duration = std::time::Duration::from_secs(2);
    let clock = Still::new();
    let pki = Pki::new(&["ext.ns.svc"], H2);
    let serve = |_| async { response(200, "{}") };
    let port = ReservedPort::new();
    let mut backend = Backend::http_at(port.number(), &pki, 100, serve).await;
    let w = here().await;
    w.api_services.set("v1.g", &apiservice("g", &pki.ca_pem, port.number()));
    takes(&clock, &w, "True/").await;
    let writes = || {
        let object = w.api_services.object("v1.g").unwrap();
        object.str_at(&["metadata", "resourceVersion"]).parse::<u64>().unwrap()
    };
    for round in 0..3 {
        let before = writes();
        // Its connections break, which nobody has to send a request to find out.
        drop(backend);
        let took = takes(&clock, &w, "False/FailedDiscoveryCheck/").await;
        assert!(took <= LIMIT, "{took:?} to unavailable in round {round}");
        clock.pass(std::time::Duration::from_secs(5)).await;
        backend = Backend::http_at(port.number(), &pki, 100, serve).await;
        let took = takes(&clock, &w, "True/Passed").await;
        assert!(took <= LIMIT, "{took:?} to available in round {round}");
        assert_eq!(writes() - before, 2, "one write a change");
    }
}

#[tokio::test(start_paused = true)]
async fn a_single_failed_exchange_changes_nothing() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let clock = Still::new();
    let pki = Pki::new(&["ext.ns.svc"], H2);
    let failing = std::sync::Arc::new(AtomicUsize::new(0));
    let left = failing.clone();
    let probed = std::sync::Arc::new(AtomicUsize::new(0));
    let count = probed.clone();
    let backend = Backend::http(&pki, 100, move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        let fails = left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
            .is_ok();
        async move { response(if fails { 500 } else { 200 }, "{}") }
    })
    .await;
    let w = here().await;
    w.api_services
        .set("v1.g", &apiservice("g", &pki.ca_pem, backend.port()));
    takes(&clock, &w, "True/").await;
    let version = || {
        let object = w.api_services.object("v1.g").unwrap();
        object.str_at(&["metadata", "resourceVersion"]).to_owned()
    };
    let (before, probes) = (version(), probed.load(Ordering::Relaxed));
    // All five probes of one check fail; those of the next succeed.
    failing.store(5, Ordering::Relaxed);
    w.services.set("ns/ext", &on_this_machine());
    clock
        .until("the failed check", || async {
            (failing.load(Ordering::Relaxed) == 0).then_some(())
        })
        .await;
    clock
        .until("the second check", || async {
            // The result of the first may still be on its way.
            clock.pass(super::CONFIRM).await;
            (probed.load(Ordering::Relaxed) > probes + 5).then_some(())
        })
        .await;
    clock.pass(std::time::Duration::from_secs(1)).await;
    assert_eq!(version(), before, "{}", w.condition("v1.g"));
}
