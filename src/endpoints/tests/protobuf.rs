use super::support::{Served, serve};
use crate::api::protobuf::{decode, definition, encode};
use crate::apimachinery::codec::protobuf::{self, Payload, Reader};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::Value;
use http_body_util::BodyExt as _;

const CMS: &str = "/api/v1/namespaces/ns/configmaps";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

fn open(bytes: &[u8]) -> Value {
    let unknown = protobuf::open(bytes).unwrap();
    let def = definition(&unknown.api_version, &unknown.kind).unwrap();
    decode(def, &unknown.api_version, &unknown.kind, unknown.raw).unwrap()
}

async fn get(s: &Served, path: &str, accept: &str) -> Value {
    let response = s.raw("GET", path, &[("accept", accept)], "").await;
    assert_eq!(response.headers()["content-type"], PROTOBUF);
    open(&response.into_body().collect(64 << 20).await.unwrap())
}

#[tokio::test]
async fn protobuf_bodies_are_stored_like_json() {
    let s = serve().await;
    let object = crate::json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"l": "1"}}, "data": {"k": "v"}
    });
    let body = String::from_utf8(encode(&object).unwrap()).unwrap();
    let made = s.send("POST", CMS, &[("content-type", PROTOBUF)], &body).await;
    assert_eq!(made.code, 201, "{}", made.text);
    assert_eq!(made.json().get("data"), object.get("data"));
    assert_eq!(get(&s, &format!("{CMS}/a"), PROTOBUF).await, made.json());

    let body = String::from_utf8(encode(&crate::json!({"apiVersion": "v1", "kind": "Secret"})).unwrap()).unwrap();
    let refused = s.send("POST", CMS, &[("content-type", PROTOBUF)], &body).await;
    assert_eq!(refused.code, 400);
    assert!(
        refused
            .message()
            .starts_with("Secret in version \"v1\" cannot be handled as a ConfigMap")
    );
}

#[tokio::test]
async fn lists_of_any_size_are_complete() {
    let s = serve().await;
    s.config_map("small", "1").await;
    let one = get(&s, CMS, PROTOBUF).await;
    assert_eq!(one.get("items").items().len(), 1);
    let big = "x".repeat(90_000);
    for i in 0..5 {
        let body = format!(r#"{{"metadata":{{"name":"big-{i}"}},"data":{{"k":"{big}"}}}}"#);
        s.post(CMS, &body).await;
    }
    let all = get(&s, CMS, PROTOBUF).await;
    let json = s.get(CMS).await.json();
    assert_eq!(all.get("items"), json.get("items"));
    assert_eq!(all.resource_version(), json.resource_version());
    assert_eq!(all.str_at(&["kind"]), "ConfigMapList");

    let partial = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let partial = get(&s, CMS, partial).await;
    assert_eq!(partial.str_at(&["kind"]), "PartialObjectMetadataList");
    assert_eq!(partial.get("items").items().len(), 6);

    // The v1beta1 list has the field numbers of its members swapped.
    let older = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1beta1";
    let response = s.raw("GET", CMS, &[("accept", older)], "").await;
    let whole = response.into_body().collect(1 << 20).await.unwrap();
    let mut message = Reader::new(protobuf::open(&whole).unwrap().raw);
    let mut numbers = Vec::new();
    while let Some((number, _)) = message.next().unwrap() {
        numbers.push(number);
    }
    assert_eq!(numbers, [2, 1, 1, 1, 1, 1, 1]);
}

#[tokio::test]
async fn watch_events_are_length_prefixed_frames() {
    let s = serve().await;
    let made = s.config_map("a", "1").await.json();
    let path = format!("{CMS}?watch=true&resourceVersion={}", made.resource_version());
    let mut watch = s.raw("GET", &path, &[("accept", PROTOBUF)], "").await;
    assert_eq!(watch.headers()["content-type"], protobuf::STREAM_TYPE);
    s.config_map("b", "1").await;
    let frame = watch.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
    let (length, event) = frame.split_first_chunk::<4>().unwrap();
    assert_eq!(u32::from_be_bytes(*length) as usize, event.len());
    let mut event = Reader::new(event);
    assert_eq!(event.next(), Ok(Some((1, Payload::Bytes(b"ADDED")))));
    let Ok(Some((2, Payload::Bytes(object)))) = event.next() else {
        panic!("no object")
    };
    let Ok(Some((1, Payload::Bytes(raw)))) = Reader::new(object).next() else {
        panic!("no raw object")
    };
    assert_eq!(open(raw).name(), "b");
}

#[tokio::test]
async fn errors_are_encoded_in_protobuf() {
    let s = serve().await;
    let response = s.raw("GET", &format!("{CMS}/none"), &[("accept", PROTOBUF)], "").await;
    assert_eq!(response.status().as_u16(), 404);
    let status = open(&response.into_body().collect(1 << 20).await.unwrap());
    assert_eq!(status.str_at(&["reason"]), "NotFound");
    assert_eq!(status.str_at(&["details", "name"]), "none");
}
