use super::*;
use crate::storage::{Draft, Revision};

fn entry(v: &Value) -> Arc<Entry> {
    Arc::new(Draft::new(v, vec![]).into_entry("ns/a", Revision(7)))
}

fn spliced_item(v: &Value) -> Value {
    let e = entry(v);
    let api = format!("\"apiVersion\":\"{}\",", v.str_at(&["apiVersion"]));
    let kind = format!("\"kind\":\"{}\",", v.str_at(&["kind"]));
    let [a, b] = left_out(&e.json, e.version_span.0 as usize, api.as_bytes(), kind.as_bytes()).unwrap();
    let text = [&e.json[..a.start], &e.json[a.end..b.start], &e.json[b.end..]].concat();
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
