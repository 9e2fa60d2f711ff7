use crate::aggregator::testing::*;
use crate::apimachinery::codec::json;
use crate::json;

#[tokio::test]
async fn the_index_merges_all_publishers_and_documents_come_from_their_own() {
    let pki = Pki::new(&["ext.ns.svc"], &[b"h2"]);
    let backend = Backend::http(&pki, 100, |r| async move {
        let index = r#"{"paths":{"apis/g/v1":{"serverRelativeURL":"/openapi/v3/apis/g/v1?hash=2"},"x":{}}}"#;
        match (r.uri().path(), r.headers()["x-remote-user"].to_str().unwrap()) {
            ("/openapi/v3", user) => response(if user == "system:aggregator" { 200 } else { 403 }, index),
            ("/openapi/v3/apis/g/v1", user) => response(200, format!("document for {user}")),
            _ => response(200, "{}"),
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
    // As from a cache that has the index of the same second.
    let mut again = get("/openapi/v3");
    let date = w.headers(get("/openapi/v3")).await[http::header::LAST_MODIFIED].clone();
    again.headers_mut().insert(http::header::IF_MODIFIED_SINCE, date);
    assert_eq!(w.send(again).await.0, 200);
    assert_eq!(w.get("/openapi/v3/nope").await, (404, String::new()));
    assert_eq!(w.get("/openapi/v3/").await, (404, String::new()));
}

#[test]
fn the_index_joins_thousands_of_entries_and_keeps_our_own() {
    use super::{Index, Indices, joined};
    use crate::apimachinery::value::Str;
    use std::sync::Arc;
    let index = |odd: usize| {
        let theirs = json!({"serverRelativeURL": "/theirs"});
        let paths = (0..20_000).map(|i| (format!("k{:06}", 2 * i + odd), theirs.clone()));
        Arc::new(Index {
            source: String::new(),
            paths: paths.collect(),
        })
    };
    // Interleaved: inserted one by one, each entry of the second would shift half of the first's.
    let remote = Indices::from_iter([(Str::from("v1.a"), index(0)), (Str::from("v1.b"), index(1))]);
    let own = vec![(Str::from("k000001"), json!({"serverRelativeURL": "/ours"}))];
    let document = json::decode(&joined(&remote, own)).unwrap();
    let paths = document.get("paths").as_object().unwrap();
    assert_eq!(paths.len(), 40_000);
    assert_eq!(paths.get("k000001").unwrap().str_at(&["serverRelativeURL"]), "/ours");
}

#[tokio::test]
async fn the_v2_document_includes_paths_of_backends() {
    let pki = Pki::new(&["ext.ns.svc"], &[b"h2"]);
    let backend = Backend::http(&pki, 100, |r| async move {
        let document = r##"{"paths":{"/apis/g/v1/things":{"get":{"responses":{"200":{"schema":{"$ref":"#/definitions/thing"}}}}},
            "/version":{"get":{"responses":{"200":{"schema":{"$ref":"#/definitions/info"}}}}}},
            "definitions":{"thing":{"type":"object"},"info":{"type":"string"}}}"##;
        match (r.uri().path(), r.headers().get("accept").map(|a| a.to_str().unwrap())) {
            ("/openapi/v2", Some("application/json")) => response(200, document),
            _ => response(404, ""),
        }
    })
    .await;
    let port: u16 = backend.authority.rsplit(':').next().unwrap().parse().unwrap();
    let (api_services, services) = (MemoryStorage::new(), MemoryStorage::new());
    let service = json!({"metadata": {"name": "ext"}, "spec": {"type": "ExternalName", "externalName": "127.0.0.1"}});
    services.set("ns/ext", &service);
    let object = apiservice("g", &pki.ca_pem, port);
    api_services.set("v1.g", &object);
    let w = World::start(api_services, services).await;
    let merged = || async {
        let document = json::decode(w.get("/openapi/v2").await.1.as_bytes()).unwrap();
        (!document.at(&["paths", "/apis/g/v1/things"]).is_null()).then_some(document)
    };
    let document = w.until("the backend's document", merged).await;
    let names = |section: &str| -> Vec<String> {
        let all = document.get(section).as_object().unwrap();
        all.keys().map(str::to_owned).collect()
    };
    assert_eq!(names("paths"), ["/apis/apps/v1/", "/apis/g/v1/things"]);
    assert_eq!(
        names("definitions"),
        ["local", "thing"],
        "definitions of other paths are dropped"
    );
    // The backend responds with 404 for the v3 index, so its v2 document is converted.
    let url = || async {
        let index = json::decode(w.get("/openapi/v3").await.1.as_bytes()).unwrap();
        let url = index.at(&["paths", "apis/g/v1", "serverRelativeURL"]);
        url.as_str().map(str::to_owned)
    };
    let url = w.until("the converted document's key", url).await;
    let document = json::decode(w.get(&url).await.1.as_bytes()).unwrap();
    assert_eq!(
        document.at(&["components", "schemas", "thing", "type"]).as_str(),
        Some("object")
    );
}

#[tokio::test]
async fn a_converted_document_is_removed_with_its_apiservice() {
    use super::{Download, RemoteDocuments};
    use crate::aggregator::apiservice::ApiService;
    use crate::aggregator::own_requests::FetchedDocument;
    let documents = RemoteDocuments::default();
    let of = ApiService::from_value(&apiservice("g.example.com", "", 443));
    let mut legacy = of.clone();
    (legacy.name, legacy.group) = ("v1.".into(), "".into());
    for (of, key) in [(of, "apis/g.example.com/v1"), (legacy, "api/v1")] {
        let fetched = FetchedDocument {
            status: 200,
            headers: http::HeaderMap::new(),
            body: r#"{"paths":{}}"#.into(),
            _permit: None,
        };
        documents.take(&of, fetched).await.unwrap();
        assert_eq!(documents.converted().keys(), [key]);
        documents.remove(&of.name);
        assert!(documents.converted().keys().is_empty(), "{key}");
    }
}
