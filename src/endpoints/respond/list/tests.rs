use super::*;
use crate::apimachinery::codec::json;
use crate::endpoints::tests::support;
use crate::storage::{Draft, Revision};

fn entry(v: &Value) -> Arc<Entry> {
    Arc::new(Draft::new(v, vec![]).into_entry("ns/a", Revision(7)))
}

fn spliced_item(v: &Value) -> Value {
    let e = entry(v);
    let api = format!("\"apiVersion\":\"{}\",", v.str_at(&["apiVersion"]));
    let kind = format!("\"kind\":\"{}\",", v.str_at(&["kind"]));
    let [a, b] = left_out(&e.json(), e.version_span.0 as usize, kind.as_bytes(), api.as_bytes()).unwrap();
    let text = [&e.json()[..a.start], &e.json()[a.end..b.start], &e.json()[b.end..]].concat();
    json::decode(&text).unwrap()
}

#[test]
fn kind_and_api_version_are_removed_at_any_position() {
    for v in [
        crate::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"kind": "x"}}),
        // One member sorts before apiVersion, and one between kind and metadata.
        crate::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"},
            "addressType": "\"kind\":\"ConfigMap\",", "involved": {"kind": "ConfigMap", "z": 1}, "lastTimestamp": "x"}),
    ] {
        let mut want = v.clone();
        want.set(&["metadata", "resourceVersion"], "7");
        want.unset(&["kind"]);
        want.unset(&["apiVersion"]);
        assert_eq!(spliced_item(&v), want);
    }
}

/// The frames of a body, as they are handed to the transport.
fn frames<W: Write>(mut body: ListBody<W>) -> Vec<Bytes> {
    let mut frames = Vec::new();
    let cx = &mut Context::from_waker(std::task::Waker::noop());
    while let Poll::Ready(Some(Ok(frame))) = http_body::Body::poll_frame(Pin::new(&mut body), cx) {
        frames.extend(frame.into_data());
    }
    frames
}

#[test]
fn large_objects_are_sent_from_the_cache_without_copies() {
    let strategy = Arc::new(support::Namespaces);
    let resource = Arc::new(support::row("configmaps", "ConfigMap", "configmap", true, strategy));
    let object = |name: &str, size| {
        entry(
            &crate::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": ("x".repeat(size))}}),
        )
    };
    let entries = vec![object("small", 10), object("large", 300_000), object("last", 20)];
    let table = |shared: usize| {
        let resource = resource.clone();
        let write = move |entry: &Entry, out: &mut Vec<u8>, pieces: &mut VecDeque<Bytes>| {
            let rows = Rows {
                resource: &resource,
                version: "v1",
                include: table::Include::Object,
            };
            rows.write_sharing(entry, out, pieces, shared);
        };
        frames(ListBody::new("{\"rows\":[", entries.clone(), write, b"]}"))
    };
    let (shared, copied) = (table(SHARED), table(usize::MAX));
    assert_eq!(shared.concat(), copied.concat());
    let own = shared.iter().filter(|frame| frame.is_unique()).map(Bytes::len).max();
    assert!(own < Some(10_000), "no frame holds a copy of the large object");
}
