use super::support::serve;
use crate::apimachinery::codec::json::pieces::Pieces;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::Value;
use crate::tasks::compute::{ComputePool, Config};
use crate::telemetry::Telemetry;
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE};

const CMS: &str = "/api/v1/namespaces/ns/configmaps";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

fn names(list: &Value) -> Vec<&str> {
    list.get("items").items().iter().map(ObjectView::name).collect()
}

#[tokio::test]
async fn long_lists_run_on_the_compute_pool() {
    let s = serve().await;
    let telemetry = Telemetry::new();
    let pool = ComputePool::start(Config::default(), telemetry.compute.clone()).unwrap();
    let jobs = || {
        String::from_utf8(telemetry.text())
            .unwrap()
            .contains("\ntorana_compute_jobs_total 1\n")
    };
    s.config_map("a", "1").await;
    let list = || pool.within(pool.flow("a"), s.raw("GET", CMS, &[], ""));
    list().await;
    assert!(!jobs(), "short lists stay on the reactor");
    for n in 0..256 {
        s.config_map(&format!("b{n}"), "1").await;
    }
    list().await;
    assert!(jobs(), "long lists use the compute pool");
}

#[tokio::test]
async fn long_queries_are_parsed_on_the_compute_pool() {
    let s = serve().await;
    let telemetry = Telemetry::new();
    let pool = ComputePool::start(Config::default(), telemetry.compute.clone()).unwrap();
    let jobs = || {
        let text = String::from_utf8(telemetry.text()).unwrap();
        let count = text.lines().find_map(|l| l.strip_prefix("torana_compute_jobs_total "));
        count.unwrap().parse::<usize>().unwrap()
    };
    let selector = |terms: usize| vec!["%21a"; terms].join(",");
    for watch in ["", "watch=true&"] {
        let mut used = [0; 2];
        for (terms, used) in [4, 1000].into_iter().zip(&mut used) {
            let before = jobs();
            let path = format!("{CMS}?{watch}labelSelector={}", selector(terms));
            let sent = pool.within(pool.flow("a"), s.raw("GET", &path, &[], "")).await;
            assert_eq!(sent.status().as_u16(), 200);
            *used = jobs() - before;
        }
        assert_eq!(used, [0, 1], "{watch}");
    }
    let path = format!("{CMS}?watch=true&labelSelector={}", selector(10_000));
    let refused = pool.within(pool.flow("a"), s.raw("GET", &path, &[], "")).await;
    assert_eq!(
        refused.status().as_u16(),
        429,
        "a watch costs everybody with each event"
    );
}

#[tokio::test]
async fn lists_support_selectors_and_paging() {
    let s = serve().await;
    for (name, label) in [("a", "1"), ("b", "2"), ("c", "1")] {
        s.config_map(name, label).await;
    }
    let all = s.get(CMS).await;
    assert!(
        all.text
            .starts_with(r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":""#)
    );
    let all = all.json();
    assert_eq!(names(&all), ["a", "b", "c"]);
    assert!(all.get("items").items()[0].get("kind").is_null());
    let some = s.get("/api/v1/configmaps?labelSelector=l%3D1").await.json();
    assert_eq!(names(&some), ["a", "c"]);
    let one = s.get(&format!("{CMS}?fieldSelector=metadata.name%3Db")).await.json();
    assert_eq!(names(&one), ["b"]);

    let page = s.get(&format!("{CMS}?limit=2")).await.json();
    assert_eq!(names(&page), ["a", "b"]);
    assert_eq!(page.at(&["metadata", "remainingItemCount"]).as_i64(), Some(1));
    let token = page.str_at(&["metadata", "continue"]);
    let rest = s.get(&format!("{CMS}?limit=2&continue={token}")).await.json();
    assert_eq!(names(&rest), ["c"]);
    assert_eq!(rest.resource_version(), page.resource_version());
}

#[tokio::test]
async fn invalid_list_options_are_rejected() {
    let s = serve().await;
    let e = s.get(&format!("{CMS}?resourceVersion=abc")).await;
    assert_eq!(e.code, 400);
    assert_eq!(
        e.message(),
        "invalid resource version: resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax"
    );
    let e = s.get(&format!("{CMS}?resourceVersionMatch=Exact")).await;
    assert_eq!(e.code, 422);
    let e = s.get(&format!("{CMS}?fieldSelector=spec.x%3D1")).await;
    assert_eq!(
        (e.code, e.message().as_str()),
        (
            400,
            "\"spec.x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        )
    );
    let e = s.get(&format!("{CMS}?resourceVersion=x&continue=x")).await;
    assert_eq!(e.code, 400);
    assert!(e.message().starts_with("invalid continue token: "));
    let e = s.get(&format!("{CMS}/a?resourceVersion=junk")).await;
    assert_eq!(
        (e.code, e.message().as_str()),
        (
            500,
            "resourceVersion: Invalid value: \"junk\": strconv.ParseUint: parsing \"junk\": invalid syntax"
        )
    );
}

#[tokio::test]
async fn unknown_paths_and_methods_are_distinguished() {
    let s = serve().await;
    for (method, path, code) in [
        ("GET", "/api/v1/nope", 404),
        ("GET", "/api/v1/namespaces/ns/nopes", 404),
        ("GET", "/api/v1/namespaces/ns/configmaps/a/nope", 404),
        ("GET", "/api/v1/namespaces/ns/configmaps/a%2Fb", 404),
        ("GET", "/api/v1/namespaces/ns/namespaces", 404),
        ("GET", "/api/v1/namespaces/ns/configmaps/", 200),
        ("GET", "/api/v1/namespaces//configmaps", 200),
        ("POST", "/api/v1/namespaces/ns/configmaps/a", 405),
        ("PUT", "/api/v1/namespaces/ns/configmaps", 405),
        ("POST", "/api/v1/configmaps", 405),
        ("DELETE", "/api/v1/namespaces", 405),
        ("FROB", "/api/v1/namespaces/ns/configmaps", 405),
        ("POST", "/api/v1", 405),
    ] {
        assert_eq!(s.send(method, path, &[], "").await.code, code, "{method} {path}");
    }
}

#[tokio::test]
async fn tables_and_metadata_are_served_on_request() {
    let s = serve().await;
    s.config_map("a", "1").await;
    let table = s.send("GET", CMS, &[(ACCEPT.as_str(), TABLE)], "").await.json();
    assert_eq!(table.kind(), "Table");
    assert_eq!(table.get("rows").items()[0].get("cells").items()[0].as_str(), Some("a"));
    assert_eq!(
        table.get("rows").items()[0].str_at(&["object", "kind"]),
        "PartialObjectMetadata"
    );
    let bad = s
        .send(
            "GET",
            &format!("{CMS}?includeObject=x"),
            &[(ACCEPT.as_str(), TABLE)],
            "",
        )
        .await;
    assert_eq!(bad.code, 400);
    let partial = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let one = s
        .send("GET", &format!("{CMS}/a"), &[(ACCEPT.as_str(), partial)], "")
        .await
        .json();
    assert_eq!((one.kind(), one.get("data").is_null()), ("PartialObjectMetadata", true));
    let lists = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let none = s
        .send(
            "GET",
            &format!("{CMS}?labelSelector=no"),
            &[(ACCEPT.as_str(), lists)],
            "",
        )
        .await;
    assert!(none.text.contains(r#""items":null"#), "{}", none.text);
    let no_rows = s
        .send(
            "GET",
            &format!("{CMS}?labelSelector=no"),
            &[(ACCEPT.as_str(), TABLE)],
            "",
        )
        .await;
    assert!(no_rows.text.contains(r#""rows":null"#), "{}", no_rows.text);
    let list = s.send("GET", CMS, &[(ACCEPT.as_str(), partial)], "").await;
    assert_eq!(
        list.message(),
        "you requested PartialObjectMetadata, but the requested object is a list (*core.ConfigMapList)"
    );
    let html = s.send("GET", CMS, &[(ACCEPT.as_str(), "text/html")], "").await;
    assert_eq!(html.code, 406);
    assert!(
        html.message()
            .starts_with("406: Not Acceptable\n\nAvailable representations: application/json, ")
    );
}

#[tokio::test]
async fn custom_resources_and_lists_are_distinguished_by_their_items() {
    let s = serve().await;
    const CUSTOMS: &str = "/api/v1/namespaces/ns/customs";
    let body = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#;
    assert_eq!(s.post(CUSTOMS, body).await.code, 201);
    s.config_map("a", "1").await;
    let list = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    for (path, code, message) in [
        (format!("{CUSTOMS}/a"), 500, "content is not a list"),
        (
            format!("{CMS}/a"),
            406,
            "you requested PartialObjectMetadataList, but the requested object is not a list (*core.ConfigMap)",
        ),
    ] {
        let refused = s.send("GET", &path, &[(ACCEPT.as_str(), list)], "").await;
        assert_eq!((refused.code, refused.message()), (code, message.into()), "{path}");
    }
    let one = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    assert_eq!(
        s.send("GET", CUSTOMS, &[(ACCEPT.as_str(), one)], "").await.message(),
        "you requested PartialObjectMetadata, but the requested object is a list (*unstructured.UnstructuredList)"
    );
}

#[tokio::test]
async fn large_lists_are_streamed_in_chunks() {
    let s = serve().await;
    for i in 0..40 {
        let size = if i == 7 { 200_000 } else { 3_000 };
        let body = format!(
            r#"{{"metadata":{{"name":"c{i:02}"}},"data":{{"k":"{}"}}}}"#,
            "x".repeat(size)
        );
        assert_eq!(s.post(CMS, &body).await.code, 201);
    }
    let list = s.get(CMS).await;
    assert!(!list.headers.contains_key(CONTENT_LENGTH));
    let list = list.json();
    assert_eq!(list.get("items").items().len(), 40);
    assert_eq!(list.get("items").items()[7].str_at(&["data", "k"]).len(), 200_000);
    let packed = s.raw("GET", CMS, &[("accept-encoding", "gzip")], "").await;
    assert_eq!(packed.headers()["content-encoding"], "gzip");
}

#[tokio::test]
async fn discovery_lists_the_resources() {
    let s = serve().await;
    let list = s.get("/api/v1").await;
    assert_eq!(list.headers[CONTENT_TYPE], "application/json");
    let list = list.json();
    assert!(list.get("apiVersion").is_null());
    let names: Vec<&str> = list
        .get("resources")
        .items()
        .iter()
        .map(|r| r.str_at(&["name"]))
        .collect();
    assert_eq!(
        names,
        [
            "configmaps",
            "configmaps/scale",
            "customs",
            "customs/scale",
            "namespaces",
            "namespaces/status"
        ]
    );
}

#[tokio::test]
async fn v3_document_contains_all_operations_and_references() {
    let s = serve().await;
    let rows: Vec<_> = s.rows();
    let gv = crate::apimachinery::GroupVersion::new("", "v1");
    let doc =
        crate::endpoints::openapi::v3::tree(|to| crate::endpoints::openapi::v3::write_group_version(&gv, &rows, to));
    let item = doc.at(&["paths", "/api/v1/namespaces/{namespace}/configmaps/{name}"]);
    assert_eq!(item.str_at(&["patch", "operationId"]), "patchCoreV1NamespacedConfigMap");
    let named: Vec<&str> = item
        .at(&["patch", "parameters"])
        .items()
        .iter()
        .map(|p| p.str_at(&["name"]))
        .collect();
    assert_eq!(named, ["dryRun", "fieldManager", "fieldValidation", "force"]);
    let shared: Vec<&str> = item
        .get("parameters")
        .items()
        .iter()
        .map(|p| p.str_at(&["name"]))
        .collect();
    assert_eq!(shared, ["name", "namespace", "pretty"]);
    let schemas = doc.at(&["components", "schemas"]).as_object().unwrap();
    let text = crate::apimachinery::codec::json::to_string(&doc);
    for reference in text.split("\"#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(schemas.contains_key(name), "{name}");
    }
}

#[tokio::test]
async fn v2_document_contains_all_references() {
    let s = serve().await;
    let gv = crate::apimachinery::GroupVersion::new("", "v1");
    let mut text = Vec::new();
    Pieces::write(&mut |piece| text.extend_from_slice(piece), |to| {
        crate::endpoints::openapi::v2::write(&[&(gv, s.rows())], to);
    });
    let doc = crate::apimachinery::codec::json::decode(&text).unwrap();
    assert_eq!(
        doc.at(&["paths", "/version/", "get"]).str_at(&["operationId"]),
        "getCodeVersion"
    );
    let text = crate::apimachinery::codec::json::to_string(&doc);
    for section in ["definitions", "parameters"] {
        for reference in text.split(&format!("\"#/{section}/")).skip(1) {
            let name = reference.split('"').next().unwrap();
            assert!(!doc.at(&[section, name]).is_null(), "{name}");
        }
    }
}

#[tokio::test]
async fn slashes_at_the_end_of_a_path_do_not_count() {
    let s = serve().await;
    s.config_map("a", "1").await;
    for (method, path, code) in [
        ("GET", "//", 200),
        ("GET", "/a//", 200),
        ("PUT", "//", 405),
        ("GET", "//a", 404),
    ] {
        let found = s.send(method, &format!("{CMS}{path}"), &[], "{}").await;
        assert_eq!(found.code, code, "{method} {path}: {}", found.text);
    }
}

#[tokio::test]
async fn media_types_and_bodies_are_checked_before_names() {
    let s = serve().await;
    let path = format!("{CMS}/..");
    let refused = [("accept", "application/json;sv=v2")];
    for method in ["GET", "PUT", "DELETE"] {
        assert_eq!(s.send(method, &path, &refused, "{}").await.code, 406, "{method}");
    }
    let named = s.send("GET", &path, &[], "").await;
    assert_eq!(
        (named.code, named.text.contains("may not be '..'")),
        (400, true),
        "{}",
        named.text
    );
}
