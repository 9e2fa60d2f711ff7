//! The last good documents of backends survive a restart of the gateway, in every form that backends publish.

use super::*;
use crate::apimachinery::codec::json;

fn script(path: &str) -> http::Response<Body> {
    let body = match path {
        "/apis/g/v1" => {
            r#"{"kind":"APIResourceList","resources":[{"name":"things","kind":"Thing","namespaced":true}]}"#
        }
        "/openapi/v2" => r#"{"paths":{"/apis/g/v1/things":{"get":{}}}}"#,
        "/openapi/v3" => r#"{"paths":{"apis/g/v1":{"serverRelativeURL":"/openapi/v3/apis/g/v1?hash=1"}}}"#,
        "/openapi/v3/apis/g/v1" => r#"{"openapi":"3.0.0","paths":{"/apis/g/v1/things":{"get":{}}}}"#,
        // No aggregated discovery.
        _ => return response(404, ""),
    };
    response(200, body)
}

async fn version(w: &World) -> Value {
    let group = w.aggregated("g").await;
    group.get("versions").items().first().cloned().unwrap_or_default()
}

async fn document(w: &World, path: &str) -> Value {
    json::decode(w.get(path).await.1.as_bytes()).unwrap()
}

#[tokio::test]
async fn cached_documents_are_served_after_a_restart_while_a_backend_is_down() {
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::new(&["ext.ns.svc"], &[b"h2"]);
    let backend = Backend::http(&pki, 100, |r| async move { script(r.uri().path()) }).await;
    let (api_services, services) = (MemoryStorage::new(), MemoryStorage::new());
    let here = json!({"metadata": {"name": "ext"}, "spec": {"type": "ExternalName", "externalName": "127.0.0.1"}});
    services.set("ns/ext", &here);
    api_services.set("v1.g", &apiservice("g", &pki.ca_pem, backend.port()));
    let start = || World::start_in(Some(dir.path().to_owned()), api_services.clone(), services.clone());
    let w = start().await;
    let current = || async { (version(&w).await.str_at(&["freshness"]) == "Current").then_some(()) };
    w.until("freshness", current).await;
    let kept = || async { (std::fs::read_dir(dir.path()).unwrap().count() == 4).then_some(()) };
    w.until("all files", kept).await;
    drop((w, backend));
    let w = start().await;
    let stale = version(&w).await;
    assert_eq!(stale.str_at(&["freshness"]), "Stale");
    assert_eq!(stale.get("resources").items()[0].str_at(&["resource"]), "things");
    assert_eq!(
        document(&w, "/apis/g").await.str_at(&["preferredVersion", "version"]),
        "v1"
    );
    let older = || async {
        let all = document(&w, "/openapi/v2").await;
        (!all.at(&["paths", "/apis/g/v1/things"]).is_null()).then_some(())
    };
    w.until("the older document", older).await;
    let index = || async {
        let all = document(&w, "/openapi/v3").await;
        let url = all
            .at(&["paths", "apis/g/v1", "serverRelativeURL"])
            .as_str()?
            .to_owned();
        (url == "/openapi/v3/apis/g/v1?hash=1").then_some(())
    };
    w.until("the index", index).await;
    let last = w.open(get("/openapi/v3/apis/g/v1?hash=1")).await;
    let warning = last.headers()["warning"].to_str().unwrap().to_owned();
    assert!(warning.contains("v1.g does not answer"), "{warning}");
    assert!(text(last).await.contains("/apis/g/v1/things"));
    assert_eq!(w.get("/openapi/v3/apis/g/v2").await.0, 404);
    // The next failure is shown on the status page,
    let failing = || async {
        let text = w.get("/debug/aggregator").await.1;
        text.contains("connection refused").then_some(())
    };
    w.until("the reason", failing).await;
    // and also that the cached documents are served meanwhile.
    let served_stale = || async {
        let all = document(&w, "/debug/aggregator").await;
        let documents = all.get("items").items()[0].get("documents").clone();
        let is_stale = |key: &&str| {
            let d = documents.get(key);
            d.str_at(&["state"]) == "Stale" && d.get("keptOverRestart").as_bool() == Some(true)
        };
        let stale = ["discovery", "openapiV2", "openapiV3"]
            .iter()
            .filter(|key| is_stale(key))
            .count();
        (stale == 3).then_some(())
    };
    w.until("its documents", served_stale).await;
}
