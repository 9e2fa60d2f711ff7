//! Addresses and ports of Services.

use super::*;

#[test]
fn two_service_ranges_of_one_family_are_rejected() {
    let mut c = config();
    c.service_ranges.push(("10.1.0.0".parse().unwrap(), 24));
    let storage = |_: &Resource| -> Arc<dyn Storage> { Arc::new(reviews::NoStorage) };
    let admission: Arc<dyn Admission> = Arc::new(AdmitAll);
    assert_eq!(
        build(c, &StoreLookup::default(), &storage, &admission).err(),
        Some(BuildError::ServiceRange)
    );
}

#[tokio::test]
async fn service_allocations_survive_a_restart() {
    let r = running();
    let spec = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 31000}]});
    let mut v = json!({"metadata": {"name": "a"}});
    v.set(&["spec"], spec);
    let made = r.create("services", "default", v).await.unwrap();
    let ip = made.str_at(&["spec", "clusterIP"]).to_owned();
    let again = plane_on(&r.engine, config());
    again.load_allocations().await.unwrap();
    let services = again.store("", "services");
    let cx = Context::system("default");
    let thief = json!({"metadata": {"name": "b"}, "spec": {"clusterIP": ip, "ports": [{"port": 80}]}});
    let e = services.create_value(&cx, thief).await.unwrap_err();
    assert!(e.message.ends_with("provided IP is already allocated"), "{}", e.message);
    let thief =
        json!({"metadata": {"name": "b"}, "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 31000}]}});
    let e = services.create_value(&cx, thief.clone()).await.unwrap_err();
    assert_eq!(
        e.message,
        "Service \"b\" is invalid: spec.ports[0].nodePort: Invalid value: 31000: provided port is already allocated"
    );
    services.delete_by_name(&cx, "a").await.unwrap();
    services.create_value(&cx, thief).await.unwrap();
}

#[tokio::test]
async fn gateways_on_one_store_never_hand_out_a_node_port_twice() {
    let config = || Config {
        node_ports: (30000, 30199),
        ..config()
    };
    let r = running_with(config());
    let other = plane_on(&r.engine, config());
    for plane in [&*r.plane, &other] {
        plane.load_allocations().await.unwrap();
    }
    let cx = Context::system("default");
    let service = |name: String, port: Option<i64>| {
        let mut v = json!({"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
        if let Some(port) = port {
            v.at_mut(&["spec", "ports"]).unwrap().as_array_mut().unwrap()[0].set(&["nodePort"], port);
        }
        v
    };
    let port = |v: &Value| v.at(&["spec", "ports"]).items()[0].get("nodePort").as_i64().unwrap();
    let creates = (0..160).map(|i| {
        let plane = if i % 2 == 0 { &*r.plane } else { &other };
        let object = service(format!("s-{i}"), None);
        let (cx, store) = (&cx, plane.store("", "services"));
        async move { port(&store.create_value(cx, object).await.unwrap()) }
    });
    let ports: std::collections::BTreeSet<i64> = futures_util::future::join_all(creates).await.into_iter().collect();
    assert_eq!(ports.len(), 160);
    // A port that one gateway allocated is refused by the other, until its Service is deleted through either.
    let taken = *ports.first().unwrap();
    let name = |plane: &ControlPlane| {
        let (cx, store) = (cx.clone(), plane.store("", "services").clone());
        async move {
            let all = store.list_entries(&cx.namespace).await.unwrap();
            let found = all.iter().find(|e| port(&e.decode()) == taken);
            found.map(|e| e.name().to_owned())
        }
    };
    for plane in [&*r.plane, &other] {
        let thief = service("thief".to_owned(), Some(taken));
        let e = plane.store("", "services").create_value(&cx, thief).await.unwrap_err();
        assert!(
            e.message.ends_with("provided port is already allocated"),
            "{}",
            e.message
        );
    }
    let holder = name(&other).await.unwrap();
    other.store("", "services").delete_by_name(&cx, &holder).await.unwrap();
    let again = service("again".to_owned(), Some(taken));
    r.plane.store("", "services").create_value(&cx, again).await.unwrap();
    // The record is upstream's: a bit for each port, as a big-endian integer.
    let record = r.engine.resource(ResourceConfig {
        prefix: "/registry/ranges/".to_owned(),
        fields: None,
        compressed: false,
    });
    let record = record
        .get("servicenodeports", crate::storage::MinRevision::Latest)
        .await
        .unwrap()
        .unwrap();
    let record = record.decode();
    assert_eq!(
        (record.str_at(&["kind"]), record.str_at(&["range"])),
        ("RangeAllocation", "30000-30199")
    );
    let bits = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, record.str_at(&["data"])).unwrap();
    assert_eq!(bits.iter().map(|b| b.count_ones()).sum::<u32>(), 160);
}
