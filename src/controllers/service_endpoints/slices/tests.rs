use super::*;
use proptest::prelude::*;

fn service(extra: &Value) -> Service {
    let mut service = json!({"metadata": {"name": "s", "uid": "u", "labels": {"a": "b"}},
        "spec": {"clusterIP": "10.0.0.1", "ipFamilies": ["IPv4"], "selector": {"app": "s"},
            "ports": [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP", "appProtocol": "h2c"}]}});
    for (key, value) in extra.as_object().expect("it is one").iter() {
        service.set(&["spec", key], value.clone());
    }
    Service::from_value(service)
}

fn pod(n: usize, ready: bool, deleting: bool) -> Arc<Pod> {
    let ip = format!("10.1.{}.{}", n / 256, n % 256);
    let status = if ready { "True" } else { "False" };
    let mut pod = json!({"metadata": {"name": (format!("p{n}")), "uid": (format!("uid{n}"))},
        "spec": {"nodeName": "n", "hostname": "h", "subdomain": "s"},
        "status": {"podIP": (ip.as_str()), "podIPs": [{"ip": (ip.as_str())}, {"ip": "fd00::1"}],
            "conditions": [{"type": "Ready", "status": status}]}});
    if deleting {
        pod.set_meta("deletionTimestamp", "2026-01-01T00:00:00Z");
    }
    Arc::new(Pod::from_value(&pod))
}

fn ready(range: std::ops::Range<usize>) -> Vec<Arc<Pod>> {
    range.map(|n| pod(n, true, false)).collect()
}

fn in_zone(node: &str) -> Option<Str> {
    (node == "n").then(|| "z".into())
}

fn run(service: &Service, pods: &[Arc<Pod>], existing: Vec<Value>) -> Plan {
    plan(service, "x", pods, in_zone, existing)
}

/// The slices after a plan was carried out.
fn apply(plan: &Plan, mut existing: Vec<Value>, next: &mut usize) -> Vec<Value> {
    existing.retain(|s| plan.delete.iter().all(|d| d.name() != s.name()));
    for new in &plan.update {
        let old = existing.iter_mut().find(|s| s.name() == new.name());
        *old.expect("only existing slices are updated") = new.clone();
    }
    for new in &plan.create {
        *next += 1;
        let mut new = new.clone();
        new.set_meta("name", format!("s-{next}"));
        existing.push(new);
    }
    existing
}

fn is_empty(plan: &Plan) -> bool {
    plan.create.is_empty() && plan.update.is_empty() && plan.delete.is_empty()
}

#[test]
fn an_endpoint_describes_its_pod() {
    let made = run(&service(&json!({})), &ready(1..2), Vec::new());
    let slice = &made.create[0];
    let wanted = json!([{"addresses": ["10.1.0.1"], "conditions": {"ready": true, "serving": true, "terminating": false},
        "hostname": "h", "nodeName": "n", "zone": "z",
        "targetRef": {"kind": "Pod", "namespace": "x", "name": "p1", "uid": "uid1"}}]);
    assert_eq!(slice.get("endpoints"), &wanted);
    let ports = json!([{"name": "http", "port": 8080, "protocol": "TCP", "appProtocol": "h2c"}]);
    assert_eq!(slice.get("ports"), &ports);
    let labels = json!({"a": "b", (SERVICE_NAME): "s", (MANAGED_BY): (MANAGER)});
    assert_eq!(slice.at(&["metadata", "labels"]), &labels);
    assert_eq!(slice.meta("generateName"), "s-");
}

#[test]
fn conditions_follow_readiness_and_deletion() {
    let conditions = |service: &Service, ready, deleting| {
        let made = run(service, &[pod(1, ready, deleting)], Vec::new());
        let of = made.create[0].get("endpoints").items()[0].get("conditions").clone();
        ["ready", "serving", "terminating"].map(|c| of.get(c).as_bool().expect("it is set"))
    };
    let plain = service(&json!({}));
    assert_eq!(conditions(&plain, true, false), [true, true, false]);
    assert_eq!(conditions(&plain, false, false), [false, false, false]);
    assert_eq!(conditions(&plain, true, true), [false, true, true]);
    let publishing = service(&json!({"publishNotReadyAddresses": true}));
    assert_eq!(conditions(&publishing, false, true), [true, false, true]);
}

#[test]
fn a_service_without_pods_has_one_empty_slice_per_family() {
    let dual = service(&json!({"ipFamilies": ["IPv4", "IPv6"], "clusterIP": "None"}));
    let made = run(&dual, &[], Vec::new());
    let slices = apply(&made, Vec::new(), &mut 0);
    let families: Vec<&str> = slices.iter().map(|s| s.str_at(&["addressType"])).collect();
    assert_eq!(families, ["IPv4", "IPv6"]);
    assert_eq!(slices[0].label(HEADLESS), Some(""));
    assert!(is_empty(&run(&dual, &[], slices.clone())), "they stay");
    let filled = run(&dual, &ready(1..2), slices);
    assert_eq!(
        (filled.create.len(), filled.update.len(), filled.delete.len()),
        (0, 2, 0),
        "they are reused"
    );
}

#[test]
fn slices_of_other_families_and_owners_are_deleted() {
    let dual = service(&json!({"ipFamilies": ["IPv4", "IPv6"]}));
    let slices = apply(&run(&dual, &ready(1..2), Vec::new()), Vec::new(), &mut 0);
    let single = run(&service(&json!({})), &ready(1..2), slices.clone());
    assert_eq!((single.delete.len(), single.update.len()), (1, 0));
    let mut foreign = slices;
    for slice in &mut foreign {
        slice.set_meta("ownerReferences", controller_reference("Service", "s", "former"));
    }
    let made = run(&dual, &ready(1..2), foreign);
    assert_eq!((made.create.len(), made.update.len(), made.delete.len()), (2, 0, 2));
}

#[test]
fn pods_on_unknown_nodes_are_left_out_unless_the_service_publishes_all() {
    let nowhere = |_: &str| None;
    let made = plan(&service(&json!({})), "x", &ready(1..2), nowhere, Vec::new());
    assert_eq!(
        made.missing.as_deref(),
        Some("skipping Pod p1 for Service x/s: Node n Not Found")
    );
    assert_eq!(length(&made.create[0]), 0);
    let publishing = service(&json!({"publishNotReadyAddresses": true}));
    let made = plan(&publishing, "x", &ready(1..2), nowhere, Vec::new());
    assert_eq!((made.missing, length(&made.create[0])), (None, 1));
}

#[test]
fn labels_of_the_service_are_copied_when_they_change() {
    let slices = apply(&run(&service(&json!({})), &ready(1..2), Vec::new()), Vec::new(), &mut 0);
    let mut slice = slices[0].clone();
    slice.set(&["metadata", "labels", "mine"], "x");
    let made = run(&service(&json!({})), &ready(1..2), vec![slice]);
    assert_eq!(made.update.len(), 1);
    assert_eq!(made.update[0].label("mine"), None);
}

/// With a comparison of each old slice with each new one, this takes minutes.
#[test]
fn thousands_of_slices_of_another_family_are_not_reused() {
    const MANY: usize = 50_000;
    let slices = |family: &str| -> Vec<Value> { (0..MANY).map(|_| json!({"addressType": family})).collect() };
    let mut plan = Plan {
        create: slices("IPv6"),
        delete: slices("IPv4"),
        ..Plan::default()
    };
    plan.delete
        .push(json!({"addressType": "IPv6", "metadata": {"name": "old"}}));
    plan.reuse(|_| true);
    assert_eq!(
        (plan.create.len(), plan.update.len(), plan.delete.len()),
        (MANY - 1, 1, MANY)
    );
    assert_eq!(plan.update[0].name(), "old");
}

#[test]
fn hints_follow_the_preference() {
    let hints = |slice: &Value| slice.get("endpoints").items()[0].get("hints").clone();
    let near = service(&json!({"trafficDistribution": "PreferSameNode"}));
    let slices = apply(&run(&near, &ready(1..2), Vec::new()), Vec::new(), &mut 0);
    let wanted = json!({"forNodes": [{"name": "n"}], "forZones": [{"name": "z"}]});
    assert_eq!(hints(&slices[0]), wanted);
    assert!(is_empty(&run(&near, &ready(1..2), slices.clone())));
    let zone = run(
        &service(&json!({"trafficDistribution": "PreferClose"})),
        &ready(1..2),
        slices.clone(),
    );
    assert_eq!(hints(&zone.update[0]), json!({"forZones": [{"name": "z"}]}));
    let none = run(&service(&json!({})), &ready(1..2), slices);
    assert!(hints(&none.update[0]).is_null());
}

#[test]
fn a_few_new_endpoints_change_one_slice() {
    let mut next = 0;
    let slices = apply(
        &run(&service(&json!({})), &ready(0..250), Vec::new()),
        Vec::new(),
        &mut next,
    );
    let mut lengths: Vec<usize> = slices.iter().map(length).collect();
    lengths.sort_unstable();
    assert_eq!(lengths, [50, 100, 100]);
    let made = run(&service(&json!({})), &ready(0..260), slices);
    assert_eq!((made.create.len(), made.update.len()), (0, 1));
}

proptest! {
    /// For any previous set of Pods: afterwards each Pod is in exactly one slice, no slice is too long, and
    /// planning again changes nothing.
    #[test]
    fn plans_converge(
        rounds in prop::collection::vec(prop::collection::btree_map(0usize..400, (any::<bool>(), any::<bool>()), 0..300), 1..4)
    ) {
        let service = service(&json!({}));
        let (mut slices, mut next) = (Vec::new(), 0);
        for pods in rounds {
            let pods: Vec<Arc<Pod>> = pods.into_iter().map(|(n, (ready, deleting))| pod(n, ready, deleting)).collect();
            let made = run(&service, &pods, slices.clone());
            slices = apply(&made, slices, &mut next);
            let mut names: Vec<&str> = slices
                .iter()
                .flat_map(|s| s.get("endpoints").items())
                .map(|e| e.str_at(&["targetRef", "name"]))
                .collect();
            names.sort_unstable();
            let mut wanted: Vec<&str> = pods.iter().map(|p| p.name.as_str()).collect();
            wanted.sort_unstable();
            prop_assert_eq!(names, wanted);
            prop_assert!(slices.iter().all(|s| length(s) <= MAX));
            prop_assert!(!slices.is_empty());
            prop_assert!(is_empty(&run(&service, &pods, slices.clone())));
        }
    }
}
