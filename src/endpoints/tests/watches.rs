use super::support::{Served, serve};
use crate::apimachinery::codec::json;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::Value;
use crate::request::Response;
use crate::tasks::compute::{ComputePool, Config};
use crate::telemetry::Telemetry;
use http_body_util::BodyExt as _;

const CMS: &str = "/api/v1/namespaces/ns/configmaps";

struct Reader(Response, Vec<u8>);

impl Reader {
    async fn open(s: &Served, query: &str, accept: &str) -> Self {
        let path = format!("{CMS}?watch=true&{query}");
        let r = s.raw("GET", &path, &[("accept", accept)], "").await;
        assert_eq!(r.status().as_u16(), 200);
        Self(r, Vec::new())
    }

    /// The next event; `None` at the end of the stream.
    async fn event(&mut self) -> Option<Value> {
        loop {
            if let Some(at) = self.1.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.1.drain(..=at).collect();
                return Some(json::decode(&line).unwrap());
            }
            let frame = self.0.body_mut().frame().await?.unwrap();
            self.1.extend_from_slice(frame.data_ref().unwrap());
        }
    }

    async fn summary(&mut self) -> String {
        let e = self.event().await.unwrap();
        format!("{} {}", e.str_at(&["type"]), e.get("object").name())
    }
}

#[tokio::test]
async fn watches_translate_changes_for_their_selector() {
    let s = serve().await;
    let made = s.config_map("a", "1").await.json();
    let rv = made.resource_version();
    let mut all = Reader::open(&s, &format!("resourceVersion={rv}"), "").await;
    let mut some = Reader::open(&s, &format!("resourceVersion={rv}&labelSelector=l%3D1"), "").await;
    s.config_map("b", "1").await;
    let body = r#"{"metadata":{"labels":{"l":"2"}}}"#;
    s.patch(&format!("{CMS}/b"), "merge-patch+json", body).await;
    s.delete(&format!("{CMS}/a"), "").await;
    for want in ["ADDED b", "MODIFIED b", "DELETED a"] {
        assert_eq!(all.summary().await, want);
    }
    for want in ["ADDED b", "DELETED b", "DELETED a"] {
        assert_eq!(some.summary().await, want);
    }
}

#[tokio::test]
async fn initial_events_end_with_a_marked_bookmark() {
    let s = serve().await;
    s.config_map("a", "1").await;
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut w = Reader::open(&s, query, "").await;
    assert_eq!(w.summary().await, "ADDED a");
    let mark = w.event().await.unwrap();
    assert_eq!(mark.str_at(&["type"]), "BOOKMARK");
    assert_eq!(mark.get("object").annotation("k8s.io/initial-events-end"), Some("true"));
    assert_eq!(mark.get("object").kind(), "ConfigMap");
}

#[tokio::test]
async fn tables_send_their_columns_once() {
    let s = serve().await;
    s.config_map("a", "1").await;
    s.config_map("b", "1").await;
    let mut w = Reader::open(&s, "", "application/json;as=Table;v=v1;g=meta.k8s.io").await;
    let first = w.event().await.unwrap();
    assert_eq!(first.at(&["object", "columnDefinitions"]).items().len(), 2);
    assert!(w.event().await.unwrap().at(&["object", "columnDefinitions"]).is_null());
}

#[tokio::test]
async fn a_watch_of_metadata_lists_ends_at_the_first_event() {
    let s = serve().await;
    let accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let mut w = Reader::open(&s, "", accept).await;
    s.config_map("a", "1").await;
    assert_eq!(w.event().await, None);
}

#[tokio::test]
async fn watches_time_out_and_yaml_is_rejected() {
    let s = serve().await;
    let mut w = Reader::open(&s, "timeoutSeconds=1", "").await;
    assert_eq!(w.event().await, None);
    let path = format!("{CMS}?watch=true");
    let yaml = s.send("GET", &path, &[("accept", "application/yaml")], "").await;
    assert_eq!(yaml.code, 406);
}

#[tokio::test]
async fn future_revisions_yield_an_error_event() {
    let s = serve().await;
    tokio::time::pause();
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=99999999";
    let mut w = Reader::open(&s, query, "").await;
    let refusal = w.event().await.unwrap();
    assert_eq!(refusal.str_at(&["type"]), "ERROR");
    assert_eq!(refusal.get("object").get("code").as_i64(), Some(504));
    assert_eq!(w.event().await, None);
}

#[tokio::test]
async fn deprecated_watch_paths_select_by_name() {
    let s = serve().await;
    let rv = s.config_map("a", "1").await.json().resource_version().to_owned();
    s.config_map("b", "1").await;
    s.delete(&format!("{CMS}/a"), "").await;
    let path = format!("/api/v1/watch/namespaces/ns/configmaps/a?resourceVersion={rv}");
    let r = s.raw("GET", &path, &[], "").await;
    assert_eq!(Reader(r, Vec::new()).summary().await, "DELETED a");
}

#[tokio::test]
async fn invalid_watch_options_precede_stream_negotiation() {
    let s = serve().await;
    let ask = async |query: &str, accept: &str| {
        let path = format!("{CMS}?watch=true&{query}");
        let answer = s.send("GET", &path, &[("accept", accept)], "").await;
        // YAML breaks long lines.
        (answer.code, answer.text.replace("\n  ", " "))
    };
    assert_eq!(ask("labelSelector=a%3D%3D%3D", "application/yaml").await.0, 400);
    let (code, message) = ask("", "application/yaml").await;
    assert_eq!(code, 406);
    assert!(message.contains("application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"));
    let (code, message) = ask("", "application/json;as=Nope;g=meta.k8s.io;v=v1").await;
    assert_eq!(code, 406);
    assert!(message.contains("accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf"));
}

#[tokio::test]
async fn large_watch_objects_are_encoded_on_the_compute_pool() {
    let s = serve().await;
    let telemetry = Telemetry::new();
    let pool = ComputePool::start(Config::default(), telemetry.compute.clone()).unwrap();
    let jobs = || {
        let text = String::from_utf8(telemetry.text()).unwrap();
        text.contains("\ntorana_compute_jobs_total 1\n")
    };
    let table = [(
        "accept",
        "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    )];
    let large = crate::json!({"metadata": {"name": "large"}, "data": {"a": "x".repeat(64 << 10)}});
    for (name, object) in [
        ("small", crate::json!({"metadata": {"name": "small"}})),
        ("large", large),
    ] {
        let created = s.raw("POST", CMS, &[], json::to_string(&object)).await;
        assert_eq!(created.status().as_u16(), 201);
        let path = format!("{CMS}?watch=true&fieldSelector=metadata.name%3D{name}");
        let opened = pool.within(pool.flow("a"), s.raw("GET", &path, &table, "")).await;
        let mut reader = Reader(opened, Vec::new());
        let event = reader.event().await.unwrap();
        let row = &event.at(&["object", "rows"]).items()[0];
        assert_eq!(row.at(&["object", "metadata", "name"]).as_str(), Some(name));
        assert_eq!(jobs(), name == "large", "{name}");
    }
}

#[tokio::test]
async fn long_selectors_are_charged_to_the_caller() {
    let s = serve().await;
    let telemetry = Telemetry::new();
    let pool = ComputePool::start(Config::default(), telemetry.compute.clone()).unwrap();
    let counted = || {
        let text = String::from_utf8(telemetry.text()).unwrap();
        !text.contains("\ntorana_request_body_bytes 0\n")
    };
    for (terms, counts) in [(10, false), (1000, true)] {
        let terms: Vec<_> = (0..terms).map(|i| format!("a{i}%21%3Db")).collect();
        let path = format!("{CMS}?watch=true&labelSelector={}", terms.join("%2C"));
        let watch = pool.within(pool.flow("a"), s.raw("GET", &path, &[], "")).await;
        assert_eq!((watch.status().as_u16(), counted()), (200, counts));
        drop(watch);
        assert!(!counted(), "the memory is released with the watch");
    }
}
