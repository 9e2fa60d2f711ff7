//! CBOR behind its feature gate: bodies, responses, lists, watches, applies and errors.

use super::support::{Served, serve};
use crate::apimachinery::codec::cbor;
use crate::apimachinery::value::Value;
use crate::json;
use crate::request::Response;
use http_body_util::BodyExt;

const CBOR: &str = "application/cbor";
const MAPS: &str = "/api/v1/namespaces/ns/configmaps";

async fn read(response: Response) -> (u16, String, Value) {
    let (head, body) = response.into_parts();
    let bytes = body.collect(1 << 20).await.expect("a whole body");
    let media = head.headers["content-type"].to_str().expect("text").to_owned();
    (head.status.as_u16(), media, cbor::decode(&bytes).expect("CBOR"))
}

async fn ask(s: &Served, method: &str, path: &str, media: &str, body: &Value) -> (u16, String, Value) {
    let headers = [("accept", CBOR), ("content-type", media)];
    let body = if body.is_null() { Vec::new() } else { cbor::to_vec(body) };
    read(s.raw(method, path, &headers, body).await).await
}

#[tokio::test]
async fn enabled_gate_serves_cbor_everywhere() {
    let s = serve().await.with_cbor();
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    let (code, media, made) = ask(&s, "POST", MAPS, CBOR, &object).await;
    assert_eq!((code, &*media, made.str_at(&["data", "k"])), (201, CBOR, "v"));
    let patch = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"l": "w"}});
    let path = format!("{MAPS}/a?fieldManager=m&force=true");
    let (code, _, applied) = ask(&s, "PATCH", &path, "application/apply-patch+cbor", &patch).await;
    assert_eq!((code, applied.str_at(&["data", "l"])), (200, "w"), "{applied:?}");
    let (_, media, list) = ask(&s, "GET", MAPS, "", &Value::Null).await;
    assert_eq!((&*media, list.get("items").items().len()), (CBOR, 1));
    let (code, media, missing) = ask(&s, "GET", &format!("{MAPS}/b"), "", &Value::Null).await;
    assert_eq!((code, &*media, missing.str_at(&["reason"])), (404, CBOR, "NotFound"));
    let watch = format!("{MAPS}?watch=1&resourceVersion=0");
    let mut stream = s.raw("GET", &watch, &[("accept", CBOR)], "").await;
    assert_eq!(stream.headers()["content-type"], cbor::STREAM_TYPE);
    let frame = stream.body_mut().frame().await.expect("an event");
    let event = cbor::decode(&frame.expect("sent").into_data().expect("data")).expect("one item");
    assert_eq!(
        (event.str_at(&["type"]), event.str_at(&["object", "data", "k"])),
        ("ADDED", "v")
    );
    let headers = [("content-type", CBOR), ("accept", CBOR)];
    let (code, _, broken) = read(s.raw("POST", MAPS, &headers, &b"\xa1"[..]).await).await;
    assert_eq!((code, broken.str_at(&["reason"])), (400, "BadRequest"));
}

#[tokio::test]
async fn disabled_gate_rejects_cbor() {
    let s = serve().await;
    let refused = s.send("GET", MAPS, &[("accept", CBOR)], "").await;
    assert_eq!(refused.code, 406);
    assert!(!refused.text.contains("cbor"), "{}", refused.text);
    let refused = s.send("POST", MAPS, &[("content-type", CBOR)], "").await;
    assert_eq!(refused.code, 415);
    assert!(
        !refused.text.contains("application/yaml, application/cbor"),
        "{}",
        refused.text
    );
    let apply = s
        .patch(&format!("{MAPS}/a?fieldManager=m"), "apply-patch+cbor", "")
        .await;
    assert_eq!(apply.code, 415);
}
