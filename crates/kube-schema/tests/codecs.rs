//! Round trips of every built-in kind through every codec: decoding restores the object, and encoding it
//! again yields the same bytes.

#[path = "support/generator.rs"]
mod generator;

use generator::Generator;
use proptest::prelude::*;
use torana_apimachinery::codec::{cbor, json, yaml};
use torana_apimachinery::value::Value;
use torana_kube_schema::decode::normalize;
use torana_kube_schema::protobuf::{decode_message, encode_message};
use torana_kube_schema::{Field, TypeDef, by_gvk, types};

fn normal(def: &'static TypeDef, mut v: Value) -> Value {
    let findings = normalize(def, &mut v).unwrap_or_else(|e| panic!("{}: {e}", def.name));
    assert_eq!(findings, [""; 0], "{}", def.name);
    v
}

fn message(def: &'static TypeDef, object: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    encode_message(def, object, &mut out);
    out
}

/// In protobuf, `apiVersion` and `kind` are in the envelope, not in the message.
fn in_envelope(_: &TypeDef, f: &Field) -> bool {
    f.tag == 0
}

fn everything(_: &TypeDef, _: &Field) -> bool {
    false
}

/// JSON, YAML and CBOR encode trees, so decoding must restore the same tree, except that JSON turns whole
/// floats into integers.
fn survives_as_a_tree(def: &'static TypeDef, object: &Value) {
    let text = json::to_vec(object);
    let again = json::decode(&text).expect("what we write, we read");
    assert_eq!(&again, object, "{} in JSON", def.name);
    assert_eq!(json::to_vec(&again), text, "{} in JSON", def.name);
    for text in [
        torana_kube_schema::json::to_vec(object),
        torana_kube_schema::json::to_vec_pretty(object),
    ] {
        let again = json::decode(&text).expect("what we write, we read");
        assert_eq!(&again, object, "{} in JSON in the order of the struct", def.name);
    }
    let pretty = json::decode(&json::to_vec_pretty(object)).expect("what we write, we read");
    assert_eq!(&pretty, object, "{} in indented JSON", def.name);
    let text = yaml::to_string(object);
    let again = yaml::decode(text.as_bytes()).unwrap_or_else(|e| panic!("{}: {e}\n{text}", def.name));
    assert_eq!(&again, object, "{} in YAML", def.name);
    let bytes = cbor::to_vec(object);
    let again = cbor::decode(&bytes).expect("what we write, we read");
    assert_eq!(&again, object, "{} in CBOR", def.name);
    assert_eq!(cbor::to_vec(&again), bytes, "{} in CBOR", def.name);
}

fn survives_as_a_message(def: &'static TypeDef, object: &Value) {
    let bytes = message(def, object);
    let again = decode_message(def, &bytes).unwrap_or_else(|e| panic!("{}: {e}", def.name));
    assert_eq!(message(def, &again), bytes, "{} in protobuf", def.name);
    assert_eq!(&normal(def, again), object, "{} in protobuf", def.name);
}

fn kinds() -> impl Iterator<Item = &'static TypeDef> {
    types().iter().filter(|t| !t.gvks.is_empty())
}

#[test]
fn objects_with_every_field_survive_every_codec() {
    for def in kinds() {
        let object = Generator::full(1, everything).object(def);
        assert_eq!(normal(def, object.clone()), object, "{} is normal", def.name);
        survives_as_a_tree(def, &object);
        survives_as_a_message(def, &Generator::full(2, in_envelope).object(def));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn every_kind_survives_json_yaml_and_cbor(seed: u64) {
        for def in kinds() {
            survives_as_a_tree(def, &normal(def, Generator::some(seed, everything).object(def)));
        }
    }

    #[test]
    fn every_message_survives_protobuf(seed: u64) {
        for def in types().iter().filter(|t| t.fields.iter().any(|f| f.tag != 0)) {
            survives_as_a_message(def, &normal(def, Generator::some(seed, in_envelope).object(def)));
        }
    }
}

proptest! {
    #[test]
    fn a_truncated_or_corrupted_message_decodes_or_is_refused(seed: u64, at: prop::sample::Index, byte: u8) {
        let def = by_gvk("apps", "v1", "Deployment").expect("the table has it");
        let mut bytes = message(def, &Generator::some(seed, in_envelope).object(def));
        let at = at.index(bytes.len());
        let _ = decode_message(def, &bytes[..at]);
        bytes[at] = byte;
        if let Ok(mut v) = decode_message(def, &bytes) {
            let _ = normalize(def, &mut v);
        }
    }
}
