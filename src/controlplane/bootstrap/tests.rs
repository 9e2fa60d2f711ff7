use super::*;
use crate::controlplane::tests::{Running, running};

fn advertise() -> Advertise {
    Advertise {
        address: "192.0.2.7".parse().unwrap(),
        port: 6443,
    }
}

async fn get(r: &Running, group: &str, plural: &str, ns: &str, name: &str) -> Value {
    r.plane.store(group, plural).get_value(ns, name).await.unwrap()
}

#[tokio::test]
async fn a_cluster_starts_with_its_system_objects() {
    let r = running();
    ensure(&r.plane, &advertise(), &ClusterAuthenticationInfo::default())
        .await
        .unwrap();
    let ns = get(&r, "", "namespaces", "", "kube-node-lease").await;
    assert_eq!(ns.str_at(&["status", "phase"]), "Active");
    assert_eq!(ns.label("kubernetes.io/metadata.name"), Some("kube-node-lease"));
    let service = get(&r, "", "services", "default", "kubernetes").await;
    assert_eq!(service.str_at(&["spec", "clusterIP"]), "10.0.0.1");
    assert_eq!(
        service.at(&["metadata", "managedFields"]).items()[0]
            .at(&["fieldsV1", "f:spec"])
            .as_object()
            .unwrap()
            .keys()
            .collect::<Vec<_>>(),
        [
            "f:clusterIP",
            "f:internalTrafficPolicy",
            "f:ipFamilyPolicy",
            "f:ports",
            "f:sessionAffinity",
            "f:type"
        ]
    );
    let slice = get(&r, "discovery.k8s.io", "endpointslices", "default", "kubernetes").await;
    assert_eq!(
        slice.at(&["endpoints"]).items()[0].at(&["addresses"]),
        &crate::json!(["192.0.2.7"])
    );
    get(
        &r,
        "",
        "configmaps",
        "kube-system",
        "extension-apiserver-authentication",
    )
    .await;
}

#[tokio::test]
async fn a_valid_tracking_date_of_legacy_tokens_is_kept() {
    const NAME: &str = "kube-apiserver-legacy-service-account-token-tracking";
    let r = running();
    let since = async || {
        ensure(&r.plane, &advertise(), &ClusterAuthenticationInfo::default())
            .await
            .unwrap();
        let map = get(&r, "", "configmaps", "kube-system", NAME).await;
        map.str_at(&["data", "since"]).to_owned()
    };
    let set = async |date: &str| {
        let store = r.plane.store("", "configmaps");
        let live = get(&r, "", "configmaps", "kube-system", NAME).await;
        change(store, &live, "test", |v| v.set(&["data", "since"], date))
            .await
            .unwrap();
    };
    let is_today = async || {
        // Twice: the day may end in between.
        let day = || crate::apimachinery::time::now()[..10].to_owned();
        let (before, since) = (day(), since().await);
        [before, day()].contains(&since)
    };
    assert!(is_today().await);
    set("2024-02-29").await;
    assert_eq!(since().await, "2024-02-29");
    for odd in ["2024-02-30", "yesterday", ""] {
        set(odd).await;
        assert!(is_today().await, "instead of {odd:?}");
    }
}

#[tokio::test]
async fn ensure_is_idempotent_and_applies_a_new_port() {
    let r = running();
    ensure(&r.plane, &advertise(), &ClusterAuthenticationInfo::default())
        .await
        .unwrap();
    let before = r.engine.revision();
    ensure(&r.plane, &advertise(), &ClusterAuthenticationInfo::default())
        .await
        .unwrap();
    assert_eq!(r.engine.revision(), before);
    let moved = Advertise {
        port: 7443,
        ..advertise()
    };
    ensure(&r.plane, &moved, &ClusterAuthenticationInfo::default())
        .await
        .unwrap();
    let service = get(&r, "", "services", "default", "kubernetes").await;
    assert_eq!(
        service.at(&["spec", "ports"]).items()[0].get("targetPort"),
        &7443i64.into()
    );
    let endpoints = get(&r, "", "endpoints", "default", "kubernetes").await;
    assert_eq!(
        endpoints.at(&["subsets"]).items()[0].at(&["ports"]).items()[0].get("port"),
        &7443i64.into()
    );
}

#[tokio::test]
async fn deleted_trust_is_republished_immediately() {
    const MAP: (&str, &str) = ("kube-system", "extension-apiserver-authentication");
    let r = running();
    let trust = ClusterAuthenticationInfo {
        request_header: Some(RequestHeaderInfo {
            username_headers: vec!["X-Remote-User".into()],
            ..RequestHeaderInfo::default()
        }),
        ..ClusterAuthenticationInfo::default()
    };
    ensure(&r.plane, &advertise(), &trust).await.unwrap();
    let (_rotate, rotated) = watch::channel(Arc::new(trust));
    let keeping = tokio::spawn(trust::reconcile(r.plane.clone(), rotated));
    let store = r.plane.store("", "configmaps");
    let options = crate::registry::DeleteOptions::default();
    store.delete(&Context::system(MAP.0), MAP.1, &options).await.unwrap();
    while find(store, MAP.0, MAP.1).await.unwrap().is_none() {
        tokio::task::yield_now().await;
    }
    keeping.abort();
}
