//! Encodings other than JSON are cached and shared by all verbs, and lists of any representation are sent in
//! chunks.

use super::support::{Served, serve};
use crate::apimachinery::codec::{cbor, json, yaml};
use crate::apimachinery::value::Value;
use http_body_util::BodyExt as _;

const CMS: &str = "/api/v1/namespaces/ns/configmaps";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const STREAM: &str = "application/vnd.kubernetes.protobuf;stream=watch";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

async fn read(s: &Served, path: &str, accept: &str) -> Vec<u8> {
    let r = s.raw("GET", path, &[("accept", accept)], "").await;
    assert_eq!(r.status().as_u16(), 200, "{path} as {accept}");
    r.into_body().collect(64 << 20).await.unwrap().to_vec()
}

#[tokio::test]
async fn get_list_and_watch_share_one_encoding() {
    let s = serve().await;
    s.config_map("a", "1").await;
    let before = s.budget().stats();
    let one = read(&s, &format!("{CMS}/a"), PROTOBUF).await;
    let list = read(&s, CMS, PROTOBUF).await;
    let path = format!("{CMS}?watch=true&resourceVersion=0");
    let mut watch = s.raw("GET", &path, &[("accept", STREAM)], "").await;
    let frame = watch.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
    let now = s.budget().stats();
    assert_eq!(now.computed - before.computed, 1, "the GET encodes once");
    assert_eq!(now.reused - before.reused, 2, "list and watch reuse the encoding");
    // All three contain the same message.
    let message = crate::apimachinery::codec::protobuf::open(&one).unwrap().raw.to_vec();
    for bytes in [&list[..], &frame[..]] {
        assert!(bytes.windows(message.len()).any(|w| w == message));
    }
}

#[tokio::test]
async fn watchers_share_one_frame_per_representation() {
    let s = serve().await;
    let rv = s
        .config_map("a", "1")
        .await
        .json()
        .str_at(&["metadata", "resourceVersion"])
        .to_owned();
    let path = format!("{CMS}?watch=true&resourceVersion={rv}");
    for accept in ["application/json", STREAM, METADATA] {
        let mut watches = Vec::new();
        for _ in 0..3 {
            watches.push(s.raw("GET", &path, &[("accept", accept)], "").await);
        }
        let before = s.budget().stats().computed;
        s.config_map(&format!("b{}", accept.len()), "1").await;
        let mut frames = Vec::new();
        for mut w in watches {
            // The first event may be an earlier one, whose frame is already cached; the last one is new.
            let name = format!("b{}", accept.len());
            loop {
                let data = w.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
                if data.windows(name.len()).any(|w| w == name.as_bytes()) {
                    frames.push(data);
                    break;
                }
            }
        }
        // A frame may contain earlier events in front of the new one.
        let new = frames.iter().min_by_key(|f| f.len()).unwrap();
        assert!(frames.iter().all(|f| f.ends_with(new)), "{frames:?}");
        // Each event is encoded at most once in this representation, not once per watcher.
        let made = s.budget().stats().computed - before;
        assert!(made <= 2 * 3, "{made} encodings of at most three events, as {accept}");
    }
}

/// The list encoded as a whole.
fn expected(s: &Value, media: &str) -> Vec<u8> {
    match media {
        "application/yaml" => yaml::to_vec(s),
        "pretty" => crate::api::json::to_vec_pretty(s),
        _ => crate::api::json::to_vec(s),
    }
}

#[tokio::test]
async fn chunked_lists_equal_lists_encoded_at_once() {
    let s = serve().await;
    let text = "line one\\nline \\\"two\\\"\\n\\n  and: [three]\\n".repeat(300);
    // Broken into lines, at columns that include the nesting.
    let words = vec!["a"; 200].join(" ");
    for n in [0usize, 1, 40] {
        for i in 0..n {
            let body =
                format!(r#"{{"metadata":{{"name":"big-{i}"}},"data":{{"k":"{text}","l":"{i}","m":"{words}"}}}}"#);
            s.post(CMS, &body).await;
        }
        let all = json::decode(&read(&s, CMS, "application/json").await).unwrap();
        assert_eq!(all.get("items").items().len(), n);
        let pretty = read(&s, &format!("{CMS}?pretty=true"), "application/json").await;
        assert!(pretty == expected(&all, "pretty"), "{n} objects, indented");
        let as_yaml = read(&s, CMS, "application/yaml").await;
        assert!(as_yaml == expected(&all, "application/yaml"), "{n} objects in YAML");
    }
}

#[tokio::test]
async fn large_tables_and_metadata_lists_are_chunked() {
    let s = serve().await;
    for i in 0..600 {
        let body = format!(
            r#"{{"metadata":{{"name":"m-{i:03}","annotations":{{"a":"{}"}}}}}}"#,
            "x".repeat(600)
        );
        s.post(CMS, &body).await;
    }
    let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
    let list = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let messages = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    for accept in [table, list, messages, PROTOBUF, "application/yaml", "application/json"] {
        let r = s.raw("GET", CMS, &[("accept", accept)], "").await;
        let mut body = r.into_body();
        let (mut frames, mut whole) = (0, Vec::new());
        while let Some(frame) = body.frame().await {
            let data = frame.unwrap().into_data().unwrap();
            assert!(data.len() <= 80 * 1024, "{} bytes at once, as {accept}", data.len());
            frames += 1;
            whole.extend_from_slice(&data);
        }
        assert!(frames >= 5, "{frames} chunks as {accept}");
        let names = whole.windows(2).filter(|w| w == b"m-").count();
        assert!(names >= 600, "{names} names as {accept}");
        if accept == table {
            let table = json::decode(&whole).unwrap();
            assert_eq!(table.get("rows").items().len(), 600);
            assert_eq!(table.str_at(&["kind"]), "Table");
        }
    }
}

#[test]
fn cbor_arrays_start_with_their_length() {
    let items: Vec<Value> = (0..300i64).map(Value::from).collect();
    let mut pieces = Vec::new();
    cbor::append_array_head(items.len(), &mut pieces);
    items.iter().for_each(|v| cbor::append(v, &mut pieces));
    let mut whole = Vec::new();
    cbor::append(&Value::Array(items), &mut whole);
    assert_eq!(pieces, whole);
}
