use crate::aggregator::testing::*;
use crate::apimachinery::codec::json;
use crate::json;

#[tokio::test]
async fn the_index_unites_owners_and_documents_come_from_theirs() {
    let pki = Pki::new(&["ext.ns.svc"], &[b"h2"]);
    let backend = Backend::http(&pki, 100, |r| async move {
        let index = r#"{"paths":{"apis/g/v1":{"serverRelativeURL":"/openapi/v3/apis/g/v1?hash=2"},"x":{}}}"#;
        match (r.uri().path(), r.headers()["x-remote-user"].to_str().unwrap()) {
            ("/openapi/v3", user) => answer(if user == "system:aggregator" { 200 } else { 403 }, index),
            ("/openapi/v3/apis/g/v1", user) => answer(200, format!("document for {user}")),
            _ => answer(200, "{}"),
        }
    })
    .await;
    let port: u16 = backend.authority.rsplit(':').next().unwrap().parse().unwrap();
    let (api_services, services) = (MemoryStorage::new(), MemoryStorage::new());
    let service = json!({"metadata": {"name": "ext"}, "spec": {"type": "ExternalName", "externalName": "127.0.0.1"}});
    services.set("ns/ext", &service);
    let mut available = apiservice("g", &pki.ca_pem, port);
    available.set(
        &["status", "conditions"],
        json!([{"type": "Available", "status": "True"}]),
    );
    api_services.set("v1.g", &available);
    let w = World::start(api_services, services).await;
    let keys = || async {
        let index = json::decode(w.get("/openapi/v3").await.1.as_bytes()).unwrap();
        let keys: Vec<String> = index.get("paths").as_object()?.keys().map(str::to_owned).collect();
        (keys.len() > 1).then_some(keys)
    };
    assert_eq!(
        w.until("the backend's index", keys).await,
        ["apis/apps/v1", "apis/g/v1"]
    );
    assert_eq!(w.get("/openapi/v3/apis/g/v1").await, (200, "document for alice".into()));
    assert_eq!(
        w.get("/openapi/v3/apis/apps/v1").await,
        (200, "local /openapi/v3/apis/apps/v1".into())
    );
    assert_eq!(w.get("/openapi/v3/nope").await, (404, String::new()));
    assert_eq!(w.get("/openapi/v3/").await, (404, String::new()));
}
