//! The members of served JSON are in the order of Go's structs. The recordings (`tests/wire`) compare trees.

use super::support::{Served, serve};
use crate::apimachinery::codec::json;

const CMS: &str = "/api/v1/namespaces/ns/configmaps";

async fn read(s: &Served, path: &str, accept: &str) -> String {
    let r = s.raw("GET", path, &[("accept", accept)], "").await;
    let body = r.into_body().collect(1 << 20).await.unwrap();
    String::from_utf8(body.to_vec()).unwrap()
}

#[tokio::test]
async fn objects_lists_rows_and_metadata_begin_with_kind_and_name() {
    let s = serve().await;
    let sent = r#"{"data":{"b":"2","a":"1"},"metadata":{"labels":{"b":"2","a":"1"},"name":"ordered"},"kind":"ConfigMap","apiVersion":"v1"}"#;
    s.post(CMS, sent).await;
    let head = r#""metadata":{"name":"ordered","namespace":"ns","uid":""#;
    let object = read(&s, &format!("{CMS}/ordered"), "application/json").await;
    let start = format!(r#"{{"kind":"ConfigMap","apiVersion":"v1",{head}"#);
    assert!(object.starts_with(&start), "{object}");
    assert!(
        object.trim_end().ends_with(r#"},"data":{"a":"1","b":"2"}}"#),
        "{object}"
    );
    let at = |member: &str| object.find(&format!("\"{member}\":")).expect(member);
    let members = ["uid", "resourceVersion", "creationTimestamp", "labels"];
    assert!(members.is_sorted_by_key(|m| at(m)), "{object}");

    let list = read(&s, CMS, "application/json").await;
    let start = r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":""#;
    assert!(list.starts_with(start), "{list}");
    assert!(list.contains(&format!(r#""items":[{{{head}"#)), "{list}");
    let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let partial = read(&s, CMS, accept).await;
    let item = format!(r#""items":[{{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",{head}"#);
    assert!(partial.contains(&item), "{partial}");
    let table = read(&s, CMS, "application/json;as=Table;g=meta.k8s.io;v=v1").await;
    let start = r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":""#;
    assert!(table.starts_with(start), "{table}");
    assert!(
        table.contains(r#""columnDefinitions":[{"name":"Name","type":"string","format":"name","description":"#),
        "{table}"
    );

    let pretty = read(&s, &format!("{CMS}/ordered?pretty=true"), "application/json").await;
    assert_eq!(json::decode(pretty.as_bytes()), json::decode(object.as_bytes()));
    let start =
        "{\n  \"kind\": \"ConfigMap\",\n  \"apiVersion\": \"v1\",\n  \"metadata\": {\n    \"name\": \"ordered\",\n";
    assert!(pretty.starts_with(start), "{pretty}");
}

#[tokio::test]
async fn errors_are_written_as_go_writes_a_status() {
    let s = serve().await;
    let missing = read(&s, &format!("{CMS}/missing"), "application/json").await;
    assert_eq!(
        missing.trim_end(),
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"configmaps \"missing\" not found","reason":"NotFound","details":{"name":"missing","kind":"configmaps"},"code":404}"#
    );
}
