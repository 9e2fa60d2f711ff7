use crate::aggregator::testing::*;
use crate::apimachinery::codec::json;
use crate::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const H2: &[&[u8]] = &[b"h2"];
const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

fn local(group: &str, version: &str, group_priority: i64, version_priority: i64) -> crate::apimachinery::Value {
    json!({"metadata": {"name": (format!("{version}.{group}"))},
           "spec": {"group": (group), "version": (version),
                    "groupPriorityMinimum": (group_priority), "versionPriority": (version_priority)}})
}

#[tokio::test]
async fn group_documents_follow_the_objects_and_their_order() {
    let w = World::start(MemoryStorage::new(), MemoryStorage::new()).await;
    w.api_services.set("v1beta1.b", &local("b", "v1beta1", 100, 9));
    w.api_services.set("v1.b", &local("b", "v1", 100, 15));
    w.api_services.set("v1.a", &local("a", "v1", 50, 15));
    w.until("the routes", || async {
        (w.get("/apis/a").await.0 == 200).then_some(())
    })
    .await;
    let list = json::decode(w.get("/apis").await.1.as_bytes()).unwrap();
    assert_eq!(
        (list.str_at(&["kind"]), list.str_at(&["apiVersion"])),
        ("APIGroupList", "v1")
    );
    let names: Vec<&str> = list.get("groups").items().iter().map(|g| g.str_at(&["name"])).collect();
    // `apps` comes from auto-registration of the delegate server.
    assert_eq!(names, ["apiregistration.k8s.io", "apps", "b", "a"]);
    let group = json::decode(w.get("/apis/b/").await.1.as_bytes()).unwrap();
    assert_eq!(
        group,
        json!({"kind": "APIGroup", "apiVersion": "v1", "name": "b",
               "versions": [{"groupVersion": "b/v1", "version": "v1"},
                            {"groupVersion": "b/v1beta1", "version": "v1beta1"}],
               "preferredVersion": {"groupVersion": "b/v1", "version": "v1"}})
    );
    w.api_services.remove("v1.b");
    w.api_services.remove("v1beta1.b");
    w.until("the group's end", || async {
        (w.get("/apis/b").await.0 == 404).then_some(())
    })
    .await;
    assert_eq!(w.get("/apis/b/v1").await, (404, "404 page not found\n".into()));
    assert_eq!(w.get("/apis/apps/v1").await, (200, "local /apis/apps/v1".into()));
}

#[tokio::test]
async fn a_remote_group_is_stale_until_its_discovery_is_fetched() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let pki = Pki::new(&["ext.ns.svc"], H2);
    let backend = Backend::http(&pki, 100, move |r| {
        let count = count.clone();
        async move {
            if r.uri().path() != "/apis" {
                return response(200, "{}");
            }
            assert_eq!(r.headers()["x-remote-user"], "system:kube-aggregator");
            assert!(r.headers()["accept"].to_str().unwrap().starts_with(V2));
            count.fetch_add(1, Ordering::Relaxed);
            let document = json!({"items": [{"metadata": {"name": "g"}, "versions": [
                {"version": "v1", "resources": [{"resource": "things", "scope": "Namespaced"}]}]}]});
            let mut a = response(200, json::to_vec(&document));
            a.headers_mut().insert("content-type", V2.parse().unwrap());
            a.headers_mut().insert("etag", "\"1\"".parse().unwrap());
            a
        }
    })
    .await;
    let port: u16 = backend.authority.rsplit(':').next().unwrap().parse().unwrap();
    let w = World::start(MemoryStorage::new(), MemoryStorage::new()).await;
    w.api_services.set("v1.g", &apiservice("g", &pki.ca_pem, port));
    w.until("staleness", || async {
        let g = w.aggregated("g").await;
        (g.get("versions").items().first()?.str_at(&["freshness"]) == "Stale").then_some(())
    })
    .await;
    let service = json!({"metadata": {"name": "ext"}, "spec": {"type": "ExternalName", "externalName": "127.0.0.1"}});
    w.services.set("ns/ext", &service);
    let version = w
        .until("freshness", || async {
            let g = w.aggregated("g").await;
            let v = g.get("versions").items().first()?.clone();
            (v.str_at(&["freshness"]) == "Current").then_some(v)
        })
        .await;
    let thing = &version.get("resources").items()[0];
    assert_eq!(thing.str_at(&["resource"]), "things");
    assert_eq!(thing.at(&["responseKind", "kind"]).as_str(), Some(""));
    w.api_services.remove("v1.g");
    w.until("removal", || async { w.aggregated("g").await.is_null().then_some(()) })
        .await;
    assert!(asked.load(Ordering::Relaxed) >= 1);
}

#[test]
fn a_resource_list_becomes_an_aggregated_entry() {
    let list = json!({"resources": [
        {"name": "things/status", "kind": "Thing", "namespaced": true, "verbs": ["get"]},
        {"name": "things", "singularName": "thing", "kind": "Thing", "namespaced": true, "verbs": ["get"]},
        {"name": "orphans/scale", "kind": "Scale", "group": "autoscaling", "version": "v1", "verbs": ["get"]}]});
    let entry = super::convert::from_resource_list(&list, "v1").unwrap();
    let kind = |g: &str, v: &str, k: &str| json!({"group": (g), "version": (v), "kind": (k)});
    assert_eq!(
        entry,
        json!({"version": "v1", "freshness": "Current", "resources": [
            {"resource": "things", "responseKind": (kind("", "", "Thing")), "scope": "Namespaced",
             "singularResource": "thing", "verbs": ["get"],
             "subresources": [{"subresource": "status", "responseKind": (kind("", "", "Thing")), "verbs": ["get"]}]},
            {"resource": "orphans", "responseKind": (kind("", "", "")), "scope": "Cluster", "singularResource": "",
             "subresources": [{"subresource": "scale", "responseKind": (kind("autoscaling", "v1", "Scale")),
                               "verbs": ["get"]}]}]})
    );
}

/// The first version of the group `g`.
async fn version(w: &World) -> crate::apimachinery::Value {
    let group = w.aggregated("g").await;
    group.get("versions").items().first().cloned().unwrap_or_default()
}

/// The storages of APIServices and Services, with one for `g` at this port.
fn stored(pki: &Pki, port: u16) -> (Arc<MemoryStorage>, Arc<MemoryStorage>) {
    let (api_services, services) = (MemoryStorage::new(), MemoryStorage::new());
    let service = json!({"metadata": {"name": "ext"}, "spec": {"type": "ExternalName", "externalName": "127.0.0.1"}});
    services.set("ns/ext", &service);
    api_services.set("v1.g", &apiservice("g", &pki.ca_pem, port));
    (api_services, services)
}

#[tokio::test]
async fn the_last_good_entry_is_listed_as_stale_even_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::new(&["ext.ns.svc"], H2);
    let backend = Backend::http(&pki, 100, |r| async move {
        let discovery = json!({"items": [{"metadata": {"name": "g"}, "versions": [
            {"version": "v1", "resources": [{"resource": "things", "scope": "Namespaced"}]}]}]});
        let older = json!({"paths": {"/apis/g/v1/things": {"get": {}}}});
        let mut a = match r.uri().path() {
            "/apis" => response(200, json::to_vec(&discovery)),
            "/openapi/v2" => response(200, json::to_vec(&older)),
            "/apis/g/v1" => response(200, "{}"),
            _ => response(404, ""),
        };
        a.headers_mut().insert("content-type", V2.parse().unwrap());
        a
    })
    .await;
    let port: u16 = backend.authority.rsplit(':').next().unwrap().parse().unwrap();
    let (api_services, services) = stored(&pki, port);
    let start = || World::start_in(Some(dir.path().to_owned()), api_services.clone(), services.clone());
    let w = start().await;
    let current = || async { (version(&w).await.str_at(&["freshness"]) == "Current").then_some(()) };
    w.until("freshness", current).await;
    let kept = || async { (std::fs::read_dir(dir.path()).unwrap().count() == 2).then_some(()) };
    w.until("both files", kept).await;
    drop(w);
    drop(backend);
    let w = start().await;
    let stale = version(&w).await;
    assert_eq!(stale.str_at(&["freshness"]), "Stale");
    assert_eq!(
        stale.get("resources").items().len(),
        1,
        "its resources are still listed"
    );
    let path = || async {
        let document = json::decode(w.get("/openapi/v2").await.1.as_bytes()).unwrap();
        (!document.at(&["paths", "/apis/g/v1/things"]).is_null()).then_some(())
    };
    w.until("the older document", path).await;
    w.api_services.remove("v1.g");
    let gone = || async { (std::fs::read_dir(dir.path()).unwrap().count() == 0).then_some(()) };
    w.until("the files' end", gone).await;
}

#[tokio::test]
async fn last_good_entries_are_not_listed_if_that_is_turned_off() {
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::new(&["ext.ns.svc"], H2);
    let backend = Backend::http(&pki, 100, |_| async move {
        let discovery = json!({"items": [{"metadata": {"name": "g"}, "versions": [
            {"version": "v1", "resources": [{"resource": "things", "scope": "Namespaced"}]}]}]});
        let mut a = response(200, json::to_vec(&discovery));
        a.headers_mut().insert("content-type", V2.parse().unwrap());
        a
    })
    .await;
    let port: u16 = backend.authority.rsplit(':').next().unwrap().parse().unwrap();
    let (api_services, services) = stored(&pki, port);
    let start = || {
        World::start_with(api_services.clone(), services.clone(), |config| {
            config.disk_cache_dir = Some(dir.path().to_owned());
            config.keeps_discovery = false;
        })
    };
    let w = start().await;
    let current = || async { (version(&w).await.get("resources").items().len() == 1).then_some(()) };
    w.until("its resources", current).await;
    drop(w);
    drop(backend);
    let w = start().await;
    let stale = version(&w).await;
    assert_eq!(stale.str_at(&["freshness"]), "Stale");
    assert_eq!(stale.get("resources").items().len(), 0);
}
