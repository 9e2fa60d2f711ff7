use super::*;
use crate::aggregator::testing::MemoryStorage;
use crate::json;

struct World {
    services: Arc<MemoryStorage>,
    slices: Arc<MemoryStorage>,
    index: ServiceIndex,
    notified: tokio::sync::mpsc::UnboundedReceiver<()>,
    _tasks: tokio::task::JoinSet<()>,
}

async fn world() -> World {
    let (services, slices) = (MemoryStorage::new(), MemoryStorage::new());
    let (service_informer, run_services) = Informer::new(services.clone(), Service::from_entry);
    let (slice_informer, run_slices) = Informer::new(slices.clone(), EndpointSlice::from_entry);
    let index = ServiceIndex::new(service_informer.clone(), &slice_informer);
    let (tell, notified) = tokio::sync::mpsc::unbounded_channel();
    let tell_too = tell.clone();
    service_informer.subscribe(move |_| tell.send(()).unwrap());
    slice_informer.subscribe(move |_| tell_too.send(()).unwrap());
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(run_services.run());
    tasks.spawn(run_slices.run());
    service_informer.synced().wait().await;
    slice_informer.synced().wait().await;
    World {
        services,
        slices,
        index,
        notified,
        _tasks: tasks,
    }
}

fn resolve(w: &World, to_endpoints: bool, name: &str, port: u16) -> Result<String, String> {
    let r = ClusterResolver::new(w.index.clone(), "127.0.0.1:6443", to_endpoints);
    let service = ServiceReference::new(if name == "kubernetes" { "default" } else { "ns" }, name, port);
    r.resolve(&service).map(|a| a.to_string()).map_err(|e| e.0)
}

#[tokio::test]
async fn cluster_mode_resolves_to_cluster_ip_or_external_name() {
    let mut w = world().await;
    let ports = json!([{"name": "https", "port": 443, "targetPort": 6443}]);
    for (name, spec) in [
        ("ip", json!({"clusterIP": "10.0.0.5", "ports": (ports.clone())})),
        (
            "six",
            json!({"type": "NodePort", "clusterIP": "fd00::5", "ports": (ports.clone())}),
        ),
        (
            "none",
            json!({"type": "ClusterIP", "clusterIP": "None", "ports": (ports.clone())}),
        ),
        ("ext", json!({"type": "ExternalName", "externalName": "localhost"})),
        ("odd", json!({"type": "Odd"})),
    ] {
        w.services.set(
            &format!("ns/{name}"),
            &json!({"metadata": {"name": (name)}, "spec": (spec)}),
        );
        w.notified.recv().await.unwrap();
    }
    for (name, port, wanted) in [
        ("kubernetes", 443, Ok("127.0.0.1:6443")),
        ("ip", 443, Ok("10.0.0.5:443")),
        ("six", 443, Ok("[fd00::5]:443")),
        ("ip", 444, Err("no service port 444 found for service \"ip\"")),
        ("none", 443, Err("cannot route to service with ClusterIP \"None\"")),
        ("ext", 7443, Ok("localhost:7443")),
        ("odd", 443, Err("unsupported service type \"Odd\"")),
        ("gone", 443, Err("service \"gone\" not found")),
    ] {
        assert_eq!(
            resolve(&w, false, name, port),
            wanted.map(str::to_owned).map_err(str::to_owned)
        );
    }
}

#[tokio::test]
async fn endpoint_mode_rotates_over_ready_endpoints_of_the_named_port() {
    let mut w = world().await;
    w.services.set(
        "ns/s",
        &json!({"metadata": {"name": "s"}, "spec": {"clusterIP": "None", "ipFamilies": ["IPv4"],
                "ports": [{"name": "other", "port": 80}, {"name": "https", "port": 443}]}}),
    );
    w.notified.recv().await.unwrap();
    assert_eq!(resolve(&w, true, "kubernetes", 443), Ok("127.0.0.1:6443".into()));
    assert_eq!(
        resolve(&w, true, "s", 443),
        Err("no endpoints available for service \"s\"".into())
    );
    let slice = |name: &str, family: &str, endpoints: crate::apimachinery::Value| {
        json!({"metadata": {"name": (name), "namespace": "ns", "labels": {"kubernetes.io/service-name": "s"}},
               "addressType": (family), "endpoints": (endpoints),
               "ports": [{"name": "metrics", "port": 9}, {"name": "https", "port": 6443}]})
    };
    w.slices
        .set("ns/six", &slice("six", "IPv6", json!([{"addresses": ["fd00::1"]}])));
    w.notified.recv().await.unwrap();
    assert_eq!(resolve(&w, true, "s", 443), Ok("[fd00::1]:6443".into()));
    let four = json!([
        {"addresses": ["10.0.0.1"], "conditions": {"ready": false}},
        {"addresses": ["10.0.0.2"]},
        {"addresses": ["10.0.0.3"], "conditions": {"ready": true}},
    ]);
    w.slices.set("ns/four", &slice("four", "IPv4", four));
    w.notified.recv().await.unwrap();
    let r = ClusterResolver::new(w.index.clone(), "", true);
    let mut seen: Vec<String> = (0..6)
        .map(|_| r.resolve(&ServiceReference::new("ns", "s", 443)).unwrap().to_string())
        .collect();
    seen.sort();
    seen.dedup();
    assert_eq!(seen, ["10.0.0.2:6443", "10.0.0.3:6443"]);
    w.slices.remove("ns/four");
    w.notified.recv().await.unwrap();
    assert_eq!(resolve(&w, true, "s", 443), Ok("[fd00::1]:6443".into()));
}

#[tokio::test]
async fn an_informer_reports_changes_missed_between_watches() {
    let mut w = world().await;
    w.services.set("ns/a", &json!({"metadata": {"name": "a"}, "spec": {}}));
    w.notified.recv().await.unwrap();
    w.services.cut_watches();
    w.services.remove("ns/a");
    w.services.set("ns/b", &json!({"metadata": {"name": "b"}, "spec": {}}));
    // One for the removal, one for the addition.
    w.notified.recv().await.unwrap();
    w.notified.recv().await.unwrap();
    assert!(w.index.service("ns/a").is_none() && w.index.service("ns/b").is_some());
}

#[tokio::test]
async fn cached_endpoints_are_dropped_with_their_service() {
    let mut w = world().await;
    let service =
        json!({"metadata": {"name": "s"}, "spec": {"clusterIP": "None", "ports": [{"name": "https", "port": 443}]}});
    let slice = |of: &str, address: &str| {
        json!({"metadata": {"namespace": "ns", "name": (of), "labels": {"kubernetes.io/service-name": (of)}},
               "addressType": "IPv4", "ports": [{"name": "https", "port": 6443}],
               "endpoints": [{"addresses": [(address)]}]})
    };
    for name in ["a", "b"] {
        w.services.set(&format!("ns/{name}"), &service);
        w.slices.set(&format!("ns/{name}"), &slice(name, "10.0.0.1"));
    }
    for _ in 0..4 {
        w.notified.recv().await.unwrap();
    }
    let r = ClusterResolver::new(w.index.clone(), "127.0.0.1:6443", true);
    let known = |name: &str| r.endpoints(&ServiceReference::new("ns", name, 443)).is_ok();
    assert!(known("a") && known("b") && r.ready.load().len() == 2);
    w.services.remove("ns/a");
    w.slices.set("ns/b", &slice("b", "10.0.0.2"));
    for _ in 0..2 {
        w.notified.recv().await.unwrap();
    }
    assert!(!known("a") && known("b"));
    assert_eq!(r.ready.load().len(), 1);
}

#[tokio::test]
async fn endpoints_are_never_empty_while_a_slice_comes_and_goes() {
    let mut w = world().await;
    w.services.set(
        "ns/s",
        &json!({"metadata": {"name": "s"}, "spec": {"clusterIP": "None", "ports": [{"name": "https", "port": 443}]}}),
    );
    w.notified.recv().await.unwrap();
    w.slices.set(
        "ns/s",
        &json!({"metadata": {"namespace": "ns", "name": "s", "labels": {"kubernetes.io/service-name": "s"}},
               "addressType": "IPv4", "ports": [{"name": "https", "port": 6443}],
               "endpoints": [{"addresses": ["10.0.0.1"]}]}),
    );
    w.notified.recv().await.unwrap();
    let with_slice = w.index.slices.load_full();
    let wanted = ServiceReference::new("ns", "s", 443);
    let r = ClusterResolver::new(w.index.clone(), "127.0.0.1:6443", true);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|threads| {
        // As if the only slice were deleted and created again, as fast as possible.
        threads.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                w.index.slices.store(Arc::default());
                w.index.slices.store(with_slice.clone());
            }
        });
        let empty = (0..100_000).any(|_| r.endpoints(&wanted).is_ok_and(|found| found.all().is_empty()));
        done.store(true, Ordering::Relaxed);
        assert!(!empty, "no address, and no error either");
    });
}
