//! Unit tests of the codec; `tests/codecs.rs` round-trips every kind.

use super::*;
use crate::{by_gvk, types};
use torana_apimachinery::codec::protobuf;
use torana_apimachinery::json;
use torana_apimachinery::value::Map;

fn message(def: &'static TypeDef, object: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    encode_message(def, object, &mut out);
    out
}

#[test]
fn a_config_map_encodes_to_upstreams_bytes() {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "d", "creationTimestamp": "1970-01-01T00:00:07Z"},
        "data": {"k": "v"}, "binaryData": {"b": "/w=="},
    });
    let want = b"k8s\0\n\x0f\n\x02v1\x12\x09ConfigMap\x12\x28\
        \n\x16\n\x01a\x12\0\x1a\x01d\x22\0\x2a\0\x32\0\x38\0\x42\x04\x08\x07\x10\0\
        \x12\x06\n\x01k\x12\x01v\x1a\x06\n\x01b\x12\x01\xff\x1a\0\x22\0";
    let got = encode(&object).unwrap();
    let unknown = protobuf::open(&got).unwrap();
    let def = definition(&unknown.api_version, &unknown.kind).unwrap();
    let again = decode(def, &unknown.api_version, &unknown.kind, unknown.raw).unwrap();
    assert_eq!(again, object);
    assert_eq!(got, want);
}

#[test]
fn non_pointer_fields_of_a_service_port_are_always_written() {
    let def = by_gvk("", "v1", "Service").unwrap();
    let mut bytes = Vec::new();
    let spec = json!({"spec": {"ports": [{"port": 80, "targetPort": "http"}], "clusterIP": "None"}});
    encode_message(def, &spec, &mut bytes);
    let metadata = b"\n\x10\n\0\x12\0\x1a\0\x22\0\x2a\0\x32\0\x38\0\x42\0";
    assert_eq!(bytes[..metadata.len()], metadata[..]);
    let port = b"\n\x14\n\0\x12\0\x18\x50\x22\x0a\x08\x01\x10\0\x1a\x04http\x28\0";
    assert!(bytes.windows(port.len()).any(|w| w == port), "{bytes:x?}");
    // status: { loadBalancer: {} }
    assert!(bytes.ends_with(b"\x1a\x02\n\0"), "{bytes:x?}");
}

#[test]
fn inlined_structs_are_nested_messages() {
    let def = crate::by_name("io.k8s.api.core.v1.Volume").unwrap();
    let volume = json!({"name": "v", "configMap": {"name": "c"}});
    let bytes = message(def, &volume);
    // volumeSource{configMap{localObjectReference{name}}}
    assert_eq!(bytes, b"\n\x01v\x12\x08\x9a\x01\x05\n\x03\n\x01c");
    assert_eq!(decode_message(def, &bytes).unwrap(), volume);
    assert_eq!(message(def, &json!({"name": "v"})), b"\n\x01v\x12\0");
}

#[test]
fn unknown_fields_are_skipped_and_wrong_wire_types_rejected() {
    let def = by_gvk("", "v1", "ConfigMap").unwrap();
    assert_eq!(decode_message(def, b"\xfa\x07\x01x").unwrap(), json!({}));
    assert_eq!(
        decode_message(def, b"\x08\x01").unwrap_err().0,
        "proto: wrong wireType = 0 for field metadata"
    );
}

#[test]
fn overly_deep_schemas_are_rejected() {
    let def = crate::by_name(SCHEMA).unwrap();
    let not = def.field("not").unwrap().tag;
    let mut bytes = Vec::new();
    for _ in 0..300 {
        let mut outer = Vec::new();
        protobuf::put_bytes(&mut outer, not, &bytes);
        bytes = outer;
    }
    assert_eq!(decode_message(def, &bytes).unwrap_err().0, "exceeded max depth");
}

#[test]
fn fields_are_ordered_by_number() {
    for def in types() {
        let places = order::fields_by_number(def);
        assert_eq!(places.len(), def.fields.len(), "{}", def.name);
        let numbers = places.iter().map(|p| order::number(&def.fields[usize::from(*p)], 0).0);
        assert!(numbers.is_sorted(), "{}", def.name);
    }
}

#[test]
fn schemas_at_the_json_depth_limit_are_encoded() {
    let written = std::thread::Builder::new().stack_size(8 << 20).spawn(|| {
        let schema = (0..999).fold(Value::object(), |inner, _| {
            let mut outer = Map::new();
            outer.insert("not", inner);
            Value::Object(outer)
        });
        message(crate::by_name(SCHEMA).unwrap(), &schema).len()
    });
    assert!(written.unwrap().join().unwrap() > 999);
}
